//! The terminal as a channel of the gateway.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use bub::{
    Runtime,
    kernel::{
        channel::{Admission, Channel, ChannelError, ChannelKind, Inbox, TurnSnapshot},
        turn::{Inbound, Outbound, OutboundKind, Prompt, SessionId, TurnError, TurnEvent, TurnResult},
    },
};
use tokio_util::sync::CancellationToken;

use super::{
    feed::{Feed, MessageId, News},
    talk::{Outcome, Talk},
};

/// The fact that carries a message's number; the model does not see it.
const NUMBER: &str = "_number";

/// A conversation to have.
#[derive(Debug)]
pub(crate) struct ChatSetup {
    /// Which session.
    pub(crate) session: SessionId,
    /// Which conversation of the channel.
    pub(crate) chat: String,
    /// What to say first.
    pub(crate) first: Option<String>,
    /// What stands in front of the prompt.
    pub(crate) label: String,
    /// What commands start with.
    pub(crate) prefix: String,
    /// Where lines are kept, if that is possible.
    pub(crate) history: Option<std::path::PathBuf>,
}

/// The channel `cli`.
pub(crate) struct ChatChannel {
    pub(super) setup: ChatSetup,
    pub(super) runtime: Runtime,
    pub(super) feed: Feed,
    n_messages: AtomicU64,
    outcome: Mutex<Outcome>,
}

impl ChatChannel {
    /// A conversation over a runtime.
    pub(crate) fn new(setup: ChatSetup, runtime: Runtime) -> Self {
        let (n_messages, outcome) = (AtomicU64::new(0), Mutex::new(Outcome::default()));
        Self { setup, runtime, feed: Feed::default(), n_messages, outcome }
    }

    /// How it ended.
    pub(crate) fn outcome(&self) -> Outcome {
        std::mem::take(&mut *self.outcome.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A message of the person's, with a new number.
    pub(super) fn message(&self, text: String) -> Inbound {
        let number = self.n_messages.fetch_add(1, Ordering::Relaxed);
        Inbound {
            session: Some(self.setup.session.clone()),
            context: vec![
                ("thread_id".to_owned(), self.setup.session.to_string()),
                (NUMBER.to_owned(), number.to_string()),
            ],
            local: true,
            ..Inbound::new("cli", self.setup.chat.clone(), Prompt::Text(text))
        }
    }

    fn is_command(&self, inbound: &Inbound) -> bool {
        inbound.prompt.as_text().is_some_and(|it| it.trim_start().starts_with(&self.setup.prefix))
    }
}

fn number(inbound: &Inbound) -> MessageId {
    let number = inbound.context.iter().find(|(key, _)| key == NUMBER);
    number.and_then(|(_, it)| it.parse().ok()).unwrap_or(MessageId::MAX)
}

#[async_trait]
impl Channel for ChatChannel {
    fn name(&self) -> &str {
        "cli"
    }

    fn kind(&self) -> ChannelKind {
        ChannelKind::Interface
    }

    async fn run(&self, inbox: Inbox, cancel: CancellationToken) -> Result<(), ChannelError> {
        let outcome = Talk::new(self, inbox).hold(cancel).await;
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = outcome;
        Ok(())
    }

    async fn send(&self, outbound: Outbound) -> Result<(), ChannelError> {
        // Answers and failures of turns are shown where turns are.
        if !matches!(outbound.kind, OutboundKind::Answer | OutboundKind::Error { stage: "turn" }) {
            self.feed.push(News::Sent(outbound));
        }
        Ok(())
    }

    fn admit(&self, inbound: &Inbound, now: &TurnSnapshot) -> Option<Admission> {
        (now.is_running() && !self.is_command(inbound)).then_some(Admission::Steer { reason: None })
    }

    fn admitted(&self, inbound: &Inbound, admission: &Admission) {
        let text = inbound.prompt.as_text().unwrap_or_default().to_owned();
        self.feed.push(News::Admitted(number(inbound), text, admission.clone()));
    }

    fn observe(&self, inbound: &Inbound, event: &TurnEvent) {
        self.feed.push(News::Event(number(inbound), event.clone()));
    }

    fn ended(&self, inbound: &Inbound, result: Result<TurnResult, TurnError>) {
        self.feed.push(News::Ended(number(inbound), result));
    }
}
