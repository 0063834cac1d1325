//! Tools that are functions, called by a person.
//!
//! `#[tool]` reads a function's signature: the name, the doc comment, the parameters and the result make
//! the tool, and the function stays a function. Commands call tools without a model, so no key is needed.
//!
//! ```console
//! $ cargo run -p bub --example 05_tools_from_functions
//! ```
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::{error::Error, fmt, sync::Arc};

use bub::{
    Runtime, TurnOptions,
    engine::{EngineSettings, RuntimeParts},
    host::{LocalEnvironment, LocalOptions},
    kernel::{
        clock,
        event::EventBus,
        plugin::Registry,
        secret::SecretMask,
        tape::{MemoryStore, TapeError, TapeQuery},
        tool::prelude::*,
        turn::{Inbound, Prompt, SessionId},
    },
    tool,
};
use serde_json::json;

/// Adds two integers.
#[tool(name = "math.add")]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

/// An order of the shop.
#[derive(Serialize, JsonSchema)]
struct Order {
    id: String,
    status: &'static str,
}

/// Looks up an order by its id.
#[tool(name = "orders.get", renderer = |order| format!("order {}: {}", order.id, order.status))]
fn get_order(
    /// The order's id, such as A123.
    order_id: String,
) -> Order {
    Order { id: order_id, status: "shipped" }
}

/// There is no such order.
#[derive(Debug)]
struct UnknownOrder(String);

impl fmt::Display for UnknownOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no order {}", self.0)
    }
}

/// Looks up an order of this year by its id.
#[tool(renderer = |order| format!("Order {}: {}", order.id, order.status))]
async fn lookup_order(order_id: String) -> Result<Order, UnknownOrder> {
    if order_id.starts_with('A') { Ok(get_order(order_id)) } else { Err(UnknownOrder(order_id)) }
}

/// Records a note for this conversation.
#[tool]
async fn remember(note: String, ctx: &ToolContext) -> Result<&'static str, TapeError> {
    ctx.tape.append_event("note", json!({"text": note})).await?;
    Ok("Recorded.")
}

/// Calls the tools, and returns what each said, and then the notes that stand on the tape.
///
/// # Errors
/// When the runtime can't be made, or the tape can't be read.
pub(crate) async fn run() -> Result<Vec<String>, Box<dyn Error>> {
    let mut registry = Registry::default();
    registry.tool(add_tool()).tool(get_order_tool()).tool(lookup_order_tool()).tool(remember_tool());
    let runtime = Runtime::new(RuntimeParts {
        registry,
        settings: EngineSettings { command_prefix: Some(",".into()), ..EngineSettings::default() },
        store: Arc::new(MemoryStore::default()),
        environment: Arc::new(LocalEnvironment::new(LocalOptions::default())?),
        workspace: "example".into(),
        clock: clock::system(),
        events: EventBus::default(),
        mask: SecretMask::default(),
        locks: None,
    });
    let session = SessionId("example:1".into());
    let mut told = Vec::new();
    for line in [
        ",math.add a=2 b=3",
        ",orders.get A123",
        ",lookup_order order_id=B7",
        ",math.add a=two c=1",
        ",remember 'buy milk'",
    ] {
        let command = Inbound {
            session: Some(session.clone()),
            local: true,
            ..Inbound::new("example", "1", Prompt::Text(line.into()))
        };
        told.push(match runtime.turn(command, TurnOptions::default()).result().await {
            Ok(turn) => turn.answer,
            Err(err) => format!("failed: {err}"),
        });
    }
    for entry in runtime.tape(&session).read(&TapeQuery::default().event("note")).await? {
        told.push(format!("on the tape: {}", entry.data().unwrap_or(&json!(null))));
    }
    runtime.close().await;
    Ok(told)
}

#[tokio::main(flavor = "current_thread")]
#[cfg_attr(test, expect(dead_code, reason = "a test runs the rest"))]
async fn main() -> Result<(), Box<dyn Error>> {
    for line in run().await? {
        println!("{line}");
    }
    Ok(())
}
