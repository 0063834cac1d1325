//! The body of a responses request.

use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hash, Hasher},
};

use bub_kernel::{
    message::{Media, MediaKind, MediaSource, Part, ToolCallRequest},
    model::{ModelError, ModelOptions, ProviderTool, ToolChoice},
    tool::ToolSpec,
};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value, json};

use crate::{
    history::{self, Answer, CallResult, Piece, Said},
    options::{Body, answer_schema, finite, merge, object_text, parameters, refused, unsupported},
    wire::{Asked, Wire},
};

use super::items::field;

/// The longest id that servers accept, in characters.
const MAX_ID_CHARS: usize = 64;

/// What a server gets that must have instructions, when there are none.
const NO_INSTRUCTIONS: &str = "Answer the user, with the tools where they help.";

/// In what a server's wire differs from the others'.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialect {
    /// Whether the system prompt goes into `instructions`, which must be there, and the conversation
    /// may hold no message of role `system`.
    instructions: bool,
    /// Whether the most tokens to write can be set.
    max_tokens: bool,
    ids: Ids,
}

/// Which ids the items of earlier answers have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ids {
    /// Those that the provider gave.
    Known,
    /// One each.
    Needed,
    /// None: the provider's hold for one connection only.
    Withheld,
}

impl Dialect {
    /// What most servers take.
    pub(crate) const PLAIN: Self = Self { instructions: false, max_tokens: true, ids: Ids::Known };
    pub(crate) const OPENROUTER: Self = Self { ids: Ids::Needed, ..Self::PLAIN };
    /// The service behind the login of ChatGPT.
    pub(crate) const CODEX: Self = Self { instructions: true, max_tokens: false, ..Self::PLAIN };
    /// GitHub Copilot.
    pub(crate) const COPILOT: Self = Self { ids: Ids::Withheld, ..Self::PLAIN };
}

/// The bytes to send.
pub(crate) fn body(asked: &Asked<'_>) -> Result<Vec<u8>, ModelError> {
    body_in(asked, asked.kind.responses_dialect())
}

fn body_in(asked: &Asked<'_>, dialect: Dialect) -> Result<Vec<u8>, ModelError> {
    let said = history::conversation(asked, Wire::Responses);
    let mut tools: Vec<WireTool<'_>> = asked.request.tools.iter().map(|it| WireTool::new(it)).collect();
    let mut options = options(asked, dialect, &mut tools)?;
    let mut said = said.as_slice();
    if dialect.instructions {
        let mut instructions = NO_INSTRUCTIONS;
        if let Some((Said::System(text), rest)) = said.split_first() {
            (instructions, said) = (text, rest);
        }
        options.insert("instructions".to_owned(), instructions.into());
    }
    merge(&mut options, asked.extra_body.clone());
    let body = Body { options, tools, conversation: ("input", input(said, asked.provider, dialect)?) };
    serde_json::to_vec(&body).map_err(|err| ModelError::Protocol(format!("cannot write the request: {err}")))
}

/// The fields but tools and input; the provider's own tools are added to `tools`.
fn options<'a>(
    asked: &Asked<'a>,
    dialect: Dialect,
    tools: &mut Vec<WireTool<'a>>,
) -> Result<Map<String, Value>, ModelError> {
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
    } = &asked.request.options;
    for (is_set, what) in [
        (!stop.is_empty(), "stop"),
        (seed.is_some(), "seed"),
        (top_k.is_some(), "top_k"),
        (presence_penalty.is_some(), "presence_penalty"),
        (frequency_penalty.is_some(), "frequency_penalty"),
    ] {
        if is_set {
            return Err(refused(Wire::Responses, what));
        }
    }
    let mut include = Vec::new();
    if reasoning_effort.is_some() || may_reason(&asked.request.model) {
        include.push("reasoning.encrypted_content");
    }
    for tool in provider_tools {
        let own = match tool {
            ProviderTool::WebSearch => {
                include.push("web_search_call.action.sources");
                json!({"type": "web_search"})
            }
            ProviderTool::CodeExecution => json!({"type": "code_interpreter", "container": {"type": "auto"}}),
            ProviderTool::ImageGeneration => json!({"type": "image_generation"}),
            ProviderTool::Native { api_format, definition } if api_format == Wire::Responses.as_str() => {
                tools.push(WireTool::Native(definition));
                continue;
            }
            ProviderTool::WebFetch | ProviderTool::Native { .. } => return Err(unsupported(Wire::Responses, tool)),
        };
        tools.push(WireTool::Own(own));
    }
    let mut options = Map::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            options.insert(key.to_owned(), value);
        }
    };
    set("model", Some(asked.request.model.as_str().into()));
    set("stream", Some(true.into()));
    set("store", Some(false.into()));
    set("include", (!include.is_empty()).then(|| include.into()));
    // The settings always have a limit; what knows none is not to be refused for that.
    set("max_output_tokens", max_tokens.filter(|_| dialect.max_tokens).map(Value::from));
    let reasoning = reasoning_effort.as_ref().map(|it| match it.as_str() {
        // There is nothing to sum up.
        "none" => json!({"effort": it}),
        _ => json!({"effort": it, "summary": "auto"}),
    });
    set("reasoning", reasoning);
    set("temperature", finite("temperature", *temperature)?);
    set("top_p", finite("top_p", *top_p)?);
    set("tool_choice", tool_choice.as_ref().map(wire_choice));
    set("parallel_tool_calls", parallel_tool_calls.map(Value::from));
    let format = output.as_ref().map(|it| {
        let (schema, strict) = answer_schema(&it.schema);
        let format = json!({"type": "json_schema", "name": it.name, "schema": schema, "strict": strict});
        json!({"format": format})
    });
    set("text", format);
    Ok(options)
}

/// Whether a model may think before it answers. OpenAI refuses whole requests that ask the others for
/// their thinking.
fn may_reason(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model).to_lowercase();
    !["gpt-3", "gpt-4", "chatgpt"].iter().any(|it| name.starts_with(it)) && !name.contains("-chat")
}

fn wire_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => "auto".into(),
        ToolChoice::None => "none".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Tool(name) => json!({"type": "function", "name": name}),
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum WireTool<'a> {
    Function {
        r#type: &'static str,
        name: String,
        description: &'a str,
        parameters: Cow<'a, Value>,
        /// Always sent: without it, servers make the schema strict, which it need not be fit for.
        strict: bool,
    },
    /// One of the provider's own.
    Own(Value),
    /// One of the provider's own, as it was given.
    Native(&'a Value),
}

impl<'a> WireTool<'a> {
    fn new(spec: &'a ToolSpec) -> Self {
        Self::Function {
            r#type: "function",
            name: spec.alias(),
            description: &spec.description,
            parameters: parameters(&spec.parameters),
            strict: false,
        }
    }
}

/// An item of the conversation.
#[derive(Serialize)]
#[serde(untagged)]
enum Input<'a> {
    Ours(Item<'a>),
    Stored(Stored<'a>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<Cow<'a, str>>,
        role: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<&'a Value>,
        content: Content<'a>,
    },
    FunctionCall {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<Cow<'a, str>>,
        call_id: Cow<'a, str>,
        name: Cow<'a, str>,
        arguments: &'a str,
    },
    FunctionCallOutput {
        call_id: Cow<'a, str>,
        output: Content<'a>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<WirePart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WirePart<'a> {
    InputText {
        text: &'a str,
    },
    InputImage {
        image_url: Cow<'a, str>,
    },
    OutputText {
        text: &'a str,
        /// Some servers want it, always empty.
        annotations: [&'a str; 0],
    },
}

/// What the provider sent, sent back.
struct Stored<'a> {
    item: &'a Value,
    has_id: bool,
    /// The picture that is kept apart from its item.
    result: Option<&'a str>,
}

impl Serialize for Stored<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for (key, value) in self.item.as_object().into_iter().flatten() {
            if self.has_id || key != "id" {
                map.serialize_entry(key, value)?;
            }
        }
        if let Some(result) = self.result {
            map.serialize_entry("result", result)?;
        }
        map.end()
    }
}

/// The conversation as servers accept it.
fn input<'a>(said: &'a [Said<'a>], provider: &'a str, dialect: Dialect) -> Result<Vec<Input<'a>>, ModelError> {
    let mut writer = Writer { provider, dialect, input: Vec::with_capacity(said.len()) };
    for it in said {
        match it {
            Said::System(text) => {
                let role = if dialect.instructions { "developer" } else { "system" };
                writer.message(role, Content::Text(Cow::Borrowed(text)));
            }
            Said::User(parts) => {
                let parts = parts.iter().filter_map(|it| input_part(it).transpose()).collect::<Result<_, _>>()?;
                writer.message("user", Content::Parts(parts));
            }
            Said::Assistant(answer) => writer.answer(answer),
            Said::Results(results) => {
                for result in results {
                    writer.result(*result)?;
                }
            }
        }
    }
    Ok(writer.input)
}

struct Writer<'a> {
    /// The name of the one who gets it.
    provider: &'a str,
    dialect: Dialect,
    input: Vec<Input<'a>>,
}

impl<'a> Writer<'a> {
    fn message(&mut self, role: &'static str, content: Content<'a>) {
        self.input.push(Input::Ours(Item::Message { id: None, role, status: None, phase: None, content }));
    }

    /// Writes what the model said, in the order in which it said it.
    fn answer(&mut self, answer: &'a Answer<'a>) {
        let start = self.input.len();
        let mut pictures = pictures(answer).into_iter();
        // What is known of the message whose words come next.
        let mut note: Option<&Value> = None;
        // Servers look up an item by its id, and then miss the thinking that led to it.
        let mut lost_thinking = false;
        for piece in answer.pieces() {
            match piece {
                Piece::Text(text) => {
                    let note = note.take();
                    let id = note.and_then(|it| field(it, "id")).filter(|_| !lost_thinking);
                    let id = self.id(id, "msg");
                    let phase = note.and_then(|it| it.get("phase"));
                    let content = Content::Parts(vec![WirePart::OutputText { text, annotations: [] }]);
                    let status = Some("completed");
                    self.input.push(Input::Ours(Item::Message { id, role: "assistant", status, phase, content }));
                }
                Piece::Item(item) => match field(item, "type") {
                    None => (),
                    Some("message") if item.get("content").is_none() => note = Some(item),
                    Some("reasoning") if !holds_thinking(item) => lost_thinking = true,
                    // Nobody has answered it, and the server would insist on that.
                    Some(kind) if kind.ends_with("_call") && !is_answered(item, answer) => (),
                    Some(_) if lacks_picture(item) => {
                        if let Some(picture) = pictures.next() {
                            self.stored(item, Some(picture));
                        }
                    }
                    Some(_) => self.stored(item, None),
                },
                Piece::Call(call) => self.call(call, lost_thinking),
            }
        }
        // Thinking that led to nothing is refused.
        let is_reasoning =
            |it: &Input<'_>| matches!(it, Input::Stored(it) if field(it.item, "type") == Some("reasoning"));
        while self.input.len() > start && self.input.last().is_some_and(is_reasoning) {
            self.input.pop();
        }
    }

    fn stored(&mut self, item: &'a Value, result: Option<&'a str>) {
        let fits = field(item, "id").is_some_and(|it| it.len() <= MAX_ID_CHARS);
        self.input.push(Input::Stored(Stored { item, has_id: fits && self.dialect.ids != Ids::Withheld, result }));
    }

    fn call(&mut self, call: &'a ToolCallRequest, lost_thinking: bool) {
        let text = |key: &str| call.metadata.get(key).and_then(Value::as_str);
        let id = text("item_id").filter(|_| text("provider") == Some(self.provider) && !lost_thinking);
        let id = self.id(id, "fc");
        let (call_id, arguments) = (call_id(&call.id), object_text(&call.arguments));
        self.input.push(Input::Ours(Item::FunctionCall {
            id,
            call_id,
            name: history::tool_name(&call.name),
            arguments,
        }));
    }

    fn result(&mut self, result: CallResult<'a>) -> Result<(), ModelError> {
        let has_media = result.parts().any(|it| matches!(it, Part::Media(_)));
        let output = if has_media {
            let parts = result.parts().filter_map(|it| input_part(it).transpose());
            Content::Parts(parts.collect::<Result<_, _>>()?)
        } else {
            Content::Text(result.text())
        };
        self.input.push(Input::Ours(Item::FunctionCallOutput { call_id: call_id(&result.call.id), output }));
        Ok(())
    }

    /// The id of an item of an answer. One that is made up is the same in the next request.
    fn id(&self, known: Option<&'a str>, prefix: &str) -> Option<Cow<'a, str>> {
        let known = known.filter(|it| it.len() <= MAX_ID_CHARS).map(Cow::Borrowed);
        match self.dialect.ids {
            Ids::Known => known,
            Ids::Needed => known.or_else(|| Some(format!("{prefix}_{}", self.input.len()).into())),
            Ids::Withheld => None,
        }
    }
}

/// Whether an item's picture is kept apart from it, among the message's media.
fn lacks_picture(item: &Value) -> bool {
    field(item, "type") == Some("image_generation_call") && item.get("result").is_none()
}

/// The pictures that go back into their items. None when some are no longer kept: which ones is not known.
fn pictures<'a>(answer: &Answer<'a>) -> Vec<&'a str> {
    let data = answer.media.iter().filter_map(|it| match (&it.kind, &it.source) {
        (MediaKind::Image, MediaSource::Data(data)) => Some(data.as_str()),
        _ => None,
    });
    let pictures: Vec<&str> = data.collect();
    let n_items = answer.items().filter(|it| lacks_picture(it)).count();
    if pictures.len() == n_items { pictures } else { Vec::new() }
}

/// Whether a reasoning item has what the model can read: the provider keeps nothing of it, and a
/// summary is for people.
fn holds_thinking(item: &Value) -> bool {
    ["encrypted_content", "signature"].iter().any(|key| field(item, key).is_some())
        || item.get("content").and_then(Value::as_array).is_some_and(|it| !it.is_empty())
}

/// Whether a call that the client would have to run (such as a shell's) has its output.
fn is_answered(item: &Value, answer: &Answer<'_>) -> bool {
    let Some(call_id) = field(item, "call_id") else { return true };
    answer
        .items()
        .any(|it| field(it, "type").is_some_and(|it| it.ends_with("_output")) && field(it, "call_id") == Some(call_id))
}

/// The id of a call, of whichever provider, as servers accept it.
fn call_id(id: &str) -> Cow<'_, str> {
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'-');
    if id.len() <= MAX_ID_CHARS && id.bytes().all(is_plain) {
        return Cow::Borrowed(id);
    }
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    format!("call_{:016x}", hasher.finish()).into()
}

/// A part of what a person or a tool says; none for what says nothing.
fn input_part(part: &Part) -> Result<Option<WirePart<'_>>, ModelError> {
    Ok(match part {
        Part::Text(text) if !text.is_empty() => Some(WirePart::InputText { text }),
        Part::Media(media) => Some(WirePart::InputImage { image_url: image_url(media)? }),
        Part::Text(_) | Part::Reasoning(_) | Part::ProviderData(_) => None,
    })
}

fn image_url(media: &Media) -> Result<Cow<'_, str>, ModelError> {
    let Media { kind, media_type, source } = media;
    match (kind, source) {
        (MediaKind::Audio | MediaKind::Video, _) => {
            Err(ModelError::Unsupported(format!("responses take pictures, not {}", kind.as_str())))
        }
        (MediaKind::Image, MediaSource::Data(data)) => {
            let media_type = if media_type.is_empty() { "image/png" } else { media_type };
            Ok(format!("data:{media_type};base64,{data}").into())
        }
        (MediaKind::Image, MediaSource::Url(url))
            if ["http://", "https://", "data:"].iter().any(|it| url.starts_with(it)) =>
        {
            Ok(url.into())
        }
        (MediaKind::Image, MediaSource::Url(url)) => Err(ModelError::Unsupported(format!(
            "responses take pictures as data or as a web address, not as '{}'",
            crate::errors::shorten(url, 80)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::ProviderKind;
    use bub_kernel::{
        message::{Message, ProviderData, Role},
        model::ModelRequest,
        turn::RunId,
    };

    fn request(system: Option<&str>, messages: Vec<Message>) -> ModelRequest {
        ModelRequest {
            run: RunId("run-1".into()),
            model: "m".into(),
            system: system.map(str::to_owned),
            messages,
            tools: Vec::new(),
            options: ModelOptions::default(),
        }
    }

    fn sent(request: &ModelRequest, dialect: Dialect) -> Result<Value, ModelError> {
        let asked = Asked { request, provider: "ours", kind: ProviderKind::OpenAi, extra_body: Map::new() };
        body_in(&asked, dialect).map(|it| serde_json::from_slice(&it).unwrap())
    }

    #[test]
    fn codex_has_instructions_and_no_limit_on_tokens() {
        let messages = vec![Message::text(Role::User, "a"), Message::text(Role::System, "now be brief")];
        let with = sent(&request(Some("be kind"), messages.clone()), Dialect::CODEX).unwrap();
        assert_eq!(with["instructions"], "be kind");
        let roles: Vec<_> = with["input"].as_array().unwrap().iter().map(|it| it["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["user", "developer"]);
        let without = sent(&request(None, messages), Dialect::CODEX).unwrap();
        assert_eq!(without["instructions"], NO_INSTRUCTIONS);
        let mut limited = request(None, Vec::new());
        limited.options.max_tokens = Some(5);
        assert_eq!(sent(&limited, Dialect::CODEX).unwrap().get("max_output_tokens"), None);
    }

    #[test]
    fn copilot_gets_no_ids() {
        let item = |item: Value| {
            let payload = json!({"provider": "ours", "after_chars": 0, "after_calls": 0, "item": item});
            Part::ProviderData(ProviderData { api_format: "responses".into(), payload })
        };
        let said = vec![
            item(json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "A"})),
            item(json!({"type": "message", "id": "msg_1", "phase": "commentary"})),
            Part::Text("hi".into()),
        ];
        let sent = sent(&request(None, vec![Message::parts(Role::Assistant, said)]), Dialect::COPILOT).unwrap();
        let content = json!([{"type": "output_text", "text": "hi", "annotations": []}]);
        let expected = json!([
            {"type": "reasoning", "summary": [], "encrypted_content": "A"},
            {"type": "message", "role": "assistant", "status": "completed", "phase": "commentary", "content": content},
        ]);
        assert_eq!(sent["input"], expected);
    }
}
