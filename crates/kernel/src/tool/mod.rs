//! What the model, model-written code and people can call.
//!
//! A tool's author implements [`Tool`] with typed arguments, or puts the attribute
//! [`tool`](macro@crate::tool) before a function; [`erase`] turns it into the [`DynTool`] that
//! everything else handles.

mod context;
mod erase;
#[doc(hidden)]
pub mod function;
mod problem;
pub mod schema;
mod set;
mod spec;

use std::future::Future;

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use context::{Caller, PartialResult, ToolContext};
pub use erase::{DynTool, IntoTool, ToolReply, erase};
pub use problem::{ArgumentProblem, MAX_SHOWN_INPUT, PathStep, place};
pub use set::ToolSet;
pub use spec::{Exposure, OutputSchema, ToolSpec};

use crate::error::ToolError;

/// What a tool's file imports.
pub mod prelude {
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};

    pub use super::{Caller, Exposure, Tool, ToolContext};
    pub use crate::error::{ErrorKind, ToolError};
}

/// A tool, as its author writes it. The doc comment of `Args` is what the model reads.
pub trait Tool: Send + Sync + 'static {
    /// Name on the command line; the model sees it with `_` for `.`.
    const NAME: &'static str;
    /// From where it may be called.
    const EXPOSURE: Exposure = Exposure::Auto;
    /// Whether the model loads its definition on demand.
    const DEFERRED: bool = false;
    /// Arguments.
    type Args: DeserializeOwned + JsonSchema + Send;
    /// Structured result, for code.
    type Output: Serialize + JsonSchema + Send + Sync;
    /// Does the work. Dropping the future cancels it.
    fn call(&self, ctx: &ToolContext, args: Self::Args)
    -> impl Future<Output = Result<Self::Output, ToolError>> + Send;
    /// What the model reads instead of the result's own text or JSON.
    fn render(&self, _output: &Self::Output) -> Option<String> {
        None
    }
    /// The schema of the arguments, given the one that was derived from their type.
    #[must_use]
    fn parameters(derived: Value) -> Value {
        derived
    }
}
