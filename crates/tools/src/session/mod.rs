//! Commands that people give: help, quit, and the settings of the session.

mod help;
mod model;
mod quit;
mod reasoning_effort;

pub use help::Help;
pub use model::Model;
pub use quit::Quit;
pub use reasoning_effort::ReasoningEffort;
