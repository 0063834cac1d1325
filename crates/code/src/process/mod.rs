//! Python in a process on the host.
//!
//! Each run starts a process in the session's environment, with the rights of that environment: this is no
//! sandbox. When the run ends, however it ends, the process is killed with all that it started.

mod lines;
mod protocol;
mod runner;
mod serve;
mod source;

pub use protocol::{FromCode, answer, read, start};
pub use runner::{ProcessOptions, ProcessRunner};
