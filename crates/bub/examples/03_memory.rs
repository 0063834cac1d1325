//! A tool that writes to the conversation's tape, a context that shows the model what it wrote, a state
//! of the program's own, and a handler of typed events.
//!
//! ```console
//! $ cargo run -p bub --example 03_memory
//! ```
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use bub::{
    Agent, Run,
    engine::DefaultContext,
    kernel::{
        event::ToolCallFinished,
        message::{Message, Role},
        model::{FinishReason, ModelClient, ModelError, ModelEvent, ModelRequest, ModelStream},
        plugin::ContextBuilder,
        steps::PromptSection,
        tape::Entry,
        tool::prelude::*,
    },
};
use futures::{StreamExt as _, stream};
use serde_json::json;

/// Record a note for this conversation.
#[derive(Deserialize, JsonSchema)]
struct RememberArgs {
    note: String,
}

/// Who talks, put into each run by the program.
struct Customer {
    name: &'static str,
}

struct Remember;

impl Tool for Remember {
    const NAME: &'static str = "remember";
    type Args = RememberArgs;
    type Output = String;

    async fn call(&self, ctx: &ToolContext, args: RememberArgs) -> Result<String, ToolError> {
        let customer = ctx.state.require_slot::<Customer>()?;
        let note = json!({"text": args.note, "by": customer.name});
        ctx.tape.append_event("note", note).await.map_err(|err| ToolError::invalid(err.to_string()))?;
        Ok("Recorded.".to_owned())
    }
}

/// The usual conversation, with the notes in front.
struct WithNotes;

impl ContextBuilder for WithNotes {
    fn messages(&self, entries: &[Arc<Entry>]) -> Vec<Message> {
        let notes = entries.iter().filter(|it| it.name() == Some("note"));
        let mut messages: Vec<_> = notes
            .filter_map(|it| it.data()?.get("text")?.as_str())
            .map(|text| Message::text(Role::User, format!("(a note: {text})")))
            .collect();
        messages.extend(DefaultContext.messages(entries));
        messages
    }
}

/// A model that says what it was told: its system prompt and the first message.
struct Echo;

#[async_trait]
impl ModelClient for Echo {
    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError> {
        let first = request.messages.first().map(Message::joined_text).unwrap_or_default();
        let text = format!("{} {first}", request.system.as_deref().unwrap_or_default());
        let events = [ModelEvent::Text(text), ModelEvent::Finish(FinishReason::Stop)];
        Ok(stream::iter(events.map(Ok)).boxed())
    }
}

/// Notes something, asks, and returns the answer and how many tool calls a handler saw.
///
/// # Errors
/// When a run fails.
pub(crate) async fn run() -> Result<(String, usize), Box<dyn Error>> {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let agent = Agent::builder()
        .name("desk")
        .model_client("demo:echo", Arc::new(Echo))
        .tool(Remember)
        .context(WithNotes)
        .command_prefix(",")
        .system_prompt(PromptSection::of(|facts| {
            let customer = facts.state.slot::<Customer>()?;
            Some(format!("You are {} and talk to {}.", facts.agent, customer.name))
        }))
        .on_sync(move |_: &mut ToolCallFinished| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .build()?;
    let say = |text: &str| Run::new(text).tape("customer-7").slot(Customer { name: "Ada" });
    agent.ask(say(",remember note='prefers tea'")).await?;
    let answer = agent.ask(say("What do you know?")).await?;
    Ok((answer, calls.load(Ordering::Relaxed)))
}

#[tokio::main(flavor = "current_thread")]
#[cfg_attr(test, expect(dead_code, reason = "a test runs the rest"))]
async fn main() -> Result<(), Box<dyn Error>> {
    let (answer, calls) = run().await?;
    println!("{answer}\n{calls} tool call");
    Ok(())
}
