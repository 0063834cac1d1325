//! Takes the messages of channels, decides what becomes of them, runs turns and sends the answers.
//!
//! A message passes three places. The *handler* of its session puts messages in order and, for channels
//! that ask for it, makes one of those that come close together. *Admission* decides whether a message
//! starts a turn, waits for one, or goes to the one that runs. The *turn* runs on the
//! [`Runtime`], is shown to the channel, and its answer is sent.
//!
//! Nothing here holds a message without a limit: each queue is bounded, and who sends more is told so.

mod admission;
mod choice;
mod debounce;
mod delivery;
mod handler;
mod turns;

use std::{
    collections::HashMap,
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use bub_kernel::{
    channel::{Channel, ChannelError, ChannelKind, Inbox},
    task::TaskScope,
    turn::Inbound,
};
use futures::FutureExt as _;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use self::choice::{ChannelChoice, choose_channels};
use self::{debounce::DebounceSettings, delivery::stop_notices, handler::Handlers};
use crate::{
    command,
    runtime::{Runtime, TurnOptions},
};

/// Messages that have arrived and were not looked at; a channel that brings more waits.
const INBOX_CAPACITY: usize = 256;

/// How a gateway treats messages and answers.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// How long to wait for more after a message that is addressed to the agent.
    pub debounce: Duration,
    /// How long to wait for more after one that is not, while a conversation goes on.
    pub max_wait: Duration,
    /// How long after a message that is addressed to the agent a conversation goes on.
    pub active_window: Duration,
    /// Whether channels see the events of turns.
    pub stream: bool,
    /// What each turn is given.
    pub options: TurnOptions,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            debounce: Duration::from_secs(1),
            max_wait: Duration::from_secs(10),
            active_window: Duration::from_secs(60),
            stream: false,
            options: TurnOptions::default(),
        }
    }
}

/// Why a gateway ended by itself.
#[derive(Debug, thiserror::Error)]
#[error("no channel listens any more: {}", .failures.join("; "))]
pub struct GatewayError {
    /// What ended each channel that failed.
    pub failures: Vec<String>,
}

/// Channels and the turns on their messages.
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<Inner>,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.inner.channels.iter().map(|it| it.name()).collect();
        f.debug_struct("Gateway").field("channels", &names).finish_non_exhaustive()
    }
}

/// What all parts of a gateway share.
struct Inner {
    runtime: Runtime,
    channels: Vec<Arc<dyn Channel>>,
    debounce: DebounceSettings,
    stream: bool,
    options: TurnOptions,
    /// The handlers of sessions.
    handling: TaskScope,
    /// The turns.
    turns: TaskScope,
    /// Messages that closing kept from being answered.
    left: Mutex<Vec<Inbound>>,
}

impl Inner {
    fn channel(&self, name: &str) -> Option<&Arc<dyn Channel>> {
        self.channels.iter().find(|it| it.name() == name)
    }

    /// Whether a message is a command, which never waits for others.
    fn is_command(&self, inbound: &Inbound) -> bool {
        let prefix = self.runtime.inner.settings.command_prefix.as_deref();
        prefix.is_some_and(|prefix| inbound.prompt.as_text().is_some_and(|it| command::line_of(it, prefix).is_some()))
    }
}

impl Gateway {
    /// A gateway over these channels; of two with the same name the first counts.
    #[must_use]
    pub fn new(runtime: Runtime, channels: Vec<Arc<dyn Channel>>, settings: GatewaySettings) -> Self {
        let GatewaySettings { debounce, max_wait, active_window, stream, options } = settings;
        let mut unique: Vec<Arc<dyn Channel>> = Vec::new();
        for channel in channels {
            if !unique.iter().any(|it| it.name() == channel.name()) {
                unique.push(channel);
            }
        }
        let inner = Inner {
            runtime,
            channels: unique,
            debounce: DebounceSettings { debounce, max_wait, active_window },
            stream,
            options,
            handling: TaskScope::default(),
            turns: TaskScope::default(),
            left: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Listens and answers until `cancel`, or until no channel is left that brings messages. In the end
    /// turns are cancelled and recorded, whoever still waits for an answer is told, and channels stop; each
    /// of these within a limit. To be run once.
    ///
    /// # Errors
    /// When all channels have ended and some of them failed.
    pub async fn run(&self, cancel: CancellationToken) -> Result<(), GatewayError> {
        let inner = &self.inner;
        let listening = TaskScope::default();
        // A caller that drops this future leaves nothing running.
        let _guards = [&listening, &inner.handling, &inner.turns].map(|it| it.token().clone().drop_guard());
        let (inbox, mut arrivals) = Inbox::new(INBOX_CAPACITY);
        let (tx, mut ended) = mpsc::channel(inner.channels.len().max(1));
        for channel in &inner.channels {
            let (channel, inbox, stop, tx) = (channel.clone(), inbox.clone(), listening.token().clone(), tx.clone());
            listening.spawn_to_end(async move {
                let done = AssertUnwindSafe(channel.run(inbox, stop)).catch_unwind().await;
                drop(tx.send((channel, done.unwrap_or_else(|_| Err(panicked())))).await);
            });
        }
        drop((inbox, tx));

        let is_source = |it: &Arc<dyn Channel>| it.kind() != ChannelKind::Lifecycle;
        let mut n_sources = inner.channels.iter().filter(|it| is_source(it)).count();
        let mut failures = Vec::new();
        let mut handlers = Handlers::default();
        loop {
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                Some(inbound) = arrivals.recv() => self.dispatch(inbound, &mut handlers),
                Some((channel, done)) = ended.recv() => {
                    if let Some(failure) = failure(&*channel, done) {
                        tracing::error!("{failure}");
                        failures.push(failure);
                    }
                    n_sources -= usize::from(is_source(&channel)).min(n_sources);
                    if n_sources == 0 {
                        break;
                    }
                }
                else => break,
            }
        }
        drop(handlers);
        self.shut_down(&mut arrivals, &listening).await;
        if cancel.is_cancelled() || failures.is_empty() { Ok(()) } else { Err(GatewayError { failures }) }
    }

    /// Gives a message to its session's handler.
    fn dispatch(&self, inbound: Inbound, handlers: &mut Handlers) {
        match self.inner.channel(&inbound.channel) {
            Some(channel) => handlers.hand_over(&self.inner, channel, inbound),
            None => tracing::warn!(channel = inbound.channel, "a message of an unknown channel is ignored"),
        }
    }

    async fn shut_down(&self, arrivals: &mut mpsc::Receiver<Inbound>, listening: &TaskScope) {
        let inner = &self.inner;
        arrivals.close();
        inner.handling.close().await;
        inner.turns.close().await;
        let mut waiting = inner.runtime.inner.sessions.take_waiting();
        while let Ok(inbound) = arrivals.try_recv() {
            waiting.push(inbound);
        }
        stop_notices(inner, waiting).await;
        listening.close().await;
    }
}

/// Why a channel that ended has failed, if it has.
fn failure(channel: &dyn Channel, done: Result<(), ChannelError>) -> Option<String> {
    match done {
        // A person has left it.
        Ok(()) if channel.kind() == ChannelKind::Interface => None,
        Ok(()) => Some(format!("channel '{}' ended without being told to", channel.name())),
        Err(err) => Some(format!("channel '{}' failed: {err}", channel.name())),
    }
}

fn panicked() -> ChannelError {
    ChannelError::Other("it panicked; see the log".into())
}

/// A key for the handler of a session's messages, before hooks have said which session that is.
type HandlerKey = (String, String);

/// The open ends of handlers.
type HandlerMap = HashMap<HandlerKey, mpsc::Sender<Inbound>>;
