//! What shells have to do with turns.

use std::sync::Arc;

use async_trait::async_trait;
use bub_kernel::{hooks::Hooks, turn::TurnState};

use super::Shells;

/// Tells the model of background shells that ended, and stops all of them when the runtime closes.
#[derive(Debug)]
pub struct ShellHooks {
    shells: Arc<Shells>,
}

impl ShellHooks {
    /// Hooks over this table.
    #[must_use]
    pub fn new(shells: Arc<Shells>) -> Self {
        Self { shells }
    }
}

#[async_trait]
impl Hooks for ShellHooks {
    fn name(&self) -> &str {
        "shells"
    }

    fn implements(&self) -> &[&'static str] {
        &["notices", "close"]
    }

    async fn notices(&self, state: &TurnState) -> Vec<String> {
        state.session.as_ref().map(|it| self.shells.take_notices(it)).unwrap_or_default()
    }

    async fn close(&self) {
        self.shells.terminate_all().await;
    }
}
