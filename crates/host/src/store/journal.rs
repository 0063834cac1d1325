//! Journals of forks: `journals/{tape}.{process}-{n}.journal` beside the tapes.
//!
//! A journal is made at a fork's first record, locked as long as the fork lives, and removed when it was
//! merged. One that nobody locks is left over from a process that ended; see [`super::recovery`].
//! Records go to the system at once, so they survive the end of the process; they are not forced to the
//! disk, since the tape itself is when the fork is merged.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bub_kernel::tape::{Entry, Journal, Record, TapeName};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Inner, reader::Snapshot, writer::make_dir};

/// Journals that one process can have of one tape at the same time.
const MAX_PER_TAPE: usize = 4096;

/// A line of a journal.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(super) enum Line<E, V> {
    /// A tape that the lines after it are about, as it was then.
    Tape {
        name: String,
        mark: Mark,
        is_main: bool,
    },
    Append {
        tape: String,
        entries: Vec<E>,
    },
    Replace {
        tape: String,
        entries: Vec<E>,
    },
    Foresee {
        n_kept: usize,
        entries: Vec<E>,
    },
    Result {
        position: usize,
        result: V,
        date: String,
    },
    Settle {
        tape: String,
        n_kept: usize,
        entries: Vec<E>,
    },
}

/// Bytes by which the end of a tape is found again.
const N_TAIL: u64 = 32;

/// The end that a tape had.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Mark {
    dev: u64,
    ino: u64,
    pub(super) len: u64,
    /// The last bytes.
    tail: Vec<u8>,
}

impl Mark {
    /// The end of a tape; all zero when there is none.
    fn of(path: &Path) -> io::Result<Self> {
        let Some(Snapshot { file, len }) = Snapshot::open(path)? else { return Ok(Self::default()) };
        let status = file.metadata()?;
        Ok(Self { dev: status.dev(), ino: status.ino(), len, tail: tail(&file, len)? })
    }

    /// Whether all that was in the file then is still there.
    pub(super) fn is_in(&self, file: &File) -> io::Result<bool> {
        let status = file.metadata()?;
        let is_same = (self.dev, self.ino) == (status.dev(), status.ino()) && self.len <= status.len();
        Ok(is_same && self.tail == tail(file, self.len)?)
    }
}

/// The last bytes before `end`.
fn tail(file: &File, end: u64) -> io::Result<Vec<u8>> {
    let n = end.min(N_TAIL);
    let mut bytes = vec![0; n as usize];
    match file.read_exact_at(&mut bytes, end - n) {
        Ok(()) => Ok(bytes),
        // It became shorter meanwhile: nothing that could be found again.
        Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => Ok(Vec::new()),
        Err(err) => Err(err),
    }
}

impl Inner {
    pub(super) fn journals(&self) -> PathBuf {
        self.dir.join("journals")
    }
}

/// A journal of a living fork.
#[derive(Debug)]
pub(super) struct FileJournal {
    store: Arc<Inner>,
    tape: TapeName,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// Nothing was recorded yet.
    Unused,
    Open(Open),
    /// It can't be written any more; what it has still holds.
    Failed(Open),
    /// It was removed or left, or could not be made.
    Closed,
}

#[derive(Debug)]
struct Open {
    path: PathBuf,
    /// Locked.
    file: File,
    len: u64,
    /// Tapes whose marks are in it.
    marked: BTreeSet<TapeName>,
}

impl FileJournal {
    pub(super) fn new(store: Arc<Inner>, tape: TapeName) -> Self {
        Self { store, tape, state: Mutex::new(State::Unused) }
    }

    fn try_record(&self, open: &mut Open, record: Record<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        let named = match record {
            Record::Append { tape, .. } | Record::Replace { tape, .. } | Record::Settle { tape, .. } => Some(tape),
            Record::Foresee { .. } | Record::Result { .. } => None,
        };
        for tape in [Some(&self.tape), named].into_iter().flatten() {
            if !open.marked.contains(tape) {
                let mark = Mark::of(&self.store.path(tape))?;
                push(&mut bytes, &Line::Tape { name: tape.to_string(), mark, is_main: *tape == self.tape })?;
                open.marked.insert(tape.clone());
            }
        }
        push(&mut bytes, &line_of(record))?;
        let written = open.file.write_all(&bytes);
        match &written {
            Ok(()) => open.len += bytes.len() as u64,
            // Half a line would spoil the next one.
            Err(_) => drop(open.file.set_len(open.len)),
        }
        written
    }

    fn warn(&self, err: &io::Error) {
        tracing::warn!(
            tape = %self.tape,
            error = %err,
            "the turn is not journalled: it would be lost if the process were killed"
        );
    }
}

impl Journal for FileJournal {
    fn record(&self, record: Record<'_>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Unused) {
            *state = match create(&self.store, &self.tape) {
                Ok(open) => State::Open(open),
                Err(err) => {
                    self.warn(&err);
                    State::Closed
                }
            };
        }
        let State::Open(open) = &mut *state else { return };
        if let Err(err) = self.try_record(open, record) {
            self.warn(&err);
            *state = match std::mem::replace(&mut *state, State::Closed) {
                State::Open(open) => State::Failed(open),
                other => other,
            };
        }
    }

    fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Open(open) | State::Failed(open) = std::mem::replace(&mut *state, State::Closed)
            && let Err(err) = remove(&open.path, &open.file)
        {
            tracing::warn!(journal = %open.path.display(), error = %err, "the journal was not removed");
        }
    }

    fn leave(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Closed;
    }
}

/// Removes a journal. One that can't be removed is emptied, so that it is not merged once more.
pub(super) fn remove(path: &Path, file: &File) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => file.set_len(0).and(Err(err)),
        _ => Ok(()),
    }
}

/// Adds a record to a journal that ends with a whole line or a torn one.
pub(super) fn append_to(mut file: &File, is_torn: bool, record: Record<'_>) -> io::Result<()> {
    let mut bytes = if is_torn { vec![b'\n'] } else { Vec::new() };
    push(&mut bytes, &line_of(record))?;
    let len = file.metadata()?.len();
    let written = file.write_all(&bytes);
    if written.is_err() {
        drop(file.set_len(len));
    }
    written
}

fn line_of(record: Record<'_>) -> Line<&Entry, &Value> {
    match record {
        Record::Append { tape, entries } => Line::Append { tape: tape.to_string(), entries: refs(entries) },
        Record::Replace { tape, entries } => Line::Replace { tape: tape.to_string(), entries: refs(entries) },
        Record::Foresee { n_kept, entries } => Line::Foresee { n_kept, entries: refs(entries) },
        Record::Result { position, result, date } => Line::Result { position, result, date: date.to_owned() },
        Record::Settle { tape, n_kept, entries } => {
            Line::Settle { tape: tape.to_string(), n_kept, entries: refs(entries) }
        }
    }
}

fn refs(entries: &[Arc<Entry>]) -> Vec<&Entry> {
    entries.iter().map(|it| &**it).collect()
}

fn push(bytes: &mut Vec<u8>, line: &Line<&Entry, &Value>) -> io::Result<()> {
    serde_json::to_writer(&mut *bytes, line)?;
    bytes.push(b'\n');
    Ok(())
}

/// Makes a journal that no other process has. Between its making and its lock another process may take
/// it for one that was left over, and remove it.
fn create(store: &Inner, tape: &TapeName) -> io::Result<Open> {
    let dir = store.journals();
    make_dir(&dir)?;
    for n in 1..=MAX_PER_TAPE {
        let path = dir.join(format!("{tape}.{}-{n}.journal", std::process::id()));
        let file = match OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => file,
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(err) => return Err(err),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => continue,
            // Nothing locks there, so nobody would know a living journal from one that was left over.
            Err(fs::TryLockError::Error(err)) => return remove(&path, &file).and(Err(err)),
        }
        if file.metadata()?.nlink() > 0 {
            return Ok(Open { path, file, len: 0, marked: BTreeSet::new() });
        }
    }
    Err(io::Error::other("too many journals of one tape"))
}
