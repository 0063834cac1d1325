//! The `bub` program as a library: reads the command line, starts what it asks for, and turns what
//! happened into text and an exit code.
//!
//! A program of your own is [`Program`] with your plugins:
//!
//! ```no_run
//! # use bub::kernel::plugin::{Plugin, PluginError, Registry};
//! # struct Weather;
//! # impl Plugin for Weather {
//! #     fn name(&self) -> &str { "weather" }
//! #     fn register(&self, _: &mut Registry) -> Result<(), PluginError> { Ok(()) }
//! # }
//! fn main() -> std::process::ExitCode {
//!     bub_cli::Program::new("my-bub").plugin(Weather).main()
//! }
//! ```

mod args;
mod commands;
mod error;
mod interrupt;
mod output;
mod program;
mod terminal;

pub use program::Program;

/// Holds the memory limit of code in the sandbox, which runs in a process of the program.
#[global_allocator]
static ALLOCATOR: bub::code::LimitedAllocator = bub::code::LimitedAllocator;
