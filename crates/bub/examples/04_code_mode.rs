//! An agent of your own in which the model writes Python that calls a tool.
//!
//! `CodeMode` is a plugin: it adds the tool `run_code` and a block of the system prompt. No settings, no
//! sessions and no key are needed: the model here plays a script, and the code runs in a Python process.
//!
//! ```console
//! $ cargo run -p bub --example 04_code_mode
//! ```
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::{error::Error, sync::Arc};

use bub::{
    Runtime, TurnOptions,
    code::{BuiltinRunners, CodeMode, RunnerChoice},
    engine::{EngineSettings, RuntimeParts},
    host::{LocalEnvironment, LocalOptions},
    kernel::{
        clock,
        event::EventBus,
        plugin::{Plugin as _, Registry},
        secret::SecretMask,
        tape::MemoryStore,
        tool::{erase, prelude::*},
        turn::{Inbound, Prompt, SessionId, TurnEvent},
    },
};
use bub_testing::{Script, ScriptedModel};
use serde_json::json;

/// Look up an order by its id.
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

struct Lookup;

impl Tool for Lookup {
    const NAME: &'static str = "order.lookup";
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
orders = await asyncio.gather(*(tools.order_lookup(order_id=id) for id in ids))
print([order['id'] for order in orders if order['status'] == 'shipped'])
";

/// Runs one turn and returns what the code printed and what the model said.
///
/// # Errors
/// When the turn fails.
pub(crate) async fn run() -> Result<(String, String), Box<dyn Error>> {
    let runners = BuiltinRunners::new(RunnerChoice::Process, "python3", None);
    let code = CodeMode::new(Arc::new(runners), [erase(Lookup)]);
    let model = ScriptedModel::new([
        Script::calls([("call-1", "run_code", json!({"code": CODE}))]),
        Script::text("Of your orders, A123 is on its way."),
    ]);
    let mut registry = Registry::default();
    code.register(&mut registry)?;
    registry.models(Arc::new(model));
    let runtime = Runtime::new(RuntimeParts {
        registry,
        settings: EngineSettings { model: Some("fake:scripted".into()), ..EngineSettings::default() },
        store: Arc::new(MemoryStore::default()),
        environment: Arc::new(LocalEnvironment::new(LocalOptions::default())?),
        workspace: "example".into(),
        clock: clock::system(),
        events: EventBus::default(),
        mask: SecretMask::default(),
        locks: None,
    });
    let question = Inbound {
        channel: "example".into(),
        chat: "1".into(),
        session: Some(SessionId("example:1".into())),
        prompt: Prompt::Text("Which of A121, A122 and A123 are on their way?".into()),
        context: Vec::new(),
        local: true,
    };
    let mut turn = runtime.turn(question, TurnOptions::default());
    let mut printed = String::new();
    while let Some(event) = turn.next().await {
        if let TurnEvent::ToolProgress { text, .. } = event {
            printed.push_str(&text);
        }
    }
    let answer = turn.result().await?.answer;
    runtime.close().await;
    Ok((printed, answer))
}

#[tokio::main(flavor = "current_thread")]
#[cfg_attr(test, expect(dead_code, reason = "a test runs the rest"))]
async fn main() -> Result<(), Box<dyn Error>> {
    let (printed, answer) = run().await?;
    println!("the code printed: {printed}the model said: {answer}");
    Ok(())
}
