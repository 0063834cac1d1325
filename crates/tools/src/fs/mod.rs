//! Files: read, write, edit.

mod alike;
mod edit;
mod lines;
mod locks;
mod read;
mod text;
mod write;

pub use edit::FsEdit;
pub use locks::FileLocks;
pub use read::FsRead;
pub use write::FsWrite;
