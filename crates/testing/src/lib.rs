//! The test kit: a context to call tools in, scripted models, a scripted HTTP server.
//!
//! Development only; nothing in a product crate depends on it.

mod clock;
mod context;
mod model;
mod server;
mod snapshot;

pub use clock::cpu_time;
pub use context::{NoEnvironment, TestHost, call, context, inbound, text_of, try_call};
pub use model::{Script, ScriptedModel};
pub use server::{ModelServer, Reply, Request};
pub use snapshot::tape_lines;
