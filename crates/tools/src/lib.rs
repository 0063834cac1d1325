//! The built-in tools. Each is one file: a struct of arguments with doc comments, and one function.
//!
//! They depend on the kernel alone, as a plugin of a third party would.

pub mod bash;
pub mod describe;
pub mod fs;
pub mod session;
pub mod spill;
pub mod subagent;
pub mod tape;
pub mod web;
