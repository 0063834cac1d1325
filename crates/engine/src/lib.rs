//! What happens in a turn: a message comes in, commands run, the model is asked, its tools are
//! called, everything is recorded, an answer goes out.
//!
//! [`Runtime`] owns the sessions and starts turns; [`TurnStream`] is a turn as its caller sees it.
//! Inside, `turn` is the pipeline, `agent_loop` the steps, `step` one exchange with the model, and
//! `executor` one tool call. [`SchemaTool`] is a tool that is made while the program runs.

mod agent_loop;
mod arguments;
mod command;
mod context;
mod executor;
mod fallback;
mod hook_stack;
mod nested;
mod prompt;
mod runtime;
mod schema_tool;
mod sessions;
mod step;
mod suggest;
mod turn;

pub use command::check_prefix;
pub use context::DefaultContext;
pub use runtime::{EngineSettings, Runtime, RuntimeParts, TurnOptions, TurnStream};
pub use schema_tool::{ArgumentSchema, SchemaError, SchemaTool};
pub use sessions::{SessionGuard, SessionLocks};
