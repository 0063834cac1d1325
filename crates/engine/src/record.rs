//! What is written of a step: what is foreseen before it runs, and what came of it.

use bub_kernel::{
    error::ErrorKind,
    event::ChatFinished,
    message::{Message, ToolCallRequest},
    tape::NewEntry,
    turn::{TurnError, TurnEvent},
};
use serde_json::{Value, json};

use crate::{
    events::emit,
    executor::object_of,
    step::{Answer, Step, put},
};

/// The result of a call whose process ended before it did.
const INTERRUPTED_CALL: &str =
    "interrupted: the process ended while this call was running; it may have taken effect in part or in whole";

/// What a step writes to the tape, in one append.
pub(crate) struct Record<'a> {
    pub(crate) step: &'a Step<'a>,
    pub(crate) system: Option<String>,
    pub(crate) new_messages: Vec<Message>,
    pub(crate) results: Vec<Value>,
    /// What failed, as tapes have it.
    pub(crate) error: Option<Value>,
    /// Why the conversation could not be read.
    pub(crate) context_error: Option<String>,
}

impl<'a> Record<'a> {
    pub(crate) fn new(step: &'a Step<'a>, new_messages: Vec<Message>) -> Self {
        Self { step, system: None, new_messages, results: Vec::new(), error: None, context_error: None }
    }

    /// Says what is to be on the tape if the process ends now: what was said, and for each call that it
    /// was interrupted.
    pub(crate) async fn foresee(&self, answer: &Answer) {
        let results = vec![Value::String(INTERRUPTED_CALL.to_owned()); answer.calls.len()];
        let kind = ErrorKind::Temporary.as_str();
        let error = json!({"kind": kind, "message": "interrupted: the process ended during this step"});
        self.step.ctx.tape.foresee(self.entries(answer, &results, Some(&error))).await;
    }

    /// Records the step, and then tells handlers of it.
    pub(crate) async fn write(&self, answer: &Answer) -> Result<(), TurnError> {
        let ctx = &self.step.ctx;
        ctx.tape.settle(self.entries(answer, &self.results, self.error.as_ref())).await?;
        if !ctx.events.wants::<ChatFinished>() {
            return Ok(());
        }
        let mut event = ChatFinished {
            state: ctx.state.clone(),
            tape: ctx.tape.clone(),
            run: ctx.run.clone(),
            model: self.model(answer).to_owned(),
            system_prompt: self.system.clone(),
            new_messages: self.new_messages.clone(),
            response_text: is_complete(&self.results, self.error.as_ref()).then(|| answer.words().to_owned()),
            tool_calls: answer.calls.clone(),
            tool_results: self.results.clone(),
            usage: answer.usage,
            provider: self.provider(answer).to_owned(),
            assistant_parts: answer.parts.clone(),
            error: self.error.as_ref().and_then(|it| it.get("message")?.as_str()).map(str::to_owned),
            context_error: self.context_error.clone(),
        };
        emit(ctx, &mut event).await
    }

    /// Records a step that failed. When that fails too, both are told; the first failure is the step's.
    pub(crate) async fn write_failed(&mut self, answer: &Answer, err: TurnError) -> TurnError {
        self.error = Some(error_value(&err));
        if let Err(second) = self.write(answer).await {
            tracing::error!(error = %second, "a failed step was not recorded, or not told of");
            let message = format!("after the step had failed: {second}");
            self.step.sink.send(TurnEvent::Error { kind: "unknown", message }).await;
        }
        err
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
        put(&mut data, "model", self.model(answer));
        if let Some(answered_by) = &answer.answered_by {
            put(&mut data, "answered_by", answered_by.clone());
        }
        if let Some(why) = answer.cut_off() {
            put(&mut data, "cut_off", why);
        }
        if !answer.attempts.is_empty() {
            put(&mut data, "attempts", answer.attempts.clone());
        }
        data
    }

    /// `provider:model` that was asked.
    fn model<'b>(&'b self, answer: &'b Answer) -> &'b str {
        answer.redirected.as_deref().unwrap_or(self.step.model)
    }

    /// The provider that answered.
    fn provider<'b>(&'b self, answer: &'b Answer) -> &'b str {
        let model = answer.answered_by.as_deref().unwrap_or_else(|| self.model(answer));
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
pub(crate) fn error_value(err: &TurnError) -> Value {
    let kind = match err {
        TurnError::Model(err) => err.kind(),
        TurnError::Cancelled => ErrorKind::Temporary,
        _ => ErrorKind::Unknown,
    };
    json!({"kind": kind.as_str(), "message": err.to_string()})
}
