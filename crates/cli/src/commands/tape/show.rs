//! `bub tape show`.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use bub::host::{ScanStep, TapeChange, TapeScan};

use super::{progress::Progress, render::Renderer, shelf::Shelf, when};
use crate::{args::ShowArgs, interrupt::Interrupts, output, terminal::safe::safe_json};

/// How often a tape that is followed is looked at.
const FOLLOW_EVERY: Duration = Duration::from_millis(150);
/// Entries that following begins with, unless told otherwise.
const FOLLOW_LAST: usize = 10;

/// Prints entries, oldest first.
pub(super) async fn run(shelf: &Shelf, args: &ShowArgs) -> Result<ExitCode> {
    let name = shelf.find_to_read(&args.tape.session)?;
    let filter = when::filter(&args.filter, args.at.as_deref(), &shelf.zone())?;
    let is_plain_follow = args.follow && args.at.is_none() && args.filter.since.is_none();
    let last = args.last.or(is_plain_follow.then_some(FOLLOW_LAST));
    let is_terminal = output::is_terminal();
    let renderer = Renderer::new(output::wants_color(is_terminal), shelf.zone()).of_kinds(&filter.query.kinds);
    let mut printer = Printer { renderer: renderer.in_full(args.full), json: args.json, is_terminal, n_printed: 0 };
    let mut scan = shelf.store().scan(&name, filter);
    if let Some(last) = last {
        scan.skip_to_last(last)?;
    }
    if args.follow {
        return follow(&mut scan, &mut printer).await;
    }
    let mut progress = Progress::new("reading");
    loop {
        let step = scan.step()?;
        let text = printer.text(&step);
        if !text.is_empty() {
            progress.clear();
            output::out(&text)?;
        }
        if step.is_at_end {
            break;
        }
        progress.at(step.position, step.len);
    }
    progress.clear();
    let n_hidden = printer.renderer.n_hidden();
    if printer.n_printed == 0 {
        output::note("nothing to show");
    } else if n_hidden > 0 && is_terminal {
        let entries = if n_hidden == 1 { "entry" } else { "entries" };
        output::note(&format!("({n_hidden} {entries} of bookkeeping left out; --full shows them)"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints entries as they come, until there is a signal or nobody reads any more. Both are how this is
/// meant to end.
async fn follow(scan: &mut TapeScan, printer: &mut Printer) -> Result<ExitCode> {
    let mut interrupts = Interrupts::listen();
    loop {
        let step = scan.step()?;
        if let Some(change) = step.change {
            output::note(match change {
                TapeChange::Removed => "(the tape was emptied)",
                TapeChange::Replaced => "(the tape was started anew)",
                TapeChange::Rewritten => "(the tape was rewritten; this is its beginning)",
            });
            printer.renderer.forget();
        }
        let text = printer.text(&step);
        if !text.is_empty() {
            output::out(&text)?;
        }
        let pause = if step.is_at_end { FOLLOW_EVERY } else { Duration::ZERO };
        tokio::select! {
            biased;
            () = interrupts.next() => return Ok(ExitCode::SUCCESS),
            () = tokio::time::sleep(pause) => {}
        }
        if output::is_closed() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

struct Printer {
    renderer: Renderer,
    json: bool,
    is_terminal: bool,
    n_printed: usize,
}

impl Printer {
    fn text(&mut self, step: &ScanStep) -> String {
        let mut text = String::new();
        self.n_printed += step.entries.len();
        for it in &step.entries {
            if self.json {
                let line = String::from_utf8_lossy(&it.line);
                text.push_str(&if self.is_terminal { safe_json(&line) } else { line });
                text.push('\n');
            } else {
                text.push_str(&self.renderer.entry(&it.entry));
            }
        }
        if step.is_at_end {
            text.push_str(&self.renderer.flush());
        }
        text
    }
}
