//! Running model-written code. An interpreter knows no tool; it asks its host.

use async_trait::async_trait;
use serde_json::Value;

use crate::error::ToolError;

/// What code may ask of its host.
#[async_trait]
pub trait CodeHost: Send + Sync {
    /// Calls a tool by its code-facing name; `arguments` is a JSON object.
    async fn call_tool(&self, name: &str, arguments: Value) -> Result<Value, ToolError>;
    /// Receives what the code prints, as it prints.
    fn write(&self, text: &str);
}

/// Code to run.
#[derive(Clone, Copy, Debug)]
pub struct CodeRequest<'a> {
    /// Python source, with top-level `await` allowed.
    pub code: &'a str,
    /// File name for tracebacks.
    pub filename: &'a str,
    /// Names available as `tools.<name>`.
    pub tools: &'a [String],
}

/// Why code did not finish.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// The code raised.
    #[error("{error}")]
    Raised {
        /// `<Type>: <message>`.
        error: String,
        /// Frames of the code itself.
        traceback: String,
    },
    /// The place where it runs can't be reached now; it may be there the next time.
    #[error("{0}")]
    Unavailable(String),
    /// The interpreter itself ended or could not start.
    #[error("code runner failed: {reason}")]
    Runner {
        /// What happened to it.
        reason: String,
        /// Its exit code, if it had one.
        exit_code: Option<i32>,
        /// What it wrote to standard error.
        stderr: String,
    },
}

/// Runs Python with `tools` bound. Dropping the future stops the code.
#[async_trait]
pub trait CodeRunner: Send + Sync {
    /// Runs to the end.
    ///
    /// # Errors
    /// [`CodeError::Raised`] for an uncaught exception, [`CodeError::Runner`] when the interpreter dies.
    async fn run(&self, request: CodeRequest<'_>, host: &dyn CodeHost) -> Result<(), CodeError>;
}
