//! Files: read, write, edit.
