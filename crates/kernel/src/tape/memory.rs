//! Tapes in memory, for embedding, tests and forks.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;

use super::{Entry, TapeError, TapeName, TapeQuery, TapeStats, TapeStore};

/// Tapes that live as long as the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    tapes: Mutex<BTreeMap<TapeName, Vec<Arc<Entry>>>>,
}

impl MemoryStore {
    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<TapeName, Vec<Arc<Entry>>>) -> T) -> T {
        work(&mut self.tapes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Appends `entries`, numbered on from the last.
pub(super) fn push_numbered(tape: &mut Vec<Arc<Entry>>, entries: &[Arc<Entry>]) {
    let mut id = tape.last().map_or(0, |it| it.id);
    tape.extend(entries.iter().map(|it| {
        id += 1;
        Arc::new(Entry { id, ..Entry::clone(it) })
    }));
}

/// Counts entries in memory.
pub(super) fn stats_of(entries: &[Arc<Entry>]) -> TapeStats {
    let last = entries.iter().rposition(|it| it.is_anchor(None));
    TapeStats {
        entries: entries.len() as u64,
        anchors: entries.iter().filter(|it| it.is_anchor(None)).count() as u64,
        last_anchor: last.and_then(|idx| entries.get(idx)?.name().map(str::to_owned)),
        entries_since_last_anchor: last.map_or(entries.len(), |idx| entries.len() - idx - 1) as u64,
        last_id: entries.last().map_or(0, |it| it.id),
    }
}

#[async_trait]
impl TapeStore for MemoryStore {
    async fn list(&self) -> Result<Vec<TapeName>, TapeError> {
        Ok(self.with(|tapes| tapes.keys().filter(|it| it.is_session()).cloned().collect()))
    }

    async fn read(&self, tape: &TapeName, query: &TapeQuery) -> Result<Vec<Arc<Entry>>, TapeError> {
        self.with(|tapes| query.select(tapes.get(tape).map(Vec::as_slice).unwrap_or_default()))
    }

    async fn stats(&self, tape: &TapeName) -> Result<TapeStats, TapeError> {
        Ok(self.with(|tapes| stats_of(tapes.get(tape).map(Vec::as_slice).unwrap_or_default())))
    }

    async fn append(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError> {
        if !entries.is_empty() {
            self.with(|tapes| push_numbered(tapes.entry(tape.clone()).or_default(), entries));
        }
        Ok(())
    }

    async fn replace(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError> {
        self.with(|tapes| {
            tapes.remove(tape);
            if !entries.is_empty() {
                push_numbered(tapes.entry(tape.clone()).or_default(), entries);
            }
        });
        Ok(())
    }
}
