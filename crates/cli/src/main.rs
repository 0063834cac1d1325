//! The `bub` program: reads the command line, starts what it asks for, and turns what happened into
//! text and an exit code.

mod args;
mod commands;
mod error;
mod interrupt;
mod output;
mod terminal;

use std::process::ExitCode;

use clap::Parser as _;

/// Holds the memory limit of code in the sandbox, which runs in a process of this program.
#[global_allocator]
static ALLOCATOR: bub::code::LimitedAllocator = bub::code::LimitedAllocator;

fn main() -> ExitCode {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(err) => return error::usage(&err),
    };
    if matches!(args.command, args::Command::CodeWorker) {
        return bub::code::sandbox::worker_main();
    }
    // One thread: tools spend their time waiting for processes, files and the network, and what
    // computes long goes to the blocking pool. Starting workers would cost more than a command does.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(err) => return error::report(&anyhow::Error::new(err).context("cannot start the async runtime")),
    };
    let done = runtime.block_on(commands::run(args));
    // What still runs in the blocking pool (a read that hangs, say) must not keep the program alive.
    runtime.shutdown_background();
    match done {
        Ok(code) => code,
        Err(err) => error::report(&err),
    }
}
