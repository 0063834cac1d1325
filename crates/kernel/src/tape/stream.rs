//! Entries one by one.

use std::sync::Arc;

use futures::{StreamExt as _, stream, stream::BoxStream};

use super::{Entry, TapeError, TapeName, TapeQuery, TapeStore};

/// The entries that a query selects, in its order. After an error there are no more.
pub type EntryStream<'a> = BoxStream<'a, Result<Arc<Entry>, TapeError>>;

/// What [`TapeStore::read`] returns, one by one.
pub(super) fn of_read<'a>(
    store: &'a (impl TapeStore + ?Sized),
    tape: &'a TapeName,
    query: &'a TapeQuery,
) -> EntryStream<'a> {
    let entries = stream::once(store.read(tape, query)).map(|done| {
        let entries: Vec<_> = match done {
            Ok(entries) => entries.into_iter().map(Ok).collect(),
            Err(err) => vec![Err(err)],
        };
        stream::iter(entries)
    });
    entries.flatten().boxed()
}
