//! `cargo xtask`: see `cargo xtask --help`.

#![expect(clippy::print_stderr, reason = "a developer's tool, whose output is the terminal's")]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::{bench, commands};

/// Checks, tests and benches of the workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", disable_version_flag = true)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Check formatting, lints, the architecture's invariants and the documentation
    Check,
    /// Run the tests, documentation examples included
    Test(commands::TestOptions),
    /// Check the architecture's invariants only
    Tidy,
    /// Write the generated pages of docs/reference anew
    Docs,
    /// Measure the release binary against a floor, in one run
    Bench(bench::Options),
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Check => commands::check(),
        Task::Test(options) => commands::test(&options),
        Task::Tidy => commands::tidy(),
        Task::Docs => commands::docs(),
        Task::Bench(options) => bench::run(&options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(err) => {
            eprintln!("xtask: {err:#}");
            ExitCode::FAILURE
        }
    }
}
