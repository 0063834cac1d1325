//! Where messages come from and go to.

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::turn::{Inbound, Outbound, TurnEvent};

/// What to do with a message that arrives while turns run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admission {
    /// Start a turn now.
    Process,
    /// Ignore the message.
    Drop,
    /// Start a turn when the running one has ended.
    FollowUp,
    /// Hand the message to the running turn.
    Steer,
}

/// The turns of one session at this moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TurnSnapshot {
    /// Turns that run.
    pub running: usize,
    /// Messages that wait for a turn.
    pub pending: usize,
    /// Messages that wait for the running turn's next step.
    pub steering: usize,
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

/// One way in and out.
#[async_trait]
pub trait Channel: Send + Sync {
    /// Its name in settings and envelopes.
    fn name(&self) -> &str;
    /// Listens until `cancel`; returning early is a failure.
    async fn run(&self, inbox: Inbox, cancel: CancellationToken) -> Result<(), ChannelError>;
    /// Delivers one message.
    async fn send(&self, outbound: Outbound) -> Result<(), ChannelError>;
    /// Sees a turn's events as they happen.
    fn observe(&self, _inbound: &Inbound, _event: &TurnEvent) {}
}
