//! What the model is offered of deferred tools.

use std::sync::Arc;

use async_trait::async_trait;
use bub_kernel::{
    error::ToolError,
    hooks::{Hooks, ToolCall, ToolView},
    tape::Tape,
    tool::{DynTool, Tool as _, ToolContext, ToolReply, erase},
    turn::{Prompt, TurnState},
};

use super::{ToolDescribe, loaded::Loaded};
use crate::tape::TapeReset;

/// The most names of deferred tools in the system prompt.
const MAX_LISTED: usize = 500;
/// The most bytes that those names may take.
const MAX_LISTED_BYTES: usize = 20_000;
/// What lets a turn's code call its tools.
const CODE_TOOL: &str = "run_code";

/// Offers the deferred tools that a tape has loaded, and tells the model the names of all.
pub struct DescribeHooks {
    describe: Arc<dyn DynTool>,
}

impl std::fmt::Debug for DescribeHooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DescribeHooks").finish_non_exhaustive()
    }
}

impl Default for DescribeHooks {
    fn default() -> Self {
        Self { describe: erase(ToolDescribe) }
    }
}

#[async_trait]
impl Hooks for DescribeHooks {
    fn name(&self) -> &str {
        "describe"
    }

    fn implements(&self) -> &[&'static str] {
        &["begin_turn", "choose_tools", "after_tool"]
    }

    async fn begin_turn(&self, state: &mut TurnState, _: &Prompt, tape: &Tape) {
        state.set_slot(Loaded::new(tape.clone()));
    }

    async fn choose_tools(&self, state: &TurnState, view: &mut ToolView) {
        let at = view.direct.iter().position(|it| it.name() == ToolDescribe::NAME);
        // A plugin may have its own.
        let describe = at.map_or_else(|| self.describe.clone(), |at| view.direct.remove(at));
        if state.code_mode && view.direct.iter().any(|it| it.name() == CODE_TOOL) {
            // What code calls needs no loading.
            let ToolView { code, deferred, .. } = view;
            deferred.retain(|it| !code.iter().any(|code| code.name() == it.name()));
        }
        if view.deferred.is_empty() {
            return;
        }
        let listed = block(&view.deferred);
        view.direct.push(describe);
        let loaded = match state.slot::<Loaded>() {
            Some(loaded) => loaded.names().await,
            None => Ok(Vec::new()),
        };
        match loaded {
            Ok(names) => {
                for name in names {
                    if let Some(at) = view.deferred.iter().position(|it| it.name() == name) {
                        view.direct.push(view.deferred.remove(at));
                    }
                }
            }
            Err(err) => tracing::warn!(error = %err, "the tape does not tell which tools were loaded"),
        }
        view.prompt.push(listed);
    }

    async fn after_tool(&self, ctx: &ToolContext, call: &ToolCall, result: &mut Result<ToolReply, ToolError>) {
        if call.tool == TapeReset::NAME
            && result.is_ok()
            && let Some(loaded) = ctx.state.slot::<Loaded>()
        {
            loaded.forget().await;
        }
    }
}

/// The block that names all deferred tools, loaded or not: loading one leaves the prompt as it was.
fn block(tools: &[Arc<dyn DynTool>]) -> String {
    let mut text = String::from(
        "<deferred_tools>\nThese tools are available on demand. Call `tool_describe` with the names of those you \
         need; from the next step on you can call them like any other tool.\n",
    );
    let start = text.len();
    let mut listed = 0;
    for tool in tools.iter().take(MAX_LISTED) {
        let line = format!("- {}\n", tool.name().replace('.', "_"));
        if text.len() - start + line.len() > MAX_LISTED_BYTES {
            break;
        }
        text.push_str(&line);
        listed += 1;
    }
    if listed < tools.len() {
        let more = tools.len() - listed;
        text.push_str(&format!("(and {more} more: `tool_describe` with an empty list of names lists all)\n"));
    }
    text.push_str("</deferred_tools>");
    text
}
