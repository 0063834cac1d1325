//! The shell: run, read output, stop.

mod buffer;
mod hooks;
mod kill;
mod output;
mod run;
mod running;
mod shells;

pub use hooks::ShellHooks;
pub use kill::BashKill;
pub use output::BashOutput;
pub use run::Bash;
pub use shells::{ShellSettings, Shells};
