//! Handing events to the embedder's handlers.

use std::panic::AssertUnwindSafe;

use bub_kernel::{event::Event, tool::ToolContext, turn::TurnError};
use futures::FutureExt as _;

use crate::policy::panic_text;

/// Hands an event to the handlers; their failure, or panic, ends the turn.
pub(crate) async fn emit<E: Event>(ctx: &ToolContext, event: &mut E) -> Result<(), TurnError> {
    match AssertUnwindSafe(ctx.events.emit(event)).catch_unwind().await {
        Ok(done) => done.map_err(|err| TurnError::Handler(err.to_string())),
        Err(panic) => Err(TurnError::Handler(format!("it panicked: {}", panic_text(&*panic)))),
    }
}
