//! `bub tape`: what was recorded, for people.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::SystemTime};

use anyhow::{Context as _, Result};
use bub::{
    Builder,
    host::JsonlStore,
    kernel::{
        clock,
        message::ToolCallRequest,
        tape::{Entry, EntryKind, Tape, TapeName, TapeQuery, TapeStore as _, TextMatch, parse_bound},
        text::{elide, json as json_text, render, thousands},
    },
    settings::Settings,
};
use serde_json::{Value, json};

use crate::{
    args::{TapeArg, TapeCommand},
    error::UsageError,
    output,
};

/// The most characters of one entry that are shown.
const MAX_SHOWN_CHARS: usize = 2_000;
/// The most characters of a tape's title.
const MAX_TITLE_CHARS: usize = 60;

/// Looks at tapes. Nothing here writes, or waits for a session that is in use.
pub(crate) async fn run(command: TapeCommand, settings: Settings, workspace: PathBuf) -> Result<ExitCode> {
    let app = Builder::new(settings, workspace).build()?;
    let shelf = Shelf { store: app.store().clone(), workspace: app.workspace().to_owned() };
    match command {
        TapeCommand::List { all, json } => shelf.list(all, json).await?,
        TapeCommand::Show { tape, last, kind, json } => shelf.show(&tape, last, &kind, json).await?,
        TapeCommand::Info { tape, json } => shelf.info(&tape, json).await?,
        TapeCommand::Search { query, tape, limit, kind, since, until, json } => {
            let mut search = TapeQuery::default().newest_first().limit(limit);
            let bound = |text: &Option<String>, is_end| text.as_deref().map(|it| parse_bound(it, is_end)).transpose();
            search.from = bound(&since, false).map_err(|err| UsageError(err.to_string()))?;
            search.to = bound(&until, true).map_err(|err| UsageError(err.to_string()))?;
            search.kinds = if kind.is_empty() {
                vec![EntryKind::Message, EntryKind::ToolResult]
            } else {
                kind.iter().map(|it| EntryKind::from(it.as_str())).collect()
            };
            search.text = Some(TextMatch::new(&query, true));
            search.distinct = true;
            shelf.search(&tape, &search, json).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The tapes of a home folder.
struct Shelf {
    store: Arc<JsonlStore>,
    workspace: String,
}

impl Shelf {
    /// The tape of a session of this workspace, or the one that is named.
    async fn open(&self, arg: &TapeArg) -> Result<Tape> {
        let by_session = TapeName::session(&self.workspace, &arg.session);
        let by_name = TapeName::free(&arg.session);
        let name = [by_session, by_name].into_iter().find(|it| self.store.path(it).exists()).with_context(|| {
            format!(
                "there is no tape of session '{}' in workspace {} (bub tape list shows what there is)",
                arg.session, self.workspace
            )
        })?;
        Ok(Tape::new(name, self.store.clone(), clock::system()))
    }

    async fn list(&self, all: bool, json: bool) -> Result<()> {
        let here = TapeName::workspace_prefix(&self.workspace);
        let mut rows = Vec::new();
        for name in self.store.list().await? {
            let is_here = name.as_str().starts_with(&here);
            if !all && !is_here {
                continue;
            }
            // A tape that goes away while we look is no failure.
            let Ok(meta) = std::fs::metadata(self.store.path(&name)) else { continue };
            let changed = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            rows.push((changed, meta.len(), is_here, name));
        }
        rows.sort_by_key(|it| std::cmp::Reverse(it.0));
        if rows.is_empty() && !json {
            output::note(if all { "no tapes yet" } else { "no tapes of this workspace yet (--all shows every one)" });
        }
        for (changed, bytes, is_here, name) in rows {
            let tape = Tape::new(name.clone(), self.store.clone(), clock::system());
            let session = self.known_session(&name);
            let title = title(&tape).await.unwrap_or_default();
            let changed = date_of(changed);
            if json {
                let row = json!({
                    "name": name.as_str(), "session": session, "bytes": bytes, "changed": changed,
                    "this_workspace": is_here, "title": title,
                });
                output::line(&row.to_string())?;
            } else {
                let label = session.unwrap_or(name.as_str());
                let day = changed.get(..16).unwrap_or(&changed).replace('T', " ");
                output::line(&format!("{day}  {:>9}  {label:34}  {title}", size(bytes)))?;
            }
        }
        Ok(())
    }

    /// Names of sessions can't be read from tapes; those that bub itself gives can be recognised.
    fn known_session(&self, name: &TapeName) -> Option<&'static str> {
        ["cli:local", "cli_session"].into_iter().find(|it| TapeName::session(&self.workspace, it) == *name)
    }

    async fn show(&self, arg: &TapeArg, last: Option<usize>, kinds: &[String], json: bool) -> Result<()> {
        let tape = self.open(arg).await?;
        let mut query = TapeQuery::default();
        query.kinds = kinds.iter().map(|it| EntryKind::from(it.as_str())).collect();
        let mut entries = match last {
            Some(last) => tape.read(&query.newest_first().limit(last)).await?,
            None => tape.read(&query).await?,
        };
        if last.is_some() {
            entries.reverse();
        }
        print(&entries, json)
    }

    async fn info(&self, arg: &TapeArg, json: bool) -> Result<()> {
        let tape = self.open(arg).await?;
        let stats = tape.stats().await?;
        let path = self.store.path(tape.name());
        let bytes = std::fs::metadata(&path).map(|it| it.len()).unwrap_or_default();
        let runs = tape.read(&TapeQuery::default().event("run").newest_first().limit(20)).await?;
        let usage = runs.iter().find_map(|it| it.data()?.get("usage").cloned());
        let value = json!({
            "name": tape.name().as_str(),
            "file": path.display().to_string(),
            "bytes": bytes,
            "entries": stats.entries,
            "anchors": stats.anchors,
            "last_anchor": stats.last_anchor,
            "entries_since_last_anchor": stats.entries_since_last_anchor,
            "last_usage": usage,
        });
        if json {
            output::line(&value.to_string())?;
            return Ok(());
        }
        for (key, value) in value.as_object().into_iter().flatten() {
            let text = if value.is_null() { "none".to_owned() } else { render(value) };
            output::line(&format!("{key}: {text}"))?;
        }
        Ok(())
    }

    async fn search(&self, arg: &TapeArg, query: &TapeQuery, json: bool) -> Result<()> {
        let entries = self.open(arg).await?.read(query).await?;
        if entries.is_empty() {
            output::note("nothing found");
        }
        print(&entries, json)
    }
}

fn print(entries: &[Arc<Entry>], json: bool) -> Result<()> {
    let color = output::wants_color(output::is_terminal());
    for entry in entries {
        let text = if json { entry.to_line() } else { pretty(entry, color) };
        output::line(&text)?;
    }
    Ok(())
}

/// An entry for people: a dim line that says when and what, then what was said.
fn pretty(entry: &Entry, color: bool) -> String {
    let time = entry.date.get(..19).unwrap_or(&entry.date).replace('T', " ");
    let (what, body) = match entry.kind {
        EntryKind::Message => {
            let role = entry.payload.get("role").and_then(Value::as_str).unwrap_or("message");
            (role.to_owned(), entry.payload.get("content").map(content).unwrap_or_default())
        }
        EntryKind::ToolCall => ("calls".to_owned(), calls(entry)),
        EntryKind::ToolResult => {
            let results = entry.payload.get("results").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            ("results".to_owned(), results.iter().map(content).collect::<Vec<_>>().join("\n"))
        }
        EntryKind::Anchor => (
            format!("anchor {}", entry.name().unwrap_or("-")),
            entry.payload.get("state").map(json_text).unwrap_or_default(),
        ),
        EntryKind::Event => {
            (format!("event {}", entry.name().unwrap_or("-")), entry.data().map(json_text).unwrap_or_default())
        }
        EntryKind::System => ("system".to_owned(), entry.payload.get("content").map(render).unwrap_or_default()),
        EntryKind::Error | EntryKind::Other(_) => (entry.kind.to_string(), json_text(&entry.payload)),
    };
    let max =
        if matches!(entry.kind, EntryKind::System | EntryKind::Event) { MAX_SHOWN_CHARS / 10 } else { MAX_SHOWN_CHARS };
    // What a tool printed must not drive the reader's terminal.
    let body: String = elide(&body, max).chars().filter(|it| !it.is_control() || matches!(it, '\n' | '\t')).collect();
    let head = format!("#{} {time} {what}", entry.id);
    let head = if color { format!("\x1b[2m{head}\x1b[0m") } else { head };
    let body: String = body.lines().map(|line| format!("\n  {line}")).collect();
    head + &body
}

fn content(value: &Value) -> String {
    match value {
        Value::Array(blocks) => blocks
            .iter()
            .map(|it| match it.get("text").and_then(Value::as_str) {
                Some(text) => text.to_owned(),
                None => format!("[{}]", it.get("type").and_then(Value::as_str).unwrap_or("block")),
            })
            .collect::<Vec<_>>()
            .join("\n"),
        other => render(other),
    }
}

fn calls(entry: &Entry) -> String {
    let mut lines: Vec<String> = Vec::new();
    lines.extend(entry.payload.get("content").map(content).filter(|it| !it.is_empty()));
    let calls = entry.payload.get("calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    lines
        .extend(calls.iter().filter_map(ToolCallRequest::from_value).map(|it| format!("{} {}", it.name, it.arguments)));
    lines.join("\n")
}

/// What a tape begins with: the first thing that was said, or the first command.
async fn title(tape: &Tape) -> Result<String> {
    let mut query = TapeQuery::default().event("loop.start").limit(1);
    query.names.push("command".to_owned());
    let first = tape.read(&query).await?;
    let data = first.first().and_then(|it| it.data()).cloned().unwrap_or_default();
    let said = data.get("prompt").map(content).or_else(|| data.get("raw").map(|it| format!(",{}", render(it))));
    let said = said.unwrap_or_default();
    // The facts in front of a message end with the line of its date.
    let words = said.split_once("---\n").map_or(said.as_str(), |(_, rest)| rest);
    let line: String = words.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(match line.char_indices().nth(MAX_TITLE_CHARS) {
        Some((cut, _)) => format!("{}…", line.get(..cut).unwrap_or_default()),
        None => line,
    })
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{} B", thousands(bytes)),
        10_000..10_000_000 => format!("{} kB", thousands(bytes / 1_000)),
        _ => format!("{} MB", thousands(bytes / 1_000_000)),
    }
}

fn date_of(time: SystemTime) -> String {
    let micros = time.duration_since(SystemTime::UNIX_EPOCH).map(|it| it.as_micros()).unwrap_or_default();
    clock::iso_of_micros(i64::try_from(micros).unwrap_or_default())
}
