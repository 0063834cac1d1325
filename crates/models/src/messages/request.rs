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
    options::{self, Body, finite, merge, refused, unsupported},
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
    let has_budget = thinks_by_budget(&asked.request.model);
    let limit = max_tokens.unwrap_or(MAX_TOKENS);
    let thinking = |effort| if has_budget { thinking_budget(effort, limit) } else { Ok(thinking(effort)) };
    set("thinking", effort.map(thinking).transpose()?);
    let effort = effort.filter(|it| *it != "none" && !has_budget);
    set("output_config", output_config(effort, output.as_ref()));
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

/// Whether a model is of a generation that thinks by a number of tokens and knows no efforts: Claude up to
/// 4.5.
fn thinks_by_budget(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model).to_lowercase().replace('.', "-");
    let Some(name) = name.strip_prefix("claude-") else { return false };
    let numbers = name.split('-').filter_map(|it| it.parse::<u32>().ok());
    // A date is no generation.
    let mut numbers = numbers.take_while(|it| *it < 100);
    match (numbers.next(), numbers.next()) {
        (Some(major), minor) => major < 4 || (major == 4 && minor.is_none_or(|it| it <= 5)),
        (None, _) => false,
    }
}

/// How many tokens of an answer may be thinking; the API wants 1,024 at least, and fewer than all.
fn thinking_budget(effort: &str, max_tokens: u32) -> Result<Value, ModelError> {
    const LEAST: u32 = 1024;
    let wanted = match effort {
        "none" => return Ok(json!({"type": "disabled"})),
        "minimal" | "low" => 2048,
        "medium" => 8192,
        _ => 24_576,
    };
    let budget = wanted.min(max_tokens / 4 * 3);
    if budget < LEAST {
        let what = format!("reasoning_effort with max_tokens {max_tokens} for this model, which needs 1368 at least");
        return Err(refused(Wire::Messages, &what));
    }
    Ok(json!({"type": "enabled", "budget_tokens": budget}))
}

fn output_config(effort: Option<&str>, output: Option<&OutputFormat>) -> Option<Value> {
    let mut config = Map::new();
    if let Some(effort) = effort {
        config.insert("effort".into(), effort.into());
    }
    if let Some(output) = output {
        // The API takes no schema that leaves that open.
        let mut schema = output.schema.clone();
        options::close(&mut schema);
        config.insert("format".into(), json!({"type": "json_schema", "schema": schema}));
    }
    (!config.is_empty()).then(|| config.into())
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
        input_schema: Cow<'a, Value>,
    },
    /// One of the provider's own.
    Native(Cow<'a, Value>),
}

impl<'a> WireTool<'a> {
    fn new(spec: &'a ToolSpec) -> Self {
        Self::Function {
            name: spec.alias(),
            description: &spec.description,
            input_schema: options::parameters(&spec.parameters),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_models_think_by_budget() {
        for (model, expected) in [
            ("claude-3-7-sonnet-latest", true),
            ("claude-sonnet-4-20250514", true),
            ("claude-sonnet-4-5", true),
            ("claude-haiku-4-5-20251001", true),
            ("anthropic/claude-opus-4.5", true),
            ("claude-opus-4-6", false),
            ("anthropic/claude-sonnet-4.6", false),
            ("claude-opus-5", false),
            ("claude-fable", false),
            ("MiniMax-M2", false),
            ("m", false),
        ] {
            assert_eq!(thinks_by_budget(model), expected, "{model}");
        }
        let budget =
            |effort: &str, max_tokens| thinking_budget(effort, max_tokens).map(|it| it["budget_tokens"].clone());
        assert_eq!(budget("low", 16_384).unwrap(), 2048);
        assert_eq!(budget("high", 16_384).unwrap(), 12_288);
        assert_eq!(budget("medium", 2000).unwrap(), 1500);
        assert!(budget("low", 1024).unwrap_err().to_string().contains("max_tokens 1024"));
        assert_eq!(thinking_budget("none", 10).unwrap(), json!({"type": "disabled"}));
    }
}
