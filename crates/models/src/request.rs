//! The body of a chat request.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use bub_kernel::{
    message::{Media, MediaKind, MediaSource, Message, Part, Role, ToolCallRequest},
    model::{ModelError, ModelOptions, ModelRequest},
    tool::ToolSpec,
};
use serde::{Serialize, Serializer, de::IgnoredAny, ser::SerializeMap};
use serde_json::{Map, Value, json};

/// What stands for the result of a call that was cut off before it had one.
const INTERRUPTED: &str = "interrupted: the call ended without a result";

/// In what a server's wire differs from the others'.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialect {
    /// The field for the most tokens to write.
    pub(crate) max_tokens: &'static str,
    /// Whether the reasoning effort is sent as `reasoning: {effort}`.
    pub(crate) nested_effort: bool,
}

/// The bytes to send.
///
/// The messages come last: the body of the next step then begins with that of this one, which is
/// what providers' caches look for.
pub(crate) fn body(request: &ModelRequest, dialect: &Dialect) -> Result<Vec<u8>, ModelError> {
    let mut options = options(request, dialect)?;
    merge(&mut options, request.options.extra_body.clone());
    let tools: Vec<WireTool<'_>> = request.tools.iter().map(|it| WireTool::new(it)).collect();
    let body = Body { options, tools, messages: messages(request)? };
    serde_json::to_vec(&body).map_err(|err| ModelError::Protocol(format!("cannot write the request: {err}")))
}

fn options(request: &ModelRequest, dialect: &Dialect) -> Result<Map<String, Value>, ModelError> {
    let ModelOptions { max_tokens, reasoning_effort, temperature, top_p, stop, seed, extra_body: _ } = &request.options;
    let mut options = Map::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            options.insert(key.to_owned(), value);
        }
    };
    let finite = |name: &str, value: &Option<f64>| match value {
        Some(it) if !it.is_finite() => Err(ModelError::Unsupported(format!("{name} must be a number, not {it}"))),
        Some(it) => Ok(Some(Value::from(*it))),
        None => Ok(None),
    };
    set("model", Some(request.model.as_str().into()));
    set("stream", Some(true.into()));
    set("stream_options", Some(json!({"include_usage": true})));
    set(dialect.max_tokens, max_tokens.map(Value::from));
    match (reasoning_effort, dialect.nested_effort) {
        (Some(effort), true) => set("reasoning", Some(json!({"effort": effort, "exclude": false}))),
        (effort, _) => set("reasoning_effort", effort.clone().map(Value::from)),
    }
    set("temperature", finite("temperature", temperature)?);
    set("top_p", finite("top_p", top_p)?);
    set("stop", (!stop.is_empty()).then(|| stop.clone().into()));
    set("seed", seed.map(Value::from));
    Ok(options)
}

/// Lays `more` over `fields`, objects into objects.
fn merge(fields: &mut Map<String, Value>, more: Map<String, Value>) {
    for (key, value) in more {
        match (fields.get_mut(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (_, value) => {
                fields.insert(key, value);
            }
        }
    }
}

struct Body<'a> {
    options: Map<String, Value>,
    tools: Vec<WireTool<'a>>,
    messages: Vec<WireMessage<'a>>,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for (key, value) in &self.options {
            map.serialize_entry(key, value)?;
        }
        if !self.tools.is_empty() && !self.options.contains_key("tools") {
            map.serialize_entry("tools", &self.tools)?;
        }
        if !self.options.contains_key("messages") {
            map.serialize_entry("messages", &self.messages)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    function: WireFunction<'a>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: String,
    description: &'a str,
    parameters: &'a Value,
}

impl<'a> WireTool<'a> {
    fn new(spec: &'a ToolSpec) -> Self {
        let function =
            WireFunction { name: spec.alias(), description: &spec.description, parameters: &spec.parameters };
        Self { r#type: "function", function }
    }
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: Content<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

impl<'a> WireMessage<'a> {
    fn new(role: Role, content: Content<'a>) -> Self {
        Self { role: role.as_str(), content, tool_calls: Vec::new(), tool_call_id: None }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Null,
    Text(Cow<'a, str>),
    Parts(Vec<WirePart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WirePart<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: Link<'a> },
    VideoUrl { video_url: Link<'a> },
    InputAudio { input_audio: Audio<'a> },
}

#[derive(Serialize)]
struct Link<'a> {
    url: Cow<'a, str>,
}

#[derive(Serialize)]
struct Audio<'a> {
    data: &'a str,
    format: &'static str,
}

/// A call on the wire; what the server sent beside it is sent back.
struct WireCall<'a>(&'a ToolCallRequest);

impl Serialize for WireCall<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let ToolCallRequest { id, name, arguments, metadata } = self.0;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("id", id)?;
        map.serialize_entry("type", "function")?;
        map.serialize_entry("function", &CalledFunction { name, arguments: object_text(arguments) })?;
        if let Some(extra) = metadata.get("extra_content") {
            map.serialize_entry("extra_content", extra)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: &'a str,
    arguments: &'a str,
}

/// Arguments as they came, or an empty object for what is none: some servers read the arguments of
/// earlier calls and refuse the whole request when they are broken.
fn object_text(arguments: &str) -> &str {
    let is_object = arguments.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(arguments).is_ok();
    if is_object { arguments } else { "{}" }
}

/// The messages as servers accept them: every call has one result right after it, in the order of
/// the calls; results without a call and assistant messages that say nothing are left out.
fn messages(request: &ModelRequest) -> Result<Vec<WireMessage<'_>>, ModelError> {
    let mut wire = Vec::with_capacity(request.messages.len().saturating_add(1));
    if let Some(system) = request.system.as_deref().filter(|it| !it.is_empty()) {
        wire.push(WireMessage::new(Role::System, Content::Text(system.into())));
    }
    for (idx, message) in request.messages.iter().enumerate() {
        match message.role {
            Role::System => {
                let text = text_of(message);
                if !text.is_empty() {
                    wire.push(WireMessage::new(Role::System, Content::Text(text)));
                }
            }
            Role::User => wire.extend(user(message)?),
            Role::Assistant => {
                let rest = request.messages.get(idx.saturating_add(1)..).unwrap_or_default();
                assistant(message, rest, &mut wire)?;
            }
            // Taken along with their calls.
            Role::Tool => (),
        }
    }
    Ok(wire)
}

fn user(message: &Message) -> Result<Option<WireMessage<'_>>, ModelError> {
    let has_media = message.parts.iter().any(|it| matches!(it, Part::Media(_)));
    let content = if has_media {
        let mut parts = Vec::with_capacity(message.parts.len());
        for part in &message.parts {
            match part {
                Part::Text(text) if text.is_empty() => (),
                Part::Text(text) => parts.push(WirePart::Text { text: text.into() }),
                Part::Media(media) => parts.push(media_part(media)?),
                Part::Reasoning(_) | Part::ProviderData(_) => (),
            }
        }
        Content::Parts(parts)
    } else {
        Content::Text(text_of(message))
    };
    let is_empty = matches!(&content, Content::Text(text) if text.is_empty());
    Ok((!is_empty).then(|| WireMessage::new(Role::User, content)))
}

/// Writes an assistant message, its calls and their results, which are looked for up to the next
/// answer. Media of results follow as a user message: a tool message may only hold text.
fn assistant<'a>(message: &'a Message, rest: &'a [Message], wire: &mut Vec<WireMessage<'a>>) -> Result<(), ModelError> {
    let text = text_of(message);
    if text.is_empty() && message.tool_calls.is_empty() {
        return Ok(());
    }
    let mut results: HashMap<&str, &Message> = HashMap::new();
    if !message.tool_calls.is_empty() {
        for it in rest.iter().take_while(|it| it.role != Role::Assistant).filter(|it| it.role == Role::Tool) {
            if let Some(call) = &it.tool_call {
                results.entry(call.id.as_str()).or_insert(it);
            }
        }
    }
    let mut calls: Vec<&ToolCallRequest> = Vec::with_capacity(message.tool_calls.len());
    let mut seen = HashSet::new();
    calls.extend(message.tool_calls.iter().filter(|it| seen.insert(it.id.as_str())));
    let content = if text.is_empty() { Content::Null } else { Content::Text(text) };
    let mut said = WireMessage::new(Role::Assistant, content);
    said.tool_calls = calls.iter().map(|it| WireCall(it)).collect();
    wire.push(said);
    let mut media = Vec::new();
    for call in calls {
        let result = results.get(call.id.as_str());
        let mut text = result.map_or(Cow::Borrowed(INTERRUPTED), |it| text_of(it));
        for part in result.iter().flat_map(|it| &it.parts) {
            if let Part::Media(it) = part {
                if text.is_empty() {
                    text = format!("{} below", it.kind.as_str()).into();
                }
                let label = format!("{} from the result of {} ({}):", it.kind.as_str(), call.name, call.id);
                media.push(WirePart::Text { text: label.into() });
                media.push(media_part(it)?);
            }
        }
        let mut answer = WireMessage::new(Role::Tool, Content::Text(text));
        answer.tool_call_id = Some(&call.id);
        wire.push(answer);
    }
    if !media.is_empty() {
        wire.push(WireMessage::new(Role::User, Content::Parts(media)));
    }
    Ok(())
}

/// A message's words, borrowed when there is one piece of them.
fn text_of(message: &Message) -> Cow<'_, str> {
    let mut texts = message.parts.iter().filter_map(|it| match it {
        Part::Text(text) => Some(text.as_str()),
        Part::Reasoning(_) | Part::Media(_) | Part::ProviderData(_) => None,
    });
    match (texts.next(), texts.next()) {
        (None, _) => Cow::Borrowed(""),
        (Some(one), None) => Cow::Borrowed(one),
        _ => Cow::Owned(message.joined_text()),
    }
}

fn media_part(media: &Media) -> Result<WirePart<'_>, ModelError> {
    let Media { kind, media_type, source } = media;
    let link = || match source {
        MediaSource::Data(data) => {
            let default = if *kind == MediaKind::Image { "image/png" } else { "video/mp4" };
            let media_type = if media_type.is_empty() { default } else { media_type };
            Ok(Link { url: format!("data:{media_type};base64,{data}").into() })
        }
        MediaSource::Url(url) if ["http://", "https://", "data:"].iter().any(|it| url.starts_with(it)) => {
            Ok(Link { url: url.into() })
        }
        MediaSource::Url(url) => Err(ModelError::Unsupported(format!(
            "chat completions take media as data or as a web address, not as '{}'",
            crate::errors::shorten(url, 80)
        ))),
    };
    match (kind, source) {
        (MediaKind::Image, _) => Ok(WirePart::ImageUrl { image_url: link()? }),
        (MediaKind::Video, _) => Ok(WirePart::VideoUrl { video_url: link()? }),
        (MediaKind::Audio, MediaSource::Data(data)) => {
            let format = match media_type.as_str() {
                "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
                "audio/mpeg" | "audio/mp3" => "mp3",
                other => {
                    return Err(ModelError::Unsupported(format!(
                        "chat completions take audio as wav or mp3, not as '{other}'"
                    )));
                }
            };
            Ok(WirePart::InputAudio { input_audio: Audio { data, format } })
        }
        (MediaKind::Audio, MediaSource::Url(_)) => {
            Err(ModelError::Unsupported("chat completions take audio as data, not as a web address".into()))
        }
    }
}
