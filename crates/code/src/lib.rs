//! Code mode: the model writes Python that calls the tools, instead of making one call at a time.
//!
//! [`SessionCodeMode`] is the switch that each session of bub has, [`CodeMode`] the same for an agent of
//! one's own. Both offer the tool [`RunCode`], whose code calls tools through hooks and events like
//! everybody; what it prints, and the media that it attaches, come back.
//!
//! Reading order: `run_code` (one run), `calls` (what code may ask for), `bridge` (models), [`stub`] (the
//! tools as Python sees them), `code_mode` and `component` (who gets which tools), `choice` (which
//! interpreter), then the interpreters: [`process`] and [`sandbox`].

mod attach;
mod bridge;
mod calls;
mod choice;
mod code_mode;
mod component;
mod media;
mod output;
pub mod process;
mod prompt;
mod run_code;
mod runners;
pub mod sandbox;
pub mod stub;
mod stubs;
pub mod values;

pub use attach::{Attach, MAX_ATTACHED_BYTES, MAX_ATTACHMENTS, MAX_FILE_BYTES, load_media};
pub use bridge::{ModelChoice, ModelResolver, Models};
pub use choice::{BuiltinRunners, RunnerChoice};
pub use code_mode::{CodeModeSwitch, SessionCodeMode};
pub use component::CodeMode;
pub use monty_alloc::LimitedAllocator;
pub use output::MAX_OUTPUT_BYTES;
pub use run_code::{MAX_RUNNING_CALLS, RunCode, tools_for_people};
pub use runners::{Chosen, Runners};
pub use stubs::MAX_INLINE_STUB_BYTES;
