//! The shell: run, read output, stop.
