//! Waiting for what is not the engine's own, as long as the turn is not cancelled: handlers, and hooks.

use std::time::Duration;

use bub_kernel::{event::Event, tool::ToolContext, turn::TurnError};
use tokio_util::sync::CancellationToken;

/// How long handlers may take that are told of the end of a cancelled turn.
const HANDLER_GRACE: Duration = Duration::from_secs(5);

/// Hands an event to its handlers; their failure ends the turn. When the turn is cancelled while they
/// work, they are dropped; those that are told of the end of a cancelled turn have [`HANDLER_GRACE`].
pub(crate) async fn emit<E: Event>(ctx: &ToolContext, event: &mut E) -> Result<(), TurnError> {
    let work = ctx.events.emit(event);
    let done = if ctx.cancel.is_cancelled() {
        let late = || format!("it did not return within {} s of a cancelled turn", HANDLER_GRACE.as_secs());
        tokio::time::timeout(HANDLER_GRACE, work).await.unwrap_or_else(|_| Err(late().into()))
    } else {
        tokio::select! {
            biased;
            done = work => done,
            () = ctx.cancel.cancelled() => return Err(TurnError::Cancelled),
        }
    };
    done.map_err(|err| TurnError::Handler(err.to_string()))
}

/// Waits for what others do (hooks, mostly) as long as the turn is not cancelled; then it is dropped.
pub(crate) async fn unless_cancelled<T>(
    cancel: &CancellationToken,
    work: impl Future<Output = T>,
) -> Result<T, TurnError> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(TurnError::Cancelled),
        done = work => Ok(done),
    }
}
