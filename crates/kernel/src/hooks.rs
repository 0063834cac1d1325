//! Watching and steering turns: what a plugin overrides.
//!
//! Every method has a default, so a hook implements only what it needs. How several hooks compose is
//! one of four words, given for each method:
//!
//! - *asked*: the first answer wins, highest rank first;
//! - *gathered*: all answers, lowest rank first;
//! - *chained*: highest rank first, each sees the changes of the one before; the first final step ends the chain;
//! - *observed*: all are told; nothing comes back.
//!
//! Rank is the order of registration: later ranks higher. [`HOOKS`] describes all of them; the page of
//! the reference is made from it.
//!
//! Hooks are isolated. One that panics, gives an answer that makes no sense, or takes longer than
//! [`HOOK_LIMIT`] where that holds, is logged, reported to [`Hooks::on_error`] and passed over; it is no
//! veto. What must hold even then is an event handler, whose failure ends the turn, or an
//! [`Environment`]. A hook that blocks its thread without ever waiting can't be helped.

mod points;

use std::{error::Error, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::Value;

pub use self::points::*;
use crate::{
    channel::{Admission, TurnSnapshot},
    environment::Environment,
    error::ToolError,
    message::{Message, TokenUsage, ToolCallRequest},
    model::{ModelError, ModelRequest},
    tape::Tape,
    tool::{Caller, DynTool, ToolContext, ToolReply},
    turn::{Inbound, Outbound, Prompt, SessionId, TurnState},
};

/// One tool call, before it runs.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// The provider's id of the call; empty for commands.
    pub id: String,
    /// The tool's runtime name (`fs.read`); for an unknown tool the name as given.
    pub tool: String,
    /// Its arguments, a JSON object; an empty one when the model wrote something else.
    pub args: Value,
    /// Who calls.
    pub caller: Caller,
}

/// What to do with a tool call.
#[derive(Clone, Debug, Default)]
pub enum ToolStep {
    /// Run it.
    #[default]
    Proceed,
    /// Give this result instead.
    Replace(ToolReply),
    /// Refuse it, with a sentence for the caller (or the default one).
    Deny(Option<String>),
}

/// What to do with a model call.
#[derive(Clone, Debug, Default)]
pub enum ModelStep {
    /// Make it.
    #[default]
    Proceed,
    /// Answer this instead.
    Finish(String),
}

/// The tools of one step.
#[derive(Clone, Default)]
pub struct ToolView {
    /// Offered to the model, in order.
    pub direct: Vec<Arc<dyn DynTool>>,
    /// Offered to the model's code only. In code mode hooks find here every tool that code may call,
    /// deferred ones included, and what they leave is what it can call; otherwise it is empty.
    pub code: Vec<Arc<dyn DynTool>>,
    /// Not offered: allowed tools that the model may load first. A hook that offers one takes it from here.
    pub deferred: Vec<Arc<dyn DynTool>>,
    /// Blocks to add to the system prompt.
    pub prompt: Vec<String>,
}

impl ToolView {
    /// Tools for the model, and nothing else.
    pub fn of(tools: impl IntoIterator<Item = Arc<dyn DynTool>>) -> Self {
        Self { direct: tools.into_iter().collect(), ..Self::default() }
    }
}

impl std::fmt::Debug for ToolView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = |tools: &[Arc<dyn DynTool>]| tools.iter().map(|it| it.spec().name.clone()).collect::<Vec<_>>();
        f.debug_struct("ToolView")
            .field("direct", &names(&self.direct))
            .field("code", &names(&self.code))
            .field("deferred", &names(&self.deferred))
            .finish_non_exhaustive()
    }
}

/// How a model call ended.
#[derive(Debug)]
pub struct ModelOutcome<'a> {
    /// What was sent; its `model` is `provider:model`.
    pub request: &'a ModelRequest,
    /// The answer's words.
    pub text: &'a str,
    /// The calls it asks for.
    pub tool_calls: &'a [ToolCallRequest],
    /// Tokens.
    pub usage: Option<&'a TokenUsage>,
    /// What went wrong.
    pub error: Option<&'a ModelError>,
    /// From the request to the end of the answer.
    pub duration: Duration,
}

/// What no longer fits the model's window, and is about to be left out of the context.
#[derive(Clone, Copy, Debug)]
pub struct CutOff<'a> {
    /// The messages, oldest first, as the model was sent them but for the system prompt and what was new.
    pub messages: &'a [Message],
    /// What is asked next.
    pub prompt: &'a Prompt,
    /// How the provider refused.
    pub error: &'a ModelError,
}

/// Watches and steers turns.
#[async_trait]
pub trait Hooks: Send + Sync {
    /// The name that `bub hooks` shows, and that logs have.
    fn name(&self) -> &str;
    /// The names of the methods that it implements, for `bub hooks`. All methods are called whether they
    /// stand here or not; a name that no hook has is reported when the runtime starts.
    fn implements(&self) -> &[&'static str];

    /// Which session a message belongs to. *Asked.* A gateway does not take a message for which a hook fails,
    /// or gives no answer within 5 s: it might come into another's session.
    async fn resolve_session(&self, _inbound: &Inbound) -> Option<SessionId> {
        None
    }
    /// What to do with a message, given the turns that run. *Asked*, by a gateway; a hook that fails, or gives
    /// no answer within 5 s, is reported, and the message processed.
    async fn admit(&self, _inbound: &Inbound, _now: &TurnSnapshot) -> Option<Admission> {
        None
    }
    /// Where a session's tools run; asked on its first turn. *Asked.*
    async fn environment(&self, _session: &SessionId) -> Option<Arc<dyn Environment>> {
        None
    }
    /// What the model is asked for a message. *Asked.*
    async fn build_prompt(&self, _state: &TurnState, _inbound: &Inbound) -> Option<Prompt> {
        None
    }
    /// A prompt for the next step of a running turn. *Asked.*
    async fn continue_prompt(&self, _state: &TurnState, _prompt: Option<&Prompt>, _tape: &Tape) -> Option<String> {
        None
    }
    /// Blocks of the system prompt. *Gathered.*
    async fn system_prompt(&self, _state: &TurnState) -> Option<String> {
        None
    }
    /// Fills the state of a turn. *Gathered*, so that a higher rank overrides.
    async fn load_state(&self, _inbound: &Inbound, _state: &mut TurnState) {}
    /// A turn with a model is about to begin on its tape, with its settings in the state; nested turns,
    /// whose state is a copy of the outer one's, included. The place to fill slots that are the turn's
    /// own. *Gathered.*
    async fn begin_turn(&self, _state: &mut TurnState, _prompt: &Prompt, _tape: &Tape) {}
    /// Is told the answer of a turn or command; empty when it failed. *Observed.*
    async fn save_state(&self, _state: &TurnState, _text: &str) {}
    /// What to send for an answer. *Gathered.*
    async fn render_outbound(&self, _state: &TurnState, _text: &str) -> Vec<Outbound> {
        Vec::new()
    }
    /// News for the model that no message carries, taken once, before a step. *Gathered.*
    async fn notices(&self, _state: &TurnState) -> Vec<String> {
        Vec::new()
    }
    /// What must not be forgotten of a conversation that no longer fits the model: it is kept in the state
    /// of the anchor that is about to be set, and stands at the beginning of the new context. *Asked.*
    async fn summarize(&self, _ctx: &ToolContext, _cut: &CutOff<'_>) -> Option<String> {
        None
    }
    /// The window of a model (`provider:model`) in tokens. *Asked.*
    async fn context_window(&self, _model: &str) -> Option<u64> {
        None
    }
    /// Which tools the model sees, and which only its code does. *Chained.*
    async fn choose_tools(&self, _state: &TurnState, _view: &mut ToolView) {}
    /// Before a model call. The request's `model` is `provider:model` here; another one sends the call
    /// there. What is recorded are the messages and the system prompt as they were before. *Chained.*
    async fn before_model(&self, _state: &TurnState, _request: &mut ModelRequest) -> ModelStep {
        ModelStep::Proceed
    }
    /// After a model call, failed ones included. *Observed*; not told of cancelled ones, nor of answers in
    /// the model's place.
    async fn after_model(&self, _state: &TurnState, _outcome: &ModelOutcome<'_>) {}
    /// Before a tool call, those of tools that do not exist included. Of the call, the arguments may be
    /// changed, and must stay an object. *Chained.*
    async fn before_tool(&self, _ctx: &ToolContext, _call: &mut ToolCall) -> ToolStep {
        ToolStep::Proceed
    }
    /// After a tool call; may change what the caller gets. *Chained*; not told of cancelled ones.
    async fn after_tool(&self, _ctx: &ToolContext, _call: &ToolCall, _result: &mut Result<ToolReply, ToolError>) {}
    /// Something failed: a turn (stage `turn`), a hook (stage `hook`, with a [`HookError`]), or a gateway's work
    /// on a message (`resolve_session`, `admit_message`, `dispatch_outbound`). *Observed.*
    async fn on_error(&self, _stage: &'static str, _err: &(dyn Error + Send + Sync), _inbound: Option<&Inbound>) {}
    /// The runtime closes: stop what outlived its call. *Observed.*
    async fn close(&self) {}
}
