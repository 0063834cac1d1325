//! What lives as long as the program: tools, hooks, models, sessions; and turns on them.

mod stream;

use std::{
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use bub_kernel::{
    channel::TurnSnapshot,
    clock::Clock,
    environment::Environment,
    error::ToolError,
    event::EventBus,
    hooks::{HOOK_LIMIT, HOOKS, HookInfo, Hooks},
    model::{ModelClient, ModelError, ModelOptions, ModelProvider, ModelSpec},
    plugin::{ContextBuilder, Registry},
    secret::SecretMask,
    steps::{PromptSection, StepPolicy},
    tape::{Tape, TapeName, TapeQuery, TapeStore},
    task::TaskScope,
    tool::{Caller, ToolContext, ToolReply, ToolSet},
    turn::{
        EventSink, Host, HostModel, Inbound, Outbound, Prompt, SessionId, TurnError, TurnLoop, TurnRequest, TurnResult,
        TurnState,
    },
};
use futures::{FutureExt as _, future::join_all};
use serde_json::{Map, Value};
use tokio::{runtime::Handle, sync::oneshot};
use tokio_util::sync::CancellationToken;

pub use self::stream::TurnStream;
use crate::{
    context::DefaultContext,
    executor::{Executor, Target},
    fallback::{Candidate, Fallback},
    hook_stack::HookStack,
    policy::SessionSteps,
    sessions::{QueueFull, SessionLocks, Sessions},
    turn::{self, Done, Order, PromptForm},
};

/// Whose tapes they are that turns run on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TapeNaming {
    /// Tapes of an application: named after the workspace and the session. What a person set for the
    /// session stands on them and applies.
    #[default]
    Sessions,
    /// Tapes of an embedded agent: named as the embedder names them. Nothing on them is a setting.
    Free,
}
/// How long an environment may take to release what it holds: a container has to stop.
const CLOSE_WAIT: Duration = Duration::from_secs(20);

/// How turns run.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// What the agent is called, in the facts of its steps.
    pub agent: String,
    /// Whose tapes they are.
    pub tapes: TapeNaming,
    /// What commands start with; `None` turns commands off.
    pub command_prefix: Option<String>,
    /// `provider:model` for turns that name none.
    pub model: Option<String>,
    /// Models to ask in turn when `model` does not begin to answer. They do not stand in for a model that
    /// a session or a turn chose.
    pub fallback_models: Vec<String>,
    /// How the model should answer.
    pub options: ModelOptions,
    /// The most steps of a turn; `None` is no limit.
    pub max_steps: Option<usize>,
    /// The most time for one model call, streaming included; `None` is no limit.
    pub model_timeout: Option<Duration>,
    /// Tool calls of one answer that run at once; `None` is all of them.
    pub max_tool_concurrency: Option<usize>,
    /// How often a turn may start its context anew because it did not fit the model's window.
    pub max_auto_handoffs: usize,
    /// The longest that a hook may take, of those that are limited.
    pub hook_limit: Duration,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            agent: "bub".to_owned(),
            tapes: TapeNaming::default(),
            command_prefix: None,
            model: None,
            fallback_models: Vec::new(),
            options: ModelOptions::default(),
            max_steps: None,
            model_timeout: None,
            max_tool_concurrency: None,
            max_auto_handoffs: 1,
            hook_limit: HOOK_LIMIT,
        }
    }
}

/// What a runtime is made of.
pub struct RuntimeParts {
    /// What plugins brought.
    pub registry: Registry,
    /// How turns run.
    pub settings: EngineSettings,
    /// Where tapes are kept, unless a plugin brought a store.
    pub store: Arc<dyn TapeStore>,
    /// Where tools run, unless a hook provides another place for a session.
    pub environment: Arc<dyn Environment>,
    /// The resolved path that, with the session's id, names a session's tape; unused with free names.
    pub workspace: String,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The embedder's handlers; they come after those of plugins.
    pub events: EventBus,
    /// Texts that no result may show.
    pub mask: SecretMask,
    /// What keeps other processes out of a session.
    pub locks: Option<Arc<dyn SessionLocks>>,
}

impl fmt::Debug for RuntimeParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeParts")
            .field("registry", &self.registry)
            .field("workspace", &self.workspace)
            .finish_non_exhaustive()
    }
}

/// What a caller says about one turn; what it leaves out comes from the session and the settings.
#[derive(Clone, Debug, Default)]
pub struct TurnOptions {
    /// `provider:model`.
    pub model: Option<String>,
    /// Reasoning effort.
    pub reasoning_effort: Option<String>,
    /// Names of the tools that the turn may use, in either form; an empty list allows none.
    pub allowed_tools: Option<Vec<String>>,
    /// Skills that it may use; an empty list allows none.
    pub allowed_skills: Option<Vec<String>>,
    /// What handlers and hooks are told about the turn.
    pub metadata: Map<String, Value>,
}

/// A turn without a message around it, on a tape of the caller's choice.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// What to answer, as it is; or a command.
    pub prompt: Prompt,
    /// Whose turn it is, to tools and hooks.
    pub session: SessionId,
    /// On which tape.
    pub tape: Tape,
    /// What the turn carries. Its model, if set, is that of the turn.
    pub state: TurnState,
    /// How the model should answer, in all calls of the turn; the settings fill in the rest.
    pub options: ModelOptions,
    /// Whether the turn is merged into the tape; otherwise it leaves nothing.
    pub merge_back: bool,
    /// What the caller says about the run; it stands in `loop.start`, and handlers are told.
    pub metadata: Map<String, Value>,
}

/// Sessions and the turns on them. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("tools", &self.inner.tools)
            .field("hooks", &self.inner.hooks)
            .finish_non_exhaustive()
    }
}

pub(crate) struct Inner {
    me: Weak<Self>,
    pub(crate) settings: EngineSettings,
    pub(crate) tools: Arc<ToolSet>,
    pub(crate) hooks: HookStack,
    pub(crate) executor: Executor,
    pub(crate) context: Arc<dyn ContextBuilder>,
    pub(crate) turn_loop: Option<Arc<dyn TurnLoop>>,
    pub(crate) steps: Arc<dyn StepPolicy>,
    pub(crate) sections: Vec<PromptSection>,
    models: Vec<Arc<dyn ModelProvider>>,
    store: Arc<dyn TapeStore>,
    sidecars: Vec<String>,
    environment: Arc<dyn Environment>,
    workspace: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) events: Arc<EventBus>,
    pub(crate) locks: Option<Arc<dyn SessionLocks>>,
    pub(crate) sessions: Arc<Sessions>,
    tasks: TaskScope,
    cancel: CancellationToken,
}

impl Runtime {
    /// Starts a runtime: what was registered is frozen, and services run.
    #[must_use]
    pub fn new(parts: RuntimeParts) -> Self {
        let RuntimeParts { registry, settings, store, environment, workspace, clock, events, mask, locks } = parts;
        let hooks = HookStack::new(&registry.hooks, settings.hook_limit);
        for (kept, hidden) in registry.tools.collisions() {
            tracing::warn!("the model knows '{hidden}' and '{kept}' by one name, so it is offered '{kept}' alone");
        }
        let executor = Executor { hooks: hooks.clone(), mask, max_concurrency: settings.max_tool_concurrency };
        let tasks = TaskScope::default();
        for service in registry.services {
            let cancel = tasks.token().clone();
            tasks.spawn_to_end(async move { service.run(cancel).await });
        }
        let inner = Arc::new_cyclic(|me| Inner {
            me: me.clone(),
            settings,
            tools: Arc::new(registry.tools),
            hooks,
            executor,
            context: registry.context.unwrap_or_else(|| Arc::new(DefaultContext)),
            turn_loop: registry.turn_loop,
            steps: registry.steps.unwrap_or_else(|| Arc::new(SessionSteps)),
            sections: registry.sections,
            models: registry.models,
            store: registry.store.unwrap_or(store),
            sidecars: registry.sidecars,
            environment,
            workspace,
            clock,
            events: Arc::new(registry.events.then(&events)),
            locks,
            sessions: Arc::default(),
            tasks,
            cancel: CancellationToken::new(),
        });
        Self { inner }
    }

    /// Starts a turn for a message. It runs whether or not the stream is read, until it ends or the
    /// stream is dropped; either way what it did is on the tape.
    #[must_use]
    pub fn turn(&self, inbound: Inbound, options: TurnOptions) -> TurnStream {
        self.order(Order { inbound, options, form: PromptForm::Message, session: None, is_rendered: false })
    }

    /// Starts a turn as it was ordered.
    pub(crate) fn order(&self, order: Order) -> TurnStream {
        let inner = self.inner.clone();
        self.start(move |cancel, sink| async move { turn::run_inbound(&inner, order, cancel, sink).await })
    }

    /// The same for a prompt that is no message: the model reads it as it is, without facts and date in
    /// front, and hooks are not asked what to make of it. Of the message they see the channel, the chat
    /// and the session.
    #[must_use]
    pub fn turn_as_given(&self, inbound: Inbound, options: TurnOptions) -> TurnStream {
        self.order(Order { inbound, options, form: PromptForm::AsGiven, session: None, is_rendered: false })
    }

    /// Starts a turn on a tape of the caller's choice. There is no message, so hooks that are about
    /// messages are not asked: which session, what to load into the state, what the prompt is.
    #[must_use]
    pub fn run(&self, request: RunRequest) -> TurnStream {
        let inner = self.inner.clone();
        self.start(move |cancel, sink| async move { turn::run_request(&inner, request, cancel, sink).await })
    }

    /// Runs the work of a turn to its end, whether or not its stream is read.
    fn start<W>(&self, work: impl FnOnce(CancellationToken, EventSink) -> W) -> TurnStream
    where
        W: Future<Output = Done> + Send + 'static,
    {
        let (sink, events) = EventSink::new();
        let sink = sink.with_mask(self.inner.executor.mask.clone());
        let (tx, outcome) = oneshot::channel();
        let cancel = self.inner.cancel.child_token();
        if Handle::try_current().is_err() {
            let result = Err(TurnError::Invalid(NO_TOKIO.to_owned()));
            drop(tx.send(Done { result, outbound: Vec::new() }));
            return TurnStream { events, outcome, cancel };
        }
        let work = work(cancel.clone(), sink);
        self.inner.tasks.spawn_to_end(async move {
            let done = work.await;
            // Nobody waiting for the result is no failure: the tape has it.
            drop(tx.send(done));
        });
        TurnStream { events, outcome, cancel }
    }

    /// Hands a message to a session's running turn, which takes it at its next step; without one, the next
    /// turn takes it in its first.
    ///
    /// # Errors
    /// [`QueueFull`] when [`MAX_WAITING`](crate::MAX_WAITING) messages wait already.
    pub fn steer(&self, session: &SessionId, inbound: Inbound) -> Result<(), QueueFull> {
        self.inner.sessions.push_steering(session, inbound)
    }

    /// The same for a prompt that is no message: the model reads it as it is.
    ///
    /// # Errors
    /// As [`steer`](Self::steer).
    pub fn steer_as_given(&self, session: &SessionId, prompt: &Prompt) -> Result<(), QueueFull> {
        self.inner.sessions.push_pending(session, prompt.to_message())
    }

    /// Cancels the turns and commands of a session. Messages that wait stay: see [`Host::quit`] for an end
    /// of everything.
    pub fn cancel(&self, session: &SessionId) {
        self.inner.sessions.cancel(session);
    }

    /// The turns of a session that a gateway runs, and its waiting messages.
    #[must_use]
    pub fn snapshot(&self, session: &SessionId) -> TurnSnapshot {
        self.inner.sessions.snapshot(session)
    }

    /// The tools, in order.
    #[must_use]
    pub fn tools(&self) -> &Arc<ToolSet> {
        &self.inner.tools
    }

    /// The model providers; a later one of the same name replaced an earlier one.
    #[must_use]
    pub fn providers(&self) -> &[Arc<dyn ModelProvider>] {
        &self.inner.models
    }

    /// What asks a model, outside of any session.
    ///
    /// # Errors
    /// [`ModelError::Config`] when there is no such provider, or it lacks something.
    pub fn client(&self, spec: &ModelSpec) -> Result<Arc<dyn ModelClient>, ModelError> {
        self.inner.client(spec)
    }

    /// The tape of a session.
    #[must_use]
    pub fn tape(&self, session: &SessionId) -> Tape {
        self.inner.tape(session)
    }

    /// The tokens that fit into the context of a session's model, if that is known.
    pub async fn context_window(&self, tape: &Tape) -> Option<u64> {
        let model = session_model(tape).await.or_else(|| self.inner.settings.model.clone())?;
        self.inner.hooks.context_window(&model).await
    }

    /// What hooks want sent for an answer.
    pub async fn render_outbound(&self, state: &TurnState, text: &str) -> Vec<Outbound> {
        self.inner.hooks.render_outbound(state, text).await
    }

    /// Cancels all turns, waits for them to be recorded, stops what outlived its call, and releases
    /// environments. Each wait has a limit.
    pub async fn close(&self) {
        self.inner.cancel.cancel();
        let sessions = self.inner.sessions.drain();
        self.inner.tasks.close().await;
        self.inner.hooks.close().await;
        let mut environments: Vec<Arc<dyn Environment>> = Vec::new();
        let mut scopes = Vec::new();
        for (environment, tasks) in sessions {
            scopes.push(tasks);
            // Sessions may share one.
            let is_new = |it: &Arc<dyn Environment>| !environments.iter().any(|known| Arc::ptr_eq(known, it));
            environments.extend(environment.filter(is_new));
        }
        // What tasks have started in an environment is stopped before it is closed.
        join_all(scopes.iter().map(TaskScope::close)).await;
        join_all(environments.iter().map(|it| async move {
            let closed = AssertUnwindSafe(it.close()).catch_unwind();
            match tokio::time::timeout(CLOSE_WAIT, closed).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => tracing::error!("an environment panicked while it was closed"),
                Err(_) => tracing::warn!("an environment did not close in time"),
            }
        }))
        .await;
    }
}

impl Inner {
    pub(crate) fn tape(&self, session: &SessionId) -> Tape {
        let name = match self.settings.tapes {
            TapeNaming::Sessions => TapeName::session(&self.workspace, &session.0),
            TapeNaming::Free => TapeName::named(&session.0),
        };
        Tape::new(name, self.store.clone(), self.clock.clone()).with_sidecars(&self.sidecars)
    }

    pub(crate) async fn environment(&self, session: &SessionId) -> Arc<dyn Environment> {
        if let Some(known) = self.sessions.environment(session) {
            return known;
        }
        let provided = self.hooks.environment(session).await.unwrap_or_else(|| self.environment.clone());
        self.sessions.provide(session, provided)
    }

    /// Where tools run unless a hook says otherwise.
    pub(crate) fn common_environment(&self) -> &Arc<dyn Environment> {
        &self.environment
    }

    /// The client for a model.
    pub(crate) fn client(&self, spec: &ModelSpec) -> Result<Arc<dyn ModelClient>, ModelError> {
        match self.models.iter().find(|it| it.name().to_lowercase() == spec.provider) {
            Some(provider) => provider.client(&spec.model),
            None => {
                let known: Vec<_> = self.models.iter().map(|it| it.name()).collect();
                let more = match self.settings.tapes {
                    TapeNaming::Sessions => "other OpenAI-compatible servers are set under 'providers'",
                    TapeNaming::Free => "others are given to the agent's builder",
                };
                Err(ModelError::Config(format!(
                    "unknown model provider '{}': known are {}; {more}",
                    spec.provider,
                    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
                )))
            }
        }
    }
}

impl Inner {
    /// The client for a turn's model, with the models that stand in for it.
    pub(crate) fn turn_client(&self, model: &str, spec: &ModelSpec) -> Result<Arc<dyn ModelClient>, ModelError> {
        let others = &self.settings.fallback_models;
        if others.is_empty() || self.settings.model.as_deref() != Some(model) {
            return self.client(spec);
        }
        let mut candidates = vec![Candidate { spec: spec.clone(), client: self.client(spec) }];
        for other in others {
            let spec = ModelSpec::parse(other)?;
            let client = self.client(&spec);
            candidates.push(Candidate { spec, client });
        }
        Ok(Arc::new(Fallback::new(candidates)))
    }
}

/// What is said to a caller whose future no tokio runtime polls.
const NO_TOKIO: &str = "turns run on tokio: start them inside a tokio runtime";
impl Inner {
    /// The model of a turn, as `provider:model`.
    async fn model_of(&self, ctx: &ToolContext) -> Option<String> {
        match &ctx.state.model {
            Some(model) => Some(model.clone()),
            // A command's state has no model of its own.
            None => session_model(&ctx.tape).await.or_else(|| self.settings.model.clone()),
        }
    }
}

/// What a tool is told that asks for the session's model when there is none.
const NO_DEFAULT_MODEL: &str = "No default model: pass a 'provider:model' spec.";

/// The model that the session was switched to, if it was.
async fn session_model(tape: &Tape) -> Option<String> {
    let newest = tape.read(&TapeQuery::default().event("model_switch").newest_first().limit(1)).await.ok()?;
    let model = newest.first()?.data()?.get("model")?.as_str()?;
    (!model.is_empty()).then(|| model.to_owned())
}

#[async_trait]
impl Host for Inner {
    async fn call_tool(&self, ctx: &ToolContext, name: &str, args: Value) -> Result<ToolReply, ToolError> {
        // Code reaches the tools of its step, everybody else all of them.
        let of_step = ctx.step.as_ref().filter(|_| ctx.caller == Caller::Code);
        let tool = match of_step {
            Some(step) => step.code.iter().find(|it| it.spec().alias() == name),
            None => self.tools.find(name),
        };
        let tool = tool.ok_or_else(|| ToolError::not_found(format!("Unknown tool name: {name}.")))?;
        let Value::Object(args) = args else {
            return Err(ToolError::invalid("Expected a function tool call with JSON object arguments."));
        };
        match self.executor.run(Target::Tool(tool), tool.name(), name, args, ctx).await {
            Ok(result) => result,
            Err(err) => Err(ToolError::raised("RuntimeError", err.to_string()).in_tool(name)),
        }
    }

    async fn run_turn(&self, ctx: &ToolContext, request: TurnRequest) -> Result<TurnResult, TurnError> {
        match self.me.upgrade() {
            Some(inner) => turn::run_nested(&inner, ctx, request).await,
            None => Err(TurnError::Cancelled),
        }
    }

    async fn quit(&self, ctx: &ToolContext) {
        self.sessions.quit(&ctx.session, &ctx.state);
    }

    async fn model(&self, ctx: &ToolContext, spec: Option<&str>) -> Result<HostModel, ToolError> {
        // Another model may not know the session's effort.
        let is_own = spec.is_none();
        let spec = match spec {
            Some(spec) => Some(spec.to_owned()),
            None => self.model_of(ctx).await,
        };
        let reasoning_effort = ctx
            .state
            .reasoning_effort
            .clone()
            .filter(|_| is_own)
            .or_else(|| self.settings.options.reasoning_effort.clone());
        let Some(spec) = spec else { return Err(ToolError::invalid(NO_DEFAULT_MODEL)) };
        let spec = ModelSpec::parse(&spec).map_err(|err| ToolError::invalid(err.to_string()))?;
        let client = self.client(&spec).map_err(|err| ToolError::invalid(err.to_string()))?;
        Ok(HostModel { spec, client, options: ModelOptions { reasoning_effort, ..self.settings.options.clone() } })
    }

    async fn context_window(&self, ctx: &ToolContext) -> Option<u64> {
        self.hooks.context_window(&self.model_of(ctx).await?).await
    }

    fn command_prefix(&self) -> Option<&str> {
        self.settings.command_prefix.as_deref()
    }
}

/// The hooks of a registry, for listings.
impl Runtime {
    /// Who implements what: each hook that somebody implements, in the order of [`HOOKS`], with the names
    /// of its implementations in the order of their registration.
    #[must_use]
    pub fn hook_report(hooks: &[Arc<dyn Hooks>]) -> Vec<(HookInfo, Vec<String>)> {
        let names = |info: &HookInfo| -> Vec<String> {
            let implementing = hooks.iter().filter(|it| it.implements().contains(&info.name));
            implementing.map(|it| it.name().to_owned()).collect()
        };
        HOOKS.iter().map(|info| (*info, names(info))).filter(|(_, names)| !names.is_empty()).collect()
    }
}
