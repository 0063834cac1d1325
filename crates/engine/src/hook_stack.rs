//! How several hooks act as one: asked, gathered, chained, observed.
//!
//! A hook that panics, takes too long where that is limited, or answers what makes no sense is logged,
//! reported to the hooks' `on_error` and passed over: a broken plugin ends nothing but its own say.

use std::{error::Error, future::Future, panic::AssertUnwindSafe, pin::pin, sync::Arc, task::Poll, time::Duration};

use bub_kernel::{
    channel::{Admission, TurnSnapshot},
    environment::Environment,
    error::{ToolError, panic_text},
    hooks::{
        ADMIT, AFTER_MODEL, AFTER_TOOL, BEFORE_MODEL, BEFORE_TOOL, BEGIN_TURN, BUILD_PROMPT, CHOOSE_TOOLS, CLOSE,
        CONTEXT_WINDOW, CONTINUE_PROMPT, CutOff, ENVIRONMENT, HOOK_LIMIT, HOOKS, HookError, HookInfo, Hooks,
        LOAD_STATE, ModelOutcome, ModelStep, NOTICES, ON_ERROR, RENDER_OUTBOUND, RESOLVE_SESSION, SAVE_STATE,
        SUMMARIZE, SYSTEM_PROMPT, ToolCall, ToolStep, ToolView,
    },
    model::ModelRequest,
    tape::Tape,
    tool::{ToolContext, ToolReply},
    turn::{Inbound, Outbound, Prompt, SessionId, TurnState},
};
use futures::{FutureExt as _, future::BoxFuture};

/// The longest that hooks may take to close; the program waits for it.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// All hooks, lowest rank first.
#[derive(Clone)]
pub(crate) struct HookStack {
    hooks: Arc<[Arc<dyn Hooks>]>,
    /// The longest that a limited hook may take.
    limit: Duration,
}

impl Default for HookStack {
    fn default() -> Self {
        Self { hooks: Arc::new([]), limit: HOOK_LIMIT }
    }
}

impl std::fmt::Debug for HookStack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.hooks.iter().map(|it| it.name())).finish()
    }
}

/// How long a hook may take to say where a message belongs, or to be told of an error: the messages behind
/// it wait meanwhile.
pub(crate) const ADMISSION_LIMIT: Duration = Duration::from_secs(5);

/// Runs one hook's method; isolated from its panics and, when `limit` is given, from its slowness.
async fn isolated<T>(
    info: &HookInfo,
    hook: &dyn Hooks,
    limit: Option<Duration>,
    work: impl Future<Output = T>,
) -> Result<T, HookError> {
    let mut work = pin!(AssertUnwindSafe(work).catch_unwind());
    // Most hooks have their answer at once, and need no timer.
    let done = match (futures::poll!(work.as_mut()), limit) {
        (Poll::Ready(done), _) => done,
        (Poll::Pending, None) => work.await,
        (Poll::Pending, Some(limit)) => match tokio::time::timeout(limit, work).await {
            Ok(done) => done,
            Err(_) => return Err(HookError::Late { hook: hook.name().to_owned(), method: info.name, limit }),
        },
    };
    done.map_err(|panic| HookError::Panicked {
        hook: hook.name().to_owned(),
        method: info.name,
        what: panic_text(&*panic).to_owned(),
    })
}

/// The first answer, highest rank first.
macro_rules! asked {
    ($self:ident, $info:ident, $hook:ident => $work:expr) => {{
        for $hook in $self.highest_first() {
            if let Some(Some(it)) = $self.call(&$info, $hook, $work).await {
                return Some(it);
            }
        }
        None
    }};
}

/// All answers, lowest rank first.
macro_rules! gathered {
    ($self:ident, $info:ident, $hook:ident => $work:expr) => {{
        let mut all = Vec::new();
        for $hook in $self.lowest_first() {
            all.extend($self.call(&$info, $hook, $work).await.into_iter().flatten());
        }
        all
    }};
}

impl HookStack {
    pub(crate) fn new(hooks: &[Arc<dyn Hooks>], limit: Duration) -> Self {
        for hook in hooks {
            for method in hook.implements().iter().filter(|it| HOOKS.iter().all(|known| known.name != **it)) {
                tracing::error!(hook = hook.name(), "says that it implements '{method}', and there is no such hook");
            }
        }
        Self { hooks: hooks.into(), limit }
    }

    fn highest_first(&self) -> impl Iterator<Item = &dyn Hooks> {
        self.hooks.iter().rev().map(|it| &**it)
    }

    fn lowest_first(&self) -> impl Iterator<Item = &dyn Hooks> {
        self.hooks.iter().map(|it| &**it)
    }

    /// Runs one hook's method; `None` when it was passed over.
    async fn call<T>(&self, info: &HookInfo, hook: &dyn Hooks, work: impl Future<Output = T>) -> Option<T> {
        match isolated(info, hook, info.is_limited.then_some(self.limit), work).await {
            Ok(answer) => Some(answer),
            Err(err) => {
                self.passed_over(&err).await;
                None
            }
        }
    }

    /// Tells everybody that a hook was passed over.
    async fn passed_over(&self, err: &HookError) {
        tracing::error!("{err}; it was passed over");
        for hook in self.lowest_first() {
            if let Err(err) = isolated(&ON_ERROR, hook, Some(self.limit), hook.on_error("hook", err, None)).await {
                // Reporting this in turn might never end.
                tracing::error!("{err}; it was passed over");
            }
        }
    }

    pub(crate) async fn resolve_session(&self, inbound: &Inbound) -> Option<SessionId> {
        asked!(self, RESOLVE_SESSION, hook => hook.resolve_session(inbound))
    }

    /// As [`resolve_session`](Self::resolve_session), but a hook that fails is no hook without an answer: the
    /// message could come into another's session.
    pub(crate) async fn find_session(&self, inbound: &Inbound) -> Result<Option<SessionId>, HookError> {
        for hook in self.highest_first() {
            let work = hook.resolve_session(inbound);
            if let Some(it) = isolated(&RESOLVE_SESSION, hook, Some(ADMISSION_LIMIT), work).await? {
                return Ok(Some(it));
            }
        }
        Ok(None)
    }

    pub(crate) async fn admit(&self, inbound: &Inbound, now: &TurnSnapshot) -> Result<Option<Admission>, HookError> {
        for hook in self.highest_first() {
            let work = hook.admit(inbound, now);
            if let Some(it) = isolated(&ADMIT, hook, Some(ADMISSION_LIMIT), work).await? {
                return Ok(Some(it));
            }
        }
        Ok(None)
    }

    pub(crate) async fn environment(&self, session: &SessionId) -> Option<Arc<dyn Environment>> {
        asked!(self, ENVIRONMENT, hook => hook.environment(session))
    }

    pub(crate) async fn build_prompt(&self, state: &TurnState, inbound: &Inbound) -> Option<Prompt> {
        asked!(self, BUILD_PROMPT, hook => hook.build_prompt(state, inbound))
    }

    pub(crate) async fn continue_prompt(
        &self,
        state: &TurnState,
        prompt: Option<&Prompt>,
        tape: &Tape,
    ) -> Option<String> {
        asked!(self, CONTINUE_PROMPT, hook => hook.continue_prompt(state, prompt, tape))
    }

    pub(crate) async fn summarize(&self, ctx: &ToolContext, cut: &CutOff<'_>) -> Option<String> {
        asked!(self, SUMMARIZE, hook => hook.summarize(ctx, cut))
    }

    pub(crate) async fn context_window(&self, model: &str) -> Option<u64> {
        for hook in self.highest_first() {
            if let Some(Some(it)) = self.call(&CONTEXT_WINDOW, hook, hook.context_window(model)).await {
                return Some(it).filter(|it| *it > 0);
            }
        }
        None
    }

    pub(crate) async fn load_state(&self, inbound: &Inbound, state: &mut TurnState) {
        for hook in self.lowest_first() {
            self.call(&LOAD_STATE, hook, hook.load_state(inbound, state)).await;
        }
    }

    pub(crate) async fn begin_turn(&self, state: &mut TurnState, prompt: &Prompt, tape: &Tape) {
        for hook in self.lowest_first() {
            self.call(&BEGIN_TURN, hook, hook.begin_turn(state, prompt, tape)).await;
        }
    }

    pub(crate) async fn save_state(&self, state: &TurnState, text: &str) {
        for hook in self.lowest_first() {
            self.call(&SAVE_STATE, hook, hook.save_state(state, text)).await;
        }
    }

    pub(crate) async fn system_prompt(&self, state: &TurnState) -> Vec<String> {
        gathered!(self, SYSTEM_PROMPT, hook => hook.system_prompt(state))
    }

    pub(crate) async fn render_outbound(&self, state: &TurnState, text: &str) -> Vec<Outbound> {
        gathered!(self, RENDER_OUTBOUND, hook => hook.render_outbound(state, text))
    }

    pub(crate) async fn notices(&self, state: &TurnState) -> Vec<String> {
        gathered!(self, NOTICES, hook => hook.notices(state))
    }

    pub(crate) async fn choose_tools(&self, state: &TurnState, view: &mut ToolView) {
        for hook in self.highest_first() {
            self.call(&CHOOSE_TOOLS, hook, hook.choose_tools(state, view)).await;
        }
    }

    pub(crate) async fn before_model(&self, state: &TurnState, request: &mut ModelRequest) -> ModelStep {
        let run = request.run.clone();
        for hook in self.highest_first() {
            let step = self.call(&BEFORE_MODEL, hook, hook.before_model(state, request)).await;
            if request.run != run {
                request.run.clone_from(&run);
                self.bad_answer(&BEFORE_MODEL, hook, "it changed the id of the run").await;
            }
            match step {
                Some(ModelStep::Proceed) | None => {}
                Some(decided) => return decided,
            }
        }
        ModelStep::Proceed
    }

    pub(crate) async fn after_model(&self, state: &TurnState, outcome: &ModelOutcome<'_>) {
        for hook in self.lowest_first() {
            self.call(&AFTER_MODEL, hook, hook.after_model(state, outcome)).await;
        }
    }

    /// On the heap, as turns within turns would have it on their stack many times.
    pub(crate) fn before_tool<'a>(&'a self, ctx: &'a ToolContext, call: &'a mut ToolCall) -> BoxFuture<'a, ToolStep> {
        Box::pin(async move {
            let (id, tool, caller) = (call.id.clone(), call.tool.clone(), call.caller);
            for hook in self.highest_first() {
                // A copy only where it may be needed: arguments can be long.
                let before = hook.implements().contains(&BEFORE_TOOL.name).then(|| call.args.clone());
                let step = self.call(&BEFORE_TOOL, hook, hook.before_tool(ctx, call)).await;
                if !call.args.is_object() {
                    let Some(args) = before else {
                        self.bad_answer(&BEFORE_TOOL, hook, "it left arguments that are no object").await;
                        return ToolStep::Deny(Some(format!(
                            "The hook '{}' left no arguments to call with.",
                            hook.name()
                        )));
                    };
                    call.args = args;
                    self.bad_answer(&BEFORE_TOOL, hook, "it left arguments that are no object").await;
                    continue;
                }
                if call.id != id || call.tool != tool || call.caller != caller {
                    (call.id, call.tool, call.caller) = (id.clone(), tool.clone(), caller);
                    self.bad_answer(&BEFORE_TOOL, hook, "it changed which call this is").await;
                }
                match step {
                    Some(ToolStep::Proceed) | None => {}
                    Some(decided) => return decided,
                }
            }
            ToolStep::Proceed
        })
    }

    /// On the heap, as turns within turns would have it on their stack many times.
    pub(crate) fn after_tool<'a>(
        &'a self,
        ctx: &'a ToolContext,
        call: &'a ToolCall,
        result: &'a mut Result<ToolReply, ToolError>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            for hook in self.highest_first() {
                self.call(&AFTER_TOOL, hook, hook.after_tool(ctx, call, result)).await;
            }
        })
    }

    pub(crate) async fn on_error(
        &self,
        stage: &'static str,
        err: &(dyn Error + Send + Sync),
        inbound: Option<&Inbound>,
    ) {
        for hook in self.lowest_first() {
            if let Err(err) = isolated(&ON_ERROR, hook, Some(self.limit), hook.on_error(stage, err, inbound)).await {
                tracing::error!("{err}; it was passed over");
            }
        }
    }

    pub(crate) async fn close(&self) {
        for hook in self.highest_first() {
            if let Err(err) = isolated(&CLOSE, hook, Some(self.limit.min(CLOSE_LIMIT)), hook.close()).await {
                self.passed_over(&err).await;
            }
        }
    }

    async fn bad_answer(&self, info: &HookInfo, hook: &dyn Hooks, problem: &'static str) {
        self.passed_over(&HookError::BadAnswer { hook: hook.name().to_owned(), method: info.name, problem }).await;
    }
}
