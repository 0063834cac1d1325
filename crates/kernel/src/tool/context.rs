//! What a tool may touch.

use std::{fmt, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::ToolSet;
use crate::{
    environment::Environment,
    event::EventBus,
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
