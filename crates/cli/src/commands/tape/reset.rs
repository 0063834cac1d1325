//! `bub tape reset`.

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
};

use anyhow::Result;
use bub::kernel::text::thousands;

use super::{progress::Progress, shelf::Shelf};
use crate::{args::ResetArgs, error::UsageError, output};

/// Empties a tape, after asking.
pub(super) async fn run(shelf: &Shelf, args: &ResetArgs) -> Result<ExitCode> {
    let name = shelf.find(&args.tape.session)?;
    let session = &args.tape.session;
    if !args.yes {
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(
                UsageError(format!("emptying the tape of '{session}' needs --yes where nobody can be asked")).into()
            );
        }
        let stats = Progress::new("counting").while_waiting(shelf.open(&name)?.stats()).await?;
        let keeps = if args.archive { "It is archived first." } else { "It is not archived (--archive does)." };
        let entries = thousands(stats.entries);
        output::ask(&format!("Empty the tape of '{session}' with its {entries} entries? {keeps} [y/N] "));
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if !matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
            output::note("nothing was changed");
            return Ok(ExitCode::FAILURE);
        }
    }
    let _guard = shelf.hold(&name).await?;
    // Looked up behind the lock: a turn may have made one.
    let tape = shelf.open(&name)?;
    match tape.reset(args.archive).await? {
        Some(archive) => output::line(&archive)?,
        None => output::note(&format!("the tape of '{session}' is empty")),
    }
    Ok(ExitCode::SUCCESS)
}
