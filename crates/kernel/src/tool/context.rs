//! What a tool may touch.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use tokio_util::sync::CancellationToken;

use super::ToolSet;
use crate::{
    environment::Environment,
    event::EventBus,
    hooks::ToolView,
    tape::Tape,
    task::TaskScope,
    turn::{EventSink, Host, RunId, SessionId, TurnState},
};

/// Who calls a tool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Caller {
    /// The model, directly.
    Model,
    /// Code that the model wrote.
    Code,
    /// A person.
    Command,
}

/// What a cancelled call leaves: a tool that has something to show before its end says how to get it,
/// and the executor puts it into the result when it has to drop the call. Each call has its own.
#[derive(Clone, Default)]
pub struct PartialResult(Arc<OnceLock<Box<dyn Fn() -> String + Send + Sync>>>);

impl PartialResult {
    /// Says how to get the text so far; the first to say it counts.
    pub fn offer(&self, text: impl Fn() -> String + Send + Sync + 'static) {
        // A second tool in the same call would only repeat the first one's part.
        drop(self.0.set(Box::new(text)));
    }

    /// The text so far; empty when there is none.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.get().map(|text| text()).unwrap_or_default()
    }
}

impl fmt::Debug for PartialResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PartialResult").field(&self.0.get().is_some()).finish()
    }
}

/// What a tool may touch. Cheap to clone.
#[derive(Clone)]
pub struct ToolContext {
    /// The session's tape: in a turn, the turn's fork of it.
    pub tape: Tape,
    /// Where to run processes and touch files.
    pub env: Arc<dyn Environment>,
    /// Who calls.
    pub caller: Caller,
    /// The provider's id of this call; empty for commands.
    pub call: String,
    /// Cancelled when the call should stop. The executor drops the call then; only work that is not
    /// part of the call's future needs to look.
    pub cancel: CancellationToken,
    /// Handlers of the run's events.
    pub events: Arc<EventBus>,
    /// Where to report progress.
    pub sink: EventSink,
    /// The session's tasks, for what outlives the call.
    pub tasks: TaskScope,
    /// Which session.
    pub session: SessionId,
    /// Which model call, or `run_command`.
    pub run: RunId,
    /// All tools of this agent.
    pub tools: Arc<ToolSet>,
    /// The tools of the step that the call belongs to, as all hooks left them; `None` for commands,
    /// which belong to no step. A call by code reaches exactly the tools of its `code`.
    pub step: Option<Arc<ToolView>>,
    /// What a call leaves when it is cancelled before its end.
    pub partial: PartialResult,
    /// What the turn carries. Settings change by tape events, from the next turn on.
    pub state: Arc<TurnState>,
    /// What to ask of the engine.
    pub host: Arc<dyn Host>,
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext")
            .field("session", &self.session)
            .field("run", &self.run)
            .field("caller", &self.caller)
            .field("call", &self.call)
            .finish_non_exhaustive()
    }
}
