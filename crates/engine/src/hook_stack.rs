//! How several hooks act as one: asked, gathered, chained, observed.
//!
//! A hook that panics is logged and skipped, so that a broken plugin ends nothing but its own say.

use std::{error::Error, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use bub_kernel::{
    channel::{Admission, TurnSnapshot},
    environment::Environment,
    error::ToolError,
    hooks::{CutOff, Hooks, ModelOutcome, ModelStep, ToolCall, ToolStep, ToolView},
    model::ModelRequest,
    tape::Tape,
    tool::{ToolContext, ToolReply},
    turn::{Inbound, Outbound, Prompt, SessionId, TurnState},
};
use futures::FutureExt as _;

/// All hooks, lowest rank first.
#[derive(Clone, Default)]
pub(crate) struct HookStack {
    hooks: Arc<[Arc<dyn Hooks>]>,
}

impl std::fmt::Debug for HookStack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.hooks.iter().map(|it| it.name())).finish()
    }
}

/// How long a hook may take to say where a message belongs, or to be told of an error: the messages behind
/// it wait meanwhile.
pub(crate) const HOOK_LIMIT: Duration = Duration::from_secs(5);

/// Why a hook gave no answer.
#[derive(Debug, thiserror::Error)]
#[error("hook '{hook}' {}", if *.panicked { "panicked".to_owned() } else { format!("gave no answer within {} s", HOOK_LIMIT.as_secs()) })]
pub(crate) struct HookFailure {
    hook: String,
    panicked: bool,
}

/// Runs one hook within [`HOOK_LIMIT`].
async fn limited<T>(hook: &dyn Hooks, work: impl Future<Output = T>) -> Result<T, HookFailure> {
    let failure = |panicked| HookFailure { hook: hook.name().to_owned(), panicked };
    match tokio::time::timeout(HOOK_LIMIT, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(failure(true)),
        Err(_) => Err(failure(false)),
    }
}

/// Runs one hook; `None` when it panicked.
async fn isolated<T>(hook: &dyn Hooks, method: &'static str, work: impl Future<Output = T>) -> Option<T> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    if done.is_err() {
        tracing::error!(hook = hook.name(), method, "hook panicked and was skipped");
    }
    done.ok()
}

impl HookStack {
    pub(crate) fn new(hooks: &[Arc<dyn Hooks>]) -> Self {
        Self { hooks: hooks.into() }
    }

    fn highest_first(&self) -> impl Iterator<Item = &dyn Hooks> {
        self.hooks.iter().rev().map(|it| &**it)
    }

    fn lowest_first(&self) -> impl Iterator<Item = &dyn Hooks> {
        self.hooks.iter().map(|it| &**it)
    }

    pub(crate) async fn resolve_session(&self, inbound: &Inbound) -> Option<SessionId> {
        for hook in self.highest_first() {
            if let Some(Some(it)) = isolated(hook, "resolve_session", hook.resolve_session(inbound)).await {
                return Some(it);
            }
        }
        None
    }

    /// As [`resolve_session`](Self::resolve_session), but a hook that fails is no hook without an answer: the
    /// message could come into another's session.
    pub(crate) async fn find_session(&self, inbound: &Inbound) -> Result<Option<SessionId>, HookFailure> {
        for hook in self.highest_first() {
            if let Some(it) = limited(hook, hook.resolve_session(inbound)).await? {
                return Ok(Some(it));
            }
        }
        Ok(None)
    }

    pub(crate) async fn admit(&self, inbound: &Inbound, now: &TurnSnapshot) -> Result<Option<Admission>, HookFailure> {
        for hook in self.highest_first() {
            if let Some(it) = limited(hook, hook.admit(inbound, now)).await? {
                return Ok(Some(it));
            }
        }
        Ok(None)
    }

    pub(crate) async fn environment(&self, session: &SessionId) -> Option<Arc<dyn Environment>> {
        for hook in self.highest_first() {
            if let Some(Some(it)) = isolated(hook, "environment", hook.environment(session)).await {
                return Some(it);
            }
        }
        None
    }

    pub(crate) async fn build_prompt(&self, state: &TurnState, inbound: &Inbound) -> Option<Prompt> {
        for hook in self.highest_first() {
            if let Some(Some(it)) = isolated(hook, "build_prompt", hook.build_prompt(state, inbound)).await {
                return Some(it);
            }
        }
        None
    }

    pub(crate) async fn continue_prompt(&self, state: &TurnState) -> Option<String> {
        for hook in self.highest_first() {
            if let Some(Some(it)) = isolated(hook, "continue_prompt", hook.continue_prompt(state)).await {
                return Some(it);
            }
        }
        None
    }

    pub(crate) async fn summarize(&self, ctx: &ToolContext, cut: &CutOff<'_>) -> Option<String> {
        for hook in self.highest_first() {
            if let Some(Some(it)) = isolated(hook, "summarize", hook.summarize(ctx, cut)).await {
                return Some(it);
            }
        }
        None
    }

    pub(crate) async fn context_window(&self, model: &str) -> Option<u64> {
        for hook in self.highest_first() {
            if let Some(Some(it)) = isolated(hook, "context_window", hook.context_window(model)).await {
                return Some(it).filter(|it| *it > 0);
            }
        }
        None
    }

    pub(crate) async fn load_state(&self, inbound: &Inbound, state: &mut TurnState) {
        for hook in self.lowest_first() {
            isolated(hook, "load_state", hook.load_state(inbound, state)).await;
        }
    }

    pub(crate) async fn begin_turn(&self, state: &mut TurnState, prompt: &Prompt, tape: &Tape) {
        for hook in self.lowest_first() {
            isolated(hook, "begin_turn", hook.begin_turn(state, prompt, tape)).await;
        }
    }

    pub(crate) async fn save_state(&self, state: &TurnState, text: &str) {
        for hook in self.lowest_first() {
            isolated(hook, "save_state", hook.save_state(state, text)).await;
        }
    }

    pub(crate) async fn system_prompt(&self, state: &TurnState) -> Vec<String> {
        let mut blocks = Vec::new();
        for hook in self.lowest_first() {
            blocks.extend(isolated(hook, "system_prompt", hook.system_prompt(state)).await.flatten());
        }
        blocks
    }

    pub(crate) async fn render_outbound(&self, state: &TurnState, text: &str) -> Vec<Outbound> {
        let mut all = Vec::new();
        for hook in self.lowest_first() {
            all.extend(
                isolated(hook, "render_outbound", hook.render_outbound(state, text)).await.into_iter().flatten(),
            );
        }
        all
    }

    pub(crate) async fn notices(&self, state: &TurnState) -> Vec<String> {
        let mut all = Vec::new();
        for hook in self.lowest_first() {
            all.extend(isolated(hook, "notices", hook.notices(state)).await.into_iter().flatten());
        }
        all
    }

    pub(crate) async fn choose_tools(&self, state: &TurnState, view: &mut ToolView) {
        for hook in self.highest_first() {
            isolated(hook, "choose_tools", hook.choose_tools(state, view)).await;
        }
    }

    pub(crate) async fn before_model(&self, state: &TurnState, request: &mut ModelRequest) -> ModelStep {
        for hook in self.highest_first() {
            match isolated(hook, "before_model", hook.before_model(state, request)).await {
                Some(ModelStep::Proceed) | None => {}
                Some(decided) => return decided,
            }
        }
        ModelStep::Proceed
    }

    pub(crate) async fn after_model(&self, state: &TurnState, outcome: &ModelOutcome<'_>) {
        for hook in self.lowest_first() {
            isolated(hook, "after_model", hook.after_model(state, outcome)).await;
        }
    }

    pub(crate) async fn before_tool(&self, ctx: &ToolContext, call: &mut ToolCall) -> ToolStep {
        for hook in self.highest_first() {
            match isolated(hook, "before_tool", hook.before_tool(ctx, call)).await {
                Some(ToolStep::Proceed) | None => {}
                Some(decided) => return decided,
            }
        }
        ToolStep::Proceed
    }

    pub(crate) async fn after_tool(
        &self,
        ctx: &ToolContext,
        call: &ToolCall,
        result: &mut Result<ToolReply, ToolError>,
    ) {
        for hook in self.highest_first() {
            isolated(hook, "after_tool", hook.after_tool(ctx, call, result)).await;
        }
    }

    pub(crate) async fn on_error(&self, stage: &'static str, err: &(dyn Error + Send + Sync)) {
        for hook in self.lowest_first() {
            isolated(hook, "on_error", hook.on_error(stage, err)).await;
        }
    }

    pub(crate) async fn close(&self) {
        for hook in self.highest_first() {
            isolated(hook, "close", hook.close()).await;
        }
    }
}
