//! The release binary against a floor, measured in one run: `cargo xtask bench`.
//!
//! Times of one machine and moment mean little; ratios taken in one run mean something. So every row
//! has a floor that does the least that the task needs, ours and the floor's runs take turns, and the
//! spread of the floor is told. The model is a scripted server of this process.
//!
//! For a turn the binary is run as `bub run --session-id NAME PROMPT`, with `BUB_HOME` and the workspace
//! in a temporary folder and `BUB_MODEL`, `BUB_API_KEY` and `BUB_API_BASE` naming the server.

mod cases;
mod measure;
mod report;
pub mod script;
pub mod server;
mod tape;

use std::{env, fs, path::PathBuf, process::Command, time::Instant};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};

use crate::commands;
use measure::Runner;
use report::{Report, Row};

/// What to measure.
#[derive(Args, Debug)]
pub struct Options {
    /// Only this
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Counted runs of a turn or a stream; a start is counted six times as often
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// Measure this binary instead of building one
    #[arg(long, value_name = "PATH")]
    bub: Option<PathBuf>,
    /// Build the binary from nothing, too, and tell how long that took
    #[arg(long)]
    build_time: bool,
    /// Fail when a bar is missed by more than a fifth
    #[arg(long)]
    check: bool,
}

/// A part of the measures.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Part {
    /// From start to exit, without a model
    Startup,
    /// Turns of 50 tool calls
    Steps,
    /// An answer of 20,000 text deltas
    Stream,
    /// Peak memory of a turn of 50 tool calls
    Memory,
    /// A turn of 100 subagents at once
    Subagents,
    /// Tapes of up to a million entries
    Tape,
}

/// Builds what is measured, measures it, and prints a table; tells whether the bars were met, if asked.
///
/// # Errors
/// When something can't be built or run, or a run does not do its job.
pub fn run(options: &Options) -> Result<bool> {
    let own = env::current_exe().context("can't find this program")?;
    if cfg!(debug_assertions) {
        return build_and_rerun(options, &own);
    }
    let folder = own.parent().context("this program is in no folder")?;
    let runner = Runner::new(folder, options.bub.clone())?;
    let wants = |part| options.only.is_none_or(|it| it == part);
    let mut report = Report::new(runner.folder_note());
    if wants(Part::Startup) {
        report.extend(cases::startup(&runner, usize::from(options.runs) * 6)?);
    }
    if wants(Part::Steps) || wants(Part::Memory) {
        report.extend(cases::steps(&runner, usize::from(options.runs), wants(Part::Steps), wants(Part::Memory))?);
    }
    if wants(Part::Stream) {
        report.extend(cases::stream(&runner, usize::from(options.runs))?);
    }
    if wants(Part::Subagents) {
        report.extend(cases::subagents(&runner, usize::from(options.runs))?);
    }
    if wants(Part::Tape) {
        report.extend(tape::tapes(&runner, usize::from(options.runs))?);
    }
    if options.only.is_none() {
        let bytes = fs::metadata(runner.bub()).context("can't read the binary's size")?.len();
        report.extend([Row::fact("release binary", format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)))]);
    }
    if options.build_time {
        report.extend([Row::fact("release build from nothing", format!("{:.0} s", build_from_nothing()?))]);
    }
    report.print();
    Ok(!options.check || report.is_met())
}

/// Builds release binaries, then hands over to the release build of this program: a server that is slow
/// itself would hide what it measures.
fn build_and_rerun(options: &Options, own: &std::path::Path) -> Result<bool> {
    let release = own.ancestors().nth(2).context("this program is not in a target folder")?.join("release");
    // One after the other: built together, crates would get features that the product does not ask for.
    let needs_tape = options.only.is_none_or(|it| it == Part::Tape);
    let builds: [(bool, &[&str]); 3] = [
        (options.bub.is_none(), &["--package", "bub-cli"]),
        (true, &["--package", "xtask"]),
        (needs_tape, &["--package", "bub-host", "--example", "tape_operation"]),
    ];
    for (is_needed, package) in builds {
        let mut build = commands::cargo();
        build.args(["build", "--release", "--locked"]).args(package);
        if is_needed && !commands::run("release build", &mut build)? {
            return Ok(false);
        }
    }
    let status = Command::new(release.join("xtask")).args(env::args_os().skip(1)).status();
    Ok(status.context("can't run the release build of xtask")?.success())
}

/// Seconds that a release build takes when nothing is there.
fn build_from_nothing() -> Result<f64> {
    let target = tempfile::tempdir().context("can't make a temporary folder")?;
    let mut command = commands::cargo();
    command.args(["build", "--release", "--locked", "--package", "bub-cli", "--target-dir"]).arg(target.path());
    let start = Instant::now();
    anyhow::ensure!(commands::run("release build from nothing", &mut command)?, "the release build failed");
    Ok(start.elapsed().as_secs_f64())
}
