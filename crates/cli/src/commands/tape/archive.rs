//! `bub tape archive`.

use std::process::ExitCode;

use anyhow::Result;
use bub::kernel::{
    clock,
    tape::{Archive, TapeStore as _},
};
use jiff::Timestamp;
use serde_json::json;

use super::{progress::Progress, shelf::Shelf};
use crate::{args::TapeArg, output};

/// Copies a tape and its sidecars, and prints where the copies are.
pub(super) async fn run(shelf: &Shelf, arg: &TapeArg, json: bool) -> Result<ExitCode> {
    let name = shelf.find(&arg.session)?;
    let stamp = clock::stamp(Timestamp::now());
    let whole = Archive { stamp: &stamp, stored: true, tail: &[] };
    let mut progress = Progress::new("archiving");
    let main = progress.while_waiting(shelf.store().archive(&name, whole)).await?;
    let mut sidecars = Vec::new();
    for sidecar in shelf.store().sidecars(&name)? {
        sidecars.push(progress.while_waiting(shelf.store().archive(&sidecar, whole)).await?);
    }
    if json {
        output::line(&json!({"tape": name.as_str(), "archive": main, "sidecars": sidecars}).to_string())?;
    } else {
        for path in std::iter::once(&main).chain(&sidecars) {
            output::line(path)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
