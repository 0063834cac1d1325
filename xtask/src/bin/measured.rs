//! Runs one command and writes down what it took: `measured REPORT OUTPUT COMMAND [ARGUMENT…]`.
//!
//! A program of its own, because a child's peak memory starts from its parent's: this parent is tiny.
//! Processes that the command waited for count towards its time, and the largest towards its memory.

use std::{
    env, fs,
    process::{Command, ExitCode, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};
use wait4::Wait4 as _;

fn main() -> Result<ExitCode> {
    let mut args = env::args_os().skip(1);
    let mut next = |what: &str| args.next().with_context(|| format!("{what} is missing"));
    let (report, output, program) = (next("REPORT")?, next("OUTPUT")?, next("COMMAND")?);
    let out = fs::File::create(&output).context("can't create the output file")?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);

    let start = SystemTime::now();
    let child = command.spawn().context("can't start the command")?;
    let used = child.wait4().context("can't wait for the command")?;
    let end = SystemTime::now();

    let nanos = |at: SystemTime| at.duration_since(UNIX_EPOCH).map(|it| it.as_nanos());
    let cpu = used.rusage.utime + used.rusage.stime;
    let line = format!("{} {} {} {}", nanos(start)?, nanos(end)?, cpu.as_micros(), used.rusage.maxrss);
    fs::write(report, line).context("can't write the report")?;
    Ok(if used.status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
