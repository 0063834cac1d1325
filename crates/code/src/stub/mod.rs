//! The tools as Python sees them: a stub file with a typed function for each.

mod file;
mod hints;
mod python;
mod render;

pub use file::{StubError, file_name, folder_name, write};
pub use python::identifiers;
pub use render::{MAX_STUB_BYTES, render, render_within};
