//! Results too long for the conversation: set aside in a sidecar tape, and read from there in pages.

mod hooks;
mod read;
mod search;
mod store;

pub use hooks::{SpillHooks, SpillSettings};
pub use read::SpillRead;
pub use store::SIDECAR;

pub(crate) use search::find;
