//! One exchange with the model: a request, its answer, the calls in it, their record.

use std::{
    collections::{HashMap, HashSet, VecDeque, hash_map::Entry},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::{Duration, Instant},
};

use bub_kernel::{
    clock::iso,
    event::{LlmCallFinished, LlmCallStarted, MessagesPending},
    hooks::{ModelOutcome, ModelStep, ToolView},
    message::{Message, Part, Role, TokenUsage, ToolCallRequest},
    model::{FinishReason, ModelClient, ModelError, ModelEvent, ModelOptions, ModelRequest, ModelSpec},
    steps::StepFacts,
    tool::{DynTool, ToolContext},
    turn::{EventSink, Inbound, Prompt, RunId, TurnError, TurnEvent},
};
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::{
    events::{emit, unless_cancelled},
    executor::Offered,
    policy::decide,
    prompt::{join_blocks, with_header},
    record::{Record, error_value},
    runtime::Inner,
};

/// The most bytes of one answer; a stream that goes on is ended.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// With nothing before it to cut off, a message of so many bytes is not sent again when it was too long. A
/// shorter one costs little to try, and may not be what was too long.
const LONG_MESSAGE: usize = 4 << 10;
/// Words of an answer are noted at most so often, for the case that the process is killed.
const NOTE_EVERY: Duration = Duration::from_secs(1);
/// They are noted whole each time, so at least this part of them must be new: a long answer would be written
/// over and over.
const NEW_PART: usize = 16;

/// How a step ended, apart from failing.
pub(crate) struct StepEnd {
    /// The answer's words.
    pub(crate) text: String,
    /// Whether it called tools, so that there is something to go on from.
    pub(crate) called: bool,
    /// Whether the provider paused, because its own tools need more time: the answer goes on when it is
    /// sent back as it is.
    pub(crate) paused: bool,
    /// When all calls failed: a number that is the same for the same calls with the same results.
    pub(crate) failure: Option<u64>,
    /// What went wrong though there is an answer.
    pub(crate) flaw: Option<String>,
    pub(crate) usage: Option<TokenUsage>,
}

/// Why a step has no answer.
pub(crate) enum StepFailure {
    /// The context was too long and can be shortened; nothing of the step is recorded.
    TooLong(ModelError),
    /// What is new was too long by itself: nothing came before it that could be left out.
    NothingToCut(String),
    /// Anything else.
    Other(TurnError),
}

impl From<TurnError> for StepFailure {
    fn from(err: TurnError) -> Self {
        Self::Other(err)
    }
}

/// What the model said, as far as it came.
#[derive(Default)]
pub(crate) struct Answer {
    text: String,
    refusal: String,
    pub(crate) parts: Vec<Part>,
    pub(crate) calls: Vec<ToolCallRequest>,
    pub(crate) usage: Option<TokenUsage>,
    finish: Option<FinishReason>,
    pub(crate) answered_by: Option<String>,
    /// Tries that brought no answer: who was asked, and what went wrong.
    pub(crate) attempts: Vec<Value>,
    /// `provider:model` that hooks or handlers asked instead.
    pub(crate) redirected: Option<String>,
    /// Whether it was given in the model's place.
    is_given: bool,
}

impl Answer {
    pub(crate) fn words(&self) -> &str {
        if self.text.is_empty() { &self.refusal } else { &self.text }
    }

    fn size(&self) -> usize {
        self.text.len() + self.refusal.len() + self.calls.iter().map(|it| it.arguments.len()).sum::<usize>()
    }

    /// Thinking and provider data, and the words, in the order that is kept.
    pub(crate) fn kept_parts(&self) -> Vec<Part> {
        let mut parts = self.parts.clone();
        if !self.words().is_empty() {
            parts.push(Part::Text(self.words().to_owned()));
        }
        parts
    }

    /// Why arguments may be incomplete.
    pub(crate) fn cut_off(&self) -> Option<&'static str> {
        match self.finish {
            Some(FinishReason::Length) => Some("length"),
            Some(FinishReason::ContentFilter) => Some("content filter"),
            _ => None,
        }
    }
}

/// Everything that one step works on.
pub(crate) struct Step<'a> {
    pub(crate) inner: &'a Arc<Inner>,
    pub(crate) ctx: ToolContext,
    pub(crate) sink: &'a EventSink,
    pub(crate) client: &'a Arc<dyn ModelClient>,
    /// `provider:model` as it was asked for.
    pub(crate) model: &'a str,
    /// The model's id at its provider.
    pub(crate) model_id: &'a str,
    pub(crate) prompt: Option<&'a Prompt>,
    /// How the model should answer.
    pub(crate) options: &'a ModelOptions,
    /// Whether a context that is too long will be shortened and the prompt asked again; it is not
    /// recorded then.
    pub(crate) may_rescue: bool,
    /// Whether it takes the messages that wait for the running turn.
    pub(crate) may_be_steered: bool,
}

/// What goes into a request besides what is new.
struct Prepared {
    view: ToolView,
    system: Option<String>,
}

impl Step<'_> {
    /// Makes the exchange and records it.
    ///
    /// # Errors
    /// What failed; the messages of the step and what came of the answer are recorded all the same,
    /// unless the context was too long for the model, so that the prompt can be asked again.
    pub(crate) async fn run(&self) -> Result<StepEnd, StepFailure> {
        // The parts are on the heap: turns nest in calls, and the stack is short.
        let mut answer = Answer::default();
        let (mut record, request, view) = Box::pin(self.begin(&answer)).await?;
        let started = Instant::now();
        record.foresee(&answer).await;
        let n_asked: usize = record.new_messages.iter().map(|it| it.joined_text().len()).sum();
        let is_hopeless = request.messages.len() <= record.new_messages.len() && n_asked >= LONG_MESSAGE;
        match Box::pin(self.ask(request, &record, &mut answer)).await {
            Ok(()) => {}
            Err(TurnError::Model(err @ ModelError::ContextLength(_))) if self.may_rescue && !is_hopeless => {
                // The prompt is asked again by whoever rescues; what came beside it waits for that.
                let n_prompts = usize::from(self.prompt.is_some());
                let mut messages = record.new_messages;
                messages.truncate(messages.len().saturating_sub(n_prompts));
                self.inner.sessions.give_back(&self.ctx.session, messages);
                return Err(StepFailure::TooLong(err));
            }
            Err(err) => {
                return Err(match record.write_failed(&answer, err).await {
                    TurnError::Model(ModelError::ContextLength(text)) if is_hopeless => StepFailure::NothingToCut(text),
                    err => StepFailure::Other(err),
                });
            }
        }
        if !answer.is_given {
            let (usage, elapsed_seconds) = (answer.usage.unwrap_or_default(), started.elapsed().as_secs_f64());
            self.sink.send(TurnEvent::Usage { usage, elapsed_seconds }).await;
        }
        if !answer.calls.is_empty() {
            return Ok(Box::pin(self.call_tools(&answer, record, view)).await?);
        }
        record.write(&answer).await?;
        let flaw = answer.cut_off().map(|why| {
            let why =
                if why == "length" { "it reached the limit on tokens (max_tokens)" } else { "the content filter" };
            format!("the answer was cut off: {why}")
        });
        if let Some(flaw) = &flaw {
            self.sink.send(TurnEvent::Notice(flaw.clone())).await;
        }
        if let Some(FinishReason::Other(reason)) = answer.finish.as_ref().filter(|_| answer.words().trim().is_empty()) {
            let notice = format!("the model stopped without an answer, for the reason '{reason}'");
            self.sink.send(TurnEvent::Notice(notice)).await;
        }
        let text = answer.words().to_owned();
        self.sink.send(TurnEvent::Final { text: text.clone(), ok: true }).await;
        let paused = answer.finish == Some(FinishReason::Pause);
        Ok(StepEnd { text, called: false, paused, failure: None, flaw, usage: answer.usage })
    }

    /// Gathers what the step is made of.
    async fn begin(&self, answer: &Answer) -> Result<(Record<'_>, ModelRequest, ToolView), TurnError> {
        let ctx = &self.ctx;
        let mut new_messages = Vec::new();
        // Taken by this step, and given back if nothing of it is kept.
        let mut steering = VecDeque::new();
        let prepared = unless_cancelled(&ctx.cancel, self.prepare(&mut new_messages, &mut steering)).await;
        self.inner.sessions.return_steering(&ctx.session, steering);
        new_messages.extend(self.prompt.map(Prompt::to_message));
        let mut record = Record::new(self, new_messages);
        let Prepared { view, system } = match prepared.and_then(|it| it) {
            Ok(it) => it,
            Err(err) => return Err(record.write_failed(answer, err).await),
        };
        record.system.clone_from(&system);
        let mut messages = match ctx.tape.read(&self.inner.context.query()).await {
            Ok(entries) => self.inner.context.messages(&entries),
            Err(err) => {
                record.context_error = Some(err.to_string());
                return Err(record.write_failed(answer, err.into()).await);
            }
        };
        messages.extend(record.new_messages.iter().cloned());
        ctx.tape.load_media(&mut messages).await;
        let own_effort =
            ModelOptions { reasoning_effort: ctx.state.reasoning_effort.clone(), ..ModelOptions::default() };
        let request = ModelRequest {
            run: ctx.run.clone(),
            // Whole, so that hooks and handlers can send it elsewhere; the provider gets its own part.
            model: self.model.to_owned(),
            system,
            messages,
            tools: view.direct.iter().map(|it| it.spec().clone()).collect(),
            options: own_effort.or(self.options),
        };
        Ok((record, request, view))
    }

    /// Runs the calls of an answer and records them with their results.
    async fn call_tools(&self, answer: &Answer, mut record: Record<'_>, view: ToolView) -> Result<StepEnd, TurnError> {
        let ctx = &self.ctx;
        let offered = Offered {
            tools: view.direct.iter().map(|it| (it.spec().alias(), it.clone())).collect(),
            deferred: view.deferred.iter().map(|it| it.spec().alias()).collect(),
            code: view.code.iter().map(|it| it.spec().alias()).collect(),
        };
        self.sink.send(TurnEvent::ToolCalls(answer.calls.clone())).await;
        record.foresee(answer).await;
        let calls_ctx = self.calls_context(view);
        record.results = match self.inner.executor.run_all(&answer.calls, &offered, answer.cut_off(), &calls_ctx).await
        {
            Ok(results) => results,
            Err(err) => {
                // The calls are recorded, so they need results, even when a handler ended the turn.
                record.results = vec![error_value(&err); answer.calls.len()];
                return Err(record.write_failed(answer, err).await);
            }
        };
        let results = record.results.clone();
        let failure = failure(&answer.calls, &results, &offered);
        record.error = ctx.cancel.is_cancelled().then(|| error_value(&TurnError::Cancelled));
        record.write(answer).await?;
        self.sink.send(TurnEvent::ToolResults(results)).await;
        if ctx.cancel.is_cancelled() {
            return Err(TurnError::Cancelled);
        }
        let text = answer.words().to_owned();
        self.sink.send(TurnEvent::Final { text: text.clone(), ok: true }).await;
        Ok(StepEnd { text, called: true, paused: false, failure, flaw: None, usage: answer.usage })
    }

    /// What the calls of the step are given: its tools too.
    fn calls_context(&self, view: ToolView) -> Box<ToolContext> {
        Box::new(ToolContext { step: Some(Arc::new(view)), ..self.ctx.clone() })
    }

    /// Puts together what the model is offered and told. Messages that wait are taken into `new_messages`.
    async fn prepare(
        &self,
        new_messages: &mut Vec<Message>,
        steering: &mut VecDeque<Inbound>,
    ) -> Result<Prepared, TurnError> {
        let (ctx, inner) = (&self.ctx, self.inner);
        let state = &ctx.state;
        let all = self.facts(ctx.tools.as_slice());
        let mut view = decide("prepare_tools", inner.steps.prepare_tools(&all)).await?;
        if state.depth > 0 {
            // Whoever started a nested turn said what it may use; no policy widens that.
            for tools in [&mut view.direct, &mut view.code, &mut view.deferred] {
                tools.retain(|it| state.allows_tool(it.name()));
            }
        }
        inner.hooks.choose_tools(state, &mut view).await;
        for tools in [&mut view.direct, &mut view.code, &mut view.deferred] {
            keep_one_of_each_alias(tools);
        }
        let mut blocks = inner.hooks.system_prompt(state).await;
        blocks.append(&mut view.prompt);
        for section in &inner.sections {
            let rendered = async { Ok(section.render(&self.facts(&view.direct)).await) };
            blocks.extend(decide("system_prompt", rendered).await?);
        }
        self.take_messages(new_messages, steering).await?;
        Ok(Prepared { view, system: join_blocks(&blocks) })
    }

    fn facts<'b>(&'b self, tools: &'b [Arc<dyn DynTool>]) -> StepFacts<'b> {
        let (ctx, agent) = (&self.ctx, &self.inner.settings.agent);
        StepFacts { agent, model: self.model, prompt: self.prompt, tools, tape: &ctx.tape, state: &ctx.state }
    }

    /// Takes messages that no step has taken yet: waiting ones, then news. Those of `steering` are not
    /// taken before they are among the others.
    async fn take_messages(&self, taken: &mut Vec<Message>, steering: &mut VecDeque<Inbound>) -> Result<(), TurnError> {
        let (ctx, inner) = (&self.ctx, self.inner);
        taken.append(&mut inner.sessions.take_pending(&ctx.session));
        let facts = self.facts(ctx.tools.as_slice());
        taken.append(&mut decide("pending_messages", inner.steps.pending_messages(&facts)).await?);
        if self.may_be_steered {
            *steering = inner.sessions.take_steering(&ctx.session);
        }
        let mut messages = taken.clone();
        for inbound in steering.iter().filter(|it| !it.prompt.is_empty()) {
            let prompt = match inner.hooks.build_prompt(&ctx.state, inbound).await {
                Some(prompt) => prompt,
                None => with_header(inbound, &*inner.clock),
            };
            messages.push(prompt.to_message());
        }
        if !messages.is_empty() && ctx.events.wants::<MessagesPending>() {
            let mut event = MessagesPending { state: ctx.state.clone(), tape: ctx.tape.clone(), messages };
            emit(ctx, &mut event).await?;
            messages = event.messages;
        }
        *taken = messages;
        steering.clear();
        let notices = inner.hooks.notices(&ctx.state).await;
        taken.extend(notices.into_iter().map(|it| Message::text(Role::User, it)));
        Ok(())
    }

    /// Asks the model, through hooks and events, into `answer`.
    async fn ask(&self, mut request: ModelRequest, record: &Record<'_>, answer: &mut Answer) -> Result<(), TurnError> {
        let (ctx, inner) = (&self.ctx, self.inner);
        let deciding = inner.hooks.before_model(&ctx.state, &mut request);
        let mut given = match unless_cancelled(&ctx.cancel, deciding).await? {
            ModelStep::Finish(text) => Some(text),
            ModelStep::Proceed => None,
        };
        if given.is_none() && ctx.events.wants::<LlmCallStarted>() {
            let (state, tape) = (ctx.state.clone(), ctx.tape.clone());
            let mut event = LlmCallStarted { state, tape, request, decision: None };
            emit(ctx, &mut event).await?;
            (request, given) = (event.request, event.decision);
        }
        if let Some(text) = given {
            self.sink.send(TurnEvent::Text(text.clone())).await;
            answer.text = text;
            answer.finish = Some(FinishReason::Stop);
            answer.is_given = true;
            return Ok(());
        }
        let asked = std::mem::replace(&mut request.model, self.model_id.to_owned());
        let mut client = self.client.clone();
        if asked != self.model {
            let spec = ModelSpec::parse(&asked)?;
            client = inner.turn_client(&asked, &spec)?;
            request.model = spec.model;
            answer.redirected = Some(asked.clone());
        }
        let started = Instant::now();
        let streamed = unless_cancelled(&ctx.cancel, self.stream(&*client, &request, record, answer)).await?;
        request.model = asked;
        let duration = started.elapsed();
        let outcome = ModelOutcome {
            request: &request,
            text: answer.words(),
            tool_calls: &answer.calls,
            usage: answer.usage.as_ref(),
            error: streamed.as_ref().err(),
            duration,
        };
        // Cancelled meanwhile, the answer is there all the same.
        drop(unless_cancelled(&ctx.cancel, inner.hooks.after_model(&ctx.state, &outcome)).await);
        if ctx.events.wants::<LlmCallFinished>() {
            let mut event = LlmCallFinished {
                state: ctx.state.clone(),
                tape: ctx.tape.clone(),
                request,
                text: answer.words().to_owned(),
                tool_calls: answer.calls.clone(),
                usage: answer.usage,
                error: streamed.as_ref().err().map(ToString::to_string),
                duration_ms: millis(duration),
            };
            emit(ctx, &mut event).await?;
        }
        Ok(streamed?)
    }

    /// Takes in the stream, within the time limit of the whole call.
    async fn stream(
        &self,
        client: &dyn ModelClient,
        request: &ModelRequest,
        record: &Record<'_>,
        answer: &mut Answer,
    ) -> Result<(), ModelError> {
        let work = self.collect(client, request, record, answer);
        match self.inner.settings.model_timeout {
            None => work.await,
            Some(limit) => match tokio::time::timeout(limit, work).await {
                Ok(done) => done,
                Err(_) => Err(ModelError::Timeout(format!(
                    "no complete answer within model_timeout_seconds ({} s)",
                    limit.as_secs_f64()
                ))),
            },
        }
    }

    async fn collect(
        &self,
        client: &dyn ModelClient,
        request: &ModelRequest,
        record: &Record<'_>,
        answer: &mut Answer,
    ) -> Result<(), ModelError> {
        let mut asked = answer.redirected.clone().unwrap_or_else(|| self.model.to_owned());
        let mut stream = client.stream(request).await?;
        let mut due = std::pin::pin!(tokio::time::sleep(NOTE_EVERY));
        let mut n_noted = 0;
        loop {
            let n_new = answer.words().len().saturating_sub(n_noted);
            let event = tokio::select! {
                biased;
                () = &mut due, if n_new > 0 && n_new >= answer.words().len() / NEW_PART => {
                    record.foresee(answer).await;
                    n_noted = answer.words().len();
                    due.as_mut().reset(tokio::time::Instant::now() + NOTE_EVERY);
                    continue;
                }
                event = stream.next() => event,
            };
            let Some(event) = event else { break };
            match event? {
                ModelEvent::Text(delta) => {
                    answer.text.push_str(&delta);
                    self.sink.send(TurnEvent::Text(delta)).await;
                }
                ModelEvent::Refusal(delta) => {
                    answer.refusal.push_str(&delta);
                    self.sink.send(TurnEvent::Text(delta)).await;
                }
                ModelEvent::Reasoning(delta) => {
                    match answer.parts.last_mut() {
                        Some(Part::Reasoning(text)) => text.push_str(&delta),
                        _ => answer.parts.push(Part::Reasoning(delta.clone())),
                    }
                    self.sink.send(TurnEvent::Reasoning(delta)).await;
                }
                ModelEvent::ToolCallDelta { id, name, delta } => {
                    self.sink.send(TurnEvent::ToolCallDelta { id, name, delta }).await;
                }
                ModelEvent::ToolCall(call) => answer.calls.push(call),
                ModelEvent::ProviderData(data) => answer.parts.push(Part::ProviderData(data)),
                ModelEvent::Media(media) => {
                    answer.parts.push(Part::Media(media.clone()));
                    self.sink.send(TurnEvent::Media(media)).await;
                }
                ModelEvent::Citation(citation) => self.sink.send(TurnEvent::Citation(citation)).await,
                ModelEvent::ProviderToolCall { name, input } => {
                    self.sink.send(TurnEvent::ProviderToolCall { name, input }).await;
                }
                ModelEvent::Usage(usage) => answer.usage = Some(usage),
                ModelEvent::Retry { wait, reason } => {
                    let notice = match wait.as_secs_f64() {
                        0.0 => format!("{reason}; trying again"),
                        seconds => format!("{reason}; trying again in {seconds:.1} s"),
                    };
                    answer.attempts.push(json!({"model": asked, "error": reason, "wait_seconds": wait.as_secs_f64()}));
                    self.sink.send(TurnEvent::Notice(notice)).await;
                }
                ModelEvent::AttemptFailed { model, error, next } => {
                    if let Some(next) = next {
                        self.sink.send(TurnEvent::Notice(format!("{model}: {error}; asking {next} instead"))).await;
                        asked = next;
                    }
                    answer.attempts.push(json!({"model": model, "error": error}));
                }
                ModelEvent::AnsweredBy(model) => answer.answered_by = Some(model),
                ModelEvent::Finish(reason) => {
                    answer.finish = Some(reason);
                    name_calls(&mut answer.calls);
                    return Ok(());
                }
                // Providers may send what a later kernel knows.
                _ => {}
            }
            if answer.size() > MAX_ANSWER_BYTES {
                return Err(ModelError::Protocol(format!("an answer of more than {} MiB", MAX_ANSWER_BYTES >> 20)));
            }
        }
        Err(ModelError::Incomplete("the stream ended without saying why".to_owned()))
    }
}

/// How a step failed whose calls all failed, or were of tools that do not exist.
fn failure(calls: &[ToolCallRequest], results: &[Value], offered: &Offered) -> Option<u64> {
    let has_failed = |(call, result): (&ToolCallRequest, &Value)| {
        !offered.tools.iter().any(|(alias, _)| *alias == call.name)
            || (result.get("kind").is_some() && result.get("message").is_some())
    };
    if !calls.iter().zip(results).all(has_failed) {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    for (call, result) in calls.iter().zip(results) {
        (&call.name, &call.arguments, result.to_string()).hash(&mut hasher);
    }
    Some(hasher.finish())
}

/// Gives calls without an id, or with one that came before, an id of their own.
fn name_calls(calls: &mut [ToolCallRequest]) {
    let mut seen = HashSet::new();
    for (idx, call) in calls.iter_mut().enumerate() {
        if call.id.is_empty() || !seen.insert(call.id.clone()) {
            call.id = format!("call_{idx}_{:08x}", seen.len());
            seen.insert(call.id.clone());
        }
    }
}

/// Of tools that the model would know by one name, keeps the one whose own name it is, else the first:
/// providers refuse requests with a name twice.
fn keep_one_of_each_alias(tools: &mut Vec<Arc<dyn DynTool>>) {
    let is_own = |it: &Arc<dyn DynTool>| !it.name().contains('.');
    let mut places: HashMap<String, usize> = HashMap::with_capacity(tools.len());
    let mut kept: Vec<Arc<dyn DynTool>> = Vec::with_capacity(tools.len());
    for tool in tools.drain(..) {
        match places.entry(tool.spec().alias()) {
            Entry::Vacant(free) => {
                free.insert(kept.len());
                kept.push(tool);
            }
            Entry::Occupied(taken) => {
                if let Some(place) = kept.get_mut(*taken.get()).filter(|it| !is_own(it) && is_own(&tool)) {
                    *place = tool;
                }
            }
        }
    }
    *tools = kept;
}

/// Sets a field of an event's data.
pub(crate) fn put(data: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(fields) = data.as_object_mut() {
        fields.insert(key.to_owned(), value.into());
    }
}

/// A new id for a model call, from its moment.
pub(crate) fn run_id(ctx: &ToolContext) -> RunId {
    let digits: String = iso(ctx.tape.clock().now()).chars().filter(|it| it.is_ascii_digit() || *it == 'T').collect();
    // Without the digits of the offset: yyyymmddThhmmss and six of the fraction.
    RunId(format!("run-{}Z", digits.get(..21).unwrap_or(&digits)))
}

pub(crate) fn millis(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
