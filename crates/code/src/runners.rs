//! Which interpreter runs the code.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use bub_kernel::{code::CodeRunner, environment::Environment, error::ToolError};

/// What was chosen for an environment.
#[derive(Clone)]
pub struct Chosen {
    /// Runs the code.
    pub runner: Arc<dyn CodeRunner>,
    /// What the model is told about it: where the code runs, and what it lacks.
    pub about: String,
}

impl fmt::Debug for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chosen").field("about", &self.about).finish_non_exhaustive()
    }
}

/// Chooses the interpreter for an environment.
#[async_trait]
pub trait Runners: Send + Sync {
    /// The interpreter for code that runs in `env`.
    ///
    /// # Errors
    /// When there is none.
    async fn choose(&self, env: &Arc<dyn Environment>) -> Result<Chosen, ToolError>;
}
