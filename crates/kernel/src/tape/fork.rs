//! A turn's private view of its tape.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use serde_json::json;

use super::{
    Archive, Entry, NewEntry, Slice, Tape, TapeError, TapeName, TapeQuery, TapeStats, TapeStore,
    memory::{push_numbered, stats_of},
};

/// A turn's private view: it reads through to the tape, and keeps what is written until it is
/// committed. Dropping it discards what it holds.
#[derive(Debug)]
pub struct TapeFork {
    parent: Tape,
    overlay: Arc<Overlay>,
    tape: Tape,
}

impl TapeFork {
    pub(super) fn new(parent: &Tape) -> Self {
        let overlay =
            Arc::new(Overlay { parent: parent.store.clone(), main: parent.name.clone(), pending: Mutex::default() });
        let tape = Tape { store: overlay.clone(), ..parent.clone() };
        Self { parent: parent.clone(), overlay, tape }
    }

    /// The tape to read from and write to.
    #[must_use]
    pub fn tape(&self) -> &Tape {
        &self.tape
    }

    /// Merges everything into the tape: sidecars first, then the tape itself, each in one step.
    ///
    /// # Errors
    /// When the tape itself can't be written. A sidecar that can't is recorded on the tape as a
    /// `sidecar.merge` event.
    pub async fn commit(self) -> Result<(), TapeError> {
        let mut pending = std::mem::take(&mut *self.overlay.lock());
        let mut main = pending.remove(&self.parent.name).unwrap_or_default();
        for (name, sidecar) in pending {
            if let Err(err) = merge(&*self.parent.store, &name, &sidecar).await {
                tracing::warn!(tape = %name, error = %err, "sidecar was not merged");
                let data = json!({"tape": name.as_str(), "status": "error", "error": err.to_string()});
                let event = NewEntry::event("sidecar.merge", data).outside_context();
                main.entries.push(Arc::new(event.dated(&*self.parent.clock)));
            }
        }
        merge(&*self.parent.store, &self.parent.name, &main).await
    }
}

async fn merge(store: &dyn TapeStore, tape: &TapeName, pending: &Pending) -> Result<(), TapeError> {
    match (pending.is_reset, pending.entries.is_empty()) {
        (true, _) => store.replace(tape, &pending.entries).await,
        (false, false) => store.append(tape, &pending.entries).await,
        (false, true) => Ok(()),
    }
}

/// What a fork holds for one tape.
#[derive(Debug, Default)]
struct Pending {
    /// Whether the parent's entries are hidden, and go when the fork is committed.
    is_reset: bool,
    /// New entries, with ids of their own until the parent numbers them.
    entries: Vec<Arc<Entry>>,
}

/// The store behind a fork's tape: pending entries over a parent. Other tapes than the forked one and
/// its sidecars are written through.
struct Overlay {
    parent: Arc<dyn TapeStore>,
    main: TapeName,
    pending: Mutex<BTreeMap<TapeName, Pending>>,
}

impl std::fmt::Debug for Overlay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Overlay").field("main", &self.main).finish_non_exhaustive()
    }
}

impl Overlay {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<TapeName, Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn holds(&self, tape: &TapeName) -> bool {
        *tape == self.main || tape.is_sidecar_of(&self.main)
    }

    /// The pending entries of a tape, and whether they hide the parent's.
    fn view(&self, tape: &TapeName) -> (bool, Vec<Arc<Entry>>) {
        self.lock().get(tape).map_or_else(Default::default, |it| (it.is_reset, it.entries.clone()))
    }
}

#[async_trait]
impl TapeStore for Overlay {
    async fn list(&self) -> Result<Vec<TapeName>, TapeError> {
        self.parent.list().await
    }

    async fn read(&self, tape: &TapeName, query: &TapeQuery) -> Result<Vec<Arc<Entry>>, TapeError> {
        let (is_reset, pending) = self.view(tape);
        if is_reset {
            return query.select(&pending);
        }
        if pending.is_empty() {
            return self.parent.read(tape, query).await;
        }
        let anchored = match &query.slice {
            Slice::All => false,
            Slice::AfterLastAnchor => pending.iter().any(|it| it.is_anchor(None)),
            Slice::AfterAnchor(name) => pending.iter().any(|it| it.is_anchor(Some(name))),
            Slice::Between(..) => {
                // The two anchors may lie on either side of the fork; this is rare enough to read all.
                let mut all = self.parent.read(tape, &TapeQuery::default()).await?;
                all.extend(pending);
                return query.select(&all);
            }
        };
        if anchored {
            return query.select(&pending);
        }
        // The slice is applied to the parent; all that is pending lies after its anchor.
        let rest = TapeQuery { slice: Slice::All, ..query.clone() };
        let new = rest.select(&pending)?;
        let stored = self.parent.read(tape, query).await?;
        let (first, second) = if query.newest_first { (new, stored) } else { (stored, new) };
        let both: Vec<_> = first.into_iter().chain(second).collect();
        // Each half was filtered; what is left is to count and to compare across the halves.
        let join = TapeQuery { limit: query.limit, distinct: query.distinct, ..TapeQuery::default() };
        join.select(&both)
    }

    async fn stats(&self, tape: &TapeName) -> Result<TapeStats, TapeError> {
        let (is_reset, pending) = self.view(tape);
        let new = stats_of(&pending);
        if is_reset {
            return Ok(new);
        }
        let old = self.parent.stats(tape).await?;
        let since = if new.anchors > 0 { 0 } else { old.entries_since_last_anchor };
        Ok(TapeStats {
            entries: old.entries + new.entries,
            anchors: old.anchors + new.anchors,
            last_anchor: new.last_anchor.or(old.last_anchor),
            entries_since_last_anchor: since + new.entries_since_last_anchor,
            last_id: old.last_id + new.entries,
        })
    }

    async fn append(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError> {
        if !self.holds(tape) {
            return self.parent.append(tape, entries).await;
        }
        if !entries.is_empty() {
            push_numbered(&mut self.lock().entry(tape.clone()).or_default().entries, entries);
        }
        Ok(())
    }

    async fn replace(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError> {
        if !self.holds(tape) {
            return self.parent.replace(tape, entries).await;
        }
        let mut fresh = Pending { is_reset: true, entries: Vec::new() };
        push_numbered(&mut fresh.entries, entries);
        self.lock().insert(tape.clone(), fresh);
        Ok(())
    }

    async fn archive(&self, tape: &TapeName, archive: Archive<'_>) -> Result<String, TapeError> {
        let (is_reset, mut tail) = self.view(tape);
        push_numbered(&mut tail, archive.tail);
        self.parent.archive(tape, Archive { stored: archive.stored && !is_reset, tail: &tail, ..archive }).await
    }
}

#[cfg(test)]
mod tests;
