//! The wire of the Gemini API.

mod answers;
mod cuts;
mod embeddings;
mod failures;
mod requests;
mod signatures;

use bub_kernel::message::{Media, MediaKind, MediaSource, Part, ProviderData, ToolCallRequest};
use serde_json::{Map, Value, json};

use super::{
    Arc, Duration, Message, ModelError, ModelEvent, ModelOptions, ModelProvider as _, ModelRequest, ModelServer,
    Provider, ProviderConfig, ProviderKind, Reply, Role, answer_of, ask, calls_of, client, hello, request, send,
    text_of,
};

/// Settings for that server, named as the service is.
pub(crate) fn config(server: &ModelServer) -> ProviderConfig {
    let mut config = super::config(server);
    config.name = "google".into();
    config.kind = ProviderKind::Google;
    config.api_base = Some(format!("http://{}", server.address()));
    config
}

/// A stream of these events, written as Google does.
fn stream(events: impl IntoIterator<Item = Value>) -> Reply {
    Reply::raw_sse(events.into_iter().map(|it| format!("data: {it}\r\n\r\n")))
}

/// An event with these parts.
pub(crate) fn parts(parts: Value) -> Value {
    json!({"candidates": [{"content": {"parts": parts, "role": "model"}, "index": 0}], "modelVersion": "m"})
}

/// The last event: why it stopped.
fn stop(reason: &str) -> Value {
    json!({"candidates": [{"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": reason, "index": 0}]})
}

async fn play(reply: Reply) -> (Vec<ModelEvent>, Option<ModelError>) {
    let server = ModelServer::start();
    server.reply(reply);
    ask(&client(config(&server))).await
}

/// One line an event, for comparison.
fn lines(events: &[ModelEvent]) -> Vec<String> {
    events
        .iter()
        .map(|it| match it {
            ModelEvent::Text(text) => format!("text {text}"),
            ModelEvent::Reasoning(text) => format!("reasoning {text}"),
            ModelEvent::ToolCallDelta { id, name, delta } => format!("delta {id} {name} {delta}"),
            ModelEvent::ToolCall(it) => format!("call {} {} {} {}", it.id, it.name, it.arguments, json!(it.metadata)),
            ModelEvent::ProviderData(ProviderData { api_format, payload }) => format!("data {api_format} {payload}"),
            ModelEvent::ProviderToolCall { name, input } => format!("tool {name} {input}"),
            ModelEvent::Citation(it) => format!("citation {} {:?}", it.url, it.title),
            ModelEvent::Media(it) => format!("media {} {} {:?}", it.kind.as_str(), it.media_type, it.source),
            ModelEvent::Usage(it) => {
                format!(
                    "usage {}/{} cached {} thought {}",
                    it.input_tokens, it.output_tokens, it.cached_tokens, it.reasoning_tokens
                )
            }
            ModelEvent::Finish(reason) => format!("finish {reason:?}"),
            other => format!("{other:?}"),
        })
        .collect()
}

/// The contents that the server got last.
fn contents(server: &ModelServer) -> Value {
    server.requests().last().unwrap().body["contents"].clone()
}

fn user(text: &str) -> Message {
    Message::text(Role::User, text)
}

fn call(id: &str, name: &str, arguments: &str) -> ToolCallRequest {
    ToolCallRequest { id: id.into(), name: name.into(), arguments: arguments.into(), metadata: Map::new() }
}

fn assistant(text: &str, calls: Vec<ToolCallRequest>) -> Message {
    Message { tool_calls: calls, ..Message::text(Role::Assistant, text) }
}

fn media(kind: MediaKind, media_type: &str, source: MediaSource) -> Part {
    Part::Media(Media { kind, media_type: media_type.into(), source })
}
