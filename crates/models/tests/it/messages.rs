//! The wire of the Messages API.

mod answers;
mod failures;
mod replay;
mod requests;
mod tape;

use super::*;
use bub_kernel::message::Part;
use serde_json::{Value, json};

/// Settings for a server in the place of Anthropic.
pub(crate) fn anthropic(server: &ModelServer) -> ProviderConfig {
    ProviderConfig { name: "anthropic".into(), kind: ProviderKind::Anthropic, ..config(server) }
}

/// A stream of these events, as Anthropic writes them.
pub(crate) fn stream(events: impl IntoIterator<Item = Value>) -> String {
    let line = |it: Value| format!("event: {}\ndata: {it}\n\n", it["type"].as_str().unwrap_or_default());
    events.into_iter().map(line).collect()
}

pub(crate) fn start() -> Value {
    let usage =
        json!({"input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1});
    json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage}})
}

/// What begins, fills and ends a block.
pub(crate) fn block(index: usize, block: Value, deltas: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let mut events = vec![json!({"type": "content_block_start", "index": index, "content_block": block})];
    events.extend(deltas.into_iter().map(|it| json!({"type": "content_block_delta", "index": index, "delta": it})));
    events.push(json!({"type": "content_block_stop", "index": index}));
    events
}

pub(crate) fn text(index: usize, pieces: &[&str]) -> Vec<Value> {
    let deltas = pieces.iter().map(|it| json!({"type": "text_delta", "text": it}));
    block(index, json!({"type": "text", "text": ""}), deltas)
}

pub(crate) fn thinking(index: usize, pieces: &[&str], signature: &str) -> Vec<Value> {
    let words = pieces.iter().map(|it| json!({"type": "thinking_delta", "thinking": it}));
    let signature = json!({"type": "signature_delta", "signature": signature});
    block(index, json!({"type": "thinking", "thinking": "", "signature": ""}), words.chain([signature]))
}

pub(crate) fn tool_use(index: usize, id: &str, name: &str, pieces: &[&str]) -> Vec<Value> {
    let deltas = pieces.iter().map(|it| json!({"type": "input_json_delta", "partial_json": it}));
    block(index, json!({"type": "tool_use", "id": id, "name": name, "input": {}}), deltas)
}

/// How a message ends.
fn end(reason: &str) -> Vec<Value> {
    let delta = json!({"stop_reason": reason, "stop_sequence": null});
    vec![
        json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}}),
        json!({"type": "message_stop"}),
    ]
}

/// A whole message of these blocks.
fn message(blocks: impl IntoIterator<Item = Vec<Value>>, reason: &str) -> Reply {
    let events = [start()].into_iter().chain(blocks.into_iter().flatten()).chain(end(reason));
    Reply::raw_sse([stream(events)])
}

/// What a client makes of one reply.
async fn play(reply: Reply) -> (Vec<ModelEvent>, Option<ModelError>) {
    let server = ModelServer::start();
    server.reply(reply);
    ask(&client(anthropic(&server))).await
}
