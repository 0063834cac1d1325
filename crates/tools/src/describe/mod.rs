//! Tools whose definitions are loaded on demand: the tool `tool.describe`, and the hooks that offer what
//! has been loaded.
//!
//! The model is told the names of all deferred tools. What it has described once is offered to it from
//! the next step on, and in later turns until the tape is reset.

mod hooks;
mod loaded;
mod tool;

pub use hooks::DescribeHooks;
pub use tool::{ToolDescribe, ToolDescribeArgs, ToolDescription, ToolDescriptions};
