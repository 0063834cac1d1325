//! The body of a chat request.

use std::borrow::Cow;

use bub_kernel::{
    message::{Media, MediaKind, MediaSource, Part, Role, ToolCallRequest},
    model::{ModelError, ModelOptions, ModelRequest, ProviderTool, ToolChoice},
    tool::ToolSpec,
};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value, json};

use crate::{
    history::{self, Answer, CallResult, Said},
    options::{Body, answer_schema, finite, merge, object_text, parameters, refused, unsupported},
    wire::{Asked, Wire},
};

use super::{Dialect, REASONING_DETAILS};

/// What the model is taken to say to results that a person's message follows at once.
const BRIDGE: &str = "(interrupted)";

/// What stands for thinking that there was none of, where some is wanted; empty text is none.
const NO_THINKING: &str = " ";

/// The bytes to send.
pub(crate) fn body(asked: &Asked<'_>) -> Result<Vec<u8>, ModelError> {
    let request = asked.request;
    let dialect = asked.kind.dialect().of_model(asked.kind, &request.model);
    let (mut options, native) = options(request, &dialect)?;
    merge(&mut options, asked.extra_body.clone());
    let mut tools: Vec<WireTool<'_>> = request.tools.iter().map(|it| WireTool::new(it)).collect();
    tools.extend(native.into_iter().map(WireTool::Native));
    let body = Body { options, tools, conversation: ("messages", messages(asked, &dialect)?) };
    serde_json::to_vec(&body).map_err(|err| ModelError::Protocol(format!("cannot write the request: {err}")))
}

/// The fields but tools and messages, and the definitions of the provider's own tools.
fn options<'a>(
    request: &'a ModelRequest,
    dialect: &Dialect,
) -> Result<(Map<String, Value>, Vec<&'a Value>), ModelError> {
    let ModelOptions {
        max_tokens,
        reasoning_effort,
        temperature,
        top_p,
        top_k,
        presence_penalty,
        frequency_penalty,
        stop,
        seed,
        tool_choice,
        parallel_tool_calls,
        output,
        provider_tools,
        extra_body: _,
    } = &request.options;
    let mut options = Map::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            options.insert(key.to_owned(), value);
        }
    };
    set("model", Some(request.model.as_str().into()));
    set("stream", Some(true.into()));
    set("stream_options", dialect.asks_usage.then(|| json!({"include_usage": true})));
    set("reasoning_split", dialect.splits_thinking.then_some(true.into()));
    set(dialect.max_tokens, max_tokens.map(Value::from));
    match (reasoning_effort, dialect.nested_effort) {
        (Some(effort), true) => set("reasoning", Some(json!({"effort": effort, "exclude": false}))),
        (effort, _) => set("reasoning_effort", effort.clone().map(Value::from)),
    }
    set("temperature", finite("temperature", *temperature)?);
    set("top_p", finite("top_p", *top_p)?);
    if top_k.is_some() && !dialect.has_top_k {
        return Err(refused(Wire::Chat, "top_k at this provider"));
    }
    set("top_k", top_k.map(Value::from));
    set("presence_penalty", finite("presence_penalty", *presence_penalty)?);
    set("frequency_penalty", finite("frequency_penalty", *frequency_penalty)?);
    set("stop", (!stop.is_empty()).then(|| stop.clone().into()));
    set(dialect.seed, seed.map(Value::from));
    set("tool_choice", tool_choice.as_ref().map(wire_choice));
    set("parallel_tool_calls", parallel_tool_calls.map(Value::from));
    let format = output.as_ref().map(|it| {
        let (schema, strict) = answer_schema(&it.schema);
        let schema = json!({"name": it.name, "schema": schema, "strict": strict});
        json!({"type": "json_schema", "json_schema": schema})
    });
    set("response_format", format);
    let mut native = Vec::new();
    for tool in provider_tools {
        match tool {
            ProviderTool::WebSearch => set("web_search_options", Some(json!({}))),
            ProviderTool::Native { api_format, definition } if api_format == Wire::Chat.as_str() => {
                native.push(definition);
            }
            other => return Err(unsupported(Wire::Chat, other)),
        }
    }
    Ok((options, native))
}

fn wire_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => "auto".into(),
        ToolChoice::None => "none".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum WireTool<'a> {
    Function {
        r#type: &'static str,
        function: WireFunction<'a>,
    },
    /// One of the provider's own, as it was given.
    Native(&'a Value),
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: String,
    description: &'a str,
    parameters: Cow<'a, Value>,
}

impl<'a> WireTool<'a> {
    fn new(spec: &'a ToolSpec) -> Self {
        let function = WireFunction {
            name: spec.alias(),
            description: &spec.description,
            parameters: parameters(&spec.parameters),
        };
        Self::Function { r#type: "function", function }
    }
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: Content<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<&'a Value>,
}

impl<'a> WireMessage<'a> {
    fn new(role: Role, content: Content<'a>) -> Self {
        Self {
            role: role.as_str(),
            content,
            tool_calls: Vec::new(),
            tool_call_id: None,
            reasoning_content: None,
            reasoning_details: None,
        }
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

/// A call on the wire, under the id that it has there; what the server sent beside it is sent back.
struct WireCall<'a>(Cow<'a, str>, &'a ToolCallRequest);

impl Serialize for WireCall<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(id, ToolCallRequest { name, arguments, metadata, .. }) = self;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("id", id)?;
        map.serialize_entry("type", "function")?;
        let name = history::tool_name(name);
        map.serialize_entry("function", &CalledFunction { name, arguments: object_text(arguments) })?;
        if let Some(extra) = metadata.get("extra_content") {
            map.serialize_entry("extra_content", extra)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: Cow<'a, str>,
    arguments: &'a str,
}

/// The messages as servers accept them.
fn messages<'a>(asked: &Asked<'a>, dialect: &Dialect) -> Result<Vec<WireMessage<'a>>, ModelError> {
    let said = history::conversation(asked, Wire::Chat);
    let mut wire = Vec::with_capacity(said.len());
    for it in said {
        match it {
            Said::System(text) => wire.push(WireMessage::new(Role::System, Content::Text(text))),
            Said::User(parts) => {
                bridge(&mut wire, dialect);
                wire.push(WireMessage::new(Role::User, user(&parts)?));
            }
            Said::Assistant(answer) => {
                let is_first = wire.iter().all(|it| it.role == Role::System.as_str());
                if let Some(said) = assistant(answer, dialect) {
                    let opening =
                        is_first.then(|| WireMessage::new(Role::User, Content::Text(history::OPENING.into())));
                    wire.extend(opening.into_iter().chain([said]));
                }
            }
            Said::Results(results) => add_results(&results, dialect, &mut wire)?,
        }
    }
    Ok(wire)
}

/// Lets the model answer results before a person speaks again, where the server insists on that.
fn bridge(wire: &mut Vec<WireMessage<'_>>, dialect: &Dialect) {
    if dialect.answers_results && wire.last().is_some_and(|it| it.role == Role::Tool.as_str()) {
        wire.push(WireMessage::new(Role::Assistant, Content::Text(BRIDGE.into())));
    }
}

/// A person's words as one text, if there are no media between them.
fn user<'a>(said: &[&'a Part]) -> Result<Content<'a>, ModelError> {
    if let [Part::Text(text)] = said {
        return Ok(Content::Text(text.into()));
    }
    let has_media = said.iter().any(|it| matches!(it, Part::Media(_)));
    let mut parts = Vec::with_capacity(said.len());
    let mut words = String::new();
    for part in said {
        match part {
            Part::Text(text) if has_media => parts.push(WirePart::Text { text: text.into() }),
            Part::Text(text) => words.push_str(text),
            Part::Media(media) => parts.push(media_part(media)?),
            Part::Reasoning(_) | Part::ProviderData(_) => (),
        }
    }
    Ok(if has_media { Content::Parts(parts) } else { Content::Text(words.into()) })
}

/// An answer; none when there are neither words nor calls, which no server takes.
fn assistant<'a>(answer: Answer<'a>, dialect: &Dialect) -> Option<WireMessage<'a>> {
    if answer.text.is_empty() && answer.calls.is_empty() {
        return None;
    }
    let details = answer.items().find_map(|it| it.get(REASONING_DETAILS));
    let content = if answer.text.is_empty() { Content::Null } else { Content::Text(answer.text) };
    let mut said = WireMessage::new(Role::Assistant, content);
    said.tool_calls = answer.calls.into_iter().map(|it| WireCall(dialect.call_id(&it.id), it)).collect();
    // Missing, as in answers of other models, it is refused.
    let thinking = if answer.reasoning.is_empty() { NO_THINKING.into() } else { answer.reasoning };
    said.reasoning_content = dialect.thinking_back.then_some(thinking);
    said.reasoning_details = details;
    Some(said)
}

/// Writes the results of an answer's calls. Their media follow as a user message: a tool message may
/// only hold text.
fn add_results<'a>(
    results: &[CallResult<'a>],
    dialect: &Dialect,
    wire: &mut Vec<WireMessage<'a>>,
) -> Result<(), ModelError> {
    let mut media = Vec::new();
    for result in results {
        let call = result.call;
        let mut text = result.text();
        for part in result.parts() {
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
        answer.tool_call_id = Some(dialect.call_id(&call.id));
        wire.push(answer);
    }
    if !media.is_empty() {
        bridge(wire, dialect);
        wire.push(WireMessage::new(Role::User, Content::Parts(media)));
    }
    Ok(())
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
