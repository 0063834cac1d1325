//! One line of a tape.

use std::fmt;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::object;
use crate::{
    clock::{Clock, iso},
    message::{Message, Part, ToolCallRequest, content_of},
    text::json as json_text,
    turn::RunId,
};

/// What an entry is.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum EntryKind {
    /// Something said.
    Message,
    /// A step's system prompt.
    System,
    /// A place that the context can start from.
    Anchor,
    /// Calls that the model asked for.
    ToolCall,
    /// Their results.
    ToolResult,
    /// Something that failed.
    Error,
    /// Something that happened.
    Event,
    /// A kind of a later release or a plugin.
    Other(String),
}

impl EntryKind {
    /// The kind's name on tapes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Message => "message",
            Self::System => "system",
            Self::Anchor => "anchor",
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
            Self::Error => "error",
            Self::Event => "event",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for EntryKind {
    fn from(name: &str) -> Self {
        [Self::Message, Self::System, Self::Anchor, Self::ToolCall, Self::ToolResult, Self::Error, Self::Event]
            .into_iter()
            .find(|it| it.as_str() == name)
            .unwrap_or_else(|| Self::Other(name.to_owned()))
    }
}

impl fmt::Display for EntryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for EntryKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One line of a tape. Never changed once written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Its place, from 1; given by the store.
    pub id: u64,
    /// What it is.
    pub kind: EntryKind,
    /// What it says.
    pub payload: Map<String, Value>,
    /// What is known about it.
    pub meta: Map<String, Value>,
    /// When it was made: ISO 8601, UTC, microseconds.
    pub date: String,
}

impl Entry {
    /// Reads a line of a tape file. Lines that are no entry give `None`: blank ones, torn ones, JSON
    /// without an integer id, a kind, or an object as payload. NUL bytes around a line, which a crashed
    /// machine may leave, do not count.
    #[must_use]
    pub fn from_line(line: &[u8]) -> Option<Self> {
        Self::from_value(serde_json::from_slice(trim_line(line)).ok()?)
    }

    /// Reads an entry from the JSON object that a line of a tape file is.
    #[must_use]
    pub fn from_value(line: Value) -> Option<Self> {
        let Value::Object(mut fields) = line else { return None };
        let id = fields.get("id")?.as_u64()?;
        let kind = EntryKind::from(fields.get("kind")?.as_str()?);
        let Some(Value::Object(payload)) = fields.remove("payload") else { return None };
        let meta = object(fields.remove("meta").unwrap_or_default());
        let date = match fields.remove("date") {
            Some(Value::String(date)) => date,
            _ => {
                // Before tapes had dates they had seconds since 1970.
                let seconds = fields.get("timestamp").and_then(Value::as_f64).unwrap_or_default();
                let moment = Timestamp::from_microsecond((seconds * 1e6) as i64).unwrap_or_default();
                iso(moment)
            }
        };
        Some(Self { id, kind, payload, meta, date })
    }

    /// Writes the line of a tape file, without its end.
    #[must_use]
    pub fn to_line(&self) -> String {
        json_text(self)
    }

    /// Writes the line that the entry has on a tape where its number is `id`, without its end.
    #[must_use]
    pub fn to_numbered_line(&self, id: u64) -> String {
        json_text(&Numbered { id, kind: &self.kind, payload: &self.payload, meta: &self.meta, date: &self.date })
    }

    /// The `name` of an event or an anchor.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.payload.get("name").and_then(Value::as_str)
    }

    /// The `data` of an event.
    #[must_use]
    pub fn data(&self) -> Option<&Value> {
        self.payload.get("data")
    }

    /// Whether this is an anchor, and of that name if one is given.
    #[must_use]
    pub fn is_anchor(&self, name: Option<&str>) -> bool {
        self.kind == EntryKind::Anchor && name.is_none_or(|name| self.name() == Some(name))
    }
}

/// A tape's line without the blanks and NUL bytes around it, and without a byte order mark.
#[must_use]
pub fn trim_line(line: &[u8]) -> &[u8] {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let is_filler = |it: &u8| matches!(it, 0 | b' ' | b'\t' | b'\r' | b'\n');
    let start = line.iter().position(|it| !is_filler(it)).unwrap_or(line.len());
    let end = line.iter().rposition(|it| !is_filler(it)).map_or(start, |it| it + 1);
    line.get(start..end).unwrap_or_default()
}

/// An [`Entry`] under another number.
#[derive(Serialize)]
struct Numbered<'a> {
    id: u64,
    kind: &'a EntryKind,
    payload: &'a Map<String, Value>,
    meta: &'a Map<String, Value>,
    date: &'a str,
}

/// An entry that no store has numbered yet.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEntry {
    /// What it is.
    pub kind: EntryKind,
    /// What it says.
    pub payload: Map<String, Value>,
    /// What is known about it.
    pub meta: Map<String, Value>,
}

impl NewEntry {
    /// Any entry.
    #[must_use]
    pub fn new(kind: EntryKind, payload: Map<String, Value>) -> Self {
        Self { kind, payload, meta: Map::new() }
    }

    /// Something said.
    #[must_use]
    pub fn message(message: &Message) -> Self {
        Self::new(EntryKind::Message, message.to_payload())
    }

    /// A step's system prompt.
    #[must_use]
    pub fn system(text: &str) -> Self {
        Self::new(EntryKind::System, object(json!({"content": text})))
    }

    /// An anchor; a state that is no object is left out.
    #[must_use]
    pub fn anchor(name: &str, state: Value) -> Self {
        let mut payload = object(json!({"name": name}));
        if state.is_object() {
            payload.insert("state".into(), state);
        }
        Self::new(EntryKind::Anchor, payload)
    }

    /// An event.
    #[must_use]
    pub fn event(name: &str, data: Value) -> Self {
        Self::new(EntryKind::Event, object(json!({"name": name, "data": data})))
    }

    /// An error.
    #[must_use]
    pub fn error(error: Value) -> Self {
        Self::new(EntryKind::Error, object(error))
    }

    /// The calls of an answer, with the words, thinking and provider data that came with them.
    #[must_use]
    pub fn tool_call(calls: &[ToolCallRequest], answer: &[Part]) -> Self {
        let mut payload = Map::new();
        payload.insert("calls".into(), calls.iter().map(ToolCallRequest::to_value).collect());
        let visible: Vec<Part> =
            answer.iter().filter(|it| matches!(it, Part::Text(_) | Part::Media(_))).cloned().collect();
        payload.insert("content".into(), content_of(&visible));
        insert_hidden_parts(&mut payload, answer);
        Self::new(EntryKind::ToolCall, payload)
    }

    /// The model's answer, with the thinking and provider data that came with it, and the pictures and
    /// sounds that it made before its words.
    #[must_use]
    pub fn answer(text: &str, answer: &[Part]) -> Self {
        let mut visible: Vec<Part> = answer.iter().filter(|it| matches!(it, Part::Media(_))).cloned().collect();
        if visible.is_empty() || !text.is_empty() {
            visible.push(Part::Text(text.to_owned()));
        }
        let mut payload = object(json!({"role": "assistant", "content": content_of(&visible)}));
        insert_hidden_parts(&mut payload, answer);
        Self::new(EntryKind::Message, payload)
    }

    /// The results of the calls before, in their order.
    #[must_use]
    pub fn tool_result(results: Vec<Value>) -> Self {
        Self::new(EntryKind::ToolResult, object(json!({"results": results})))
    }

    /// Adds to what is known about it.
    #[must_use]
    pub fn with_meta(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.meta.insert(key.into(), value.into());
        self
    }

    /// Says which model call it belongs to.
    #[must_use]
    pub fn in_run(self, run: &RunId) -> Self {
        self.with_meta("run_id", run.0.clone())
    }

    /// Keeps it out of the model's context.
    #[must_use]
    pub fn outside_context(self) -> Self {
        self.with_meta("context", false)
    }

    /// Dates it; the store still has to number it.
    #[must_use]
    pub fn dated(self, clock: &dyn Clock) -> Entry {
        Entry { id: 0, kind: self.kind, payload: self.payload, meta: self.meta, date: iso(clock.now()) }
    }
}

/// Thinking as `reasoning`, provider data as `provider_data`.
fn insert_hidden_parts(payload: &mut Map<String, Value>, answer: &[Part]) {
    let mut reasoning = String::new();
    let mut provider_data = Vec::new();
    for part in answer {
        match part {
            Part::Reasoning(text) => reasoning.push_str(text),
            Part::ProviderData(it) => provider_data.push(json!({"api_format": it.api_format, "payload": it.payload})),
            Part::Text(_) | Part::Media(_) => {}
        }
    }
    if !reasoning.is_empty() {
        payload.insert("reasoning".into(), reasoning.into());
    }
    if !provider_data.is_empty() {
        payload.insert("provider_data".into(), provider_data.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Media, MediaKind, MediaSource, Message};

    #[test]
    fn answers_keep_what_the_model_made() {
        let media =
            Media { kind: MediaKind::Image, media_type: "image/png".into(), source: MediaSource::Data("AAAA".into()) };
        let made = [Part::Reasoning("hm".into()), Part::Media(media.clone())];
        let read = |entry: NewEntry| Message::from_payload(&entry.payload).unwrap().parts;
        let thought = Part::Reasoning("hm".into());
        let (picture, words) = (Part::Media(media), Part::Text("there".into()));
        assert_eq!(read(NewEntry::answer("there", &made)), [thought.clone(), picture.clone(), words.clone()]);
        assert_eq!(read(NewEntry::answer("", &made)), [thought.clone(), picture]);
        assert_eq!(read(NewEntry::answer("there", &made[..1])), [thought, words]);
        assert_eq!(NewEntry::answer("", &[]).payload["content"], "");
    }
}
