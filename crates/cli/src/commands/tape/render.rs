//! Entries as a person reads them in a terminal.

use bub::kernel::{
    message::{ToolCallRequest, content_blocks},
    tape::{Entry, EntryKind},
    text::{elide, human_size, json as json_text, render, thousands},
};
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use serde_json::Value;

use crate::{
    output,
    terminal::{
        safe::{safe, safe_line},
        text::call_line,
    },
};

/// The most characters of a message.
const MAX_MESSAGE_CHARS: usize = 4_000;
/// The most lines of a command's output.
const MAX_OUTPUT_LINES: usize = 10;
/// The most characters of what is folded into a line, where the terminal is not narrower.
const MAX_LINE_CHARS: usize = 120;
/// Characters that time and id take in front of a line.
const HEAD_CHARS: usize = 16;
/// Characters on either side of a text that was found.
const AROUND_CHARS: usize = 200;

const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "1;32";
const YELLOW: &str = "33";
const BLUE: &str = "1;36";
const MAGENTA: &str = "35";

/// Writes entries one after the other. A call waits for its results, which are shown beneath it.
pub(super) struct Renderer {
    color: bool,
    width: usize,
    zone: TimeZone,
    is_full: bool,
    /// Kinds that were asked for by name are not left out.
    kinds: Vec<EntryKind>,
    /// The text that is looked for.
    around: Option<String>,
    day: Option<Date>,
    waiting: Option<Entry>,
    system: Option<String>,
    tokens: u64,
    n_hidden: usize,
}

impl Renderer {
    pub(super) fn new(color: bool, zone: TimeZone) -> Self {
        Self {
            color,
            width: output::width().unwrap_or(HEAD_CHARS + MAX_LINE_CHARS),
            zone,
            is_full: false,
            kinds: Vec::new(),
            around: None,
            day: None,
            waiting: None,
            system: None,
            tokens: 0,
            n_hidden: 0,
        }
    }

    /// Everything, unfolded and uncut.
    pub(super) fn in_full(self, is_full: bool) -> Self {
        Self { is_full, ..self }
    }

    /// Entries of these kinds are what the person wants to see.
    pub(super) fn of_kinds(self, kinds: &[EntryKind]) -> Self {
        Self { kinds: kinds.to_vec(), ..self }
    }

    /// Of long entries only what is around a text.
    pub(super) fn around(self, text: &str) -> Self {
        Self { around: Some(text.trim().to_lowercase()), ..self }
    }

    /// How many entries were left out.
    pub(super) fn n_hidden(&self) -> usize {
        self.n_hidden
    }

    /// Begins anew, with another tape's entries.
    pub(super) fn forget(&mut self) {
        (self.waiting, self.system, self.tokens) = (None, None, 0);
    }

    /// The next entry, with what waited for it. Nothing, if it waits itself or is left out.
    pub(super) fn entry(&mut self, entry: &Entry) -> String {
        if entry.kind == EntryKind::ToolResult
            && let Some(calls) = self.waiting.take()
        {
            return self.calls(&calls, Some(entry));
        }
        let before = self.flush();
        if entry.kind == EntryKind::ToolCall {
            self.waiting = Some(entry.clone());
            return before;
        }
        before + &self.alone(entry)
    }

    /// What still waits for results, as it is.
    pub(super) fn flush(&mut self) -> String {
        match self.waiting.take() {
            Some(calls) => self.calls(&calls, None),
            None => String::new(),
        }
    }

    fn alone(&mut self, entry: &Entry) -> String {
        match &entry.kind {
            EntryKind::Message => self.message(entry),
            EntryKind::ToolResult => {
                let head = self.head(entry, &self.paint(YELLOW, "results"));
                list(entry, "results").iter().fold(head, |text, it| text + &self.result(it))
            }
            EntryKind::System => self.system(entry),
            EntryKind::Anchor => {
                let name = safe_line(entry.name().unwrap_or("-"));
                let state = entry.payload.get("state").map(json_text).unwrap_or_default();
                let what = format!("anchor {name}");
                let what = format!("{} {}", self.paint(MAGENTA, &what), self.folded(&what, &state));
                self.head(entry, what.trim_end())
            }
            EntryKind::Error => {
                let text = json_text(&entry.payload);
                let message = entry.payload.get("message").map(render).filter(|_| !self.is_full).unwrap_or(text);
                let what = format!("{} {}", self.paint(RED, "error"), self.folded("error", &message));
                self.head(entry, &what)
            }
            EntryKind::Event => self.event(entry),
            EntryKind::ToolCall | EntryKind::Other(_) => {
                let kind = safe_line(entry.kind.as_str());
                let what = format!("{} {}", kind, self.folded(&kind, &json_text(&entry.payload)));
                self.head(entry, &what)
            }
        }
    }

    fn message(&mut self, entry: &Entry) -> String {
        let role = entry.payload.get("role").and_then(Value::as_str).unwrap_or("message");
        let content = entry.payload.get("content").cloned().unwrap_or_default();
        if role == "tool" {
            let head = self.head(entry, &self.paint(YELLOW, "result"));
            return head + &self.result(&content);
        }
        let color = match role {
            "user" => BLUE,
            "assistant" => GREEN,
            _ => DIM,
        };
        let text = text_of(&content);
        let text = if self.is_full || role != "user" { text.as_str() } else { prompt_of(&text) };
        let head = self.head(entry, &self.paint(color, &safe_line(role)));
        let thought = self.thought(entry);
        let calls = list(entry, "tool_calls").iter().filter_map(ToolCallRequest::from_value);
        let calls: String = calls.map(|it| self.call(&it)).collect();
        head + &thought + &self.body(text, MAX_MESSAGE_CHARS) + &calls
    }

    fn system(&mut self, entry: &Entry) -> String {
        let text = entry.payload.get("content").map(text_of).unwrap_or_default();
        let is_known = self.system.as_ref() == Some(&text);
        if is_known && !self.shows(&entry.kind) {
            self.n_hidden += 1;
            return String::new();
        }
        let text = self.system.insert(text).clone();
        let size = thousands(text.chars().count() as u64);
        if self.is_full {
            return self.head(entry, &self.paint(DIM, "system")) + &self.body(&text, usize::MAX);
        }
        let what = format!("system prompt ({size} characters): {}", self.fit(&safe_line(&text), HEAD_CHARS + 40));
        self.head(entry, &self.paint(DIM, &what))
    }

    fn event(&mut self, entry: &Entry) -> String {
        let data = entry.data().cloned().unwrap_or_default();
        let text = |key: &str| data.get(key).map(render).unwrap_or_default();
        let name = entry.name().unwrap_or("-");
        let is_ok = data.get("status").is_none_or(|it| it == "ok" || it == "continue");
        match name {
            "loop.start" => self.tokens = 0,
            "run" => {
                let tokens = data.get("usage").and_then(|it| it.get("total_tokens")?.as_u64());
                self.tokens = self.tokens.saturating_add(tokens.unwrap_or_default());
            }
            _ => {}
        }
        if self.shows(&entry.kind) {
            let what = format!("event {}", safe_line(name));
            let what = format!("{} {}", self.paint(DIM, &what), self.folded(&what, &json_text(&data)));
            return self.head(entry, what.trim_end());
        }
        match name {
            "command" => {
                let mark = if is_ok { "" } else { " ✗" };
                let raw = format!(",{}{mark}", self.fit(&safe_line(&text("raw")), HEAD_CHARS + 3));
                self.head(entry, &self.paint(BLUE, &raw)) + &self.output(&text("output"))
            }
            "loop.finish" => {
                let elapsed = match data.get("elapsed_ms").and_then(Value::as_u64).unwrap_or_default() {
                    ms @ 0..1_000 => format!("{ms} ms"),
                    ms => format!("{}.{} s", thousands(ms / 1_000), ms % 1_000 / 100),
                };
                let n_steps = data.get("steps").and_then(Value::as_u64).unwrap_or_default();
                let steps = if n_steps == 1 { "step" } else { "steps" };
                let mut what = format!("{} {n_steps} {steps}, {elapsed}", if is_ok { "✓" } else { "✗" });
                if self.tokens > 0 {
                    what.push_str(&format!(", {} tokens", thousands(self.tokens)));
                }
                if !is_ok {
                    what.push_str(&format!(", {} {}", text("status"), text("error")));
                }
                let what = cut(&safe_line(&what), 2 * MAX_LINE_CHARS);
                self.head(entry, &self.paint(if is_ok { DIM } else { RED }, &what))
            }
            "loop.start" | "loop.step.start" | "loop.step" | "run" | "handoff" => self.hide(),
            "spill.write" | "sidecar.archive" | "sidecar.reset" if is_ok => self.hide(),
            _ => {
                let what = format!("event {}", safe_line(name));
                let what = format!("{what} {}", self.folded(&what, &json_text(&data)));
                self.head(entry, &self.paint(if is_ok { DIM } else { RED }, what.trim_end()))
            }
        }
    }

    fn hide(&mut self) -> String {
        self.n_hidden += 1;
        String::new()
    }

    /// Whether entries of a kind are shown in every case.
    fn shows(&self, kind: &EntryKind) -> bool {
        self.is_full || self.kinds.contains(kind)
    }

    /// Calls, each with its result beneath.
    fn calls(&mut self, entry: &Entry, results: Option<&Entry>) -> String {
        let said = entry.payload.get("content").map(text_of).filter(|it| !it.is_empty());
        let thought = self.thought(entry);
        let mut text = String::new();
        let is_said = said.is_some() || !thought.is_empty();
        if is_said {
            text.push_str(&self.head(entry, &self.paint(GREEN, "assistant")));
            text.push_str(&thought);
            text.push_str(&self.body(&said.unwrap_or_default(), MAX_MESSAGE_CHARS));
        }
        let calls: Vec<_> = list(entry, "calls").iter().filter_map(ToolCallRequest::from_value).collect();
        let mut results = results.map(|it| list(it, "results")).unwrap_or_default().iter();
        if calls.is_empty() {
            text.push_str(&self.head(entry, &self.paint(RED, "calls that can't be read")));
        }
        for (idx, call) in calls.iter().enumerate() {
            let line = self.call(call);
            if idx == 0 && !is_said {
                text.push_str(&self.head(entry, line.trim_start().trim_end_matches('\n')));
            } else {
                text.push_str(&line);
            }
            match results.next() {
                Some(result) => text.push_str(&self.result(result)),
                None => text.push_str(&self.indented(&self.paint(DIM, "⎿ (no result yet)"))),
            }
        }
        results.fold(text, |text, it| text + &self.result(it))
    }

    fn call(&self, call: &ToolCallRequest) -> String {
        if !self.is_full {
            return self.indented(&self.paint(YELLOW, &self.fit(&safe(&call_line(call)), HEAD_CHARS)));
        }
        let head = self.indented(&self.paint(YELLOW, &format!("● {}", safe_line(&call.name))));
        let arguments = match serde_json::from_str::<Value>(&call.arguments) {
            Ok(Value::Object(fields)) => {
                fields.iter().map(|(key, value)| format!("{key}: {}\n", render(value))).collect()
            }
            _ => call.arguments.clone(),
        };
        head + &self.lines(&arguments, "    ")
    }

    fn result(&self, result: &Value) -> String {
        let is_error = result.get("kind").is_some() && result.get("message").is_some();
        let color = if is_error { RED } else { DIM };
        if self.is_full {
            let body = self.lines(&result_text(result), "    ");
            return self.indented(&self.paint(color, if is_error { "⎿ ✗" } else { "⎿" })) + &body;
        }
        let text = if is_error { cause_of(result) } else { result_text(result) };
        if self.around.is_some() && (text.contains('\n') || text.chars().count() > MAX_LINE_CHARS) {
            return self.body(&text, MAX_MESSAGE_CHARS);
        }
        let n_lines = text.lines().count();
        let more = if n_lines > 1 { format!(" … ({} lines)", thousands(n_lines as u64)) } else { String::new() };
        let first = text.lines().find(|it| !it.trim().is_empty()).unwrap_or("(nothing)");
        let mark = if is_error { "✗ " } else { "" };
        let line = self.fit(&safe_line(first), 6 + more.chars().count());
        self.indented(&self.paint(color, &format!("⎿ {mark}{line}{more}")))
    }

    fn thought(&self, entry: &Entry) -> String {
        match entry.payload.get("reasoning").and_then(Value::as_str) {
            Some(text) if self.is_full => self.body(text, usize::MAX),
            Some(text) => {
                let line = format!("({})", self.fit(&safe_line(text), 4));
                self.indented(&self.paint(DIM, &line))
            }
            None => String::new(),
        }
    }

    /// The first lines of a command's output.
    fn output(&self, text: &str) -> String {
        let n_lines = text.lines().count();
        if self.is_full || n_lines <= MAX_OUTPUT_LINES {
            return self.body(text, MAX_MESSAGE_CHARS);
        }
        let first: Vec<_> = text.lines().take(MAX_OUTPUT_LINES).collect();
        let more = format!("… ({} lines)", thousands(n_lines as u64));
        self.body(&first.join("\n"), MAX_MESSAGE_CHARS) + &self.indented(&self.paint(DIM, &more))
    }

    /// A text of several lines.
    fn body(&self, text: &str, max: usize) -> String {
        if text.is_empty() {
            return String::new();
        }
        match &self.around {
            Some(needle) if !self.is_full => self.lines(&around(text, needle), "  "),
            _ if self.is_full => self.lines(text, "  "),
            _ => self.lines(&elide(text, max), "  "),
        }
    }

    fn lines(&self, text: &str, indent: &str) -> String {
        safe(text).lines().map(|it| format!("{indent}{it}").trim_end().to_owned() + "\n").collect()
    }

    fn indented(&self, text: &str) -> String {
        format!("  {text}\n")
    }

    /// What an entry has, in a line behind `before`, or whole.
    fn folded(&self, before: &str, text: &str) -> String {
        if self.is_full {
            return safe(text).into_owned();
        }
        self.fit(&safe_line(text), HEAD_CHARS + before.chars().count() + 1)
    }

    /// Cuts a text to what fits in a line behind so many characters.
    fn fit(&self, text: &str, before: usize) -> String {
        let max = self.width.saturating_sub(before + 1).clamp(20, MAX_LINE_CHARS);
        cut(text, max)
    }

    /// The line that says when and what; before it the day, when that is another.
    fn head(&mut self, entry: &Entry, what: &str) -> String {
        let moment = entry.date.parse::<Timestamp>().ok().map(|it| it.to_zoned_datetime(self.zone.clone()));
        let mut text = String::new();
        let time = match &moment {
            Some(it) => it.strftime("%H:%M:%S").to_string(),
            None => "--:--:--".to_owned(),
        };
        if let Some(day) = moment.map(|it| it.date())
            && self.day.replace(day) != Some(day)
        {
            let line = format!("── {} ──", day.strftime("%a %d %b %Y"));
            text.push_str(&self.paint(DIM, &line));
            text.push('\n');
        }
        let head = self.paint(DIM, &format!("{time} #{:<5}", entry.id));
        text + &head + " " + what + "\n"
    }

    fn paint(&self, color: &str, text: &str) -> String {
        if self.color && !text.is_empty() { format!("\x1b[{color}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Day and time of an entry, as far as they are known.
pub(super) fn local_time(date: &str, zone: &TimeZone) -> (String, String) {
    match date.parse::<Timestamp>() {
        Ok(moment) => {
            let moment = moment.to_zoned_datetime(zone.clone());
            (moment.strftime("%Y-%m-%d").to_string(), moment.strftime("%H:%M:%S").to_string())
        }
        Err(_) => ("no date".to_owned(), "--:--:--".to_owned()),
    }
}

/// A list of an entry's payload.
pub(super) fn list<'a>(entry: &'a Entry, key: &str) -> &'a [Value] {
    entry.payload.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The text of a result: of an error its message, of content its blocks.
pub(super) fn result_text(result: &Value) -> String {
    if result.get("kind").is_some()
        && let Some(message) = result.get("message")
    {
        let cause = result.get("details").and_then(|it| it.get("error")).filter(|it| it.is_string());
        return match cause {
            Some(cause) => format!("{}\n{}", render(message), render(cause)),
            None => render(message),
        };
    }
    match content_blocks(result) {
        Some(blocks) => text_of(&Value::Array(blocks.clone())),
        None => text_of(result),
    }
}

/// What made a call fail, as its tool said it.
fn cause_of(result: &Value) -> String {
    let cause = result.get("details").and_then(|it| it.get("error")).filter(|it| it.is_string());
    cause.or_else(|| result.get("message")).map(render).unwrap_or_default()
}

/// Content as text: media and what else is no text as a note in brackets.
pub(super) fn text_of(content: &Value) -> String {
    let Value::Array(blocks) = content else {
        return if content.is_null() { String::new() } else { render(content) };
    };
    if !blocks.iter().all(|it| it.get("type").is_some_and(Value::is_string)) {
        return render(content);
    }
    let shown = blocks.iter().map(|it| match it.get("text").and_then(Value::as_str) {
        Some(text) => text.to_owned(),
        None => note_of(it),
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// A block that is no text, in brackets: `[image image/png, 12.0 KiB]`.
pub(super) fn note_of(block: &Value) -> String {
    let field = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default();
    let url = field("url");
    let (head, data) = match url.strip_prefix("data:").and_then(|it| it.split_once(";base64,")) {
        Some((kind, data)) => (kind, data),
        None => (field("media_type"), field("data")),
    };
    let place =
        if !data.is_empty() { human_size((data.len() / 4 * 3) as u64) } else { cut(&safe_line(url), MAX_LINE_CHARS) };
    let parts = [[field("type"), head].join(" ").trim().to_owned(), place];
    format!("[{}]", parts.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(", "))
}

/// A prompt without the facts that stand in front of it, which end with the line of its date.
pub(super) fn prompt_of(text: &str) -> &str {
    let Some((facts, said)) = text.split_once("---\n") else { return text };
    let is_facts =
        facts.rsplit_once("\n---Date: ").is_some_and(|(first, date)| first.contains('=') && !date.contains('\n'));
    if is_facts { said } else { text }
}

/// The beginning of a text.
fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// What stands around a text, or the beginning when it is not there word for word.
fn around(text: &str, needle: &str) -> String {
    let lower = text.to_lowercase();
    let at = if needle.is_empty() { None } else { lower.find(needle) };
    // Lower case may be longer or shorter; near is good enough.
    let n_before = at.and_then(|it| lower.get(..it)).map_or(0, |it| it.chars().count());
    let first = n_before.saturating_sub(AROUND_CHARS);
    let n_shown = 2 * AROUND_CHARS + needle.chars().count();
    let count = text.chars().count();
    let shown: String = text.chars().skip(first).take(n_shown).collect();
    let (before, after) = (if first > 0 { "…" } else { "" }, if first + n_shown < count { "…" } else { "" });
    format!("{before}{shown}{after}")
}
