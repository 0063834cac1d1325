//! What a turn costs inside a program, without the model: one that only answers, one that calls a tool,
//! and what hooks add to a call.
//!
//! `cargo bench -p bub --bench agent`. A turn on two threads should stay under 200 µs, and ten hooks
//! should add less than 20 µs to a tool call: compare `ten_hooks` with `no_hooks`.
#![expect(clippy::expect_used, reason = "a bench that can't run is to stop")]

use std::sync::Arc;

use async_trait::async_trait;
use bub::{
    Agent,
    kernel::{
        error::ToolError,
        event::{EventBus, ToolCallFinished},
        hooks::{Hooks, ToolCall, ToolStep},
        message::ToolCallRequest,
        model::{FinishReason, ModelClient, ModelError, ModelEvent, ModelRequest, ModelStream},
        tool::{ToolReply, prelude::*},
    },
};
use divan::Bencher;
use futures::{StreamExt as _, stream};
use serde_json::Map;

fn main() {
    divan::main();
}

/// Calls the tool once if there is one, then answers.
struct Scripted;

#[async_trait]
impl ModelClient for Scripted {
    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError> {
        let is_answered = request.messages.iter().any(|it| it.tool_call.is_some());
        let events = match request.tools.first() {
            Some(tool) if !is_answered => {
                let call = ToolCallRequest {
                    id: "c1".into(),
                    name: tool.alias(),
                    arguments: r#"{"a": 2, "b": 3}"#.into(),
                    metadata: Map::new(),
                };
                vec![ModelEvent::ToolCall(call), ModelEvent::Finish(FinishReason::ToolCalls)]
            }
            _ => vec![ModelEvent::Text("five".into()), ModelEvent::Finish(FinishReason::Stop)],
        };
        Ok(stream::iter(events.into_iter().map(Ok)).boxed())
    }
}

/// Adds two numbers.
#[derive(Deserialize, JsonSchema)]
struct AddArgs {
    a: i64,
    b: i64,
}

struct Add;

impl Tool for Add {
    const NAME: &'static str = "math.add";
    type Args = AddArgs;
    type Output = i64;

    async fn call(&self, _: &ToolContext, args: AddArgs) -> Result<i64, ToolError> {
        Ok(args.a.wrapping_add(args.b))
    }
}

/// Looks at each call, before and after.
struct Watch;

#[async_trait]
impl Hooks for Watch {
    fn name(&self) -> &str {
        "watch"
    }

    fn implements(&self) -> &[&'static str] {
        &["before_tool", "after_tool"]
    }

    async fn before_tool(&self, _: &ToolContext, call: &mut ToolCall) -> ToolStep {
        divan::black_box(call);
        ToolStep::Proceed
    }

    async fn after_tool(&self, _: &ToolContext, _: &ToolCall, result: &mut Result<ToolReply, ToolError>) {
        divan::black_box(result);
    }
}

fn measure(bencher: Bencher<'_, '_>, with_tool: bool, n_hooks: usize) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let mut builder = Agent::builder().model_client("fake:m", Arc::new(Scripted)).system_prompt("You add numbers.");
    if with_tool {
        builder = builder.tool(Add);
    }
    for _ in 0..n_hooks {
        builder = builder.hooks(Watch);
    }
    let agent = builder.build().expect("an agent");
    // Without a tape of a name each run begins like the first.
    bencher.bench_local(|| runtime.block_on(agent.ask("2 + 3?")).expect("an answer"));
}

/// A turn of one step, which only answers.
#[divan::bench(sample_count = 200, sample_size = 50)]
fn answer(bencher: Bencher<'_, '_>) {
    measure(bencher, false, 0);
}

/// A turn of two steps, with a tool call between them.
#[divan::bench(sample_count = 200, sample_size = 50)]
fn no_hooks(bencher: Bencher<'_, '_>) {
    measure(bencher, true, 0);
}

/// The same with ten hooks that look at the call, before and after it.
#[divan::bench(sample_count = 200, sample_size = 50)]
fn ten_hooks(bencher: Bencher<'_, '_>) {
    measure(bencher, true, 10);
}

/// An event that nobody takes: all it costs is this question, and it is not made.
#[divan::bench]
fn unheard_event(bencher: Bencher<'_, '_>) {
    let bus = EventBus::default();
    bencher.bench_local(|| divan::black_box(&bus).wants::<ToolCallFinished>());
}
