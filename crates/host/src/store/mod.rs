//! Tapes on disk: one file of JSON lines per tape, as the reference writes them.
//!
//! Nothing is kept in memory but an index of bounded size. Reading starts at the end of the file where it can, and
//! parses only lines that may matter; appending reads no more than the last line. Writers of all
//! processes take turns by a lock on the tape's file; readers never wait.

mod archive;
mod blocks;
mod branch;
mod fault;
mod index;
mod index_build;
mod index_cache;
mod journal;
mod lines;
mod lock;
mod media;
mod peek;
mod reader;
mod recovery;
mod repair;
mod scan;
mod sequence;
mod session_lock;
mod shape;
mod stream;
mod text_filter;
mod verify;
mod writer;

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bub_kernel::tape::{Archive, Entry, EntryStream, Journal, TapeError, TapeName, TapeQuery, TapeStats, TapeStore};

use jiff::Timestamp;

pub use branch::{BranchError, Branched};
pub use fault::{Fault, Finding};
pub use repair::Repaired;
pub use scan::{ScanFilter, ScanStep, ScannedEntry, TapeChange, TapeScan};
pub use session_lock::{SessionLock, SessionLockError, SessionLocks};
pub use verify::{Verified, Verifier};

/// Damaged lines of one tape that are reported one by one; after that many a process says no more.
const MAX_WARNINGS: usize = 20;

/// When what was written is forced to the disk.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Sync {
    /// Before an append or a reset returns: it survives a loss of power. Entries of commands alone are
    /// not waited for.
    #[default]
    Commit,
    /// When the system likes: it survives the end of the process, not a loss of power.
    Never,
}

/// How tapes are kept.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StoreOptions {
    /// When what was written is forced to the disk.
    pub sync: Sync,
}

/// Tapes as files `{folder}/{tape}.jsonl`. Cheap to clone.
#[derive(Clone, Debug)]
pub struct JsonlStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    options: StoreOptions,
    indexes: Mutex<HashMap<TapeName, Arc<index_cache::Known>>>,
    /// Where damaged lines start that were reported.
    warned: Mutex<HashMap<TapeName, HashSet<u64>>>,
}

impl JsonlStore {
    /// A store over a folder, which is made when the first tape is written.
    #[must_use]
    pub fn new(dir: PathBuf, options: StoreOptions) -> Self {
        let inner = Inner { dir, options, indexes: Mutex::default(), warned: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// The file of a tape, whether it exists or not.
    #[must_use]
    pub fn path(&self, tape: &TapeName) -> PathBuf {
        self.inner.path(tape)
    }

    /// The journals of a tape's forks, oldest first: of living ones, and of those that ended with their
    /// process and are merged by [`Tape::recover`](bub_kernel::tape::Tape::recover).
    ///
    /// # Errors
    /// When their folder can't be read.
    pub fn journals(&self, tape: &TapeName) -> io::Result<Vec<PathBuf>> {
        self.inner.journals_of(tape)
    }

    /// Runs file work on a thread that may block. The work runs to its end even when the caller is
    /// gone, so that no write is left half done.
    async fn blocking<T: Send + 'static>(
        &self,
        tape: &TapeName,
        work: impl FnOnce(&Inner, &TapeName) -> Result<T, TapeError> + Send + 'static,
    ) -> Result<T, TapeError> {
        let (inner, name) = (self.inner.clone(), tape.clone());
        match tokio::task::spawn_blocking(move || work(&inner, &name)).await {
            Ok(done) => done,
            Err(err) => Err(TapeError::Store {
                tape: tape.to_string(),
                message: "the file work was stopped".into(),
                source: Some(Box::new(err)),
            }),
        }
    }
}

#[async_trait]
impl TapeStore for JsonlStore {
    async fn list(&self) -> Result<Vec<TapeName>, TapeError> {
        self.blocking(&TapeName::free("list"), |inner, _| inner.list()).await
    }

    async fn read(&self, tape: &TapeName, query: &TapeQuery) -> Result<Vec<Arc<Entry>>, TapeError> {
        let query = query.clone();
        self.blocking(tape, move |inner, tape| inner.read(tape, &query)).await
    }

    fn stream<'a>(&'a self, tape: &'a TapeName, query: &'a TapeQuery) -> EntryStream<'a> {
        stream::entries(self.inner.clone(), tape.clone(), query.clone())
    }

    async fn stats(&self, tape: &TapeName) -> Result<TapeStats, TapeError> {
        self.blocking(tape, Inner::stats).await
    }

    fn is_empty(&self, tape: &TapeName) -> Option<bool> {
        // Looking at a file's size does not wait for its content.
        match std::fs::metadata(self.path(tape)) {
            Ok(found) => Some(found.len() == 0),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Some(true),
            Err(_) => None,
        }
    }

    async fn append(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError> {
        if entries.is_empty() {
            return Ok(());
        }
        if self.inner.is_quick_append(tape, entries) {
            return self.inner.append(tape, entries);
        }
        let entries = entries.to_vec();
        self.blocking(tape, move |inner, tape| inner.append(tape, &entries)).await
    }

    async fn replace(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError> {
        let entries = entries.to_vec();
        self.blocking(tape, move |inner, tape| inner.replace(tape, &entries)).await
    }

    async fn archive(&self, tape: &TapeName, archive: Archive<'_>) -> Result<String, TapeError> {
        let (stamp, stored, tail) = (archive.stamp.to_owned(), archive.stored, archive.tail.to_vec());
        self.blocking(tape, move |inner, tape| inner.archive(tape, Archive { stamp: &stamp, stored, tail: &tail }))
            .await
    }

    async fn check_append(&self, tape: &TapeName, bytes: u64) -> Result<(), TapeError> {
        self.blocking(tape, move |inner, tape| inner.check_append(tape, bytes)).await
    }

    async fn put_media(&self, data: &str) -> Result<String, TapeError> {
        let data = data.to_owned();
        self.blocking(&TapeName::free("media"), move |inner, _| inner.put_media(&data)).await
    }

    async fn media_size(&self, url: &str) -> Result<Option<u64>, TapeError> {
        let url = url.to_owned();
        self.blocking(&TapeName::free("media"), move |inner, _| inner.media_size(&url)).await
    }

    async fn get_media(&self, url: &str) -> Result<Option<String>, TapeError> {
        let url = url.to_owned();
        self.blocking(&TapeName::free("media"), move |inner, _| inner.get_media(&url)).await
    }

    fn journal(&self, tape: &TapeName) -> Option<Arc<dyn Journal>> {
        Some(Arc::new(journal::FileJournal::new(self.inner.clone(), tape.clone())))
    }

    async fn recover(&self, tape: &TapeName, now: Timestamp, wait: Duration) -> Result<usize, TapeError> {
        // Mostly there is nothing to do, which is known sooner than another thread wakes up.
        if !self.inner.has_journal(tape) {
            return Ok(0);
        }
        self.blocking(tape, move |inner, tape| inner.recover(tape, now, wait)).await
    }
}

impl Inner {
    fn path(&self, tape: &TapeName) -> PathBuf {
        self.dir.join(format!("{tape}.jsonl"))
    }

    fn list(&self) -> Result<Vec<TapeName>, TapeError> {
        let mut names = self.names("")?;
        names.retain(TapeName::is_session);
        names.sort();
        Ok(names)
    }

    /// The tapes and sidecars that have a file whose name begins with a prefix.
    fn names(&self, prefix: &str) -> Result<Vec<TapeName>, TapeError> {
        let failed = |err| failed("*", "list", &self.dir, err);
        let files = match fs::read_dir(&self.dir) {
            Ok(files) => files,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(err) => return Err(failed(err)),
        };
        let mut names = Vec::new();
        for file in files {
            let file = file.map_err(failed)?.file_name();
            let stem = file.to_str().and_then(|it| it.strip_suffix(".jsonl")).filter(|it| it.starts_with(prefix));
            // What is no name of a tape is somebody else's file.
            names.extend(stem.map(TapeName::free).filter(|it| Some(it.as_str()) == stem));
        }
        Ok(names)
    }

    /// Says once that a line of a tape can't be read.
    fn warn_of(&self, tape: &TapeName, file: &fs::File, start: u64) {
        let n_warned = {
            let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
            let starts = warned.entry(tape.clone()).or_default();
            if starts.len() > MAX_WARNINGS || !starts.insert(start) {
                return;
            }
            starts.len()
        };
        let path = self.path(tape);
        if n_warned > MAX_WARNINGS {
            tracing::warn!(file = %path.display(), "further damaged lines are skipped without a word");
            return;
        }
        let line = lines::line_number(file, start).unwrap_or_default();
        tracing::warn!(file = %path.display(), line, "damaged line skipped");
    }
}

/// An error of the store, with what was tried and what may help.
fn failed(tape: &str, action: &str, path: &Path, err: io::Error) -> TapeError {
    let hint = match err.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space and try again",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "; check who may write there",
        io::ErrorKind::TimedOut => "; try again when it is done",
        _ => "",
    };
    let message = format!("can't {action} {}: {err}{hint}", path.display());
    TapeError::Store { tape: tape.to_owned(), message, source: Some(Box::new(err)) }
}
