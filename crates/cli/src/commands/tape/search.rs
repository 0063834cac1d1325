//! `bub tape search`.

use std::process::ExitCode;

use anyhow::Result;
use bub::kernel::tape::{EntryKind, TapeQuery, TextMatch};

use super::{progress::Progress, render::Renderer, shelf::Shelf, when};
use crate::{args::SearchArgs, output, terminal::safe::safe_json};

/// Finds text, newest first.
pub(super) async fn run(shelf: &Shelf, args: &SearchArgs) -> Result<ExitCode> {
    let name = shelf.find_to_read(&args.tape.session)?;
    let filter = when::filter(&args.filter, None, &shelf.zone())?;
    let mut query = TapeQuery { distinct: true, ..filter.query }.newest_first().limit(args.limit);
    if query.kinds.is_empty() {
        query.kinds = vec![EntryKind::Message, EntryKind::ToolResult];
    }
    query.text = Some(TextMatch::new(&args.query, true));
    let tape = shelf.open(&name)?;
    let entries = Progress::new("searching").while_waiting(tape.read(&query)).await?;
    if entries.is_empty() {
        output::note("nothing found");
    }
    let is_terminal = output::is_terminal();
    let mut renderer =
        Renderer::new(output::wants_color(is_terminal), shelf.zone()).of_kinds(&query.kinds).around(&args.query);
    for entry in entries {
        if args.json {
            let line = entry.to_line();
            output::line(&if is_terminal { safe_json(&line) } else { line.into() })?;
        } else {
            let text = renderer.entry(&entry) + &renderer.flush();
            output::out(&text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
