//! What happens in a turn: a message comes in, commands run, the model is asked, its tools are
//! called, everything is recorded, an answer goes out.
//!
//! [`Runtime`] owns the sessions and starts turns; [`TurnStream`] is a turn as its caller sees it.
//! [`Gateway`] takes the messages of channels and lets the runtime answer them.
//! Inside, `turn` is the pipeline, `agent_loop` the steps, `policy` what they offer, `step` one exchange
//! with the model, `record` what is written of it, and `executor` one tool call. [`SchemaTool`] is a tool
//! that is made while the program runs.

mod agent_loop;
mod arguments;
mod command;
mod context;
mod events;
mod executor;
mod fallback;
mod gateway;
mod hook_stack;
mod nested;
mod policy;
mod prompt;
mod record;
mod rescue;
mod runtime;
mod schema_tool;
mod sessions;
mod step;
mod suggest;
mod turn;

pub use command::check_prefix;
pub use context::DefaultContext;
pub use gateway::{ChannelChoice, Gateway, GatewayError, GatewaySettings, choose_channels};
pub use policy::SessionSteps;
pub use runtime::{EngineSettings, RunRequest, Runtime, RuntimeParts, TapeNaming, TurnOptions, TurnStream};
pub use schema_tool::{ArgumentSchema, SchemaError, SchemaTool};
pub use sessions::{MAX_WAITING, QueueFull, SessionGuard, SessionLocks};
