//! The messages of one session, in order.

use std::{sync::Arc, time::Duration};

use bub_kernel::{
    channel::Channel,
    turn::{Inbound, SessionId},
};
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    time::{Instant, sleep_until},
};

use super::{HandlerKey, HandlerMap, Inner, admission::admit, debounce::Debounce, delivery::notice};

/// Messages of one session that its handler has not looked at; a hook may keep it busy.
const QUEUE_CAPACITY: usize = 64;
/// Sessions that may be busy at the same time.
const MAX_HANDLERS: usize = 4096;
/// How long a handler waits for another message before it ends.
const IDLE: Duration = Duration::from_secs(60);

/// The handlers that run.
#[derive(Default)]
pub(super) struct Handlers {
    map: HandlerMap,
}

impl Handlers {
    /// Gives a message to the handler of its session.
    pub(super) fn hand_over(&mut self, gateway: &Arc<Inner>, channel: &Arc<dyn Channel>, inbound: Inbound) {
        let SessionId(session) = inbound.own_session();
        let key: HandlerKey = (inbound.channel.clone(), session);
        let inbound = match self.map.get(&key).map(|it| it.try_send(inbound.clone())) {
            Some(Ok(())) => return,
            Some(Err(TrySendError::Full(inbound))) => {
                let text = format!("{QUEUE_CAPACITY} messages are waiting already; this one was not taken");
                return notice(gateway, channel, &inbound, text);
            }
            // None yet, or it has just ended.
            Some(Err(TrySendError::Closed(_))) | None => inbound,
        };
        self.map.retain(|_, it| !it.is_closed());
        if self.map.len() >= MAX_HANDLERS {
            let text = format!("{MAX_HANDLERS} conversations are busy already; this message was not taken");
            return notice(gateway, channel, &inbound, text);
        }
        let (tx, rx) = mpsc::channel(QUEUE_CAPACITY);
        drop(tx.try_send(inbound));
        self.map.insert(key, tx);
        gateway.handling.spawn_to_end(handle(gateway.clone(), channel.clone(), rx));
    }
}

/// Admits the messages of one session, one after the other, until none come any more.
async fn handle(gateway: Arc<Inner>, channel: Arc<dyn Channel>, mut arrivals: mpsc::Receiver<Inbound>) {
    let closing = gateway.handling.token().clone();
    let mut gathering = channel.needs_debounce().then(|| Debounce::new(gateway.debounce));
    let mut used = Instant::now();
    loop {
        let due = gathering.as_ref().and_then(Debounce::due);
        let inbound = tokio::select! {
            biased;
            () = closing.cancelled() => break,
            () = sleep_until(due.unwrap_or(used)), if due.is_some() => gathering.as_mut().and_then(Debounce::fire),
            arrived = arrivals.recv() => match arrived {
                None => break,
                Some(inbound) => {
                    used = Instant::now();
                    match &mut gathering {
                        Some(it) if !gateway.is_command(&inbound) => it.take_in(inbound, used),
                        _ => Some(inbound),
                    }
                }
            },
            () = sleep_until(used + IDLE) => {
                used = Instant::now();
                if gathering.as_ref().is_none_or(|it| it.is_idle(used)) {
                    // What was sent in this moment is still taken; then there is no more.
                    arrivals.close();
                }
                None
            }
        };
        if let Some(inbound) = inbound {
            tokio::select! {
                biased;
                () = closing.cancelled() => {
                    leave(&gateway, Some(inbound));
                    break;
                }
                () = admit(&gateway, &channel, inbound.clone()) => (),
            }
        }
    }
    leave(&gateway, gathering.as_mut().and_then(Debounce::fire));
    while let Ok(inbound) = arrivals.try_recv() {
        leave(&gateway, Some(inbound));
    }
}

/// Keeps a message that is not answered because the gateway closes, so that its sender can be told.
fn leave(gateway: &Inner, inbound: Option<Inbound>) {
    if let Some(inbound) = inbound {
        gateway.left.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(inbound);
    }
}
