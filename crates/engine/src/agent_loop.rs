//! The steps of a turn: ask the model, run its calls, until it has nothing more to call.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Instant};

use bub_kernel::{
    clock::iso,
    error::panic_text,
    event::{RunFinished, RunStarted, StepFinished, StepStarted},
    model::{ModelClient, ModelError, ModelOptions, ModelSpec},
    steps::StepFacts,
    tape::NewEntry,
    tool::ToolContext,
    turn::{Prompt, Turn, TurnError, TurnResult},
};
use futures::FutureExt as _;
use serde_json::{Map, Value, json};

use crate::{
    events::{emit, unless_cancelled},
    policy::decide,
    rescue::Rescue,
    runtime::{Inner, TapeNaming},
    step::{Step, StepEnd, StepFailure, millis, put, run_id},
};

/// The most steps of a nested turn when no limit is set: nobody watches it closely.
const MAX_NESTED_STEPS: usize = 500;
/// After so many steps in a row whose calls are the same and fail in the same way, the turn ends.
const MAX_SAME_FAILURES: usize = 20;
/// After so many pauses in a row the turn ends. A provider pauses after some ten calls of its own tools;
/// an answer that needs more than a few hundred of them will not end at all.
const MAX_PAUSES: usize = 30;

/// Runs a turn to its final text.
///
/// # Errors
/// What ended it early; all that was done until then is on the tape.
pub(crate) async fn run(inner: &Arc<Inner>, turn: Turn) -> Result<TurnResult, TurnError> {
    let Turn { prompt, ctx, sink, options, metadata } = turn;
    let prompt = prompt.unwrap_or_else(|| Prompt::Text(String::new()));
    let model = ctx.state.model.clone().ok_or_else(|| no_model(inner.settings.tapes))?;
    let client = ModelSpec::parse(&model).and_then(|spec| Ok((inner.turn_client(&model, &spec)?, spec)));
    let (client, spec) =
        client.map_err(|err| if ctx.state.depth > 0 { err } else { with_way_out(inner, &model, err) })?;

    let started = Instant::now();
    let mut run = Run { inner, ctx, sink, model, spec, client, options, metadata, has_begun: false, steps: 0, started };
    // Whatever ends the work, even a panic of the embedder's code: the end is recorded, and told. On the
    // heap, for turns nest and the stack is short.
    let done = AssertUnwindSafe(Box::pin(run.work(&prompt))).catch_unwind().await;
    let done = done.unwrap_or_else(|panic| Err(TurnError::Panicked(panic_text(&*panic).to_owned())));
    match (run.finish(&done).await, done) {
        (Err(err), Ok(_)) => Err(err),
        (Err(second), Err(err)) => {
            tracing::error!(error = %second, "the end of a failed turn was not recorded, or not told");
            Err(err)
        }
        (Ok(()), done) => done,
    }
}

/// Adds to an error about a model that is not the configured one how the session gets another.
fn with_way_out(inner: &Inner, model: &str, err: ModelError) -> ModelError {
    let is_configured = inner.settings.model.as_deref() == Some(model);
    match (&inner.settings.command_prefix, err) {
        (Some(prefix), ModelError::Config(text)) if !is_configured && inner.tools.get("model").is_some() => {
            ModelError::Config(format!("{text}; {prefix}model provider:model sets another for this session"))
        }
        (_, err) => err,
    }
}

/// What is said when no model is set.
fn no_model(tapes: TapeNaming) -> TurnError {
    let what_to_do = match tapes {
        TapeNaming::Sessions => "set a model as provider:model",
        TapeNaming::Free => "pass model to the run or to the agent",
    };
    TurnError::Model(ModelError::Config(format!("no model to run: {what_to_do}")))
}

/// A turn's loop and what it holds on to.
struct Run<'a> {
    inner: &'a Arc<Inner>,
    ctx: ToolContext,
    sink: bub_kernel::turn::EventSink,
    model: String,
    spec: ModelSpec,
    client: Arc<dyn ModelClient>,
    options: ModelOptions,
    metadata: Map<String, Value>,
    /// Whether its start has been recorded; then its end has to be, too.
    has_begun: bool,
    steps: usize,
    started: Instant,
}

impl Run<'_> {
    async fn work(&mut self, prompt: &Prompt) -> Result<TurnResult, TurnError> {
        self.start(prompt).await?;
        self.steps(prompt).await
    }

    async fn start(&mut self, prompt: &Prompt) -> Result<(), TurnError> {
        let ctx = &self.ctx;
        let mut data = Map::new();
        data.insert("model".to_owned(), self.model.clone().into());
        data.insert("prompt".to_owned(), prompt.to_event_value());
        for (key, value) in &self.metadata {
            // What the caller says hides nothing of what happened.
            data.entry(key).or_insert_with(|| value.clone());
        }
        ctx.tape.append_event("loop.start", Value::Object(data)).await?;
        self.has_begun = true;
        let mut event = RunStarted {
            state: ctx.state.clone(),
            tape: ctx.tape.clone(),
            model: self.model.clone(),
            prompt: prompt.clone(),
            metadata: ctx.state.metadata.clone(),
        };
        emit(ctx, &mut event).await
    }

    async fn steps(&mut self, original: &Prompt) -> Result<TurnResult, TurnError> {
        let mut prompt = Some(original.clone());
        let mut result = TurnResult {
            session: self.ctx.session.clone(),
            answer: String::new(),
            text: String::new(),
            errors: Vec::new(),
            steps: 0,
            usage: None,
        };
        let mut rescues_left = self.inner.settings.max_auto_handoffs;
        let mut rescue = Rescue::new(self.inner, &self.sink);
        let nested = (self.ctx.state.depth > 0).then_some(MAX_NESTED_STEPS);
        let max_steps = self.inner.settings.max_steps.or(nested);
        let mut same = SameFailures::default();
        let mut pauses = 0;
        loop {
            if self.ctx.cancel.is_cancelled() {
                return Err(TurnError::Cancelled);
            }
            if let Some(max) = max_steps.filter(|max| self.steps >= *max) {
                return Err(TurnError::StepsExhausted { max });
            }
            self.steps += 1;
            result.steps = self.steps;
            let started = Instant::now();
            if let Err(err) = self.step_started(prompt.as_ref()).boxed().await {
                return self.step_failed(started, err).boxed().await;
            }
            // Nested turns leave the messages to the turn that the person talks to, and a paused answer is not
            // interrupted.
            let may_be_steered = self.ctx.state.depth == 0 && pauses == 0;
            let step = self.step(prompt.as_ref(), rescues_left > 0, may_be_steered);
            match Box::pin(step.run()).await {
                Ok(end) => {
                    result.text.push_str(&end.text);
                    // What comes after a pause is the rest of one answer.
                    if pauses == 0 {
                        result.answer.clear();
                    }
                    result.answer.push_str(&end.text);
                    result.usage = end.usage.or(result.usage);
                    result.errors.extend(end.flaw.clone());
                    if let Some(usage) = &end.usage {
                        rescue.warn(&self.ctx, &self.model, usage.input_tokens).await;
                    }
                    if same.count(end.failure) >= MAX_SAME_FAILURES {
                        let err = TurnError::Repeating { times: MAX_SAME_FAILURES };
                        return self.step_failed(started, err).boxed().await;
                    }
                    pauses = if end.paused { pauses + 1 } else { 0 };
                    if pauses > MAX_PAUSES {
                        return self.step_failed(started, TurnError::Paused { times: pauses }).boxed().await;
                    }
                    let goes_on = match self.goes_on(&end, prompt.as_ref()).boxed().await {
                        Ok(goes_on) => goes_on,
                        Err(err) => return self.step_failed(started, err).boxed().await,
                    };
                    if !goes_on {
                        self.step_finished(started, "ok", None).await?;
                        return Ok(result);
                    }
                    // A paused answer is not interrupted: it would not be the same conversation any more.
                    let next = if end.paused { Ok(None) } else { self.continue_prompt(prompt.as_ref()).boxed().await };
                    match next {
                        Ok(next) => prompt = next,
                        Err(err) => return self.step_failed(started, err).boxed().await,
                    }
                    self.step_finished(started, "continue", None).boxed().await?;
                }
                Err(StepFailure::TooLong(err)) => {
                    rescues_left = rescues_left.saturating_sub(1);
                    rescue.start_anew(&self.ctx, original, &err).boxed().await?;
                    result.errors.push(format!("{err}; a new one was begun without what came before"));
                    self.step_finished(started, "auto_handoff", Some(err.to_string())).boxed().await?;
                    prompt = Some(original.clone());
                }
                Err(StepFailure::NothingToCut(message)) => {
                    let err = rescue.refuse(&self.ctx, message).boxed().await?;
                    return self.step_failed(started, err.into()).boxed().await;
                }
                Err(StepFailure::Other(TurnError::Model(ModelError::ContextLength(message)))) => {
                    let err = rescue.give_up(&self.ctx, original, message).boxed().await?;
                    return self.step_failed(started, err.into()).boxed().await;
                }
                Err(StepFailure::Other(err)) => return self.step_failed(started, err).boxed().await,
            }
        }
    }

    /// The next step. Boxed where it is made: turns nest, and the stack is short.
    fn step<'b>(&'b self, prompt: Option<&'b Prompt>, may_rescue: bool, may_be_steered: bool) -> Box<Step<'b>> {
        let mut ctx = self.ctx.clone();
        ctx.run = run_id(&ctx);
        Box::new(Step {
            inner: self.inner,
            ctx,
            sink: &self.sink,
            client: &self.client,
            model: &self.model,
            model_id: &self.spec.model,
            prompt,
            options: &self.options,
            may_rescue,
            may_be_steered,
        })
    }

    /// Ends a step that failed; that failure is the turn's, whatever comes after it.
    async fn step_failed(&self, started: Instant, err: TurnError) -> Result<TurnResult, TurnError> {
        let status = if matches!(err, TurnError::Cancelled) { "cancelled" } else { "error" };
        if let Err(second) = self.step_finished(started, status, Some(err.to_string())).await {
            tracing::error!(error = %second, "the end of a failed step was not recorded, or not told");
        }
        Err(err)
    }

    /// Whether there is another step: results to read, an answer to go on with, or messages that wait.
    async fn goes_on(&self, end: &StepEnd, prompt: Option<&Prompt>) -> Result<bool, TurnError> {
        let sessions = &self.inner.sessions;
        let is_steered = self.ctx.state.depth == 0 && sessions.has_steering(&self.ctx.session);
        if end.called || end.paused || is_steered || sessions.has_pending(&self.ctx.session) {
            return Ok(true);
        }
        decide("has_pending_messages", self.inner.steps.has_pending_messages(&self.facts(prompt))).await
    }

    /// What the next step is asked: the embedder first, then the hooks.
    async fn continue_prompt(&self, prompt: Option<&Prompt>) -> Result<Option<Prompt>, TurnError> {
        match decide("continue_prompt", self.inner.steps.continue_prompt(&self.facts(prompt))).await? {
            Some(next) => Ok(Some(next)),
            None => {
                let (hooks, ctx) = (&self.inner.hooks, &self.ctx);
                let next = unless_cancelled(&ctx.cancel, hooks.continue_prompt(&ctx.state, prompt, &ctx.tape)).await?;
                Ok(next.map(Prompt::Text))
            }
        }
    }

    fn facts<'b>(&'b self, prompt: Option<&'b Prompt>) -> StepFacts<'b> {
        let (ctx, agent) = (&self.ctx, &self.inner.settings.agent);
        StepFacts { agent, model: &self.model, prompt, tools: ctx.tools.as_slice(), tape: &ctx.tape, state: &ctx.state }
    }

    async fn step_started(&self, prompt: Option<&Prompt>) -> Result<(), TurnError> {
        let ctx = &self.ctx;
        let data = json!({"step": self.steps, "prompt": prompt.map(Prompt::to_event_value)});
        ctx.tape.append_event("loop.step.start", data).await?;
        if !ctx.events.wants::<StepStarted>() {
            return Ok(());
        }
        let (state, tape) = (ctx.state.clone(), ctx.tape.clone());
        emit(ctx, &mut StepStarted { state, tape, step: self.steps, prompt: prompt.cloned() }).await
    }

    async fn step_finished(
        &self,
        started: Instant,
        status: &'static str,
        error: Option<String>,
    ) -> Result<(), TurnError> {
        let ctx = &self.ctx;
        let elapsed_ms = millis(started.elapsed());
        let mut data = json!({"step": self.steps, "elapsed_ms": elapsed_ms, "status": status});
        self.close_event(&mut data, error.as_deref());
        let mut event = StepFinished {
            state: ctx.state.clone(),
            tape: ctx.tape.clone(),
            step: self.steps,
            status,
            elapsed_ms,
            error,
        };
        ctx.tape.append_event("loop.step", data).await?;
        emit(ctx, &mut event).await
    }

    /// Records the end and tells of it, even when it can't be recorded.
    async fn finish(&self, done: &Result<TurnResult, TurnError>) -> Result<(), TurnError> {
        if !self.has_begun {
            return Ok(());
        }
        let ctx = &self.ctx;
        let (status, error) = match done {
            Ok(_) => ("ok", None),
            Err(TurnError::Cancelled) => ("cancelled", None),
            Err(err) => ("error", Some(err.to_string())),
        };
        let elapsed_ms = millis(self.started.elapsed());
        let mut data = json!({"status": status, "steps": self.steps, "elapsed_ms": elapsed_ms});
        self.close_event(&mut data, error.as_deref());
        let recorded = ctx.tape.append([NewEntry::event("loop.finish", data)]).await;
        let mut event = RunFinished {
            state: ctx.state.clone(),
            tape: ctx.tape.clone(),
            status,
            steps: self.steps,
            elapsed_ms,
            error,
        };
        let told = emit(ctx, &mut event).await;
        recorded?;
        told
    }

    /// Adds what went wrong and the date, which come last.
    fn close_event(&self, data: &mut Value, error: Option<&str>) {
        if let Some(error) = error {
            put(data, "error", error);
        }
        put(data, "date", iso(self.ctx.tape.clock().now()));
    }
}

/// Counts steps in a row that fail alike.
#[derive(Default)]
struct SameFailures {
    last: Option<u64>,
    times: usize,
}

impl SameFailures {
    /// Takes in how a step failed, and says how many have failed like it in a row.
    fn count(&mut self, failure: Option<u64>) -> usize {
        self.times = match failure {
            Some(_) if failure == self.last => self.times + 1,
            Some(_) => 1,
            None => 0,
        };
        self.last = failure;
        self.times
    }
}
