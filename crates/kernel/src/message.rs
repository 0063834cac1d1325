//! What is said between people, models and tools, typed, and its shape on tapes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::ToolError;

/// Who speaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// The runtime's instructions.
    System,
    /// A person, or the runtime on a person's behalf.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

impl Role {
    /// The role's name on tapes and wires.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// What kind of media.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MediaKind {
    /// A still picture.
    Image,
    /// Sound.
    Audio,
    /// Moving pictures.
    Video,
}

impl MediaKind {
    /// The kind's name on tapes.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Video => "video",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::Image, Self::Audio, Self::Video].into_iter().find(|it| it.as_str() == name)
    }
}

/// Where media is.
#[derive(Clone, Debug, PartialEq)]
pub enum MediaSource {
    /// Somewhere else: `https:`, `gs:`, or a blob kept beside the tape.
    Url(String),
    /// Here, in base64.
    Data(String),
}

/// A picture, a sound or a film.
#[derive(Clone, Debug, PartialEq)]
pub struct Media {
    /// Which of the three.
    pub kind: MediaKind,
    /// Its MIME type.
    pub media_type: String,
    /// Its content, or where that is.
    pub source: MediaSource,
}

/// Something only one wire format understands, kept so that it can be sent back unchanged.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ProviderData {
    /// Which wire format.
    pub api_format: String,
    /// What it sent.
    pub payload: Value,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Words.
    Text(String),
    /// The model's own thinking.
    Reasoning(String),
    /// A picture, a sound or a film.
    Media(Media),
    /// Something only one wire format understands.
    ProviderData(ProviderData),
}

impl Part {
    /// Reads one content block of a tape.
    ///
    /// # Errors
    /// `invalid_input` for a block of unknown type, or media without content.
    pub fn from_block(block: &Value) -> Result<Self, ToolError> {
        let text = |key: &str| block.get(key).and_then(Value::as_str).map(str::to_owned);
        match block.get("type").and_then(Value::as_str).unwrap_or_default() {
            "text" => Ok(Self::Text(text("text").unwrap_or_default())),
            "reasoning" => Ok(Self::Reasoning(text("text").or_else(|| text("reasoning")).unwrap_or_default())),
            "provider_data" => serde_json::from_value(block.clone())
                .map(Self::ProviderData)
                .map_err(|err| ToolError::invalid(format!("bad provider_data block: {err}"))),
            other => {
                let kind = MediaKind::parse(other)
                    .ok_or_else(|| ToolError::invalid(format!("unsupported content block type '{other}'")))?;
                let source = match (text("data"), text("url")) {
                    (Some(data), _) => MediaSource::Data(data),
                    (None, Some(url)) => match split_data_url(&url) {
                        Some((_, data)) => MediaSource::Data(data.to_owned()),
                        None => MediaSource::Url(url),
                    },
                    (None, None) => return Err(ToolError::invalid(format!("{other} block without url or data"))),
                };
                let guessed = text("url").and_then(|url| split_data_url(&url).map(|it| it.0.to_owned()));
                let media_type = text("media_type").or(guessed).unwrap_or_default();
                Ok(Self::Media(Media { kind, media_type, source }))
            }
        }
    }

    /// Writes a content block of a tape.
    #[must_use]
    pub fn to_block(&self) -> Value {
        match self {
            Self::Text(text) => json!({"type": "text", "text": text}),
            Self::Reasoning(text) => json!({"type": "reasoning", "text": text}),
            Self::ProviderData(it) => {
                json!({"type": "provider_data", "api_format": it.api_format, "payload": it.payload})
            }
            Self::Media(Media { kind, media_type, source }) => match source {
                MediaSource::Url(url) => json!({"type": kind.as_str(), "media_type": media_type, "url": url}),
                MediaSource::Data(data) => json!({"type": kind.as_str(), "media_type": media_type, "data": data}),
            },
        }
    }
}

/// Splits `data:image/png;base64,AAAA` into its MIME type and its base64 text.
pub(crate) fn split_data_url(url: &str) -> Option<(&str, &str)> {
    url.strip_prefix("data:")?.split_once(";base64,")
}

/// A call that the model asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCallRequest {
    /// The provider's id of the call.
    pub id: String,
    /// The tool's model-facing name.
    pub name: String,
    /// JSON text, as the model wrote it.
    pub arguments: String,
    /// What the provider wants back with the call.
    pub metadata: Map<String, Value>,
}

impl ToolCallRequest {
    /// The shape on tapes.
    #[must_use]
    pub fn to_value(&self) -> Value {
        json!({"id": self.id, "name": self.name, "arguments": self.arguments, "metadata": self.metadata})
    }

    /// Reads a call of a tape: today's shape, or chat-completions' nested one of release 0.5.
    #[must_use]
    pub fn from_value(value: &Value) -> Option<Self> {
        let id = value.get("id")?.as_str()?.to_owned();
        let function = value.get("function").unwrap_or(value);
        let name = function.get("name")?.as_str()?.to_owned();
        let arguments = match function.get("arguments") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => "{}".to_owned(),
            Some(other) => other.to_string(),
        };
        let metadata = value.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
        Some(Self { id, name, arguments, metadata })
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub parts: Vec<Part>,
    /// Calls that an assistant message asks for.
    pub tool_calls: Vec<ToolCallRequest>,
    /// Which call a tool message answers.
    pub tool_call: Option<ToolCallRequest>,
    /// Whether a tool message is an error.
    pub is_error: bool,
}

impl Message {
    /// A message of one text.
    #[must_use]
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self::parts(role, vec![Part::Text(text.into())])
    }

    /// A message of several parts.
    #[must_use]
    pub fn parts(role: Role, parts: Vec<Part>) -> Self {
        Self { role, parts, tool_calls: Vec::new(), tool_call: None, is_error: false }
    }

    /// The result of a call. Content results (`{"type": "tool_content", …}`) become parts, any other
    /// value one text.
    #[must_use]
    pub fn tool_result(call: ToolCallRequest, result: &Value) -> Self {
        let parts = content_blocks(result)
            .map(|blocks| blocks.iter().filter_map(|it| Part::from_block(it).ok()).collect())
            .unwrap_or_else(|| vec![Part::Text(crate::text::render(result))]);
        Self { tool_call: Some(call), ..Self::parts(Role::Tool, parts) }
    }

    /// All text parts, joined.
    #[must_use]
    pub fn joined_text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|it| match it {
                Part::Text(text) => Some(text.as_str()),
                Part::Reasoning(_) | Part::Media(_) | Part::ProviderData(_) => None,
            })
            .collect()
    }

    /// The payload of a `message` entry.
    #[must_use]
    pub fn to_payload(&self) -> Map<String, Value> {
        let mut payload = Map::new();
        payload.insert("role".into(), self.role.as_str().into());
        payload.insert("content".into(), content_of(&self.parts));
        if !self.tool_calls.is_empty() {
            payload.insert("tool_calls".into(), self.tool_calls.iter().map(ToolCallRequest::to_value).collect());
        }
        if let Some(call) = &self.tool_call {
            payload.insert("tool_call".into(), json!({"id": call.id, "name": call.name, "arguments": call.arguments}));
        }
        if self.is_error {
            payload.insert("is_error".into(), true.into());
        }
        payload
    }

    /// Reads the payload of a `message` entry, old shapes included.
    ///
    /// # Errors
    /// `invalid_input` for an unknown role, an unsupported block, or a tool message without an id.
    pub fn from_payload(payload: &Map<String, Value>) -> Result<Self, ToolError> {
        let role = match payload.get("role").and_then(Value::as_str).unwrap_or_default() {
            "system" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => Role::Tool,
            other => return Err(ToolError::invalid(format!("unknown message role '{other}'"))),
        };
        let mut parts: Vec<Part> = Vec::new();
        if let Some(blocks) = payload.get("provider_data").and_then(Value::as_array) {
            parts
                .extend(blocks.iter().filter_map(|it| serde_json::from_value(it.clone()).ok()).map(Part::ProviderData));
        }
        if let Some(text) = payload.get("reasoning").and_then(Value::as_str) {
            parts.push(Part::Reasoning(text.to_owned()));
        }
        match payload.get("content") {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => parts.push(Part::Text(text.clone())),
            Some(Value::Array(blocks)) => {
                for block in blocks {
                    parts.push(Part::from_block(block)?);
                }
            }
            Some(_) => return Err(ToolError::invalid("message content is neither text nor a list of blocks")),
        }
        if role == Role::System && parts.iter().any(|it| !matches!(it, Part::Text(_))) {
            return Err(ToolError::invalid("a system message holds text only"));
        }
        let tool_calls = payload
            .get("tool_calls")
            .and_then(Value::as_array)
            .map(|calls| calls.iter().filter_map(ToolCallRequest::from_value).collect())
            .unwrap_or_default();
        let tool_call = if role == Role::Tool { Some(answered_call(payload)?) } else { None };
        let is_error = payload.get("is_error").and_then(Value::as_bool).unwrap_or_default();
        Ok(Self { role, parts, tool_calls, tool_call, is_error })
    }
}

/// Which call a `tool` message answers: `tool_call`, or release 0.5's `tool_call_id` and `name`.
fn answered_call(payload: &Map<String, Value>) -> Result<ToolCallRequest, ToolError> {
    if let Some(call) = payload.get("tool_call").and_then(ToolCallRequest::from_value) {
        return Ok(call);
    }
    let text = |key: &str| payload.get(key).and_then(Value::as_str).map(str::to_owned);
    let id = text("tool_call_id").ok_or_else(|| ToolError::invalid("a tool message needs the id of its call"))?;
    Ok(ToolCallRequest { id, name: text("name").unwrap_or_default(), arguments: "{}".into(), metadata: Map::new() })
}

/// One text stays a string, anything else becomes a list of blocks.
#[must_use]
pub fn content_of(parts: &[Part]) -> Value {
    match parts {
        [] => Value::String(String::new()),
        [Part::Text(text)] => Value::String(text.clone()),
        many => many.iter().map(Part::to_block).collect(),
    }
}

/// The blocks of a content result (`{"type": "tool_content", "content": […]}`), if `value` is one.
#[must_use]
pub fn content_blocks(value: &Value) -> Option<&Vec<Value>> {
    let is_content = value.get("type").and_then(Value::as_str) == Some("tool_content");
    value.get("content").and_then(Value::as_array).filter(|_| is_content)
}

/// Content blocks as a person reads them: texts, and a line for each picture, sound or film.
#[must_use]
pub fn blocks_text(blocks: &[Value]) -> String {
    let lines = blocks.iter().filter_map(|block| match Part::from_block(block).ok()? {
        Part::Text(text) => Some(text),
        Part::Media(Media { kind, media_type, source }) => {
            let what = if media_type.is_empty() { kind.as_str() } else { &media_type };
            Some(match source {
                MediaSource::Url(url) => format!("[{what}, {url}]"),
                MediaSource::Data(data) => {
                    let n_bytes = data.trim_end_matches('=').len() as u64 * 3 / 4;
                    format!("[{what}, {}]", crate::text::human_size(n_bytes))
                }
            })
        }
        Part::Reasoning(_) | Part::ProviderData(_) => None,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Tokens of one model call. Input includes cached ones, output includes reasoning.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct TokenUsage {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Of those written, the ones that were thinking.
    pub reasoning_tokens: u64,
    /// Of those read, the ones that came from the provider's cache.
    pub cached_tokens: u64,
    /// Of those read, the ones that were put into the provider's cache.
    pub cache_write_tokens: u64,
}

impl TokenUsage {
    /// The shape on tapes and in the event stream.
    #[must_use]
    pub fn to_value(&self) -> Value {
        json!({
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "reasoning_tokens": self.reasoning_tokens,
            "cached_tokens": self.cached_tokens,
            "cache_write_tokens": self.cache_write_tokens,
            "total_tokens": self.input_tokens.saturating_add(self.output_tokens),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(payload: Value) {
        let message = Message::from_payload(payload.as_object().unwrap()).unwrap();
        assert_eq!(Value::Object(message.to_payload()), payload);
    }

    #[test]
    fn payloads_survive_a_round_trip() {
        round_trip(json!({"role": "user", "content": "hi"}));
        round_trip(json!({"role": "assistant", "content": ""}));
        round_trip(json!({"role": "user", "content": [
            {"type": "text", "text": "see"},
            {"type": "image", "media_type": "image/png", "data": "AAAA"},
            {"type": "audio", "media_type": "audio/wav", "url": "https://x/y.wav"},
        ]}));
        round_trip(json!({"role": "tool", "content": "5",
            "tool_call": {"id": "c1", "name": "add", "arguments": "{}"}, "is_error": true}));
    }

    #[test]
    fn content_is_told_without_its_bytes() {
        let blocks = json!([
            {"type": "text", "text": "shot"},
            {"type": "image", "media_type": "image/png", "data": "A".repeat(4_000)},
            {"type": "audio", "url": "https://x/y.wav"},
            {"type": "widget"},
        ]);
        assert_eq!(blocks_text(blocks.as_array().unwrap()), "shot\n[image/png, 2.9 KiB]\n[audio, https://x/y.wav]");
    }

    #[test]
    fn old_shapes_are_read() {
        let old = json!({"role": "tool", "tool_call_id": "c9", "content": "x"});
        let message = Message::from_payload(old.as_object().unwrap()).unwrap();
        assert_eq!(message.tool_call.unwrap().id, "c9");
        let block = json!({"type": "image", "url": "data:image/gif;base64,R0lG"});
        let Part::Media(media) = Part::from_block(&block).unwrap() else { panic!() };
        assert_eq!((media.media_type.as_str(), media.source), ("image/gif", MediaSource::Data("R0lG".into())));
        let call = json!({"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}});
        assert_eq!(ToolCallRequest::from_value(&call).unwrap().name, "bash");
    }

    #[test]
    fn what_no_wire_can_send_is_refused() {
        for bad in [
            json!({"role": "narrator", "content": "x"}),
            json!({"role": "tool", "content": "x"}),
            json!({"role": "user", "content": [{"type": "hologram"}]}),
            json!({"role": "user", "content": [{"type": "image", "media_type": "image/png"}]}),
            json!({"role": "system", "content": [{"type": "image", "media_type": "a/b", "url": "u"}]}),
        ] {
            let err = Message::from_payload(bad.as_object().unwrap()).unwrap_err();
            assert_eq!(err.kind, crate::error::ErrorKind::InvalidInput, "{bad}");
        }
    }
}
