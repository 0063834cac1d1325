//! A tape as a document.

use bub::kernel::{
    message::ToolCallRequest,
    tape::{Entry, EntryKind},
    text::render,
};
use jiff::tz::TimeZone;
use serde_json::Value;

use super::render::{list, local_time, note_of, prompt_of, result_text, text_of};

/// Writes entries as Markdown: what was said, calls with their results, commands, anchors and errors.
pub(super) struct Markdown {
    session: String,
    zone: TimeZone,
    is_begun: bool,
    day: String,
    /// Names of calls whose results have not come yet.
    calls: Vec<String>,
}

impl Markdown {
    pub(super) fn new(session: &str, zone: TimeZone) -> Self {
        Self { session: session.to_owned(), zone, is_begun: false, day: String::new(), calls: Vec::new() }
    }

    /// One entry; nothing for bookkeeping.
    pub(super) fn entry(&mut self, entry: &Entry) -> String {
        let (day, time) = local_time(&entry.date, &self.zone);
        let body = match (&entry.kind, entry.name()) {
            (EntryKind::Message, _) => self.message(entry, &time),
            (EntryKind::ToolCall, _) => self.calls(entry, &time),
            (EntryKind::ToolResult, _) => self.results(entry),
            (EntryKind::Anchor, name) => {
                let state = entry.payload.get("state").filter(|it| it.is_object());
                let state = state.map(|it| format!("\n{}", fenced(&render(it), "json"))).unwrap_or_default();
                format!("---\n\n*Anchor {}, {time}*\n{state}\n", code(name.unwrap_or("-")))
            }
            (EntryKind::Event, Some("command")) => {
                let data = |key: &str| entry.data().and_then(|it| it.get(key)).map(render).unwrap_or_default();
                format!(
                    "### Command, {time}\n\n{}\n{}\n",
                    fenced(&format!(",{}", data("raw")), ""),
                    fenced(&data("output"), "")
                )
            }
            (EntryKind::Error, _) => {
                let message = entry
                    .payload
                    .get("message")
                    .map(render)
                    .unwrap_or_else(|| render(&Value::Object(entry.payload.clone())));
                format!("### Error, {time}\n\n{}\n", fenced(&message, ""))
            }
            _ => return String::new(),
        };
        let mut text = String::new();
        if !std::mem::replace(&mut self.is_begun, true) {
            text.push_str(&self.title());
        }
        if day != self.day {
            text.push_str(&format!("## {day}\n\n"));
            self.day = day;
        }
        text + &body
    }

    /// What is written when there are no more entries.
    pub(super) fn end(&self) -> String {
        if self.is_begun { String::new() } else { self.title() }
    }

    fn title(&self) -> String {
        format!("# Session {}\n\n", code(&self.session))
    }

    fn message(&self, entry: &Entry, time: &str) -> String {
        let role = entry.payload.get("role").and_then(Value::as_str).unwrap_or("message");
        let who = match role {
            "user" => "User",
            "assistant" => "Assistant",
            "system" => "System",
            "tool" => "Result",
            other => other,
        };
        let content = entry.payload.get("content");
        let body = match role {
            "tool" => fenced(&content.map(text_of).unwrap_or_default(), ""),
            "user" => prompt_of(&content.map(blocks).unwrap_or_default()).to_owned(),
            _ => content.map(blocks).unwrap_or_default(),
        };
        let body = Some(body.trim_end()).filter(|it| !it.is_empty()).map(|it| format!("{it}\n\n"));
        let calls: Vec<_> = list(entry, "tool_calls").iter().filter_map(ToolCallRequest::from_value).collect();
        format!("### {who}, {time}\n\n{}{}", body.unwrap_or_default(), calls_text(&calls))
    }

    fn calls(&mut self, entry: &Entry, time: &str) -> String {
        let calls: Vec<_> = list(entry, "calls").iter().filter_map(ToolCallRequest::from_value).collect();
        self.calls = calls.iter().map(|it| it.name.clone()).collect();
        let mut text = format!("### Assistant, {time}\n\n");
        if let Some(said) = entry.payload.get("content").map(blocks).filter(|it| !it.is_empty()) {
            text.push_str(&format!("{said}\n\n"));
        }
        text + &calls_text(&calls)
    }

    fn results(&mut self, entry: &Entry) -> String {
        let mut names = std::mem::take(&mut self.calls).into_iter();
        let mut text = String::new();
        for result in list(entry, "results") {
            let of = names.next().map(|it| format!(" of {}", code(&it))).unwrap_or_default();
            text.push_str(&format!("Result{of}:\n\n{}\n", fenced(&result_text(result), "")));
        }
        text
    }
}

fn calls_text(calls: &[ToolCallRequest]) -> String {
    calls.iter().map(|it| format!("Calls {}:\n\n{}\n", code(&it.name), fenced(&it.arguments, "json"))).collect()
}

/// Content as Markdown: text as it is, media as pictures or a note.
fn blocks(content: &Value) -> String {
    let Value::Array(blocks) = content else { return text_of(content) };
    let shown = blocks.iter().map(|it| {
        let field = |key: &str| it.get(key).and_then(Value::as_str).unwrap_or_default();
        match (field("type"), field("url")) {
            ("image", url) if !url.is_empty() && !url.starts_with("data:") => {
                format!("![{}](<{url}>)", field("media_type"))
            }
            _ if it.get("text").is_some_and(Value::is_string) => field("text").to_owned(),
            _ => format!("*{}*", note_of(it)),
        }
    });
    shown.collect::<Vec<_>>().join("\n\n")
}

/// Text between fences that are longer than any inside of it.
fn fenced(text: &str, language: &str) -> String {
    let fence = "`".repeat(longest_run(text).max(2) + 1);
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{language}\n{text}{end}{fence}\n")
}

/// A word as code.
fn code(text: &str) -> String {
    let quote = "`".repeat(longest_run(text) + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{quote}{pad}{}{pad}{quote}", text.replace('\n', " "))
}

fn longest_run(text: &str) -> usize {
    text.split(|it| it != '`').map(str::len).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_are_longer_than_what_is_inside() {
        assert_eq!(fenced("a", "json"), "```json\na\n```\n");
        assert_eq!(fenced("```\nx\n````\n", ""), "`````\n```\nx\n````\n`````\n");
        assert_eq!(fenced("", ""), "```\n```\n");
        assert_eq!((code("a"), code("a`b"), code("`")), ("`a`".into(), "``a`b``".into(), "`` ` ``".into()));
    }
}
