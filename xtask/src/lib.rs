//! Checks, tests and benches of the workspace; `cargo xtask` runs them.
//!
//! [`tidy`] holds the architecture's invariants as code, [`commands`] the checks and tests that
//! run cargo, [`mod@bench`] the measures against a floor.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a developer's tool, whose output is the terminal's")]

pub mod bench;
pub mod commands;
pub mod tidy;
