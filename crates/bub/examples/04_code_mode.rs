//! An agent whose model writes Python that calls a tool.
//!
//! Code mode has two parts: the tool `run_code`, and a section of the system prompt that tells the model
//! what its code may call. The model here plays a script; the code runs in a Python process.
//!
//! ```console
//! $ cargo run -p bub --example 04_code_mode
//! ```
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::{error::Error, sync::Arc};

use async_trait::async_trait;
use bub::{
    Agent,
    code::CodeMode,
    kernel::{
        message::ToolCallRequest,
        model::{FinishReason, ModelClient, ModelError, ModelEvent, ModelRequest, ModelStream},
        tool::{erase, prelude::*},
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

/// For code the result keeps its shape: `order["status"]`.
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
        let status = if args.order_id.ends_with('3') { "shipped" } else { "packed" };
        Ok(Order { id: args.order_id, status })
    }
}

/// What the model writes: three lookups at once, and one line out of them.
const CODE: &str = "\
import asyncio
ids = ['A121', 'A122', 'A123']
orders = await asyncio.gather(*(tools.lookup_order(order_id=id) for id in ids))
print([order['id'] for order in orders if order['status'] == 'shipped'])
";

/// A model that runs the code, and then tells what it printed.
struct Programmer;

#[async_trait]
impl ModelClient for Programmer {
    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError> {
        let events = match request.messages.last().filter(|it| it.tool_call.is_some()) {
            None => vec![
                ModelEvent::ToolCall(ToolCallRequest {
                    id: "call-1".into(),
                    name: "run_code".into(),
                    arguments: json!({"code": CODE}).to_string(),
                    metadata: Map::new(),
                }),
                ModelEvent::Finish(FinishReason::ToolCalls),
            ],
            Some(printed) => vec![
                ModelEvent::Text(format!("On their way: {}", printed.joined_text().trim())),
                ModelEvent::Finish(FinishReason::Stop),
            ],
        };
        Ok(stream::iter(events.into_iter().map(Ok)).boxed())
    }
}

/// Asks once and returns the answer.
///
/// # Errors
/// When the run fails.
pub(crate) async fn run() -> Result<String, Box<dyn Error>> {
    let code_mode = CodeMode::new([erase(LookupOrder)]);
    let agent = Agent::builder()
        .model_client("demo:programmer", Arc::new(Programmer))
        .dyn_tool(code_mode.run_code())
        .system_prompt("Use the available tools to answer the user's question.")
        .system_prompt(&code_mode)
        .build()?;
    let answer = agent.ask("Which of A121, A122 and A123 are on their way?").await?;
    agent.close().await;
    Ok(answer)
}

#[tokio::main(flavor = "current_thread")]
#[cfg_attr(test, expect(dead_code, reason = "a test runs the rest"))]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", run().await?);
    Ok(())
}
