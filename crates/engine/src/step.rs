//! One exchange with the model: a request, its answer, the calls in it, their record.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::{Duration, Instant},
};

use bub_kernel::{
    clock::iso,
    error::ErrorKind,
    event::{ChatFinished, LlmCallFinished, LlmCallStarted, MessagesPending},
    hooks::{ModelOutcome, ModelStep, ToolView},
    message::{Message, Part, Role, TokenUsage, ToolCallRequest},
    model::{FinishReason, ModelClient, ModelError, ModelEvent, ModelOptions, ModelRequest},
    tape::{NewEntry, TapeQuery},
    tool::{Exposure, ToolContext},
    turn::{EventSink, Prompt, RunId, TurnError, TurnEvent},
};
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::{
    executor::{Offered, object_of},
    prompt::join_blocks,
    runtime::Inner,
};

/// The most bytes of one answer; a stream that goes on is ended.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// The result of a call whose process ended before it did.
const INTERRUPTED_CALL: &str =
    "interrupted: the process ended while this call was running; it may have taken effect in part or in whole";

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
    pub(crate) usage: Option<TokenUsage>,
}

/// What the model said, as far as it came.
#[derive(Default)]
struct Answer {
    text: String,
    refusal: String,
    parts: Vec<Part>,
    calls: Vec<ToolCallRequest>,
    usage: Option<TokenUsage>,
    finish: Option<FinishReason>,
    answered_by: Option<String>,
    /// Tries that brought no answer: who was asked, and what went wrong.
    attempts: Vec<Value>,
}

impl Answer {
    fn words(&self) -> &str {
        if self.text.is_empty() { &self.refusal } else { &self.text }
    }

    fn size(&self) -> usize {
        self.text.len() + self.refusal.len() + self.calls.iter().map(|it| it.arguments.len()).sum::<usize>()
    }

    /// Thinking and provider data, and the words, in the order that is kept.
    fn kept_parts(&self) -> Vec<Part> {
        let mut parts = self.parts.clone();
        if !self.words().is_empty() {
            parts.push(Part::Text(self.words().to_owned()));
        }
        parts
    }

    /// Why arguments may be incomplete.
    fn cut_off(&self) -> Option<&'static str> {
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
    /// Whether a context that is too long will be shortened and the prompt asked again; it is not
    /// recorded then.
    pub(crate) may_rescue: bool,
}

impl Step<'_> {
    /// Makes the exchange and records it.
    ///
    /// # Errors
    /// What failed; the messages of the step and what came of the answer are recorded all the same,
    /// unless the context was too long for the model, so that the prompt can be asked again.
    pub(crate) async fn run(&self) -> Result<StepEnd, TurnError> {
        let (ctx, inner) = (&self.ctx, self.inner);
        let state = &ctx.state;
        let mut view = ToolView::default();
        view.direct.extend(
            ctx.tools
                .iter()
                .filter(|it| matches!(it.spec().exposure, Exposure::Auto | Exposure::Direct) && !it.spec().deferred)
                .filter(|it| state.allows_tool(&it.spec().name))
                .cloned(),
        );
        view.deferred.extend(
            ctx.tools
                .iter()
                .filter(|it| matches!(it.spec().exposure, Exposure::Auto | Exposure::Direct) && it.spec().deferred)
                .filter(|it| state.allows_tool(&it.spec().name))
                .cloned(),
        );
        if state.code_mode {
            view.code.extend(
                ctx.tools
                    .iter()
                    .filter(|it| matches!(it.spec().exposure, Exposure::Auto | Exposure::Code))
                    .filter(|it| state.allows_tool(&it.spec().name))
                    .cloned(),
            );
        }
        inner.hooks.choose_tools(state, &mut view).await;
        let offered = Offered {
            tools: view.direct.iter().map(|it| (it.spec().alias(), it.clone())).collect(),
            deferred: view.deferred.iter().map(|it| it.spec().alias()).collect(),
            code: view.code.iter().map(|it| it.spec().alias()).collect(),
        };
        let mut blocks = inner.hooks.system_prompt(state).await;
        blocks.append(&mut view.prompt);
        let system = join_blocks(&blocks);

        let new_messages = self.new_messages().await?;
        let entries = ctx.tape.read(&TapeQuery::default().after_last_anchor()).await?;
        let mut messages = inner.context.messages(&entries);
        messages.extend(new_messages.iter().cloned());
        ctx.tape.load_media(&mut messages).await;
        let request = ModelRequest {
            run: ctx.run.clone(),
            model: self.model_id.to_owned(),
            system: system.clone(),
            messages,
            tools: view.direct.iter().map(|it| it.spec().clone()).collect(),
            options: ModelOptions {
                reasoning_effort: state
                    .reasoning_effort
                    .clone()
                    .or_else(|| inner.settings.options.reasoning_effort.clone()),
                ..inner.settings.options.clone()
            },
        };
        let started = Instant::now();
        let mut answer = Answer::default();
        let mut record = Record { step: self, system, new_messages, results: Vec::new(), error: None };
        record.foresee(&answer).await;
        let asked = self.ask(request, &mut answer).await;
        match asked {
            Ok(()) => {}
            Err(err @ TurnError::Model(ModelError::ContextLength(_))) if self.may_rescue => return Err(err),
            Err(err) => {
                record.error = Some(error_value(&err));
                record.write(&answer).await?;
                return Err(err);
            }
        }
        let elapsed_seconds = started.elapsed().as_secs_f64();
        let usage = answer.usage.unwrap_or_default();
        self.sink.send(TurnEvent::Usage { usage, elapsed_seconds }).await;

        let text = answer.words().to_owned();
        if answer.calls.is_empty() {
            record.write(&answer).await?;
            self.sink.send(TurnEvent::Final { text: text.clone(), ok: true }).await;
            let paused = answer.finish == Some(FinishReason::Pause);
            return Ok(StepEnd { text, called: false, paused, failure: None, usage: answer.usage });
        }
        self.sink.send(TurnEvent::ToolCalls(answer.calls.clone())).await;
        record.foresee(&answer).await;
        let calls_ctx = ToolContext { step: Some(Arc::new(view)), ..ctx.clone() };
        record.results = match inner.executor.run_all(&answer.calls, &offered, answer.cut_off(), &calls_ctx).await {
            Ok(results) => results,
            Err(err) => {
                // The calls are recorded, so they need results, even when a handler ended the turn.
                record.results = vec![error_value(&err); answer.calls.len()];
                record.error = Some(error_value(&err));
                record.write(&answer).await?;
                return Err(err);
            }
        };
        let results = record.results.clone();
        let failure = failure(&answer.calls, &results, &offered);
        record.error = ctx.cancel.is_cancelled().then(|| error_value(&TurnError::Cancelled));
        record.write(&answer).await?;
        self.sink.send(TurnEvent::ToolResults(results)).await;
        if ctx.cancel.is_cancelled() {
            return Err(TurnError::Cancelled);
        }
        self.sink.send(TurnEvent::Final { text: text.clone(), ok: true }).await;
        Ok(StepEnd { text, called: true, paused: false, failure, usage: answer.usage })
    }

    /// Messages that no step has taken yet: waiting ones, news, the prompt.
    async fn new_messages(&self) -> Result<Vec<Message>, TurnError> {
        let (ctx, inner) = (&self.ctx, self.inner);
        let mut messages = inner.sessions.take_pending(&ctx.session);
        if !messages.is_empty() {
            let mut event = MessagesPending { state: ctx.state.clone(), tape: ctx.tape.clone(), messages };
            emit(ctx, &mut event).await?;
            messages = event.messages;
        }
        let notices = inner.hooks.notices(&ctx.state).await;
        messages.extend(notices.into_iter().map(|it| Message::text(Role::User, it)));
        messages.extend(self.prompt.map(Prompt::to_message));
        Ok(messages)
    }

    /// Asks the model, through hooks and events, into `answer`.
    async fn ask(&self, mut request: ModelRequest, answer: &mut Answer) -> Result<(), TurnError> {
        let (ctx, inner) = (&self.ctx, self.inner);
        let mut finished = match inner.hooks.before_model(&ctx.state, &mut request).await {
            ModelStep::Finish(text) => Some(text),
            ModelStep::Proceed => None,
        };
        if finished.is_none() {
            let mut event =
                LlmCallStarted { state: ctx.state.clone(), tape: ctx.tape.clone(), request, decision: None };
            emit(ctx, &mut event).await?;
            (request, finished) = (event.request, event.decision);
        }
        if let Some(text) = finished {
            self.sink.send(TurnEvent::Text(text.clone())).await;
            answer.text = text;
            answer.finish = Some(FinishReason::Stop);
            return Ok(());
        }
        let started = Instant::now();
        let streamed = tokio::select! {
            biased;
            () = ctx.cancel.cancelled() => return Err(TurnError::Cancelled),
            streamed = self.stream(&request, answer) => streamed,
        };
        let outcome = ModelOutcome {
            text: answer.words(),
            tool_calls: &answer.calls,
            usage: answer.usage.as_ref(),
            error: streamed.as_ref().err(),
        };
        inner.hooks.after_model(&ctx.state, &outcome).await;
        let mut event = LlmCallFinished {
            state: ctx.state.clone(),
            tape: ctx.tape.clone(),
            run: ctx.run.clone(),
            text: answer.words().to_owned(),
            tool_calls: answer.calls.clone(),
            usage: answer.usage,
            error: streamed.as_ref().err().map(ToString::to_string),
            duration_ms: millis(started.elapsed()),
        };
        emit(ctx, &mut event).await?;
        Ok(streamed?)
    }

    /// Takes in the stream, within the time limit of the whole call.
    async fn stream(&self, request: &ModelRequest, answer: &mut Answer) -> Result<(), ModelError> {
        let work = self.collect(request, answer);
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

    async fn collect(&self, request: &ModelRequest, answer: &mut Answer) -> Result<(), ModelError> {
        let mut asked = self.model.to_owned();
        let mut stream = self.client.stream(request).await?;
        while let Some(event) = stream.next().await {
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
                    let notice = format!("{reason}; trying again in {:.1} s", wait.as_secs_f64());
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
    let mut seen = std::collections::HashSet::new();
    for (idx, call) in calls.iter_mut().enumerate() {
        if call.id.is_empty() || !seen.insert(call.id.clone()) {
            call.id = format!("call_{idx}_{:08x}", seen.len());
            seen.insert(call.id.clone());
        }
    }
}

/// What a step writes to the tape, in one append.
struct Record<'a> {
    step: &'a Step<'a>,
    system: Option<String>,
    new_messages: Vec<Message>,
    results: Vec<Value>,
    /// What failed, as tapes have it.
    error: Option<Value>,
}

impl Record<'_> {
    /// Says what is to be on the tape if the process ends now: what was said, and for each call that it
    /// was interrupted.
    async fn foresee(&self, answer: &Answer) {
        let results = vec![Value::String(INTERRUPTED_CALL.to_owned()); answer.calls.len()];
        let kind = ErrorKind::Temporary.as_str();
        let error = json!({"kind": kind, "message": "interrupted: the process ended during this step"});
        self.step.ctx.tape.foresee(self.entries(answer, &results, Some(&error))).await;
    }

    async fn write(&self, answer: &Answer) -> Result<(), TurnError> {
        let ctx = &self.step.ctx;
        let mut event = ChatFinished {
            state: ctx.state.clone(),
            tape: ctx.tape.clone(),
            run: ctx.run.clone(),
            model: self.step.model.to_owned(),
            system_prompt: self.system.clone(),
            new_messages: self.new_messages.clone(),
            response_text: is_complete(&self.results, self.error.as_ref()).then(|| answer.words().to_owned()),
            tool_calls: answer.calls.clone(),
            tool_results: self.results.clone(),
            usage: answer.usage,
            provider: self.provider(answer).to_owned(),
            assistant_parts: answer.parts.clone(),
            error: self.error.as_ref().and_then(|it| it.get("message")?.as_str()).map(str::to_owned),
        };
        emit(ctx, &mut event).await?;
        ctx.tape.settle(self.entries(answer, &self.results, self.error.as_ref())).await?;
        Ok(())
    }

    fn entries(&self, answer: &Answer, results: &[Value], error: Option<&Value>) -> Vec<NewEntry> {
        let mut entries = Vec::new();
        entries.extend(self.system.as_deref().map(NewEntry::system));
        entries.extend(self.new_messages.iter().map(NewEntry::message));
        if !results.is_empty() {
            entries.push(NewEntry::tool_call(&recordable(&answer.calls), &answer.kept_parts()));
            entries.push(NewEntry::tool_result(results.to_vec()));
        }
        entries.extend(error.cloned().map(NewEntry::error));
        if results.is_empty() && (error.is_none() || !answer.words().is_empty()) {
            let message = NewEntry::answer(answer.words(), &answer.parts);
            let is_complete = is_complete(results, error);
            entries.push(if is_complete { message } else { message.with_meta("partial", true) });
        }
        entries.push(NewEntry::event("run", self.run_data(answer, error.is_some())));
        entries.into_iter().map(|it| it.in_run(&self.step.ctx.run)).collect()
    }

    fn run_data(&self, answer: &Answer, is_error: bool) -> Value {
        let mut data = json!({"status": if is_error { "error" } else { "ok" }});
        if let Some(usage) = &answer.usage {
            put(&mut data, "usage", usage.to_value());
        }
        put(&mut data, "provider", self.provider(answer));
        put(&mut data, "model", self.step.model);
        if let Some(answered_by) = &answer.answered_by {
            put(&mut data, "answered_by", answered_by.clone());
        }
        if !answer.attempts.is_empty() {
            put(&mut data, "attempts", answer.attempts.clone());
        }
        data
    }

    /// The provider that answered.
    fn provider<'a>(&'a self, answer: &'a Answer) -> &'a str {
        let model = answer.answered_by.as_deref().unwrap_or(self.step.model);
        model.split_once(':').map_or(model, |(provider, _)| provider)
    }
}

/// Whether an answer came to its end.
fn is_complete(results: &[Value], error: Option<&Value>) -> bool {
    error.is_none() || !results.is_empty()
}

/// Calls as they may be sent back: arguments that are no JSON object would be refused by providers.
/// What the model wrote stands in the error that is the call's result.
fn recordable(calls: &[ToolCallRequest]) -> Vec<ToolCallRequest> {
    let mut calls = calls.to_vec();
    for call in &mut calls {
        if call.arguments.trim().is_empty() || object_of(&call.arguments).is_none() {
            call.arguments = "{}".to_owned();
        }
    }
    calls
}

/// A failure as tapes have it.
fn error_value(err: &TurnError) -> Value {
    let kind = match err {
        TurnError::Model(err) => err.kind(),
        TurnError::Cancelled => ErrorKind::Temporary,
        _ => ErrorKind::Unknown,
    };
    json!({"kind": kind.as_str(), "message": err.to_string()})
}

/// Sets a field of an event's data.
pub(crate) fn put(data: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(fields) = data.as_object_mut() {
        fields.insert(key.to_owned(), value.into());
    }
}

/// Hands an event to the embedder's handlers; their failure ends the turn.
pub(crate) async fn emit<E: bub_kernel::event::Event>(ctx: &ToolContext, event: &mut E) -> Result<(), TurnError> {
    ctx.events.emit(event).await.map_err(|err| TurnError::Handler(err.to_string()))
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
