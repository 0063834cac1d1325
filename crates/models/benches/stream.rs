//! What one streamed answer costs, from loopback to the kernel's events.
//!
//! `cargo bench -p bub-models`. The server sends a stream that was made before, in pieces of 64 KiB.
#![expect(clippy::expect_used, reason = "a bench that can't run is to stop")]

use std::sync::Arc;

use bub_kernel::{
    message::{Message, Role},
    model::{ModelClient, ModelOptions, ModelProvider, ModelRequest},
    turn::RunId,
};
use bub_models::{Provider, ProviderConfig, ProviderKind};
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

fn measure(bencher: Bencher<'_, '_>, reply: Reply) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let server = ModelServer::with(move |_| reply.clone());
    let mut config = ProviderConfig::new("bench", ProviderKind::OpenAiCompatible);
    config.api_base = Some(server.base_url());
    let client: Arc<dyn ModelClient> = Provider::new(config).client("m").expect("a client");
    let request = ModelRequest {
        run: RunId("run-bench".into()),
        model: "m".into(),
        system: None,
        messages: vec![Message::text(Role::User, "hello")],
        tools: Vec::new(),
        options: ModelOptions::default(),
    };
    bencher.counter(ItemsCount::new(N_DELTAS)).bench_local(|| {
        runtime.block_on(async {
            let mut events = client.stream(&request).await.expect("a stream");
            let mut n_events = 0_usize;
            while let Some(event) = events.next().await {
                event.expect("a whole answer");
                n_events += 1;
            }
            n_events
        })
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
