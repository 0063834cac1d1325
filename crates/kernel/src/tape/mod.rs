//! The append-only record of a session, from which the model's context is rebuilt.

mod entry;
mod fork;
mod fuzzy;
mod journal;
mod media;
mod memory;
mod name;
mod near;
mod query;
mod search;
mod stream;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub use entry::{Entry, EntryKind, NewEntry, trim_line};
pub use fork::{TapeFork, merge_failed};
pub use journal::{Journal, Pending, PendingTape, Record};
pub use media::MEDIA_SCHEME;
pub use memory::MemoryStore;
pub use name::TapeName;
pub use near::NearWords;
pub use query::{Selector, Slice, TapeQuery, parse_bound};
pub use search::TextMatch;
pub use stream::EntryStream;

use crate::{clock, clock::Clock};

/// The anchor that every tape begins with.
pub const SESSION_START: &str = "session/start";

/// What the first anchor of a new tape says.
fn first_state() -> Value {
    json!({"owner": "human"})
}

/// Why the tape failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TapeError {
    /// The tape has no anchor at all.
    #[error("No anchors found in tape.")]
    NoAnchors,
    /// No such anchor.
    #[error("Anchor '{0}' was not found.")]
    NoAnchor(String),
    /// A date bound can't be read.
    #[error("Invalid ISO date or datetime: '{0}'.")]
    InvalidDate(String),
    /// A sidecar that is not mounted.
    #[error("tape sidecar '{0}' is not mounted")]
    NoSidecar(String),
    /// Media that can't be decoded.
    #[error("it is not base64")]
    InvalidMedia,
    /// The store can't do this.
    #[error("this tape store cannot {0}")]
    Unsupported(&'static str),
    /// The store failed.
    #[error("tape {tape}: {message}")]
    Store {
        /// Which tape.
        tape: String,
        /// What happened, and what to do about it.
        message: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

/// Counts over a tape.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TapeStats {
    /// Entries on the tape.
    pub entries: u64,
    /// Anchors among them.
    pub anchors: u64,
    /// The newest anchor's name.
    pub last_anchor: Option<String>,
    /// Entries after the newest anchor; all, when there is none.
    pub entries_since_last_anchor: u64,
    /// The newest entry's id; zero on an empty tape.
    pub last_id: u64,
}

/// What goes into an archive.
#[derive(Clone, Copy, Debug)]
pub struct Archive<'a> {
    /// When, as `YYYYMMDDTHHMMSSZ`; part of the archive's name, which the store keeps unique.
    pub stamp: &'a str,
    /// Whether the stored entries go in.
    pub stored: bool,
    /// Entries that follow them.
    pub tail: &'a [Arc<Entry>],
}

/// Where tapes are kept.
#[async_trait]
pub trait TapeStore: Send + Sync {
    /// Names of all session tapes, sidecars excepted.
    async fn list(&self) -> Result<Vec<TapeName>, TapeError>;
    /// Reads the entries that `query` selects, in its order. A tape that does not exist is empty.
    async fn read(&self, tape: &TapeName, query: &TapeQuery) -> Result<Vec<Arc<Entry>>, TapeError>;
    /// Reads the entries that `query` selects one by one, in its order. A store of files holds few of them
    /// in memory at a time; this default reads them all first.
    fn stream<'a>(&'a self, tape: &'a TapeName, query: &'a TapeQuery) -> EntryStream<'a> {
        stream::of_read(self, tape, query)
    }
    /// Counts a tape's entries.
    async fn stats(&self, tape: &TapeName) -> Result<TapeStats, TapeError>;
    /// Appends all entries or none, and gives them ids that continue the tape's.
    async fn append(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError>;
    /// Whether a tape has no entry, if that is known without reading or waiting.
    fn is_empty(&self, _tape: &TapeName) -> Option<bool> {
        None
    }
    /// Replaces the whole tape by `entries` (a reset, when there are none), with ids from 1.
    async fn replace(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError>;
    /// Copies a tape to an archive and returns where that is.
    async fn archive(&self, _tape: &TapeName, _archive: Archive<'_>) -> Result<String, TapeError> {
        Err(TapeError::Unsupported("archive tapes"))
    }
    /// Fails when an append of so many bytes is known to fail. A fork asks before it promises anything:
    /// it takes entries that are written to the tape only when it ends.
    async fn check_append(&self, _tape: &TapeName, _bytes: u64) -> Result<(), TapeError> {
        Ok(())
    }
    /// Keeps media, given in base64, apart from the tapes, once for each content, and returns its address,
    /// which begins with [`MEDIA_SCHEME`]. It is kept as long as a tape, an archive or a journal names it.
    async fn put_media(&self, _data: &str) -> Result<String, TapeError> {
        Err(TapeError::Unsupported("keep media"))
    }
    /// How many bytes the media at an address has; nothing when it is not kept.
    async fn media_size(&self, _url: &str) -> Result<Option<u64>, TapeError> {
        Ok(None)
    }
    /// The media at an address, in base64; nothing when it is not kept.
    async fn get_media(&self, _url: &str) -> Result<Option<String>, TapeError> {
        Ok(None)
    }
    /// A new journal for a fork of a tape; none when the store keeps none. It takes up space from the
    /// first record on.
    fn journal(&self, _tape: &TapeName) -> Option<Arc<dyn Journal>> {
        None
    }
    /// Merges what ended processes left in journals of a tape, with the ends of what was interrupted, and
    /// returns how many entries that were. Nothing is merged twice, whenever it is interrupted itself.
    /// Journals of living forks are passed over, after at most `wait` when another process has them.
    async fn recover(&self, _tape: &TapeName, _now: Timestamp, _wait: Duration) -> Result<usize, TapeError> {
        Ok(0)
    }
    /// Notes what is to stand on a tape should the process end now, in place of what was noted before.
    /// Only forks with a journal do.
    fn foresee(&self, _tape: &TapeName, _entries: &[Arc<Entry>]) {}
    /// Notes one result of foreseen calls.
    fn foresee_result(&self, _tape: &TapeName, _position: usize, _result: &Value, _date: &str) {}
    /// Appends what was foreseen as it came out; nothing is foreseen any more.
    async fn settle(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError> {
        self.append(tape, entries).await
    }
}

/// One tape of a store.
#[derive(Clone)]
pub struct Tape {
    name: TapeName,
    store: Arc<dyn TapeStore>,
    clock: Arc<dyn Clock>,
    sidecars: Arc<[String]>,
}

impl fmt::Debug for Tape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tape").field(&self.name).finish()
    }
}

impl Tape {
    /// Opens a tape; nothing is read or written yet.
    #[must_use]
    pub fn new(name: TapeName, store: Arc<dyn TapeStore>, clock: Arc<dyn Clock>) -> Self {
        Self { name, store, clock, sidecars: Arc::from([]) }
    }

    /// The same tape with sidecars mounted.
    #[must_use]
    pub fn with_sidecars(self, names: &[String]) -> Self {
        Self { sidecars: names.into(), ..self }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &TapeName {
        &self.name
    }

    /// The clock that its entries are dated by.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Reads entries.
    pub async fn read(&self, query: &TapeQuery) -> Result<Vec<Arc<Entry>>, TapeError> {
        self.store.read(&self.name, query).await
    }

    /// Reads entries one by one, for what may be long.
    pub fn stream<'a>(&'a self, query: &'a TapeQuery) -> EntryStream<'a> {
        self.store.stream(&self.name, query)
    }

    /// Counts entries.
    pub async fn stats(&self) -> Result<TapeStats, TapeError> {
        self.store.stats(&self.name).await
    }

    /// Appends all entries or none, dated now.
    pub async fn append(&self, entries: impl IntoIterator<Item = NewEntry>) -> Result<(), TapeError> {
        media::append(&*self.store, &self.name, self.dated(entries)).await
    }

    /// Says what is to stand on the tape should the process end before [`Tape::settle`], in place of
    /// what was said before. What is appended meanwhile comes first. A fork without a journal forgets it.
    pub async fn foresee(&self, entries: impl IntoIterator<Item = NewEntry>) {
        let mut entries = self.dated(entries);
        let media = media::set_aside(&*self.store, &mut entries).await;
        self.store.foresee(&self.name, &entries);
        media::ensure(&*self.store, media).await;
    }

    /// Says how one of the foreseen calls came out, counted from 0.
    pub async fn foresee_result(&self, position: usize, result: Value) {
        let mut entries = self.dated([NewEntry::tool_result(vec![result])]);
        let media = media::set_aside(&*self.store, &mut entries).await;
        let entry = entries.first();
        if let Some((date, result)) = entry.and_then(|it| Some((&it.date, it.payload.get("results")?.get(0)?))) {
            self.store.foresee_result(&self.name, position, result, date);
        }
        media::ensure(&*self.store, media).await;
    }

    /// Appends what was foreseen as it came out. Entries that came out as foreseen keep their date.
    pub async fn settle(&self, entries: impl IntoIterator<Item = NewEntry>) -> Result<(), TapeError> {
        let mut entries = self.dated(entries);
        let media = media::set_aside(&*self.store, &mut entries).await;
        self.store.settle(&self.name, &entries).await?;
        media::ensure(&*self.store, media).await;
        Ok(())
    }

    /// Merges what forks of ended processes left behind, waiting at most `wait` for journals that other
    /// processes still have; returns how many entries that were.
    pub async fn recover(&self, wait: Duration) -> Result<usize, TapeError> {
        self.store.recover(&self.name, self.clock.now(), wait).await
    }

    fn dated(&self, entries: impl IntoIterator<Item = NewEntry>) -> Vec<Arc<Entry>> {
        entries.into_iter().map(|it| Arc::new(it.dated(&*self.clock))).collect()
    }

    /// Fails when an append of so many bytes is known to fail, though a fork would still take it.
    pub async fn check_append(&self, bytes: u64) -> Result<(), TapeError> {
        self.store.check_append(&self.name, bytes).await
    }

    /// Appends one event.
    pub async fn append_event(&self, name: &str, data: Value) -> Result<(), TapeError> {
        self.append([NewEntry::event(name, data)]).await
    }

    /// Sets an anchor, from which the default context starts anew.
    pub async fn handoff(&self, name: &str, state: Value) -> Result<(), TapeError> {
        self.append([
            NewEntry::anchor(name, state.clone()),
            NewEntry::event("handoff", json!({"name": name, "state": state})),
        ])
        .await
    }

    /// Sets the first anchor of a tape that has none.
    pub async fn bootstrap(&self) -> Result<(), TapeError> {
        if !self.has_anchor().await? {
            self.handoff(SESSION_START, first_state()).await?;
        }
        Ok(())
    }

    /// Whether it has been begun.
    async fn has_anchor(&self) -> Result<bool, TapeError> {
        if self.store.is_empty(&self.name) == Some(true) {
            return Ok(false);
        }
        // Tapes begin with an anchor, so the first one is found at once, however long the tape is.
        let anchors = TapeQuery::default().kind(EntryKind::Anchor).limit(1);
        Ok(!self.read(&anchors).await?.is_empty())
    }

    /// Sets the first anchor of a tape that has no entry yet. Cheaper than [`Tape::bootstrap`], for those
    /// who need no anchor.
    pub async fn begin(&self) -> Result<(), TapeError> {
        match self.store.is_empty(&self.name) {
            Some(false) => Ok(()),
            Some(true) | None => self.bootstrap().await,
        }
    }

    /// The newest value of a session setting (`model`, `reasoning_effort`, `code_mode`), which is the
    /// newest `{key}_switch` event of the whole tape; `null` and empty text clear it.
    pub async fn setting(&self, key: &str) -> Result<Option<Value>, TapeError> {
        let switches = TapeQuery::default().event(format!("{key}_switch")).newest_first().limit(1);
        let newest = self.read(&switches).await?;
        let value = newest.first().and_then(|it| it.payload.get("data")?.get(key)).cloned();
        Ok(value.filter(|it| !it.is_null() && it != ""))
    }

    /// A mounted sidecar.
    ///
    /// # Errors
    /// [`TapeError::NoSidecar`] when it is not mounted.
    pub fn sidecar(&self, name: &str) -> Result<Self, TapeError> {
        if !self.sidecars.iter().any(|it| it == name) {
            return Err(TapeError::NoSidecar(name.to_owned()));
        }
        Ok(Self { name: self.name.sidecar(name), sidecars: Arc::from([]), ..self.clone() })
    }

    /// Empties the tape and its sidecars, archived first if so wished, and starts it anew.
    /// Returns where the archive is.
    ///
    /// # Errors
    /// When the archive of the tape itself can't be written; then nothing was emptied. Failures with
    /// sidecars are recorded as events, and a sidecar whose archive failed is kept.
    pub async fn reset(&self, archive: bool) -> Result<Option<String>, TapeError> {
        let stamp = clock::stamp(self.clock.now());
        let whole = Archive { stamp: &stamp, stored: true, tail: &[] };
        let archived = if archive { Some(self.store.archive(&self.name, whole).await?) } else { None };
        let mut sidecar_archives = Vec::new();
        for sidecar in self.sidecars.iter().filter(|_| archive) {
            let done = self.store.archive(&self.name.sidecar(sidecar), whole).await.map_err(|err| err.to_string());
            sidecar_archives.push((sidecar, done));
        }
        self.store.replace(&self.name, &[]).await?;
        let mut state = first_state();
        if let (Some(object), Some(path)) = (state.as_object_mut(), &archived) {
            object.insert("archived".into(), path.clone().into());
        }
        self.handoff(SESSION_START, state).await?;
        let mut events = Vec::new();
        for sidecar in self.sidecars.iter() {
            let kept = sidecar_archives.iter().any(|(it, done)| *it == sidecar && done.is_err());
            let data = if kept {
                json!({"sidecar": sidecar, "status": "skipped", "reason": "tape.reset", "cause": "archive_failed"})
            } else {
                match self.store.replace(&self.name.sidecar(sidecar), &[]).await {
                    Ok(()) => json!({"sidecar": sidecar, "status": "ok", "reason": "tape.reset"}),
                    Err(err) => {
                        json!({"sidecar": sidecar, "status": "error", "reason": "tape.reset", "error": err.to_string()})
                    }
                }
            };
            events.push(NewEntry::event("sidecar.reset", data).outside_context());
        }
        for (sidecar, done) in sidecar_archives {
            let data = match done {
                Ok(path) => json!({"sidecar": sidecar, "reason": "tape.reset", "status": "ok", "archive": path}),
                Err(err) => json!({"sidecar": sidecar, "reason": "tape.reset", "status": "error", "error": err}),
            };
            events.push(NewEntry::event("sidecar.archive", data).outside_context());
        }
        self.append(events).await?;
        Ok(archived)
    }

    /// Starts a fork: it reads through, and keeps what is written to this tape and its sidecars until
    /// [`TapeFork::commit`].
    #[must_use]
    pub fn fork(&self) -> TapeFork {
        TapeFork::new(self, None)
    }

    /// Starts a fork whose entries survive the end of the process, where the store can do that: the next
    /// [`Tape::recover`] merges them.
    #[must_use]
    pub fn journaled_fork(&self) -> TapeFork {
        TapeFork::new(self, self.store.journal(&self.name))
    }
}

/// A payload from JSON; anything but an object becomes empty.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}
