//! A turn's private view of its tape.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{
    Archive, Entry, EntryStream, Journal, NewEntry, Pending, PendingTape, Record, SESSION_START, Slice, Tape,
    TapeError, TapeName, TapeQuery, TapeStats, TapeStore, first_state, media,
    memory::{push_numbered, stats_of},
    stream,
};

/// The entries that a tape begins with: its first anchor, and the event of that.
const N_BEGINNING: usize = 2;

/// A turn's private view: it reads through to the tape, and keeps what is written until it is
/// committed. Dropping it discards what it holds; a journalled one leaves its journal then, as a killed
/// process would.
#[derive(Debug)]
pub struct TapeFork {
    parent: Tape,
    overlay: Arc<Overlay>,
    tape: Tape,
}

impl TapeFork {
    pub(super) fn new(parent: &Tape, journal: Option<Arc<dyn Journal>>) -> Self {
        let overlay = Arc::new(Overlay {
            parent: parent.store.clone(),
            main: parent.name.clone(),
            pending: Mutex::default(),
            journal,
            context: OnceCell::new(),
        });
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
    /// When the tape itself can't be written; a journal is then left to whoever opens the tape next. A
    /// sidecar that can't be written is recorded on the tape as a `sidecar.merge` event.
    pub async fn commit(self) -> Result<(), TapeError> {
        let Pending { mut tapes, .. } = std::mem::take(&mut *self.overlay.lock());
        let mut main = tapes.remove(&self.parent.name).unwrap_or_default();
        for (name, sidecar) in tapes {
            if let Err(err) = merge(&*self.parent.store, &name, sidecar).await {
                tracing::warn!(tape = %name, error = %err, "sidecar was not merged");
                main.entries.push(Arc::new(merge_failed(&name, &err).dated(&*self.parent.clock)));
            }
        }
        // Of two turns that began together on an empty tape, the second would hide the first behind the anchor
        // that it began with.
        let is_begun = main.entries.first().is_some_and(|it| is_beginning(it));
        if !main.is_reset && is_begun && self.parent.has_anchor().await? {
            main.entries.drain(..N_BEGINNING.min(main.entries.len()));
        }
        merge(&*self.parent.store, &self.parent.name, main).await?;
        self.discard();
        Ok(())
    }

    /// Discards everything, with the journal.
    pub fn discard(self) {
        if let Some(journal) = &self.overlay.journal {
            journal.close();
        }
    }
}

impl Drop for TapeFork {
    fn drop(&mut self) {
        if let Some(journal) = &self.overlay.journal {
            journal.leave();
        }
    }
}

/// Whether this is the anchor that a new tape is given.
fn is_beginning(entry: &Entry) -> bool {
    entry.is_anchor(Some(SESSION_START)) && entry.payload.get("state") == Some(&first_state())
}

async fn merge(store: &dyn TapeStore, tape: &TapeName, mut pending: PendingTape) -> Result<(), TapeError> {
    // Without a journal the media is still in the entries.
    let media = media::set_aside(store, &mut pending.entries).await;
    match (pending.is_reset, pending.entries.is_empty()) {
        (true, _) => store.replace(tape, &pending.entries).await,
        (false, false) => store.append(tape, &pending.entries).await,
        (false, true) => Ok(()),
    }?;
    media::ensure(store, media).await;
    Ok(())
}

/// The event on a tape that tells of a sidecar that was not merged.
#[must_use]
pub fn merge_failed(sidecar: &TapeName, err: &TapeError) -> NewEntry {
    let data = json!({"tape": sidecar.as_str(), "status": "error", "error": err.to_string()});
    NewEntry::event("sidecar.merge", data).outside_context()
}

/// The store behind a fork's tape: pending entries over a parent. Other tapes than the forked one and
/// its sidecars are written through.
struct Overlay {
    parent: Arc<dyn TapeStore>,
    main: TapeName,
    pending: Mutex<Pending>,
    journal: Option<Arc<dyn Journal>>,
    /// The parent's entries since its last anchor, as they were when they were first asked for: each
    /// step of a turn builds its context from them.
    context: OnceCell<Vec<Arc<Entry>>>,
}

impl std::fmt::Debug for Overlay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Overlay").field("main", &self.main).finish_non_exhaustive()
    }
}

impl Overlay {
    fn lock(&self) -> std::sync::MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes something in, and notes it in the journal in the same order.
    fn apply(&self, pending: &mut Pending, record: Record<'_>) {
        if let Some(journal) = &self.journal {
            journal.record(record);
        }
        pending.apply(record);
    }

    fn holds(&self, tape: &TapeName) -> bool {
        *tape == self.main || tape.is_sidecar_of(&self.main)
    }

    /// Reads the parent; the context only once.
    async fn read_parent(&self, tape: &TapeName, query: &TapeQuery) -> Result<Vec<Arc<Entry>>, TapeError> {
        if *tape != self.main || *query != TapeQuery::default().after_last_anchor() {
            return self.parent.read(tape, query).await;
        }
        let read = || async { self.parent.read(tape, query).await };
        self.context.get_or_try_init(read).await.cloned()
    }

    /// The pending entries of a tape, and whether they hide the parent's.
    fn view(&self, tape: &TapeName) -> (bool, Vec<Arc<Entry>>) {
        self.lock().tapes.get(tape).map_or_else(Default::default, |it| (it.is_reset, it.entries.clone()))
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
            return self.read_parent(tape, query).await;
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
        let stored = self.read_parent(tape, query).await?;
        let (first, second) = if query.newest_first { (new, stored) } else { (stored, new) };
        let both: Vec<_> = first.into_iter().chain(second).collect();
        // Each half was filtered; what is left is to count and to compare across the halves.
        let join = TapeQuery { limit: query.limit, distinct: query.distinct, ..TapeQuery::default() };
        join.select(&both)
    }

    fn stream<'a>(&'a self, tape: &'a TapeName, query: &'a TapeQuery) -> EntryStream<'a> {
        let (is_reset, pending) = self.view(tape);
        if is_reset || !pending.is_empty() {
            stream::of_read(self, tape, query)
        } else {
            self.parent.stream(tape, query)
        }
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

    fn is_empty(&self, tape: &TapeName) -> Option<bool> {
        let (is_reset, pending) = self.view(tape);
        match (pending.is_empty(), is_reset) {
            (false, _) => Some(false),
            (true, true) => Some(true),
            (true, false) => self.parent.is_empty(tape),
        }
    }

    async fn append(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError> {
        if !self.holds(tape) {
            return self.parent.append(tape, entries).await;
        }
        if !entries.is_empty() {
            self.apply(&mut self.lock(), Record::Append { tape, entries });
        }
        Ok(())
    }

    async fn replace(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError> {
        if !self.holds(tape) {
            return self.parent.replace(tape, entries).await;
        }
        self.apply(&mut self.lock(), Record::Replace { tape, entries });
        Ok(())
    }

    fn foresee(&self, tape: &TapeName, entries: &[Arc<Entry>]) {
        if *tape == self.main && self.journal.is_some() {
            let mut pending = self.lock();
            let n_kept = pending.n_foreseen(entries);
            self.apply(&mut pending, Record::Foresee { n_kept, entries: entries.get(n_kept..).unwrap_or_default() });
        }
    }

    fn foresee_result(&self, tape: &TapeName, position: usize, result: &Value, date: &str) {
        if *tape == self.main && self.journal.is_some() {
            self.apply(&mut self.lock(), Record::Result { position, result, date });
        }
    }

    async fn settle(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError> {
        if *tape != self.main {
            return self.append(tape, entries).await;
        }
        let mut pending = self.lock();
        let n_kept = pending.n_foreseen(entries);
        self.apply(&mut pending, Record::Settle { tape, n_kept, entries: entries.get(n_kept..).unwrap_or_default() });
        Ok(())
    }

    async fn archive(&self, tape: &TapeName, archive: Archive<'_>) -> Result<String, TapeError> {
        let (is_reset, mut tail) = self.view(tape);
        push_numbered(&mut tail, archive.tail);
        self.parent.archive(tape, Archive { stored: archive.stored && !is_reset, tail: &tail, ..archive }).await
    }

    async fn check_append(&self, tape: &TapeName, bytes: u64) -> Result<(), TapeError> {
        self.parent.check_append(tape, bytes).await
    }

    async fn put_media(&self, data: &str) -> Result<String, TapeError> {
        match &self.journal {
            Some(_) => self.parent.put_media(data).await,
            // Nothing may be left of a fork that is thrown away; what is merged is set aside then.
            None => Err(TapeError::Unsupported("keep media yet")),
        }
    }

    async fn media_size(&self, url: &str) -> Result<Option<u64>, TapeError> {
        self.parent.media_size(url).await
    }

    async fn get_media(&self, url: &str) -> Result<Option<String>, TapeError> {
        self.parent.get_media(url).await
    }
}

#[cfg(test)]
mod tests;
