//! `bub tape list`.

use std::{fs::File, io::Read as _, process::ExitCode, time::SystemTime};

use anyhow::Result;
use bub::kernel::{
    clock,
    tape::{Entry, EntryKind, TapeName, TapeStore as _},
    text::{render, thousands},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{render::text_of, shelf::Shelf};
use crate::{args::ListArgs, output, terminal::safe::safe_line};

/// Tapes that are listed for people, unless told otherwise.
const DEFAULT_LIMIT: usize = 50;
/// The most bytes that are read of one tape for its title.
const MAX_TITLE_BYTES: u64 = 64 << 10;
/// The most bytes of a cut line that a title is made from.
const MAX_CUT_BYTES: usize = 1 << 10;
/// The most characters of a tape's title.
const MAX_TITLE_CHARS: usize = 60;

/// Lists tapes, newest first. Of those that are not shown nothing but the size and date is looked at.
pub(super) async fn run(shelf: &Shelf, args: &ListArgs) -> Result<ExitCode> {
    let here = TapeName::workspace_prefix(shelf.workspace());
    let mut rows = Vec::new();
    for name in shelf.store().list().await? {
        let is_here = name.as_str().starts_with(&here);
        if !args.all && !is_here {
            continue;
        }
        // A tape that goes away while we look is no failure.
        let Ok(meta) = std::fs::metadata(shelf.store().path(&name)) else { continue };
        if meta.is_file() {
            rows.push((meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), meta.len(), is_here, name));
        }
    }
    rows.sort_by_key(|it| std::cmp::Reverse(it.0));
    if rows.is_empty() && !args.json {
        output::note(if args.all { "no tapes yet" } else { "no tapes of this workspace yet (--all shows every one)" });
    }
    let limit = match args.limit {
        Some(0) => usize::MAX,
        Some(limit) => limit,
        None if args.json => usize::MAX,
        None => DEFAULT_LIMIT,
    };
    let n_more = rows.len().saturating_sub(limit);
    let zone = shelf.zone();
    for (changed, bytes, is_here, name) in rows.into_iter().take(limit) {
        let session = shelf.known_session(&name);
        let title = title(shelf, &name).unwrap_or_default();
        if args.json {
            let row = json!({
                "name": name.as_str(), "session": session, "bytes": bytes, "changed": date_of(changed),
                "this_workspace": is_here, "title": title,
            });
            output::line(&row.to_string())?;
        } else {
            let label = session.unwrap_or(name.as_str());
            let changed = Timestamp::try_from(changed).unwrap_or_default().to_zoned_datetime(zone.clone());
            let line = format!("{}  {:>9}  {label:34}  {title}", changed.strftime("%Y-%m-%d %H:%M"), size(bytes));
            output::line(line.trim_end())?;
        }
    }
    if n_more > 0 {
        output::note(&format!("{} more (--limit 0 shows all)", thousands(n_more as u64)));
    }
    Ok(ExitCode::SUCCESS)
}

/// What a tape begins with: the first thing that was said, or the first command.
fn title(shelf: &Shelf, name: &TapeName) -> Option<String> {
    let mut start = Vec::new();
    File::open(shelf.store().path(name)).ok()?.take(MAX_TITLE_BYTES).read_to_end(&mut start).ok()?;
    start.split(|it| *it == b'\n').find_map(|line| {
        let said = match Entry::from_line(line) {
            Some(entry) => said(&entry),
            None => said_in_cut_line(line),
        };
        said.map(|it| short(&it)).filter(|it| !it.is_empty())
    })
}

fn said(entry: &Entry) -> Option<String> {
    let role = entry.payload.get("role").and_then(Value::as_str);
    match (&entry.kind, entry.name()) {
        (EntryKind::Event, Some("loop.start")) => entry.data()?.get("prompt").map(text_of),
        (EntryKind::Event, Some("command")) => entry.data()?.get("raw").map(|it| format!(",{}", render(it))),
        // Not every program records how its turns begin.
        (EntryKind::Message, _) if role == Some("user") => entry.payload.get("content").map(text_of),
        _ => None,
    }
}

/// The beginning of a prompt whose line was not read to its end.
fn said_in_cut_line(line: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(line);
    let (_, rest) = line.split_once("\"name\": \"loop.start\"")?.1.split_once("\"prompt\": \"")?;
    let mut cut = rest.floor_char_boundary(MAX_CUT_BYTES);
    // An escape may be cut through, and has at most 12 bytes.
    for _ in 0..12 {
        let piece = rest.get(..cut)?;
        if let Ok(text) = serde_json::from_str::<String>(&format!("\"{piece}\"")) {
            return Some(text);
        }
        cut = rest.floor_char_boundary(cut.checked_sub(1)?);
    }
    None
}

fn short(said: &str) -> String {
    // The facts in front of a message end with the line of its date.
    let words = said.split_once("---\n").map_or(said, |(_, rest)| rest);
    let line = safe_line(words);
    match line.char_indices().nth(MAX_TITLE_CHARS) {
        Some((cut, _)) => format!("{}…", line.get(..cut).unwrap_or_default()),
        None => line,
    }
}

pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{} B", thousands(bytes)),
        10_000..10_000_000 => format!("{} kB", thousands(bytes / 1_000)),
        _ => format!("{} MB", thousands(bytes / 1_000_000)),
    }
}

fn date_of(time: SystemTime) -> String {
    clock::iso(Timestamp::try_from(time).unwrap_or_default())
}
