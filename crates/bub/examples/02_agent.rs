//! An agent with a model and a tool, whose events are shown as they come.
//!
//! The model here plays a part, so that no key and no network is needed. With a real one, the line
//! `.model_client(…)` becomes `.model("openai:gpt-4.1")`
//! and `.providers(bub::model_providers(&settings, &local))`.
//!
//! ```console
//! $ cargo run -p bub --example 02_agent
//! ```
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::{error::Error, sync::Arc};

use async_trait::async_trait;
use bub::{
    Agent, Run,
    kernel::{
        message::ToolCallRequest,
        model::{FinishReason, ModelClient, ModelError, ModelEvent, ModelRequest, ModelStream},
        tool::prelude::*,
        turn::TurnEvent,
    },
};
use futures::{StreamExt as _, stream};
use serde_json::{Map, json};

/// Look up an order by id.
#[derive(Deserialize, JsonSchema)]
struct LookupArgs {
    /// The order's id, such as A123.
    order_id: String,
}

#[derive(Serialize, JsonSchema)]
struct Order {
    id: String,
    status: &'static str,
}

struct LookupOrder;

impl Tool for LookupOrder {
    const NAME: &'static str = "lookup_order";
    type Args = LookupArgs;
    type Output = Order;

    async fn call(&self, _: &ToolContext, args: LookupArgs) -> Result<Order, ToolError> {
        Ok(Order { id: args.order_id, status: "shipped" })
    }

    /// What the model reads. Handlers and the tape see the same.
    fn render(&self, order: &Order) -> Option<String> {
        Some(format!("Order {}: {}", order.id, order.status))
    }
}

/// A model of two answers: first it looks the order up, then it says what it read.
struct Clerk;

#[async_trait]
impl ModelClient for Clerk {
    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError> {
        let events = match request.messages.last().filter(|it| it.tool_call.is_some()) {
            None => vec![
                ModelEvent::ToolCall(ToolCallRequest {
                    id: "call-1".into(),
                    name: "lookup_order".into(),
                    arguments: json!({"order_id": "A123"}).to_string(),
                    metadata: Map::new(),
                }),
                ModelEvent::Finish(FinishReason::ToolCalls),
            ],
            Some(result) => vec![
                ModelEvent::Text("I looked. ".into()),
                ModelEvent::Text(format!("{}.", result.joined_text())),
                ModelEvent::Finish(FinishReason::Stop),
            ],
        };
        Ok(stream::iter(events.into_iter().map(Ok)).boxed())
    }
}

/// Asks once and returns a line for each event.
///
/// # Errors
/// When the run fails.
pub(crate) async fn run() -> Result<Vec<String>, Box<dyn Error>> {
    let agent = Agent::builder()
        .model_client("demo:clerk", Arc::new(Clerk))
        .tool(LookupOrder)
        .system_prompt("Answer questions about orders.")
        .build()?;
    let mut lines = Vec::new();
    let mut stream = agent.run(Run::new("Where is A123?").tape("customer-7"));
    while let Some(event) = stream.next().await {
        match event {
            TurnEvent::Text(delta) => lines.push(format!("text: {delta}")),
            TurnEvent::ToolCalls(calls) => {
                lines.extend(calls.iter().map(|it| format!("call: {} {}", it.name, it.arguments)));
            }
            TurnEvent::ToolResults(results) => lines.extend(results.iter().map(|it| format!("result: {it}"))),
            _ => {}
        }
    }
    let answer = stream.result().await?.answer;
    lines.push(format!("answer: {answer}"));
    // The next run on the same tape would know all of this.
    lines.push(format!("on the tape: {} entries", agent.tape("customer-7").stats().await?.entries));
    Ok(lines)
}

#[tokio::main(flavor = "current_thread")]
#[cfg_attr(test, expect(dead_code, reason = "a test runs the rest"))]
async fn main() -> Result<(), Box<dyn Error>> {
    for line in run().await? {
        println!("{line}");
    }
    Ok(())
}
