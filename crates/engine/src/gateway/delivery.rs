//! What is sent to channels. A channel that fails, panics or hangs holds up nobody for longer than a limit.

use std::{error::Error, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use bub_kernel::{
    channel::{Channel, ChannelError},
    hooks::HookError,
    text::elide,
    turn::{Inbound, Outbound, OutboundKind, SessionId},
};
use futures::FutureExt as _;

use super::{Inner, panicked};
use crate::hook_stack::ADMISSION_LIMIT;

/// How long a channel may take to deliver one message.
const SEND_LIMIT: Duration = Duration::from_secs(30);
/// How long all notices of a closing gateway may take together.
const CLOSING_LIMIT: Duration = Duration::from_secs(3);
/// Characters of a message that is named in a notice.
const MAX_NAMED_CHARS: usize = 80;

/// Delivers a message; a failure is logged and told to hooks.
pub(super) async fn send(gateway: &Inner, channel: &Arc<dyn Channel>, outbound: Outbound) {
    let sending = AssertUnwindSafe(channel.send(outbound)).catch_unwind();
    let err = match tokio::time::timeout(SEND_LIMIT, sending).await {
        Ok(Ok(Ok(()))) => return,
        Ok(Ok(Err(err))) => err,
        Ok(Err(_)) => panicked(),
        Err(_) => ChannelError::Other(format!("not delivered within {} s", SEND_LIMIT.as_secs()).into()),
    };
    tracing::error!(channel = channel.name(), error = %err, "a message was not delivered");
    tell_hooks(gateway, "dispatch_outbound", &err, None).await;
}

/// Tells hooks and the person that something failed.
pub(super) async fn report(
    gateway: &Arc<Inner>,
    channel: &Arc<dyn Channel>,
    inbound: &Inbound,
    stage: &'static str,
    failure: &HookError,
) {
    tracing::error!(stage, error = %failure, "a message could not be handled as it should");
    tell_hooks(gateway, stage, failure, Some(inbound)).await;
    send_later(gateway, channel, error_of(inbound, inbound.own_session(), stage, failure));
}

/// Tells the person what has become of a message, without waiting for the delivery.
pub(super) fn notice(gateway: &Arc<Inner>, channel: &Arc<dyn Channel>, inbound: &Inbound, text: String) {
    tracing::warn!(channel = inbound.channel, chat = inbound.chat, "{text}");
    send_later(gateway, channel, to_sender(inbound, inbound.own_session(), text, OutboundKind::Notice));
}

/// Tells those whose messages were not answered that the gateway closes.
pub(super) async fn stop_notices(gateway: &Arc<Inner>, waiting: Vec<Inbound>) {
    let mut left = std::mem::take(&mut *gateway.left.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    left.extend(waiting);
    let notices = left.iter().filter_map(|inbound| {
        let channel = gateway.channel(&inbound.channel)?;
        let words = inbound.prompt.to_message().joined_text();
        let text = format!("not answered, since bub stops: {}", elide(words.trim(), MAX_NAMED_CHARS));
        Some(send(gateway, channel, to_sender(inbound, inbound.own_session(), text, OutboundKind::Notice)))
    });
    if tokio::time::timeout(CLOSING_LIMIT, futures::future::join_all(notices)).await.is_err() {
        tracing::warn!("not everybody could be told that their message was not answered");
    }
}

async fn tell_hooks(gateway: &Inner, stage: &'static str, err: &(dyn Error + Send + Sync), inbound: Option<&Inbound>) {
    let telling = gateway.runtime.inner.hooks.on_error(stage, err, inbound);
    if tokio::time::timeout(ADMISSION_LIMIT, telling).await.is_err() {
        tracing::error!(stage, "a hook did not take in an error within {} s", ADMISSION_LIMIT.as_secs());
    }
}

fn send_later(gateway: &Arc<Inner>, channel: &Arc<dyn Channel>, outbound: Outbound) {
    let (gateway, channel) = (gateway.clone(), channel.clone());
    gateway.turns.clone().spawn(async move { send(&gateway, &channel, outbound).await });
}

/// The message that something failed, for the sender of a message.
pub(super) fn error_of(inbound: &Inbound, session: SessionId, stage: &'static str, err: &dyn Error) -> Outbound {
    let text = format!("An error occurred at stage '{stage}': {err}");
    to_sender(inbound, session, text, OutboundKind::Error { stage })
}

fn to_sender(inbound: &Inbound, session: SessionId, text: String, kind: OutboundKind) -> Outbound {
    Outbound { channel: inbound.channel.clone(), chat: inbound.chat.clone(), session, text, kind }
}
