//! Entries one by one, read on a thread of its own.

use std::sync::Arc;

use bub_kernel::tape::{Entry, EntryStream, TapeError, TapeName, TapeQuery};
use futures::{StreamExt as _, stream};
use tokio::sync::mpsc;

use super::Inner;

/// Entries that are handed over at a time: one by one the threads would wait for each other most of the
/// time.
const BATCH: usize = 64;
/// Batches that are read before they are asked for.
const AHEAD: usize = 2;

type Batch = Vec<Result<Arc<Entry>, TapeError>>;

/// The entries that a query selects. Reading begins when the first is asked for, and ends soon after the
/// stream is dropped.
pub(super) fn entries<'a>(store: Arc<Inner>, tape: TapeName, query: TapeQuery) -> EntryStream<'a> {
    let begin = async move {
        let (tx, rx) = mpsc::channel(AHEAD);
        drop(tokio::task::spawn_blocking(move || send(&store, &tape, &query, &tx)));
        stream::unfold(rx, async |mut rx| rx.recv().await.map(|it| (stream::iter(it), rx)))
    };
    stream::once(begin).flatten().flatten().boxed()
}

fn send(store: &Inner, tape: &TapeName, query: &TapeQuery, tx: &mpsc::Sender<Batch>) {
    let mut batch = Batch::new();
    let done = store.visit(tape, query, |entry| {
        batch.push(Ok(entry));
        // The first ones go at once: somebody waits for them.
        let is_due = batch.len() >= BATCH || tx.capacity() == AHEAD;
        !is_due || tx.blocking_send(std::mem::take(&mut batch)).is_ok()
    });
    if let Err(err) = done {
        batch.push(Err(err));
    }
    // Nobody listens any more: nobody is to be told.
    drop(tx.blocking_send(batch));
}
