//! What one streamed answer costs, from loopback to the kernel's events.
//!
//! `cargo bench -p bub-models`. The server sends a stream that was made before, in pieces of 64 KiB.
#![expect(clippy::expect_used, reason = "a bench that can't run is to stop")]

use std::{sync::Arc, time::Duration};

use bub_kernel::{
    message::{Message, Role},
    model::{ModelClient, ModelOptions, ModelProvider, ModelRequest},
    turn::RunId,
};
use bub_models::{Provider, ProviderConfig, ProviderKind, Wire};
use bub_testing::{ModelServer, Reply};
use divan::{Bencher, counter::ItemsCount};
use futures::StreamExt;
use serde_json::{Value, json};

/// How many deltas a stream has.
const N_DELTAS: usize = 20_000;

fn main() {
    divan::main();
}

fn stream(deltas: impl Iterator<Item = Value>) -> Reply {
    let mut text = String::new();
    for delta in deltas {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": null});
        let chunk =
            json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]});
        text.push_str(&format!("data: {chunk}\n\n"));
    }
    text.push_str("data: [DONE]\n\n");
    Reply::raw_sse([text]).pieces_of(64 * 1024)
}

/// A stream of the wire of responses.
fn responses_stream(events: impl Iterator<Item = Value>) -> Reply {
    let end = json!({"type": "response.completed", "response": {"status": "completed", "output": []}});
    let text: String = events.chain([end]).map(|it| format!("data: {it}\n\n")).collect();
    Reply::raw_sse([text]).pieces_of(64 * 1024)
}

/// A stream of the Gemini API, one event a list of parts.
fn gemini_stream(lists: impl Iterator<Item = Value>) -> Reply {
    let mut text = String::new();
    for parts in lists {
        let candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
        let usage = json!({"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18});
        let event = json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r"});
        text.push_str(&format!("data: {event}\r\n\r\n"));
    }
    text.push_str("data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\r\n\r\n");
    Reply::raw_sse([text]).pieces_of(64 * 1024)
}

fn measure(bencher: Bencher<'_, '_>, reply: Reply) {
    play(bencher, Wire::Chat, reply, N_DELTAS);
}

/// A server that always replies so, a client of it, and what it asks.
struct Bench {
    runtime: tokio::runtime::Runtime,
    server: ModelServer,
    client: Arc<dyn ModelClient>,
    request: ModelRequest,
}

impl Bench {
    fn new(wire: Wire, reply: Reply) -> Self {
        let server = ModelServer::with(move |_| reply.clone());
        let kind = match wire {
            Wire::Chat | Wire::Responses => ProviderKind::Ollama,
            Wire::Messages => ProviderKind::Anthropic,
            Wire::Gemini => ProviderKind::Google,
        };
        let mut config = ProviderConfig::new("bench", kind);
        config.api_base = Some(server.base_url());
        config.api_format = Some(wire);
        Self {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"),
            server,
            client: Provider::new(config).client("m").expect("a client"),
            request: ModelRequest {
                run: RunId("run-bench".into()),
                model: "m".into(),
                system: None,
                messages: vec![Message::text(Role::User, "hello")],
                tools: Vec::new(),
                options: ModelOptions::default(),
            },
        }
    }
}

/// Asks a server that always replies so, and counts the work as `n_items`.
fn play(bencher: Bencher<'_, '_>, wire: Wire, reply: Reply, n_items: usize) {
    let bench = Bench::new(wire, reply);
    bencher.counter(ItemsCount::new(n_items)).bench_local(|| {
        bench.runtime.block_on(async {
            let mut events = bench.client.stream(&bench.request).await.expect("a stream");
            let mut n_events = 0_usize;
            while let Some(event) = events.next().await {
                event.expect("a whole answer");
                n_events += 1;
            }
            n_events
        })
    });
}

/// From dropping an answer that is under way until the server sees the connection end.
#[divan::bench(sample_count = 50, sample_size = 1)]
fn hang_up(bencher: Bencher<'_, '_>) {
    let bench = Bench::new(Wire::Chat, Reply::deltas([json!({"content": "half"})]).stall());
    let begun = || {
        let stream = bench.runtime.block_on(async {
            let mut stream = bench.client.stream(&bench.request).await.expect("a stream");
            stream.next().await.expect("an event").expect("a word");
            stream
        });
        (stream, bench.server.hangups())
    };
    bencher.with_inputs(begun).bench_local_values(|(stream, before)| {
        drop(stream);
        bench.runtime.block_on(bench.server.hung_up(before + 1, Duration::from_secs(5)));
    });
}

/// Words, one at a time.
#[divan::bench(sample_count = 20)]
fn text(bencher: Bencher<'_, '_>) {
    measure(bencher, stream((0..N_DELTAS).map(|it| json!({"content": format!("tok{it} ")}))));
}

/// One call whose arguments come in small pieces.
#[divan::bench(sample_count = 20)]
fn arguments(bencher: Bencher<'_, '_>) {
    let first = json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]});
    let piece = json!({"tool_calls": [{"index": 0, "function": {"arguments": "x".repeat(50)}}]});
    measure(bencher, stream(std::iter::once(first).chain((1..N_DELTAS).map(|_| piece.clone()))));
}

/// Words, one at a time, of an item of the wire of responses.
#[divan::bench(sample_count = 20)]
fn responses_text(bencher: Bencher<'_, '_>) {
    let delta = |it: usize| {
        json!({"type": "response.output_text.delta", "sequence_number": it, "item_id": "msg_1", "output_index": 0,
            "content_index": 0, "delta": format!("tok{it} "), "logprobs": []})
    };
    play(bencher, Wire::Responses, responses_stream((0..N_DELTAS).map(delta)), N_DELTAS);
}

/// One call of that wire, whose arguments of 1 MB come in 10,000 pieces.
#[divan::bench(sample_count = 20)]
fn responses_arguments(bencher: Bencher<'_, '_>) {
    let n_pieces = 10_000;
    let item = |arguments: &str| json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": arguments});
    let piece = "x".repeat(100);
    let delta = json!({"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 0,
        "delta": piece});
    let first = json!({"type": "response.output_item.added", "output_index": 0, "item": item("")});
    let last = json!({"type": "response.output_item.done", "output_index": 0, "item": item(&piece.repeat(n_pieces))});
    let events = std::iter::once(first).chain((0..n_pieces).map(|_| delta.clone())).chain([last]);
    play(bencher, Wire::Responses, responses_stream(events), n_pieces);
}

/// Words by the Gemini API, one at a time.
#[divan::bench(sample_count = 20)]
fn gemini_text(bencher: Bencher<'_, '_>) {
    let reply = gemini_stream((0..N_DELTAS).map(|it| json!([{"text": format!("tok{it} ")}])));
    play(bencher, Wire::Gemini, reply, N_DELTAS);
}

/// One call by the Gemini API whose arguments are a megabyte in one event.
#[divan::bench(sample_count = 20)]
fn gemini_arguments(bencher: Bencher<'_, '_>) {
    let call = json!([{"functionCall": {"name": "f", "args": {"content": "x\n".repeat(500_000)}}}]);
    play(bencher, Wire::Gemini, gemini_stream(std::iter::once(call)), 1);
}

/// A stream of the Messages API: one block and its pieces.
fn messages_stream(block: &Value, deltas: impl Iterator<Item = Value>) -> Reply {
    let mut text = String::new();
    let mut add = |event: Value| {
        let name = event.get("type").and_then(Value::as_str).unwrap_or_default();
        text.push_str(&format!("event: {name}\ndata: {event}\n\n"));
    };
    add(json!({"type": "content_block_start", "index": 0, "content_block": block}));
    deltas.for_each(|it| add(json!({"type": "content_block_delta", "index": 0, "delta": it})));
    add(json!({"type": "content_block_stop", "index": 0}));
    add(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}));
    add(json!({"type": "message_stop"}));
    Reply::raw_sse([text]).pieces_of(64 * 1024)
}

/// Words by the Messages API, one at a time.
#[divan::bench(sample_count = 20)]
fn messages_text(bencher: Bencher<'_, '_>) {
    let deltas = (0..N_DELTAS).map(|it| json!({"type": "text_delta", "text": format!("tok{it} ")}));
    let reply = messages_stream(&json!({"type": "text", "text": ""}), deltas);
    play(bencher, Wire::Messages, reply, N_DELTAS);
}

/// One call by the Messages API, its megabyte of input in 10,000 pieces.
#[divan::bench(sample_count = 20)]
fn messages_arguments(bencher: Bencher<'_, '_>) {
    let piece = json!({"type": "input_json_delta", "partial_json": "x".repeat(100)});
    let block = json!({"type": "tool_use", "id": "c", "name": "f", "input": {}});
    let reply = messages_stream(&block, (0..10_000).map(|_| piece.clone()));
    play(bencher, Wire::Messages, reply, 10_000);
}
