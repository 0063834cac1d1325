//! The body of a request.

use std::borrow::Cow;

use bub_kernel::{
    model::{ModelError, ModelOptions, OutputFormat, ProviderTool, ToolChoice},
    tool::ToolSpec,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    history,
    kind::ProviderKind,
    options::{Body, finite, merge, refused, unsupported},
    wire::{Asked, Wire},
};

use super::conversation::Layout;

/// The most tokens to write when nobody says: this API wants a number, and 16,000 leave room for a
/// long file in one call.
const MAX_TOKENS: u32 = 16_000;

/// The field that asks for the prompt to be cached.
const CACHE: &str = "cache_control";

/// The bytes to send.
pub(crate) fn body(asked: &Asked<'_>) -> Result<Vec<u8>, ModelError> {
    let said = history::conversation(asked, Wire::Messages);
    let Layout { system, messages } = Layout::new(&said, asked.kind)?;
    let tools = tools(asked)?;
    let mut options = options(asked, system, !tools.is_empty())?;
    merge(&mut options, asked.extra_body.clone());
    // Null says that it is not wanted.
    options.retain(|key, value| key != CACHE || !value.is_null());
    serde_json::to_vec(&Body { options, tools, conversation: ("messages", messages) })
        .map_err(|err| ModelError::Protocol(format!("cannot write the request: {err}")))
}

/// The fields but tools and messages.
fn options(asked: &Asked<'_>, system: String, has_tools: bool) -> Result<Map<String, Value>, ModelError> {
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
        provider_tools: _,
        extra_body: _,
    } = &asked.request.options;
    let unknown = [
        ("seed", seed.is_some()),
        ("presence_penalty", presence_penalty.is_some()),
        ("frequency_penalty", frequency_penalty.is_some()),
    ];
    if let Some((name, _)) = unknown.into_iter().find(|(_, is_set)| *is_set) {
        return Err(refused(Wire::Messages, name));
    }
    let mut options = Map::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            options.insert(key.to_owned(), value);
        }
    };
    set("model", Some(asked.request.model.as_str().into()));
    set("stream", Some(true.into()));
    set("max_tokens", Some(max_tokens.unwrap_or(MAX_TOKENS).into()));
    set(CACHE, (asked.kind == ProviderKind::Anthropic).then(|| json!({"type": "ephemeral"})));
    let effort = reasoning_effort.as_deref();
    set("thinking", effort.map(thinking));
    set("output_config", output_config(effort.filter(|it| *it != "none"), output.as_ref()));
    set("temperature", finite("temperature", *temperature)?);
    set("top_p", finite("top_p", *top_p)?);
    set("top_k", top_k.map(Value::from));
    set("stop_sequences", (!stop.is_empty()).then(|| stop.clone().into()));
    set("tool_choice", wire_choice(tool_choice.as_ref(), *parallel_tool_calls, has_tools));
    set("system", (!system.is_empty()).then(|| system.into()));
    Ok(options)
}

/// Whether the model thinks. How long is its own decision, led by the effort.
fn thinking(effort: &str) -> Value {
    match effort {
        "none" => json!({"type": "disabled"}),
        _ => json!({"type": "adaptive", "display": "summarized"}),
    }
}

fn output_config(effort: Option<&str>, output: Option<&OutputFormat>) -> Option<Value> {
    let mut config = Map::new();
    if let Some(effort) = effort {
        config.insert("effort".into(), effort.into());
    }
    if let Some(output) = output {
        let mut schema = output.schema.clone();
        close(&mut schema);
        config.insert("format".into(), json!({"type": "json_schema", "schema": schema}));
    }
    (!config.is_empty()).then(|| config.into())
}

/// Says of every object that it has no other fields: the API takes no schema that leaves that open.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(close);
            let is_object = fields.get("type").is_some_and(|it| *it == "object");
            if is_object && !fields.contains_key("additionalProperties") {
                fields.insert("additionalProperties".into(), false.into());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (),
    }
}

/// The choice, unless it says nothing: without tools the API takes none.
fn wire_choice(choice: Option<&ToolChoice>, parallel: Option<bool>, has_tools: bool) -> Option<Value> {
    let mut wire = match choice {
        None | Some(ToolChoice::Auto | ToolChoice::None) if !has_tools => return None,
        None if parallel.is_none() => return None,
        None | Some(ToolChoice::Auto) => Map::from_iter([("type".to_owned(), "auto".into())]),
        Some(ToolChoice::None) => return Some(json!({"type": "none"})),
        Some(ToolChoice::Required) => Map::from_iter([("type".to_owned(), "any".into())]),
        Some(ToolChoice::Tool(name)) => {
            Map::from_iter([("type".to_owned(), "tool".into()), ("name".to_owned(), name.as_str().into())])
        }
    };
    if let Some(parallel) = parallel {
        wire.insert("disable_parallel_tool_use".into(), (!parallel).into());
    }
    Some(wire.into())
}

fn tools<'a>(asked: &Asked<'a>) -> Result<Vec<WireTool<'a>>, ModelError> {
    let request = asked.request;
    let own = |r#type: &str, name: &str| WireTool::Native(Cow::Owned(json!({"type": r#type, "name": name})));
    let mut tools: Vec<WireTool<'_>> = request.tools.iter().map(|it| WireTool::new(it)).collect();
    for tool in &request.options.provider_tools {
        tools.push(match tool {
            ProviderTool::WebSearch => own("web_search_20260209", "web_search"),
            ProviderTool::WebFetch => own("web_fetch_20260209", "web_fetch"),
            ProviderTool::CodeExecution => own("code_execution_20260521", "code_execution"),
            ProviderTool::Native { api_format, definition } if api_format == Wire::Messages.as_str() => {
                WireTool::Native(Cow::Borrowed(definition))
            }
            other => return Err(unsupported(Wire::Messages, other)),
        });
    }
    Ok(tools)
}

#[derive(Serialize)]
#[serde(untagged)]
enum WireTool<'a> {
    Function {
        name: String,
        description: &'a str,
        input_schema: &'a Value,
    },
    /// One of the provider's own.
    Native(Cow<'a, Value>),
}

impl<'a> WireTool<'a> {
    fn new(spec: &'a ToolSpec) -> Self {
        Self::Function { name: spec.alias(), description: &spec.description, input_schema: &spec.parameters }
    }
}
