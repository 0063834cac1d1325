//! What becomes of a message.

use std::{panic::AssertUnwindSafe, sync::Arc};

use bub_kernel::{
    channel::{Admission, Channel},
    turn::Inbound,
};

use super::{
    Inner,
    delivery::{notice, report},
    turns,
};
use crate::sessions::Queued;

/// Decides what becomes of a message, and does it.
pub(super) async fn admit(gateway: &Arc<Inner>, channel: &Arc<dyn Channel>, mut inbound: Inbound) {
    let (hooks, sessions) = (&gateway.runtime.inner.hooks, &gateway.runtime.inner.sessions);
    let session = match hooks.find_session(&inbound).await {
        Ok(found) => found.unwrap_or_else(|| inbound.own_session()),
        Err(failure) => return report(gateway, channel, &inbound, "resolve_session", &failure).await,
    };
    let is_command = gateway.is_command(&inbound);
    let now = sessions.snapshot(&session);
    let decided = match hooks.admit(&inbound, &now).await {
        Ok(decided) => decided.or_else(|| own_admission(&**channel, &inbound, &now)),
        Err(failure) => {
            report(gateway, channel, &inbound, "admit_message", &failure).await;
            None
        }
    };
    let decided = match decided.unwrap_or(Admission::Process) {
        // A turn would read a command as words.
        Admission::Steer { .. } if is_command => Admission::Process,
        decided => decided,
    };
    tracing::debug!(%session, ?decided, "message admitted");
    let steers = matches!(decided, Admission::Steer { .. });
    match &decided {
        Admission::Drop => return told(&**channel, &inbound, &decided),
        Admission::Process => {
            if !is_command {
                sessions.admit(&session);
            }
            return turns::start(gateway, channel, session, inbound, !is_command);
        }
        Admission::FollowUp => {}
        Admission::Steer { reason } => {
            let reason = reason.clone().map(|it| ("steering_reason".to_owned(), it));
            inbound.context.extend(reason);
        }
    }
    let original = inbound.clone();
    match sessions.queue(&session, inbound, steers) {
        Ok(Queued::Start(inbound)) => turns::start(gateway, channel, session, inbound, true),
        Ok(Queued::Steering) => told(&**channel, &original, &decided),
        Ok(Queued::Waiting) => told(&**channel, &original, &Admission::FollowUp),
        Err(full) => notice(gateway, channel, &original, format!("{full}; this one was not taken")),
    }
}

/// The channel's own say.
fn own_admission(
    channel: &dyn Channel,
    inbound: &Inbound,
    now: &bub_kernel::channel::TurnSnapshot,
) -> Option<Admission> {
    let asked = std::panic::catch_unwind(AssertUnwindSafe(|| channel.admit(inbound, now)));
    asked.unwrap_or_else(|_| {
        tracing::error!(channel = channel.name(), "channel panicked when asked to admit; the message is processed");
        None
    })
}

/// Tells the channel what has become of a message.
pub(super) fn told(channel: &dyn Channel, inbound: &Inbound, admission: &Admission) {
    if std::panic::catch_unwind(AssertUnwindSafe(|| channel.admitted(inbound, admission))).is_err() {
        tracing::error!(channel = channel.name(), "channel panicked when told of a message");
    }
}
