//! The wire of OpenAI's responses.

mod answers;
mod failures;
mod replays;
mod requests;

use super::*;
use bub_kernel::{
    message::{Part, ToolCallRequest},
    model::FinishReason,
};
use bub_models::Wire;
use serde_json::{Value, json};

pub(crate) fn responses_config(server: &ModelServer) -> ProviderConfig {
    let mut config = config(server);
    config.kind = ProviderKind::OpenAi;
    config.api_format = Some(Wire::Responses);
    config
}

/// The bytes of a stream of these events.
pub(crate) fn sse(events: impl IntoIterator<Item = Value>) -> String {
    events.into_iter().map(|it| format!("event: {}\ndata: {it}\n\n", it["type"].as_str().unwrap_or("x"))).collect()
}

/// An event, by its name without `response.`.
pub(crate) fn event(name: &str, fields: Value) -> Value {
    let name = if name == "error" { name.to_owned() } else { format!("response.{name}") };
    let mut event = json!({"type": name, "sequence_number": 1});
    event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    event
}

pub(crate) fn added(index: u64, item: Value) -> Value {
    event("output_item.added", json!({"output_index": index, "item": item}))
}

pub(crate) fn done(index: u64, item: Value) -> Value {
    event("output_item.done", json!({"output_index": index, "item": item}))
}

pub(crate) fn text_delta(index: u64, id: &str, delta: &str) -> Value {
    let fields = json!({"output_index": index, "item_id": id, "content_index": 0, "delta": delta, "logprobs": []});
    event("output_text.delta", fields)
}

pub(crate) fn arguments_delta(index: u64, id: &str, delta: &str) -> Value {
    event("function_call_arguments.delta", json!({"output_index": index, "item_id": id, "delta": delta}))
}

pub(crate) fn message(id: &str, text: &str) -> Value {
    json!({"type": "message", "id": id, "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]})
}

pub(crate) fn call(id: &str, call_id: &str, name: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments,
        "status": "completed"})
}

fn thinking(id: &str, encrypted: &str) -> Value {
    json!({"type": "reasoning", "id": id, "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": encrypted})
}

fn completed(output: Value) -> Value {
    let usage = json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 15});
    let response = json!({"id": "resp_1", "object": "response", "status": "completed", "error": null,
        "incomplete_details": null, "output": output, "usage": usage});
    event("completed", json!({"response": response}))
}

pub(crate) fn created() -> Value {
    event("created", json!({"response": {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}}))
}

/// What a client makes of these events.
async fn read(events: impl IntoIterator<Item = Value>) -> (Vec<ModelEvent>, Option<ModelError>) {
    let server = ModelServer::start();
    server.reply(Reply::raw_sse([sse(events)]));
    ask(&client(responses_config(&server))).await
}

/// The `input` of a request with these messages.
async fn input(edit: impl Fn(&mut ProviderConfig), messages: Vec<Message>) -> Vec<Value> {
    body(edit, &request(messages)).await["input"].as_array().unwrap().clone()
}

/// The body of a request.
async fn body(edit: impl Fn(&mut ProviderConfig), request: &ModelRequest) -> Value {
    let server = ModelServer::with(|_| Reply::raw_sse([sse([completed(json!([]))])]));
    let mut config = responses_config(&server);
    edit(&mut config);
    let (_, err) = send(&client(config), request).await;
    assert!(err.is_none(), "{err:?}");
    let body = server.requests()[0].body.clone();
    assert_paired(&body["input"]);
    body
}

/// Each call has one result, and each result comes after its call.
fn assert_paired(input: &Value) {
    let mut open = std::collections::BTreeSet::new();
    for item in input.as_array().into_iter().flatten() {
        let call_id = item["call_id"].as_str().unwrap_or_default();
        match item["type"].as_str() {
            Some("function_call") => assert!(open.insert(call_id), "call {call_id} twice in {input}"),
            Some("function_call_output") => assert!(open.remove(call_id), "no open call {call_id} in {input}"),
            _ => (),
        }
    }
    assert!(open.is_empty(), "{open:?} have no result in {input}");
}
