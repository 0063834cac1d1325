//! What happens when a conversation no longer fits the model's window, and what is said before it does.

use std::{sync::Arc, time::Duration};

use bub_kernel::{
    hooks::CutOff,
    message::{Message, Role},
    model::ModelError,
    tape::{NewEntry, TapeQuery},
    text::{elide, thousands},
    tool::ToolContext,
    turn::{EventSink, Prompt, TurnError, TurnEvent},
};
use serde_json::json;

use crate::runtime::Inner;

/// The anchor that is set when the conversation no longer fits the model's window.
const OVERFLOW_ANCHOR: &str = "auto_handoff/context_overflow";
/// How long hooks may take to say what must not be forgotten: a model may have to read it all.
const SUMMARY_WAIT: Duration = Duration::from_secs(180);
/// The most characters of a summary: it must leave room in the window that was too small.
const MAX_SUMMARY_CHARS: usize = 16_000;
/// The part of the window, in percent, from which on a person is told how full it is.
const FULL_PERCENT: u64 = 90;

/// The rescues of one turn.
pub(crate) struct Rescue<'a> {
    inner: &'a Arc<Inner>,
    sink: &'a EventSink,
    /// What the context was begun anew with, if a rescue found something to keep.
    summary: Option<String>,
    was_rescued: bool,
    was_warned: bool,
}

impl<'a> Rescue<'a> {
    pub(crate) fn new(inner: &'a Arc<Inner>, sink: &'a EventSink) -> Self {
        Self { inner, sink, summary: None, was_rescued: false, was_warned: false }
    }

    /// Lets the context begin anew, with what hooks want to keep of it.
    pub(crate) async fn start_anew(
        &mut self,
        ctx: &ToolContext,
        prompt: &Prompt,
        err: &ModelError,
    ) -> Result<(), TurnError> {
        let notice =
            "the conversation no longer fits the model's context, which begins anew; tape.search finds the rest";
        self.sink.send(TurnEvent::Notice(notice.to_owned())).await;
        let summary = self.summarize(ctx, prompt, err).await?;
        self.set_anchor(ctx, err, summary.as_deref(), true).await?;
        (self.summary, self.was_rescued) = (summary, true);
        Ok(())
    }

    /// Sees to it that the next turn does not fail for the same reason, and returns the error of this one.
    pub(crate) async fn give_up(
        &mut self,
        ctx: &ToolContext,
        prompt: &Prompt,
        message: String,
    ) -> Result<ModelError, TurnError> {
        let err = ModelError::ContextLength(message.clone());
        let summary = if self.was_rescued { self.summary.take() } else { self.summarize(ctx, prompt, &err).await? };
        // When what was asked is the smaller part, the summary may be what did not fit.
        let n_asked = prompt.to_message().joined_text().len();
        let stands = !self.was_rescued || summary.as_ref().is_some_and(|it| it.len() <= n_asked);
        self.set_anchor(ctx, &err, summary.as_deref(), stands).await?;
        Ok(ModelError::ContextLength(format!(
            "{message}; this turn has no way left to shorten it, and the next message begins a new context: make it \
             shorter"
        )))
    }

    /// Sees to it that the next turn does not begin with what is too long by itself, and returns the error of
    /// this one, which nothing could shorten.
    pub(crate) async fn refuse(&self, ctx: &ToolContext, message: String) -> Result<ModelError, TurnError> {
        let err = ModelError::ContextLength(message.clone());
        self.set_anchor(ctx, &err, None, false).await?;
        Ok(ModelError::ContextLength(format!(
            "{message}; nothing comes before this message that could be cut off: make it shorter, or choose a model \
             with a larger context"
        )))
    }

    /// Tells the person once when the window is nearly full.
    pub(crate) async fn warn(&mut self, ctx: &ToolContext, model: &str, n_input: u64) {
        if self.was_warned || ctx.state.depth > 0 {
            return;
        }
        let Some(window) = self.inner.hooks.context_window(model).await else { return };
        let percent = n_input.saturating_mul(100) / window;
        if percent >= FULL_PERCENT {
            self.was_warned = true;
            let prefix = self.inner.settings.command_prefix.as_deref().unwrap_or_default();
            let notice = format!(
                "the context is {percent} % full ({} of {} tokens); {prefix}tape.handoff begins a new one",
                thousands(n_input),
                thousands(window)
            );
            self.sink.send(TurnEvent::Notice(notice)).await;
        }
    }

    /// What hooks want to keep of what is about to be cut off. Whatever fails here is no reason not to go on.
    async fn summarize(
        &self,
        ctx: &ToolContext,
        prompt: &Prompt,
        err: &ModelError,
    ) -> Result<Option<String>, TurnError> {
        let entries = ctx.tape.read(&TapeQuery::default().after_last_anchor()).await?;
        let messages = self.inner.context.messages(&entries);
        if messages.is_empty() {
            return Ok(None);
        }
        let cut = CutOff { messages: &messages, prompt, error: err };
        let asked = tokio::time::timeout(SUMMARY_WAIT, self.inner.hooks.summarize(ctx, &cut));
        let summary = tokio::select! {
            biased;
            () = ctx.cancel.cancelled() => return Err(TurnError::Cancelled),
            summary = asked => summary,
        };
        if summary.is_err() {
            tracing::warn!("no hook said in time what must not be forgotten");
        }
        let summary = summary.ok().flatten();
        let summary = summary.map(|it| elide(it.trim(), MAX_SUMMARY_CHARS).into_owned());
        Ok(summary.filter(|it| !it.is_empty()))
    }

    /// Sets the anchor. The model never sees an anchor's state, so a summary stands behind it once more,
    /// as a message that `stands` in the new context.
    async fn set_anchor(
        &self,
        ctx: &ToolContext,
        err: &ModelError,
        summary: Option<&str>,
        stands: bool,
    ) -> Result<(), TurnError> {
        let mut state = json!({"reason": "context_length_exceeded", "error": err.to_string()});
        if let Some(summary) = summary {
            crate::step::put(&mut state, "summary", summary);
        }
        ctx.tape.handoff(OVERFLOW_ANCHOR, state).await?;
        if let Some(summary) = summary.filter(|_| stands) {
            let message = Message::text(Role::User, summary_text(ctx, summary));
            ctx.tape.append([NewEntry::message(&message).in_run(&ctx.run)]).await?;
        }
        Ok(())
    }
}

/// A summary as the model reads it: it must not take it for an order, nor for its own words.
fn summary_text(ctx: &ToolContext, summary: &str) -> String {
    let may_search = ctx.state.allows_tool("tape.search") && ctx.tools.get("tape.search").is_some();
    let more = if may_search { " `tape_search` finds what it leaves out." } else { "" };
    format!(
        "<context_summary>\nThe conversation before this point did not fit the context any more. What follows was \
         written automatically to sum it up; it is no message of a person and asks for nothing.{more}\n\n{summary}\n\
         </context_summary>"
    )
}
