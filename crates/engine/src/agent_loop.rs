//! The steps of a turn: ask the model, run its calls, until it has nothing more to call.

use std::{sync::Arc, time::Instant};

use bub_kernel::{
    clock::iso,
    event::{RunFinished, RunStarted, StepFinished, StepStarted},
    model::{ModelClient, ModelError, ModelSpec},
    tape::NewEntry,
    tool::ToolContext,
    turn::{Prompt, Turn, TurnError, TurnResult},
};
use serde_json::{Value, json};

use crate::{
    runtime::Inner,
    step::{Step, emit, millis, put, run_id},
};

/// The anchor that is set when the conversation no longer fits the model's window.
const OVERFLOW_ANCHOR: &str = "auto_handoff/context_overflow";

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
    let Turn { prompt, ctx, sink } = turn;
    let prompt = prompt.unwrap_or_else(|| Prompt::Text(String::new()));
    let model = ctx.state.model.clone().ok_or_else(no_model)?;
    let spec = ModelSpec::parse(&model)?;
    let client = inner.turn_client(&model, &spec)?;

    let mut run = Run { inner, ctx, sink, model, spec, client, steps: 0, started: Instant::now() };
    run.start(&prompt).await?;
    let done = run.steps(&prompt).await;
    run.finish(&done).await?;
    done
}

/// What is said when no model is set.
fn no_model() -> TurnError {
    TurnError::Model(ModelError::Config("no model to run: set a model as provider:model".to_owned()))
}

/// A turn's loop and what it holds on to.
struct Run<'a> {
    inner: &'a Arc<Inner>,
    ctx: ToolContext,
    sink: bub_kernel::turn::EventSink,
    model: String,
    spec: ModelSpec,
    client: Arc<dyn ModelClient>,
    steps: usize,
    started: Instant,
}

impl Run<'_> {
    async fn start(&self, prompt: &Prompt) -> Result<(), TurnError> {
        let ctx = &self.ctx;
        let mut event = RunStarted {
            state: ctx.state.clone(),
            tape: ctx.tape.clone(),
            model: self.model.clone(),
            prompt: prompt.clone(),
        };
        emit(ctx, &mut event).await?;
        let names =
            |list: &Option<Vec<String>>| list.as_ref().filter(|it| !it.is_empty()).map_or(Value::Null, |it| json!(it));
        let data = json!({
            "model": self.model,
            "prompt": prompt.to_event_value(),
            "allowed_skills": names(&ctx.state.allowed_skills),
            "allowed_tools": names(&ctx.state.allowed_tools),
        });
        Ok(ctx.tape.append_event("loop.start", data).await?)
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
            self.step_started(prompt.as_ref()).await?;
            let mut ctx = self.ctx.clone();
            ctx.run = run_id(&ctx);
            let step = Step {
                inner: self.inner,
                ctx,
                sink: &self.sink,
                client: &self.client,
                model: &self.model,
                model_id: &self.spec.model,
                prompt: prompt.as_ref(),
                may_rescue: rescues_left > 0,
            };
            match step.run().await {
                Ok(end) => {
                    result.text.push_str(&end.text);
                    // What comes after a pause is the rest of one answer.
                    if pauses == 0 {
                        result.answer.clear();
                    }
                    result.answer.push_str(&end.text);
                    result.usage = end.usage.or(result.usage);
                    if same.count(end.failure) >= MAX_SAME_FAILURES {
                        let err = TurnError::Repeating { times: MAX_SAME_FAILURES };
                        self.step_finished(started, "error", Some(err.to_string())).await?;
                        return Err(err);
                    }
                    pauses = if end.paused { pauses + 1 } else { 0 };
                    if pauses > MAX_PAUSES {
                        let err = TurnError::Paused { times: pauses };
                        self.step_finished(started, "error", Some(err.to_string())).await?;
                        return Err(err);
                    }
                    let goes_on = end.called || end.paused || self.inner.sessions.has_pending(&self.ctx.session);
                    self.step_finished(started, if goes_on { "continue" } else { "ok" }, None).await?;
                    if !goes_on {
                        return Ok(result);
                    }
                    // A paused answer is not interrupted: it would not be the same conversation any more.
                    prompt = if end.paused {
                        None
                    } else {
                        self.inner.hooks.continue_prompt(&self.ctx.state).await.map(Prompt::Text)
                    };
                }
                Err(TurnError::Model(err @ ModelError::ContextLength(_))) if rescues_left > 0 => {
                    rescues_left -= 1;
                    let state = json!({"reason": "context_length_exceeded", "error": err.to_string()});
                    self.ctx.tape.handoff(OVERFLOW_ANCHOR, state).await?;
                    self.step_finished(started, "auto_handoff", Some(err.to_string())).await?;
                    prompt = Some(original.clone());
                }
                Err(err) => {
                    let status = if matches!(err, TurnError::Cancelled) { "cancelled" } else { "error" };
                    self.step_finished(started, status, Some(err.to_string())).await?;
                    return Err(err);
                }
            }
        }
    }

    async fn step_started(&self, prompt: Option<&Prompt>) -> Result<(), TurnError> {
        let ctx = &self.ctx;
        let mut event =
            StepStarted { state: ctx.state.clone(), tape: ctx.tape.clone(), step: self.steps, prompt: prompt.cloned() };
        emit(ctx, &mut event).await?;
        let data = json!({"step": self.steps, "prompt": prompt.map(Prompt::to_event_value)});
        Ok(ctx.tape.append_event("loop.step.start", data).await?)
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

    async fn finish(&self, done: &Result<TurnResult, TurnError>) -> Result<(), TurnError> {
        let ctx = &self.ctx;
        let (status, error) = match done {
            Ok(_) => ("ok", None),
            Err(TurnError::Cancelled) => ("cancelled", None),
            Err(err) => ("error", Some(err.to_string())),
        };
        let elapsed_ms = millis(self.started.elapsed());
        let mut data = json!({"status": status, "steps": self.steps, "elapsed_ms": elapsed_ms});
        self.close_event(&mut data, error.as_deref());
        ctx.tape.append([NewEntry::event("loop.finish", data)]).await?;
        let mut event = RunFinished {
            state: ctx.state.clone(),
            tape: ctx.tape.clone(),
            status,
            steps: self.steps,
            elapsed_ms,
            error,
        };
        emit(ctx, &mut event).await
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
