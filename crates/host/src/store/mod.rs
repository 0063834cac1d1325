//! Tapes on disk: one file of JSON lines per tape, as the reference writes them.
//!
//! Nothing is kept in memory but counts. Reading starts at the end of the file where it can, and
//! parses only lines that may matter; appending reads no more than the last line. Writers of all
//! processes take turns by a lock on the tape's file; readers never wait.

mod archive;
mod counts;
mod lines;
mod lock;
mod peek;
mod reader;
mod session_lock;
mod writer;

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use bub_kernel::tape::{Archive, Entry, TapeError, TapeName, TapeQuery, TapeStats, TapeStore};

pub use session_lock::{SessionLock, SessionLockError, SessionLocks};

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
    counts: Mutex<HashMap<TapeName, counts::Counted>>,
    /// Where damaged lines start that were reported.
    warned: Mutex<HashMap<TapeName, HashSet<u64>>>,
}

impl JsonlStore {
    /// A store over a folder, which is made when the first tape is written.
    #[must_use]
    pub fn new(dir: PathBuf, options: StoreOptions) -> Self {
        let inner = Inner { dir, options, counts: Mutex::default(), warned: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// The file of a tape, whether it exists or not.
    #[must_use]
    pub fn path(&self, tape: &TapeName) -> PathBuf {
        self.inner.path(tape)
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

    async fn stats(&self, tape: &TapeName) -> Result<TapeStats, TapeError> {
        self.blocking(tape, Inner::stats).await
    }

    async fn append(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError> {
        if entries.is_empty() {
            return Ok(());
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
}

impl Inner {
    fn path(&self, tape: &TapeName) -> PathBuf {
        self.dir.join(format!("{tape}.jsonl"))
    }

    fn list(&self) -> Result<Vec<TapeName>, TapeError> {
        let failed = |err| failed("*", "list", &self.dir, err);
        let files = match fs::read_dir(&self.dir) {
            Ok(files) => files,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(err) => return Err(failed(err)),
        };
        let mut names = Vec::new();
        for file in files {
            let file = file.map_err(failed)?.file_name();
            if let Some(stem) = file.to_str().and_then(|it| it.strip_suffix(".jsonl")) {
                let name = TapeName::free(stem);
                if name.as_str() == stem && name.is_session() {
                    names.push(name);
                }
            }
        }
        names.sort();
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
