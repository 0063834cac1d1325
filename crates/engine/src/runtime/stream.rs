//! A turn from outside.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bub_kernel::turn::{TurnError, TurnEvent, TurnResult};
use futures::Stream;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::turn::Done;

/// A turn, as its caller sees it: its events, and in the end its result. Dropping it cancels the turn.
#[derive(Debug)]
pub struct TurnStream {
    pub(super) events: mpsc::Receiver<TurnEvent>,
    pub(super) outcome: oneshot::Receiver<Done>,
    pub(super) cancel: CancellationToken,
}

impl TurnStream {
    /// The next event; `None` when the turn has ended.
    pub async fn next(&mut self) -> Option<TurnEvent> {
        self.events.recv().await
    }

    /// Cancels the turn: its calls are stopped and recorded, then it ends with
    /// [`TurnError::Cancelled`].
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Cancels the turn and waits until it has ended and is recorded.
    ///
    /// # Errors
    /// What ended the turn, [`TurnError::Cancelled`] unless it had ended before.
    pub async fn close(self) -> Result<TurnResult, TurnError> {
        self.cancel();
        self.result().await
    }

    /// Waits for the end; events that were not read are passed over.
    ///
    /// # Errors
    /// What ended the turn early.
    pub async fn result(self) -> Result<TurnResult, TurnError> {
        self.done().await.result
    }

    /// Waits for the end, with what is to be sent.
    pub(crate) async fn done(mut self) -> Done {
        while self.events.recv().await.is_some() {}
        (&mut self.outcome).await.unwrap_or_else(|_| {
            let lost = TurnError::Invalid("the turn ended without a result (a panic; see the log)".to_owned());
            Done { result: Err(lost), outbound: Vec::new() }
        })
    }
}

impl Stream for TurnStream {
    type Item = TurnEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<TurnEvent>> {
        self.events.poll_recv(cx)
    }
}

impl Drop for TurnStream {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
