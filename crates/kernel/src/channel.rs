//! Where messages come from and go to.

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::turn::{Inbound, Outbound, SessionId, TurnError, TurnEvent, TurnResult};

/// What to do with a message that arrives while turns run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Admission {
    /// Start a turn now, beside those that run.
    Process,
    /// Ignore the message.
    Drop,
    /// Start a turn when the running ones have ended, in the order of arrival; now, when none runs.
    FollowUp,
    /// Hand the message to the running turn, which takes it in its next step; as
    /// [`FollowUp`](Self::FollowUp) when none runs.
    Steer {
        /// Why, for the model to read.
        reason: Option<String>,
    },
}

/// The turns of one session at this moment. Commands do not count: they run at once, beside turns.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TurnSnapshot {
    /// Which session.
    pub session: SessionId,
    /// Turns that run.
    pub running: usize,
    /// Messages that wait for a turn.
    pub pending: usize,
    /// Messages that wait for the running turn's next step.
    pub steering: usize,
}

impl TurnSnapshot {
    /// Whether a turn runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running > 0
    }
}

/// Where a channel puts what it receives.
#[derive(Clone, Debug)]
pub struct Inbox(mpsc::Sender<Inbound>);

impl Inbox {
    /// Makes an inbox that holds `capacity` messages, and the end that takes them out.
    #[must_use]
    pub fn new(capacity: usize) -> (Self, mpsc::Receiver<Inbound>) {
        let (tx, rx) = mpsc::channel(capacity);
        (Self(tx), rx)
    }

    /// Hands one message over; waits while the inbox is full.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when nobody takes messages any more.
    pub async fn put(&self, inbound: Inbound) -> Result<(), ChannelError> {
        self.0.send(inbound).await.map_err(|_| ChannelError::Closed)
    }
}

/// Why a channel stopped or could not deliver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// Nobody listens any more.
    #[error("gateway is closed")]
    Closed,
    /// The other side failed.
    #[error("{0}")]
    Other(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What a channel is for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ChannelKind {
    /// It listens to people or programs elsewhere.
    #[default]
    Listener,
    /// A surface that a person uses, such as the terminal: on only when it is named.
    Interface,
    /// It runs in the background of the others, and brings no messages by itself.
    Lifecycle,
}

/// One way in and out. Its methods without `async` are called while turns run, so they must not wait.
#[async_trait]
pub trait Channel: Send + Sync {
    /// Its name in settings and envelopes.
    fn name(&self) -> &str;
    /// What it is for.
    fn kind(&self) -> ChannelKind {
        ChannelKind::Listener
    }
    /// Whether it is set up, so that it can listen.
    fn is_enabled(&self) -> bool {
        true
    }
    /// Whether messages that come close together are one message.
    fn needs_debounce(&self) -> bool {
        false
    }
    /// Listens until `cancel`; returning early is a failure, but for an interface that a person leaves.
    async fn run(&self, inbox: Inbox, cancel: CancellationToken) -> Result<(), ChannelError>;
    /// Delivers one message.
    async fn send(&self, outbound: Outbound) -> Result<(), ChannelError>;
    /// What to do with a message of its own that no hook decides on; `None` is to process it.
    fn admit(&self, _inbound: &Inbound, _now: &TurnSnapshot) -> Option<Admission> {
        None
    }
    /// Is told what has become of a message. One that waits is told again, as
    /// [`Process`](Admission::Process), when its own turn starts; one that a running turn takes is not.
    fn admitted(&self, _inbound: &Inbound, _admission: &Admission) {}
    /// Sees a turn's events as they happen, when output is streamed.
    fn observe(&self, _inbound: &Inbound, _event: &TurnEvent) {}
    /// Is given how the turn of a message ended, before its answer is sent.
    fn ended(&self, _inbound: &Inbound, _result: Result<TurnResult, TurnError>) {}
}
