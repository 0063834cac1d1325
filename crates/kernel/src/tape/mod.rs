//! The append-only record of a session, from which the model's context is rebuilt.

mod entry;
mod fork;
mod fuzzy;
mod memory;
mod name;
mod query;
mod search;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use serde_json::{Map, Value, json};

pub use entry::{Entry, EntryKind, NewEntry, trim_line};
pub use fork::TapeFork;
pub use memory::MemoryStore;
pub use name::TapeName;
pub use query::{Selector, Slice, TapeQuery, parse_bound};
pub use search::TextMatch;

use crate::{clock, clock::Clock};

/// The anchor that every tape begins with.
pub const SESSION_START: &str = "session/start";

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
    /// Counts a tape's entries.
    async fn stats(&self, tape: &TapeName) -> Result<TapeStats, TapeError>;
    /// Appends all entries or none, and gives them ids that continue the tape's.
    async fn append(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError>;
    /// Replaces the whole tape by `entries` (a reset, when there are none), with ids from 1.
    async fn replace(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError>;
    /// Copies a tape to an archive and returns where that is.
    async fn archive(&self, _tape: &TapeName, _archive: Archive<'_>) -> Result<String, TapeError> {
        Err(TapeError::Unsupported("archive tapes"))
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

    /// Counts entries.
    pub async fn stats(&self) -> Result<TapeStats, TapeError> {
        self.store.stats(&self.name).await
    }

    /// Appends all entries or none, dated now.
    pub async fn append(&self, entries: impl IntoIterator<Item = NewEntry>) -> Result<(), TapeError> {
        let entries: Vec<_> = entries.into_iter().map(|it| Arc::new(it.dated(&*self.clock))).collect();
        self.store.append(&self.name, &entries).await
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
        // Tapes begin with an anchor, so the first one is found at once, however long the tape is.
        let anchors = TapeQuery::default().kind(EntryKind::Anchor).limit(1);
        if self.read(&anchors).await?.is_empty() {
            self.handoff(SESSION_START, json!({"owner": "human"})).await?;
        }
        Ok(())
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
        let mut state = json!({"owner": "human"});
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
        TapeFork::new(self)
    }
}

/// A payload from JSON; anything but an object becomes empty.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}
