//! `bub tape anchors`.

use std::process::ExitCode;

use anyhow::Result;
use bub::{
    host::ScanFilter,
    kernel::tape::{EntryKind, TapeQuery},
};

use super::{progress::Progress, render::local_time, shelf::Shelf};
use crate::{
    args::TapeArg,
    output,
    terminal::safe::{safe_json, safe_line},
};

/// Prints the anchors, oldest first.
pub(super) fn run(shelf: &Shelf, arg: &TapeArg, json: bool) -> Result<ExitCode> {
    let name = shelf.find_to_read(&arg.session)?;
    let zone = shelf.zone();
    let query = TapeQuery::default().kind(EntryKind::Anchor);
    let mut scan = shelf.store().scan(&name, ScanFilter { query, ..ScanFilter::default() });
    let mut progress = Progress::new("looking for anchors");
    let mut n_found = 0;
    loop {
        let step = scan.step()?;
        if !step.entries.is_empty() {
            progress.clear();
        }
        for it in &step.entries {
            n_found += 1;
            if json {
                let line = String::from_utf8_lossy(&it.line);
                output::line(&if output::is_terminal() { safe_json(&line) } else { line })?;
            } else {
                let (day, time) = local_time(&it.entry.date, &zone);
                let state = it.entry.payload.get("state").map(bub::kernel::text::json).unwrap_or_default();
                let name = safe_line(it.entry.name().unwrap_or("-"));
                let line = format!("{day} {time}  #{:<6} {name}  {}", it.entry.id, safe_line(&state));
                output::line(line.trim_end())?;
            }
        }
        if step.is_at_end {
            break;
        }
        progress.at(step.position, step.len);
    }
    progress.clear();
    if n_found == 0 && !json {
        output::note("no anchors");
    }
    Ok(ExitCode::SUCCESS)
}
