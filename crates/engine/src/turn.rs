//! From a message to its answer: session, state, fork, command or loop, commit.

use std::{sync::Arc, time::Duration};

use bub_kernel::{
    environment::Environment,
    model::ModelOptions,
    tape::{Tape, TapeFork},
    tool::{Caller, PartialResult, ToolContext},
    turn::{
        EventSink, Inbound, Outbound, Prompt, RunId, SessionId, Turn, TurnError, TurnEvent, TurnRequest, TurnResult,
        TurnState,
    },
};
use futures::FutureExt as _;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    agent_loop,
    command::{self, Command},
    events::unless_cancelled,
    nested::Progress,
    prompt::with_header,
    runtime::{Inner, RunRequest, TapeNaming, TurnOptions},
    sessions::{RunningGuard, SessionGuard, SessionHold},
    step::run_id,
};

/// The most turns that may be nested in each other.
const MAX_DEPTH: usize = 8;
/// How long a turn waits for a process that is about to end, or that recovers what another left.
const RECOVERY_WAIT: Duration = Duration::from_secs(2);
/// The run of a command.
const COMMAND_RUN: &str = "run_command";

/// What a caller's prompt is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PromptForm {
    /// A message: hooks say what the model is asked, or its facts and the date stand in front.
    Message,
    /// What the model is asked.
    AsGiven,
}

/// How long a cancelled turn may take to stop its processes and record itself. After that it is dropped,
/// and the session's next turn recovers it from its journal. A command that does not end when asked to is
/// killed after 3 s.
const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// A turn to run for a message.
pub(crate) struct Order {
    pub(crate) inbound: Inbound,
    pub(crate) options: TurnOptions,
    pub(crate) form: PromptForm,
    /// Its session, when that has been resolved.
    pub(crate) session: Option<SessionId>,
    /// Whether hooks are asked what to send for the answer.
    pub(crate) is_rendered: bool,
}

/// How a turn ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) result: Result<TurnResult, TurnError>,
    /// What hooks want sent for the answer.
    pub(crate) outbound: Vec<Outbound>,
}

/// Runs the turn for a message, and tells hooks when it fails.
pub(crate) async fn run_inbound(inner: &Arc<Inner>, order: Order, cancel: CancellationToken, sink: EventSink) -> Done {
    let mut outbound = Vec::new();
    let work = for_inbound(inner, &order, cancel.clone(), &sink, &mut outbound);
    let result = until_given_up(work, &cancel).await;
    tell_failure(inner, &sink, &result, Some(&order.inbound)).await;
    Done { result, outbound }
}

/// Runs a turn without a message, and tells hooks when it fails.
pub(crate) async fn run_request(
    inner: &Arc<Inner>,
    request: RunRequest,
    cancel: CancellationToken,
    sink: EventSink,
) -> Done {
    let session = request.session.clone();
    let result = until_given_up(for_request(inner, request, cancel.clone(), &sink), &cancel).await;
    inner.sessions.forget_plain(&session, inner.common_environment());
    tell_failure(inner, &sink, &result, None).await;
    Done { result, outbound: Vec::new() }
}

/// Waits for a turn's end, but not longer than [`CANCEL_GRACE`] once it is cancelled.
async fn until_given_up(
    work: impl Future<Output = Result<TurnResult, TurnError>>,
    cancel: &CancellationToken,
) -> Result<TurnResult, TurnError> {
    let given_up = async {
        cancel.cancelled().await;
        tokio::time::sleep(CANCEL_GRACE).await;
    };
    tokio::select! {
        biased;
        done = work => done,
        () = given_up => {
            tracing::warn!("a cancelled turn did not end within {} s and was dropped", CANCEL_GRACE.as_secs());
            Err(TurnError::Cancelled)
        }
    }
}

async fn tell_failure(
    inner: &Inner,
    sink: &EventSink,
    done: &Result<TurnResult, TurnError>,
    inbound: Option<&Inbound>,
) {
    let Err(err) = done else { return };
    let kind = match err {
        TurnError::Model(err) => err.kind().as_str(),
        TurnError::Command { error, .. } => error.kind.as_str(),
        TurnError::CommandLine(_) | TurnError::Invalid(_) | TurnError::EmptyPrompt => "invalid_input",
        _ => "unknown",
    };
    sink.send(TurnEvent::Error { kind, message: err.to_string() }).await;
    inner.hooks.on_error("turn", err, inbound).await;
}

async fn for_inbound(
    inner: &Arc<Inner>,
    order: &Order,
    cancel: CancellationToken,
    sink: &EventSink,
    outbound: &mut Vec<Outbound>,
) -> Result<TurnResult, TurnError> {
    let Order { inbound, options, form, session, is_rendered } = order;
    let session = match session.clone() {
        Some(session) => session,
        None => {
            let found = unless_cancelled(&cancel, inner.hooks.resolve_session(inbound)).await?;
            found.unwrap_or_else(|| inbound.own_session())
        }
    };
    let mut state = TurnState::default();
    state.session = Some(session.clone());
    state.channel.clone_from(&inbound.channel);
    state.chat.clone_from(&inbound.chat);
    state.local = inbound.local;
    state.metadata.clone_from(&options.metadata);
    let line = command_line(inner, &inbound.prompt);
    let mut plan = Plan::of_session(inner, session, state, cancel, sink);
    plan.metadata.clone_from(&options.metadata);
    plan.options = options.clone();
    plan.rendered = is_rendered.then_some(outbound);
    match line {
        Some(line) => plan.command(Some(inbound), &line).await,
        None => plan.message(inbound, *form).await,
    }
}

async fn for_request(
    inner: &Arc<Inner>,
    request: RunRequest,
    cancel: CancellationToken,
    sink: &EventSink,
) -> Result<TurnResult, TurnError> {
    let RunRequest { prompt, session, tape, mut state, options, merge_back, metadata } = request;
    state.session = Some(session.clone());
    state.metadata.clone_from(&metadata);
    let line = command_line(inner, &prompt);
    let plan =
        Plan { tape, chat: options, merge_back, metadata, ..Plan::of_session(inner, session, state, cancel, sink) };
    match line {
        Some(line) => plan.command(None, &line).await,
        None if prompt.is_empty() => plan.empty().await,
        None => plan.prompt(prompt, None).await,
    }
}

/// The command line in a prompt, if it is a command.
fn command_line(inner: &Inner, prompt: &Prompt) -> Option<String> {
    let prefix = inner.settings.command_prefix.as_deref()?;
    command::line_of(prompt.as_text()?, prefix).map(str::to_owned)
}

/// Runs a turn inside the one of `ctx`.
pub(crate) async fn run_nested(
    inner: &Arc<Inner>,
    ctx: &ToolContext,
    request: TurnRequest,
) -> Result<TurnResult, TurnError> {
    let mut state = TurnState::clone(&ctx.state);
    // A turn in the session of the outer one runs on the same tape, whatever that is.
    let own = ctx.state.slot::<RunTape>().filter(|_| request.session == ctx.session).cloned();
    state.session = Some(request.session.clone());
    state.metadata.clear();
    state.depth += 1;
    if state.depth > MAX_DEPTH {
        return Err(TurnError::Invalid(format!("turns are nested more than {MAX_DEPTH} deep")));
    }
    let options = TurnOptions {
        model: request.model,
        reasoning_effort: request.reasoning_effort,
        allowed_tools: request.allowed_tools,
        allowed_skills: request.allowed_skills,
        ..TurnOptions::default()
    };
    if ctx.caller == Caller::Command && inner.settings.tapes == TapeNaming::Sessions {
        // A command's state does not say what its session is set to.
        let text = |it: Option<Value>| it.and_then(|it| it.as_str().map(str::to_owned));
        state.model = state.model.or(text(ctx.tape.setting("model").await?));
        state.reasoning_effort = state.reasoning_effort.or(text(ctx.tape.setting("reasoning_effort").await?));
    }
    let session = request.session.clone();
    let (sink, mut events) = EventSink::new();
    let mut plan = Plan::of_session(inner, request.session, state, ctx.cancel.child_token(), &sink);
    plan.options = options;
    if let Some(RunTape { tape, merge_back, chat }) = own {
        (plan.tape, plan.merge_back, plan.chat) = (tape, merge_back, chat);
    }
    let mut progress = Progress::new(ctx, session.clone());
    let mut done = {
        let mut work = Box::pin(plan.prompt(request.prompt, Some(ctx.env.clone())));
        loop {
            tokio::select! {
                biased;
                Some(event) = events.recv() => progress.tell(event).await,
                done = &mut work => break done,
            }
        }
    };
    while let Ok(event) = events.try_recv() {
        progress.tell(event).await;
    }
    if session.is_temporary() {
        inner.sessions.forget(&session);
    }
    if let Ok(result) = &mut done {
        result.errors.append(&mut progress.errors);
    }
    done
}

/// What a turn runs on, kept in its state for turns that are nested in its session.
#[derive(Clone)]
struct RunTape {
    tape: Tape,
    merge_back: bool,
    chat: ModelOptions,
}

/// What a turn works on.
struct Opened {
    lock: Option<SessionGuard>,
    fork: TapeFork,
    environment: Arc<dyn Environment>,
}

/// One turn, decided on but not begun.
struct Plan<'a> {
    inner: &'a Arc<Inner>,
    session: SessionId,
    tape: Tape,
    state: TurnState,
    options: TurnOptions,
    chat: ModelOptions,
    /// Whether the turn is merged into the tape in the end.
    merge_back: bool,
    metadata: Map<String, Value>,
    cancel: CancellationToken,
    sink: &'a EventSink,
    /// Until the plan is gone, the session is not forgotten.
    _hold: SessionHold,
    /// Where goes what hooks want sent for the answer, if they are asked.
    rendered: Option<&'a mut Vec<Outbound>>,
}

impl<'a> Plan<'a> {
    /// A turn on the session's own tape; a temporary session's leaves nothing.
    fn of_session(
        inner: &'a Arc<Inner>,
        session: SessionId,
        state: TurnState,
        cancel: CancellationToken,
        sink: &'a EventSink,
    ) -> Self {
        Self {
            inner,
            tape: inner.tape(&session),
            merge_back: !session.is_temporary(),
            _hold: inner.sessions.hold(&session),
            session,
            state,
            options: TurnOptions::default(),
            chat: ModelOptions::default(),
            metadata: Map::new(),
            cancel,
            sink,
            rendered: None,
        }
    }

    /// A message for the model.
    async fn message(mut self, inbound: &Inbound, form: PromptForm) -> Result<TurnResult, TurnError> {
        if inbound.prompt.is_empty() {
            return self.empty().await;
        }
        let inner = self.inner;
        unless_cancelled(&self.cancel, inner.hooks.load_state(inbound, &mut self.state)).await?;
        let prompt = match form {
            PromptForm::AsGiven => inbound.prompt.clone(),
            PromptForm::Message => {
                let built = unless_cancelled(&self.cancel, inner.hooks.build_prompt(&self.state, inbound)).await?;
                built.unwrap_or_else(|| with_header(inbound, &*inner.clock))
            }
        };
        self.prompt(prompt, None).await
    }

    /// Nothing to answer: nothing is opened or recorded.
    async fn empty(self) -> Result<TurnResult, TurnError> {
        let text = "error: empty prompt".to_owned();
        self.sink.send(TurnEvent::Text(text.clone())).await;
        self.sink.send(TurnEvent::Final { text: text.clone(), ok: false }).await;
        Err(TurnError::EmptyPrompt)
    }

    /// A prompt for the model, on a fork of the tape.
    async fn prompt(
        mut self,
        prompt: Prompt,
        environment: Option<Arc<dyn Environment>>,
    ) -> Result<TurnResult, TurnError> {
        // What comes before and after the loop is on the heap: turns nest, and the stack is short.
        match self.open(&prompt, environment).boxed().await {
            Ok(opened) => self.answer(prompt, opened).boxed().await,
            Err(err) => {
                self.inner.hooks.save_state(&self.state, "").boxed().await;
                Err(err)
            }
        }
    }

    /// Takes the session and its tape, and fills the state.
    async fn open(&mut self, prompt: &Prompt, environment: Option<Arc<dyn Environment>>) -> Result<Opened, TurnError> {
        let (inner, merge_back) = (self.inner, self.merge_back);
        let lock = self.lock().await?;
        let fork = if merge_back { self.tape.journaled_fork() } else { self.tape.fork() };
        if merge_back {
            // Without the lock, another process may well be running a turn.
            let wait = if lock.is_some() { RECOVERY_WAIT } else { Duration::ZERO };
            self.recover(wait).await;
        }
        self.settings().await?;
        fork.tape().bootstrap().await?;
        self.state.set_slot(RunTape { tape: self.tape.clone(), merge_back, chat: self.chat.clone() });
        unless_cancelled(&self.cancel, inner.hooks.begin_turn(&mut self.state, prompt, fork.tape())).await?;
        let environment = match environment {
            Some(it) => inner.sessions.provide(&self.session, it),
            None => unless_cancelled(&self.cancel, inner.environment(&self.session)).await?,
        };
        Ok(Opened { lock, fork, environment })
    }

    /// Lets the model, or a plugin, answer.
    async fn answer(mut self, prompt: Prompt, opened: Opened) -> Result<TurnResult, TurnError> {
        let (inner, sink, merge_back) = (self.inner, self.sink, self.merge_back);
        let Opened { lock, fork, environment } = opened;
        let (options, metadata) = (std::mem::take(&mut self.chat).or(&inner.settings.options), self.metadata());
        let rendered = self.rendered.take();
        let (ctx, running) = self.context(fork.tape().clone(), environment, Caller::Model);
        let state = ctx.state.clone();
        let turn = Turn { prompt: Some(prompt), ctx, sink: sink.clone(), options, metadata };
        let done = match &inner.turn_loop {
            Some(turn_loop) => turn_loop.run(turn).await,
            None => Box::pin(agent_loop::run(inner, turn)).await,
        };
        let committed = if merge_back { commit(fork, done.is_ok(), sink).boxed().await } else { Ok(()) };
        let text = done.as_ref().map_or("", |it| it.answer.as_str());
        inner.hooks.save_state(&state, text).boxed().await;
        if committed.is_ok() {
            render(inner, rendered, &state, &done).boxed().await;
        }
        // The session is free when its hooks know how the turn ended.
        drop((running, lock));
        committed?;
        done
    }

    /// A line that calls a tool.
    async fn command(mut self, inbound: Option<&Inbound>, line: &str) -> Result<TurnResult, TurnError> {
        let inner = self.inner;
        let command = command::parse(line, &inner.tools).map_err(TurnError::CommandLine)?;
        if let Some(inbound) = inbound {
            unless_cancelled(&self.cancel, inner.hooks.load_state(inbound, &mut self.state)).await?;
        }
        let state = self.state.clone();
        let done = self.call(line, &command).await;
        let text = done.as_ref().map_or("", |it| it.answer.as_str());
        inner.hooks.save_state(&state, text).await;
        done
    }

    /// Calls a command's tool on a fork of the tape.
    async fn call(mut self, line: &str, command: &Command) -> Result<TurnResult, TurnError> {
        let (inner, sink, merge_back) = (self.inner, self.sink, self.merge_back);
        self.allowed()?;
        if inner.settings.tapes == TapeNaming::Free {
            self.state.model = self.state.model.take().or_else(|| inner.settings.model.clone());
        }
        if merge_back {
            self.recover(Duration::ZERO).await;
        }
        let fork = self.tape.fork();
        fork.tape().begin().await?;
        self.state.set_slot(RunTape { tape: self.tape.clone(), merge_back, chat: self.chat.clone() });
        let environment = unless_cancelled(&self.cancel, inner.environment(&self.session)).await?;
        let rendered = self.rendered.take();
        let (mut ctx, _running) = self.context(fork.tape().clone(), environment, Caller::Command);
        ctx.run = RunId(COMMAND_RUN.to_owned());
        let done = command::run(inner, &ctx, line, command, sink).await;
        if merge_back {
            commit(fork, done.is_ok(), sink).await?;
        }
        render(inner, rendered, &ctx.state, &done).await;
        done
    }

    /// What the caller says about the turn; for a session also what it allows.
    fn metadata(&mut self) -> Map<String, Value> {
        let mut metadata = std::mem::take(&mut self.metadata);
        if self.inner.settings.tapes == TapeNaming::Sessions {
            // As in the reference, an empty list is recorded as none is.
            let names = |list: &Option<Vec<String>>| {
                list.as_ref().filter(|it| !it.is_empty()).map_or(Value::Null, |it| json!(it))
            };
            metadata.insert("allowed_skills".to_owned(), names(&self.state.allowed_skills));
            metadata.insert("allowed_tools".to_owned(), names(&self.state.allowed_tools));
        }
        metadata
    }

    /// Merges what turns of ended processes left. When that fails the turn goes on: nothing is lost by it,
    /// and the next turn tries again.
    async fn recover(&self, wait: Duration) {
        let notice = match self.tape.recover(wait).await {
            Ok(0) => return,
            Ok(n) => format!("an interrupted turn was recovered: {n} entries"),
            Err(err) => format!("an interrupted turn can't be recovered now: {err}"),
        };
        self.sink.send(TurnEvent::Notice(notice)).await;
    }

    /// Takes the session's lock, telling the person when there is a wait.
    async fn lock(&self) -> Result<Option<SessionGuard>, TurnError> {
        let Some(locks) = self.inner.locks.as_ref().filter(|_| self.merge_back) else { return Ok(None) };
        let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
        let on_wait = move |notice: String| drop(tx.send(notice));
        let taking = std::pin::pin!(locks.acquire(self.tape.name(), &on_wait));
        let mut taking = taking.fuse();
        let taken = loop {
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(TurnError::Cancelled),
                taken = &mut taking => break taken,
                Some(notice) = rx.recv() => self.sink.send(TurnEvent::Notice(notice)).await,
            }
        };
        while let Ok(notice) = rx.try_recv() {
            self.sink.send(TurnEvent::Notice(notice)).await;
        }
        taken.map(Some).map_err(TurnError::Invalid)
    }

    /// Fills in what the session's tape, the caller and the settings say, the caller first.
    async fn settings(&mut self) -> Result<(), TurnError> {
        // Each by itself: the newest of each is found at once, however many there were.
        let mut switches = Vec::new();
        let keys: &[_] = match self.inner.settings.tapes {
            TapeNaming::Sessions => &["model", "reasoning_effort", "code_mode"],
            TapeNaming::Free => &[],
        };
        for key in keys {
            switches.push((*key, self.tape.setting(key).await?));
        }
        let newest = |key: &str| switches.iter().find(|(it, _)| *it == key).and_then(|(_, value)| value.clone());
        let text = |key: &str| newest(key).and_then(|it| it.as_str().map(str::to_owned));
        let (state, options) = (&mut self.state, &self.options);
        // A nested turn comes with its parent's model and effort, which win over its own tape's.
        let inherited = |ours: Option<String>, key: &str| ours.or_else(|| text(key));
        state.model = options
            .model
            .clone()
            .or_else(|| inherited(state.model.take(), "model"))
            .or_else(|| self.inner.settings.model.clone());
        state.reasoning_effort =
            options.reasoning_effort.clone().or_else(|| inherited(state.reasoning_effort.take(), "reasoning_effort"));
        state.code_mode = state.code_mode || newest("code_mode").is_some_and(|it| is_true(&it));
        self.allowed()
    }

    /// Fills in which tools and skills the caller allows. A command is a person's own call and runs in
    /// any case; what it calls in turn is bound by this.
    fn allowed(&mut self) -> Result<(), TurnError> {
        let (state, options) = (&mut self.state, &self.options);
        if let Some(names) = &options.allowed_tools {
            state.allowed_tools = Some(self.inner.tools.resolve_names(names).map_err(TurnError::Invalid)?);
        }
        if let Some(names) = &options.allowed_skills {
            let names = names.iter().map(|it| it.trim().to_lowercase()).filter(|it| !it.is_empty());
            state.allowed_skills = Some(names.collect());
        }
        Ok(())
    }

    /// What the turn's tools are given, and the turn's note as running.
    fn context(&mut self, tape: Tape, env: Arc<dyn Environment>, caller: Caller) -> (ToolContext, RunningGuard) {
        let inner = self.inner;
        self.state.environment = Some(env.clone());
        let running = inner.sessions.start(&self.session, &mut self.state, self.cancel.clone());
        let mut ctx = ToolContext {
            tape,
            env,
            caller,
            call: String::new(),
            cancel: self.cancel.clone(),
            events: inner.events.clone(),
            sink: self.sink.clone(),
            tasks: inner.sessions.tasks(&self.session),
            session: self.session.clone(),
            run: RunId(String::new()),
            tools: inner.tools.clone(),
            step: None,
            partial: PartialResult::default(),
            state: Arc::new(std::mem::take(&mut self.state)),
            host: inner.clone(),
        };
        ctx.run = run_id(&ctx);
        (ctx, running)
    }
}

/// Asks hooks what they want sent for the answer, if they are to be asked.
async fn render(
    inner: &Inner,
    rendered: Option<&mut Vec<Outbound>>,
    state: &TurnState,
    done: &Result<TurnResult, TurnError>,
) {
    if let (Some(rendered), Ok(result)) = (rendered, done) {
        *rendered = inner.hooks.render_outbound(state, &result.answer).await;
    }
}

/// Whether a session setting is on: `true`, a number but zero, a text but none.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Bool(it) => *it,
        Value::Number(it) => it.as_f64() != Some(0.0),
        Value::String(it) => !it.is_empty(),
        Value::Null => false,
        Value::Array(it) => !it.is_empty(),
        Value::Object(it) => !it.is_empty(),
    }
}

/// Merges a turn into the tape. When that fails after the turn itself failed, both are told.
async fn commit(fork: TapeFork, turn_was_ok: bool, sink: &EventSink) -> Result<(), TurnError> {
    match fork.commit().await {
        Ok(()) => Ok(()),
        Err(err) if turn_was_ok => Err(err.into()),
        Err(err) => {
            tracing::error!(error = %err, "the turn was not recorded");
            let message = format!("the turn was not recorded: {err}");
            sink.send(TurnEvent::Error { kind: "unknown", message }).await;
            Ok(())
        }
    }
}
