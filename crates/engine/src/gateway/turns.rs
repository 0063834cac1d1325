//! Turns on messages, one after the other where they wait for each other.

use std::{panic::AssertUnwindSafe, sync::Arc};

use bub_kernel::{
    channel::{Admission, Channel},
    turn::{Inbound, Outbound, OutboundKind, SessionId, TurnError},
};

use super::{
    Inner,
    admission::told,
    delivery::{error_of, send},
};
use crate::turn::{Done, Order, PromptForm};

/// Runs the turn of a message and those of the messages that wait for its end. A turn that is not counted
/// is a command: nothing waits for it.
pub(super) fn start(
    gateway: &Arc<Inner>,
    channel: &Arc<dyn Channel>,
    session: SessionId,
    inbound: Inbound,
    is_counted: bool,
) {
    let (gateway, channel) = (gateway.clone(), channel.clone());
    gateway.turns.clone().spawn_to_end(async move {
        let mut current = Some((channel, inbound));
        while let Some((channel, inbound)) = current.take() {
            told(&*channel, &inbound, &Admission::Process);
            let done = play(&gateway, &channel, &session, &inbound).await;
            // Before the channel hears of the end, so that it can tell whether another turn follows.
            let next = if is_counted { next(&gateway, &session) } else { None };
            let answers = answers(&session, &inbound, &done);
            ended(&*channel, &inbound, done);
            for outbound in answers {
                match gateway.channel(&outbound.channel) {
                    Some(target) => send(&gateway, target, outbound).await,
                    None => tracing::debug!(channel = outbound.channel, "no channel to send an answer to"),
                }
            }
            current = next;
        }
    });
}

/// The next message whose turn it is.
fn next(gateway: &Arc<Inner>, session: &SessionId) -> Option<(Arc<dyn Channel>, Inbound)> {
    let sessions = &gateway.runtime.inner.sessions;
    while let Some(inbound) = sessions.dismiss(session) {
        if gateway.turns.is_closed() {
            // It stays with those whose senders are told of the end.
            gateway.left.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(inbound);
        } else if let Some(channel) = gateway.channel(&inbound.channel) {
            return Some((channel.clone(), inbound));
        }
    }
    None
}

/// Runs one turn, showing it to its channel. When the gateway closes, it is cancelled and recorded.
async fn play(gateway: &Inner, channel: &Arc<dyn Channel>, session: &SessionId, inbound: &Inbound) -> Done {
    let closing = gateway.turns.token();
    let mut stream = gateway.runtime.order(Order {
        form: PromptForm::Message,
        inbound: inbound.clone(),
        options: gateway.options.clone(),
        session: Some(session.clone()),
        is_rendered: true,
    });
    let mut is_observed = gateway.stream;
    let mut is_cancelled = false;
    loop {
        let event = tokio::select! {
            biased;
            () = closing.cancelled(), if !is_cancelled => {
                is_cancelled = true;
                stream.cancel();
                continue;
            }
            event = stream.next() => event,
        };
        let Some(event) = event else { break };
        if is_observed && std::panic::catch_unwind(AssertUnwindSafe(|| channel.observe(inbound, &event))).is_err() {
            tracing::error!(channel = channel.name(), "channel panicked when shown a turn and is shown no more of it");
            is_observed = false;
        }
    }
    stream.done().await
}

/// Tells the channel how a turn ended.
fn ended(channel: &dyn Channel, inbound: &Inbound, done: Done) {
    if std::panic::catch_unwind(AssertUnwindSafe(|| channel.ended(inbound, done.result))).is_err() {
        tracing::error!(channel = channel.name(), "channel panicked when told of the end of a turn");
    }
}

/// What is to be sent after a turn: what hooks made of its answer, else the answer; or what went wrong.
fn answers(session: &SessionId, inbound: &Inbound, done: &Done) -> Vec<Outbound> {
    match &done.result {
        Ok(_) if !done.outbound.is_empty() => done.outbound.clone(),
        Ok(result) if result.answer.trim().is_empty() => Vec::new(),
        Ok(result) => vec![Outbound {
            channel: inbound.output.clone().unwrap_or_else(|| inbound.channel.clone()),
            chat: inbound.chat.clone(),
            session: session.clone(),
            text: result.answer.clone(),
            kind: OutboundKind::Answer,
        }],
        // Whoever cancelled it knows.
        Err(TurnError::Cancelled) => Vec::new(),
        Err(err) => vec![error_of(inbound, session.clone(), "turn", err)],
    }
}
