//! The test kit: a context to call tools in, scripted models, a scripted HTTP server.
//!
//! Development only; nothing in a product crate depends on it.

mod context;

pub use context::{NoEnvironment, TestHost, call, context, text_of, try_call};
