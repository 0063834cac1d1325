//! The body of a Gemini request.

use std::borrow::Cow;

use bub_kernel::{
    message::{Media, MediaKind, MediaSource, Part, ToolCallRequest},
    model::{ModelError, ModelOptions, ModelRequest, ProviderTool, ToolChoice},
    tool::ToolSpec,
};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value, json};

use super::SIGNATURE;
use crate::{
    errors,
    history::{self, Answer, CallResult, Piece, Said},
    options::{Body, finite, merge, parameters, refused, unsupported},
    wire::{Asked, Wire},
};

/// The signature that Google documents for calls which another model made: since Gemini 3, the API
/// refuses a step whose first call has none.
const FOREIGN: &str = "skip_thought_signature_validator";

/// The first generation that asks for signatures, takes levels of thinking, and takes media inside of
/// results.
const GEMINI_3: u32 = 3;

/// The bytes to send.
pub(crate) fn body(asked: &Asked<'_>) -> Result<Vec<u8>, ModelError> {
    let request = asked.request;
    let said = history::conversation(asked, Wire::Gemini);
    let mut options = Map::new();
    let system: Vec<Value> = said.iter().filter_map(system_part).collect();
    if !system.is_empty() {
        options.insert("systemInstruction".into(), json!({"parts": system}));
    }
    let tools = tools(request)?;
    let config = tool_config(request, &tools);
    if !config.is_empty() {
        options.insert("toolConfig".into(), config.into());
    }
    let config = generation_config(request)?;
    if !config.is_empty() {
        options.insert("generationConfig".into(), config.into());
    }
    merge(&mut options, asked.extra_body.clone());
    let body = Body { options, tools, conversation: ("contents", contents(&said, &request.model)?) };
    serde_json::to_vec(&body).map_err(|err| ModelError::Protocol(format!("cannot write the request: {err}")))
}

fn system_part(said: &Said<'_>) -> Option<Value> {
    if let Said::System(text) = said { Some(json!({"text": text})) } else { None }
}

/// Which generation of Gemini a model is: the newest for names without a number, none for others.
fn generation(model: &str) -> Option<u32> {
    let name = model.rsplit('/').next().unwrap_or(model).strip_prefix("gemini-")?;
    let digits = name.find(|it: char| !it.is_ascii_digit()).map_or(name, |at| name.split_at(at).0);
    Some(digits.parse().unwrap_or(u32::MAX))
}

/// Functions in one group, then the provider's own tools.
fn tools(request: &ModelRequest) -> Result<Vec<WireTool<'_>>, ModelError> {
    let mut tools = Vec::new();
    if !request.tools.is_empty() {
        let function_declarations = request.tools.iter().map(|it| Declaration::new(it)).collect();
        tools.push(WireTool::Functions { function_declarations });
    }
    for tool in &request.options.provider_tools {
        tools.push(WireTool::Own(match tool {
            ProviderTool::WebSearch => Cow::Owned(json!({"googleSearch": {}})),
            ProviderTool::WebFetch => Cow::Owned(json!({"urlContext": {}})),
            ProviderTool::CodeExecution => Cow::Owned(json!({"codeExecution": {}})),
            ProviderTool::Native { api_format, definition } if api_format == Wire::Gemini.as_str() => {
                Cow::Borrowed(definition)
            }
            other => return Err(unsupported(Wire::Gemini, other)),
        }));
    }
    Ok(tools)
}

fn tool_config(request: &ModelRequest, tools: &[WireTool<'_>]) -> Map<String, Value> {
    let mut config = Map::new();
    let calling = request.options.tool_choice.as_ref().map(|it| match it {
        ToolChoice::Auto => json!({"mode": "AUTO"}),
        ToolChoice::None => json!({"mode": "NONE"}),
        ToolChoice::Required => json!({"mode": "ANY"}),
        ToolChoice::Tool(name) => json!({"mode": "ANY", "allowedFunctionNames": [name]}),
    });
    if let Some(calling) = calling {
        config.insert("functionCallingConfig".into(), calling);
    }
    // Without it, functions beside the provider's own tools are refused.
    let is_mixed = tools.len() > 1 && matches!(tools.first(), Some(WireTool::Functions { .. }));
    if is_mixed && generation(&request.model).is_some_and(|it| it >= GEMINI_3) {
        config.insert("includeServerSideToolInvocations".into(), true.into());
    }
    config
}

fn generation_config(request: &ModelRequest) -> Result<Map<String, Value>, ModelError> {
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
        tool_choice: _,
        parallel_tool_calls,
        output,
        provider_tools: _,
        extra_body: _,
    } = &request.options;
    if parallel_tool_calls.is_some() {
        return Err(refused(Wire::Gemini, "parallel_tool_calls"));
    }
    if let Some(seed) = seed.filter(|it| i32::try_from(*it).is_err()) {
        return Err(refused(Wire::Gemini, &format!("seed above {}, such as {seed}", i32::MAX)));
    }
    let effort = reasoning_effort.as_deref().filter(|it| !it.is_empty());
    let fields = [
        ("maxOutputTokens", max_tokens.map(Value::from)),
        ("temperature", finite("temperature", *temperature)?),
        ("topP", finite("top_p", *top_p)?),
        ("topK", top_k.map(Value::from)),
        ("presencePenalty", finite("presence_penalty", *presence_penalty)?),
        ("frequencyPenalty", finite("frequency_penalty", *frequency_penalty)?),
        ("stopSequences", (!stop.is_empty()).then(|| stop.clone().into())),
        ("seed", seed.map(Value::from)),
        ("responseMimeType", output.as_ref().map(|_| "application/json".into())),
        ("responseJsonSchema", output.as_ref().map(|it| it.schema.clone())),
        ("thinkingConfig", effort.map(|it| thinking(&request.model, it)).transpose()?),
    ];
    Ok(fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
}

/// How much to think: a level, or before Gemini 3 the number of tokens that Google gives for it.
fn thinking(model: &str, effort: &str) -> Result<Value, ModelError> {
    let lower = effort.to_lowercase();
    let unknown = |hint: &str| refused(Wire::Gemini, &format!("reasoning_effort '{effort}'{hint}"));
    if generation(model).is_none_or(|it| it >= GEMINI_3) {
        return match &*lower {
            "minimal" | "low" | "medium" | "high" => {
                Ok(json!({"thinkingLevel": lower.to_uppercase(), "includeThoughts": true}))
            }
            "none" => Err(unknown(" for models that always think ('minimal' is the least)")),
            _ => Err(unknown(" (minimal, low, medium or high)")),
        };
    }
    let budget = match &*lower {
        "none" => return Ok(json!({"thinkingBudget": 0})),
        "minimal" | "low" => 1024,
        "medium" => 8192,
        "high" => 24_576,
        _ => return Err(unknown(" (none, minimal, low, medium or high)")),
    };
    Ok(json!({"thinkingBudget": budget, "includeThoughts": true}))
}

/// The conversation; neighbours of one role are one content.
fn contents<'a>(said: &'a [Said<'a>], model: &str) -> Result<Vec<Content<'a>>, ModelError> {
    let mut contents = Contents { list: Vec::with_capacity(said.len()), generation: generation(model) };
    for it in said {
        match it {
            Said::System(_) => (),
            Said::User(parts) => contents.user(parts)?,
            Said::Assistant(answer) => contents.answer(answer),
            Said::Results(results) => contents.results(results)?,
        }
    }
    if contents.list.first().is_some_and(|it| it.role == "model") {
        let opening = WirePart::Text { text: history::OPENING.into() };
        contents.list.insert(0, Content { role: "user", parts: vec![opening] });
    }
    Ok(contents.list)
}

struct Contents<'a> {
    list: Vec<Content<'a>>,
    /// Which generation is asked.
    generation: Option<u32>,
}

impl<'a> Contents<'a> {
    fn add(&mut self, role: &'static str, part: WirePart<'a>) {
        match self.list.last_mut() {
            Some(last) if last.role == role => last.parts.push(part),
            _ => self.list.push(Content { role, parts: vec![part] }),
        }
    }

    fn user(&mut self, said: &[&'a Part]) -> Result<(), ModelError> {
        for part in said {
            match part {
                Part::Text(text) => self.add("user", WirePart::Text { text: text.into() }),
                Part::Media(media) => self.add("user", media_part(media)?),
                Part::Reasoning(_) | Part::ProviderData(_) => (),
            }
        }
        Ok(())
    }

    fn answer(&mut self, answer: &'a Answer<'a>) {
        let mut needs_signature = self.generation.is_some_and(|it| it >= GEMINI_3);
        let mut pieces = answer.pieces();
        let mut ahead = 0;
        for idx in 0..pieces.len() {
            match pieces.get(idx).copied() {
                Some(Piece::Text(text)) if !text.is_empty() => {
                    self.add("model", WirePart::Text { text: text.into() });
                }
                Some(Piece::Text(_)) | None => (),
                Some(Piece::Call(call)) => {
                    let signature = call.metadata.get(SIGNATURE).and_then(Value::as_str);
                    let signature = signature.or(needs_signature.then_some(FOREIGN));
                    needs_signature = false;
                    self.add("model", WirePart::Call(WireCall { call, signature }));
                }
                Some(Piece::Item(item)) => {
                    // The words that it repeats are the next ones of the answer.
                    let words = item_words(item);
                    ahead = ahead.max(idx.saturating_add(1));
                    while matches!(pieces.get(ahead), Some(Piece::Item(_))) {
                        ahead += 1;
                    }
                    let next = if let Some(Piece::Text(text)) = pieces.get(ahead) { *text } else { "" };
                    match (next.strip_prefix(words), pieces.get_mut(ahead)) {
                        (Some(rest), Some(Piece::Text(text))) => *text = rest,
                        (Some(_), _) => (),
                        (None, _) => {
                            // Words that were changed since count; the part keeps its signature.
                            self.item(without_words(item));
                            continue;
                        }
                    }
                    self.item(Cow::Borrowed(item));
                }
            }
        }
    }

    /// Adds a part that the provider sent. Others' objects may be no part at all.
    fn item(&mut self, item: Cow<'a, Value>) {
        let Some(fields) = item.as_object().filter(|it| !it.is_empty()) else { return };
        if fields.keys().all(|it| it == SIGNATURE) {
            // No part may be without content.
            self.item(without_words(&item));
        } else {
            self.add("model", WirePart::Item(item));
        }
    }

    /// Adds the results of an answer's calls. What a result can't hold follows them.
    fn results(&mut self, results: &'a [CallResult<'a>]) -> Result<(), ModelError> {
        let mut after = Vec::new();
        for result in results {
            let call = result.call;
            let mut parts = Vec::new();
            for part in result.parts() {
                let Part::Media(media) = part else { continue };
                let wire = media_part(media)?;
                let is_inline = media.kind == MediaKind::Image && matches!(wire, WirePart::Inline { .. });
                if is_inline && self.generation.is_none_or(|it| it >= GEMINI_3) {
                    parts.push(wire);
                } else {
                    let label = format!("{} from the result of {}:", media.kind.as_str(), call.name);
                    after.extend([WirePart::Text { text: label.into() }, wire]);
                }
            }
            let text = result.text();
            let response = if result.is_error() { Response::Error(text) } else { Response::Output(text) };
            let function_response =
                FunctionResponse { id: real_id(call), name: history::tool_name(&call.name), response, parts };
            self.add("user", WirePart::Result { function_response });
        }
        for part in after {
            self.add("user", part);
        }
        Ok(())
    }
}

/// The words of the answer that a part repeats.
fn item_words(item: &Value) -> &str {
    let is_thought = item.get("thought").and_then(Value::as_bool).unwrap_or_default();
    item.get("text").and_then(Value::as_str).filter(|_| !is_thought).unwrap_or_default()
}

fn without_words<'a>(item: &Value) -> Cow<'a, Value> {
    let mut item = item.clone();
    if let Some(fields) = item.as_object_mut() {
        fields.insert("text".into(), "".into());
    }
    Cow::Owned(item)
}

/// A call's id, unless it was made up for a call that came without one.
fn real_id(call: &ToolCallRequest) -> Option<&str> {
    Some(&*call.id).filter(|it| !it.is_empty() && !it.starts_with("call_"))
}

fn media_part(media: &Media) -> Result<WirePart<'_>, ModelError> {
    let Media { kind, media_type, source } = media;
    let mime_type = match &**media_type {
        "audio/x-wav" | "audio/wave" | "audio/vnd.wave" => "audio/wav",
        "audio/x-aiff" => "audio/aiff",
        other => other,
    };
    match source {
        MediaSource::Data(data) => {
            let mime_type = match (mime_type, kind) {
                ("", MediaKind::Image) => "image/png",
                ("", MediaKind::Audio) => "audio/wav",
                ("", MediaKind::Video) => "video/mp4",
                (known, _) => known,
            };
            Ok(WirePart::Inline { inline_data: Blob { mime_type, data } })
        }
        MediaSource::Url(url) if ["https://", "http://", "gs://"].iter().any(|it| url.starts_with(it)) => {
            let mime_type = Some(mime_type).filter(|it| !it.is_empty());
            Ok(WirePart::File { file_data: FileData { mime_type, file_uri: url } })
        }
        MediaSource::Url(url) => match url.strip_prefix("data:").and_then(|it| it.split_once(";base64,")) {
            Some((mime_type, data)) => Ok(WirePart::Inline { inline_data: Blob { mime_type, data } }),
            None => Err(ModelError::Unsupported(format!(
                "api_format 'gemini' takes media as data, or by an address that starts with https:// or gs://, not as \
                 '{}'",
                errors::shorten(url, 80)
            ))),
        },
    }
}

#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum WireTool<'a> {
    Functions {
        function_declarations: Vec<Declaration<'a>>,
    },
    /// One of the provider's own.
    Own(Cow<'a, Value>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: String,
    description: &'a str,
    parameters_json_schema: Cow<'a, Value>,
}

impl<'a> Declaration<'a> {
    fn new(spec: &'a ToolSpec) -> Self {
        Self {
            name: spec.alias(),
            description: &spec.description,
            parameters_json_schema: parameters(&spec.parameters),
        }
    }
}

#[derive(Serialize)]
struct Content<'a> {
    role: &'static str,
    parts: Vec<WirePart<'a>>,
}

#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum WirePart<'a> {
    Text {
        text: Cow<'a, str>,
    },
    Inline {
        inline_data: Blob<'a>,
    },
    File {
        file_data: FileData<'a>,
    },
    Call(WireCall<'a>),
    Result {
        function_response: FunctionResponse<'a>,
    },
    /// What the provider sent.
    Item(Cow<'a, Value>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Blob<'a> {
    mime_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FileData<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'a str>,
    file_uri: &'a str,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: Cow<'a, str>,
    response: Response<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<WirePart<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Response<'a> {
    Output(Cow<'a, str>),
    Error(Cow<'a, str>),
}

/// A call on the wire, with its signature.
struct WireCall<'a> {
    call: &'a ToolCallRequest,
    signature: Option<&'a str>,
}

impl Serialize for WireCall<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        // Arguments that are no object are left out: the API refuses the whole request for them.
        let args = serde_json::from_str(&self.call.arguments).unwrap_or_default();
        let called = Called { id: real_id(self.call), name: history::tool_name(&self.call.name), args };
        map.serialize_entry("functionCall", &called)?;
        if let Some(signature) = self.signature {
            map.serialize_entry(SIGNATURE, signature)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct Called<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: Cow<'a, str>,
    args: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_read_from_names() {
        for (model, expected) in [
            ("gemini-2.5-flash", Some(2)),
            ("models/gemini-3-pro-preview", Some(3)),
            ("google/gemini-10-x", Some(10)),
            ("gemini-flash-latest", Some(u32::MAX)),
            ("gemini-", Some(u32::MAX)),
            ("gemma-3-27b-it", None),
            ("", None),
        ] {
            assert_eq!(generation(model), expected, "{model}");
        }
    }
}
