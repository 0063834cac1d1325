//! What running code may ask for: tools, models, a place to print.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use bub_kernel::{
    code::CodeHost,
    error::ToolError,
    hooks::ToolView,
    tool::{Caller, DynTool, PartialResult, ToolContext},
    turn::TurnState,
};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::{attach::Attachments, bridge::Bridge, output::Output, stub};

/// What operations on models are named like.
const REPUBLIC: &str = "republic.";

/// Serves the calls of one run.
pub(crate) struct Calls {
    ctx: ToolContext,
    /// Aliases of the tools, by the names that code uses.
    aliases: HashMap<String, String>,
    idents: Vec<String>,
    running: Semaphore,
    made: AtomicUsize,
    pub(crate) bridge: Bridge,
    pub(crate) output: Arc<Output>,
}

impl Calls {
    /// Serves `tools` and nothing else, at most `max_running` calls at once.
    pub(crate) fn new(
        ctx: &ToolContext,
        tools: Vec<Arc<dyn DynTool>>,
        attachments: Attachments,
        bridge: Bridge,
        max_running: usize,
    ) -> Self {
        let specs: Vec<_> = tools.iter().map(|it| it.spec().clone()).collect();
        let idents = stub::identifiers(&specs);
        let aliases = idents.iter().cloned().zip(specs.iter().map(|it| it.alias())).collect();
        let mut state = TurnState::clone(&ctx.state);
        state.set_slot(attachments);
        let view = ToolView { code: tools, ..ToolView::default() };
        let ctx =
            ToolContext { caller: Caller::Code, step: Some(Arc::new(view)), state: Arc::new(state), ..ctx.clone() };
        let running = Semaphore::new(max_running.clamp(1, Semaphore::MAX_PERMITS));
        Self { ctx, aliases, idents, running, made: AtomicUsize::new(0), bridge, output: Arc::default() }
    }

    /// The names that code calls the tools by.
    pub(crate) fn names(&self) -> &[String] {
        &self.idents
    }
}

#[async_trait]
impl CodeHost for Calls {
    async fn call_tool(&self, name: &str, arguments: Value) -> Result<Value, ToolError> {
        if let Some(operation) = name.strip_prefix(REPUBLIC) {
            return self.bridge.call(operation, arguments).await;
        }
        let Some(alias) = self.aliases.get(name) else {
            return Err(ToolError::not_found(format!("Unknown tool name: {name}.")));
        };
        // A closed semaphore is the only error, and nobody closes this one.
        let _permit = self.running.acquire().await;
        let n = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        let call = if self.ctx.call.is_empty() { format!("code/{n}") } else { format!("{}/{n}", self.ctx.call) };
        let ctx = ToolContext { call, partial: PartialResult::default(), ..self.ctx.clone() };
        match self.ctx.host.call_tool(&ctx, alias, arguments).await {
            Ok(reply) => Ok(reply.value),
            Err(err) => Err(for_code(err)),
        }
    }

    fn write(&self, text: &str) {
        self.output.push(text);
    }
}

/// The error as code gets it: its details don't pass, so the cause's own words join the message.
fn for_code(err: ToolError) -> ToolError {
    let cause = match err.details.get("error") {
        Some(Value::String(text)) => text.as_str(),
        _ => err.cause(),
    };
    if cause.is_empty() || err.message.contains(cause) {
        return ToolError::new(err.kind, err.message);
    }
    ToolError::new(err.kind, format!("{} {cause}", err.message))
}
