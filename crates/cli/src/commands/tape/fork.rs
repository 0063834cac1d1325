//! `bub tape fork`.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use bub::{host::BranchError, kernel::text::thousands};
use jiff::Timestamp;
use serde_json::json;

use super::shelf::Shelf;
use crate::{args::ForkArgs, error::UsageError, output};

/// Starts a session from an earlier point of another.
pub(super) async fn run(shelf: &Shelf, args: &ForkArgs) -> Result<ExitCode> {
    let from = shelf.find(&args.from)?;
    if args.new.starts_with("temp/") {
        return Err(UsageError("sessions whose name begins with 'temp/' keep no tape".to_owned()).into());
    }
    let to = shelf.session(&args.new);
    if to == from {
        return Err(UsageError("a session can't be started from itself".to_owned()).into());
    }
    let _old = shelf.hold(&from).await?;
    let _new = shelf.hold(&to).await?;
    let done = match shelf.store().branch(&from, args.at, &to, Timestamp::now()) {
        Ok(done) => done,
        Err(BranchError::NotEmpty) => {
            return Err(UsageError(format!(
                "session '{}' has a tape already, with entries on it; choose another name, or empty it with bub tape reset",
                args.new
            ))
            .into());
        }
        Err(err @ (BranchError::NoEntry { .. } | BranchError::BeforeFirst { .. } | BranchError::NoPlace { .. })) => {
            return Err(UsageError(err.to_string()).into());
        }
        Err(err) => return Err(err).context(format!("session '{}' was not started", args.new)),
    };
    if args.json {
        let value = json!({
            "session": args.new, "name": to.as_str(), "from": from.as_str(), "at": done.at,
            "entries": done.entries, "moved": done.moved,
        });
        output::line(&value.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let (Some(moved), Some(asked)) = (&done.moved, args.at) {
        output::note(&format!("cut after entry {} instead of {asked}: {moved}", done.at));
    }
    let entries = thousands(done.entries);
    output::line(&format!("session '{}' starts with {entries} entries, up to entry {}", args.new, done.at))?;
    output::note(&format!("go on with: bub run --session-id '{}' '…'", args.new));
    Ok(ExitCode::SUCCESS)
}
