//! Merging journals that ended processes left.
//!
//! A fork is merged sidecars first, then its tape, each in one append; then its journal is removed. When
//! that, or the merging of a journal, was cut off, the entries that are on the tape already are found
//! again, behind the place where the tape ended when the journal began.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use bub_kernel::{
    clock::FixedClock,
    tape::{Entry, Pending, PendingTape, Record, TapeError, TapeName, merge_failed},
};
use jiff::Timestamp;
use rustix::process::{Pid, test_kill_process};
use serde_json::{Map, Value};

use super::{
    Inner, failed,
    journal::{Line, Mark, append_to, remove},
    lines::{Forward, Limits},
    lock::lock_exclusive,
    reader::Snapshot,
};

/// The largest journal that is merged, in bytes: it is held in memory, as the fork was.
const MAX_JOURNAL: u64 = 1 << 30;

/// How long a journal is waited for whose process is gone: children that it was about to start hold its
/// lock until they have become another program.
const CHILD_WAIT: Duration = Duration::from_millis(500);

/// A journal that was read.
#[derive(Debug, Default)]
struct Leftover {
    main: Option<TapeName>,
    pending: Pending,
    marks: BTreeMap<TapeName, Mark>,
    is_torn: bool,
}

impl Inner {
    /// Whether there may be something to recover; much cheaper than trying.
    pub(super) fn has_journal(&self, tape: &TapeName) -> bool {
        self.journals_of(tape).is_ok_and(|it| !it.is_empty())
    }

    /// Merges the journals of a tape that nobody holds, oldest first.
    pub(super) fn recover(&self, tape: &TapeName, now: Timestamp, wait: Duration) -> Result<usize, TapeError> {
        let dir = self.journals();
        let journals = self.journals_of(tape).map_err(|err| failed(tape.as_str(), "list", &dir, err))?;
        let mut n_recovered = 0;
        for path in journals {
            n_recovered += self.recover_from(&path, tape, now, wait)?;
        }
        Ok(n_recovered)
    }

    /// The journals of a tape, those of living forks included, oldest first.
    pub(super) fn journals_of(&self, tape: &TapeName) -> io::Result<Vec<PathBuf>> {
        let files = match fs::read_dir(self.journals()) {
            Ok(files) => files,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(err) => return Err(err),
        };
        let mut found = Vec::new();
        for file in files {
            let file = file?;
            let name = file.file_name();
            let of_tape = name.to_str().and_then(|it| it.strip_prefix(tape.as_str())?.strip_prefix('.'));
            if of_tape.and_then(|it| it.strip_suffix(".journal")).is_some_and(|it| !it.contains('.')) {
                let modified = file.metadata().and_then(|it| it.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
                found.push((modified, file.path()));
            }
        }
        found.sort();
        Ok(found.into_iter().map(|(_, path)| path).collect())
    }

    fn recover_from(&self, path: &Path, tape: &TapeName, now: Timestamp, wait: Duration) -> Result<usize, TapeError> {
        let failed = |err| failed(tape.as_str(), "recover from", path, err);
        let Some(file) = take(path, wait).map_err(failed)? else { return Ok(0) };
        let mut left = read(&file).map_err(failed)?;
        if left.main.as_ref().is_some_and(|it| it != tape) {
            return Ok(0);
        }
        left.pending.tapes.retain(|it, _| it == tape || it.is_sidecar_of(tape));
        let mut n_done = BTreeMap::new();
        for (name, held) in &left.pending.tapes {
            match self.n_merged(name, held, left.marks.get(name)) {
                Ok(n) => drop(n_done.insert(name.clone(), n)),
                Err(err) if name == tape => return Err(failed(err)),
                // Merging it will fail as well, which is then told.
                Err(_) => {}
            }
        }
        // Merging begins when the turn has ended, or when all that is missing has been added.
        if n_done.values().all(|it| *it == 0) {
            let missing = left.pending.missing(tape, now);
            if !missing.is_empty() {
                left.add(&file, Record::Settle { tape, n_kept: 0, entries: &missing }).map_err(failed)?;
            }
        }
        let mut n_recovered = 0;
        let sidecars: Vec<_> = left.pending.tapes.keys().filter(|it| *it != tape).cloned().collect();
        for name in sidecars {
            let held = left.pending.tapes.get(&name).cloned().unwrap_or_default();
            match self.merge(&name, &held, n_done.get(&name).copied().unwrap_or_default()) {
                Ok(n) => n_recovered += n,
                Err(err) => {
                    tracing::warn!(tape = %name, error = %err, "sidecar was not merged");
                    let event = merge_failed(&name, &err).dated(&FixedClock(now));
                    left.add(&file, Record::Append { tape, entries: &[Arc::new(event)] }).map_err(failed)?;
                }
            }
        }
        if let Some(held) = left.pending.tapes.get(tape) {
            n_recovered += self.merge(tape, held, n_done.get(tape).copied().unwrap_or_default())?;
        }
        remove(path, &file).map_err(failed)?;
        tracing::info!(%tape, entries = n_recovered, "recovered an interrupted turn");
        Ok(n_recovered)
    }

    /// Merges all but the first entries, which the tape has already; returns how many that were.
    fn merge(&self, tape: &TapeName, held: &PendingTape, n_done: usize) -> Result<usize, TapeError> {
        let rest = held.entries.get(n_done..).unwrap_or_default();
        if held.is_reset && n_done == 0 {
            self.replace(tape, rest)?;
        } else if !rest.is_empty() {
            self.append(tape, rest)?;
        }
        Ok(rest.len())
    }

    /// How many of the entries that are held for a tape it has already.
    fn n_merged(&self, tape: &TapeName, held: &PendingTape, mark: Option<&Mark>) -> io::Result<usize> {
        let Some(Snapshot { file, len }) = Snapshot::open(&self.path(tape))? else { return Ok(0) };
        let start = match mark {
            Some(mark) if !held.is_reset && mark.is_in(&file)? => mark.len,
            _ => 0,
        };
        let mut lines = Forward::new(&file, start..len, None, Limits::default());
        let mut wanted = held.entries.iter().peekable();
        let mut n_merged = 0;
        while let Some(next) = wanted.peek()
            && let Some(line) = lines.next()?
        {
            let Some(entry) = Entry::from_line(line.bytes) else { continue };
            if is_same(&entry, next) {
                n_merged += 1;
                wanted.next();
            } else if held.is_reset && n_merged == 0 {
                // A tape that was replaced begins with the entries that replaced it.
                break;
            }
        }
        Ok(n_merged)
    }
}

/// Whether two entries are one, whatever its number.
fn is_same(a: &Entry, b: &Entry) -> bool {
    (&a.date, &a.kind) == (&b.date, &b.kind)
        && is_same_object(&a.meta, &b.meta)
        && is_same_object(&a.payload, &b.payload)
}

fn is_same_object(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| is_same_value(a, b)))
}

/// Whether two values are equal; a fraction that is written and read may come back as its neighbour.
fn is_same_value(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => is_same_object(a, b),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same_value(a, b)),
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() <= a.abs() * 4.0 * f64::EPSILON,
            _ => false,
        },
        _ => a == b,
    }
}

impl Leftover {
    /// Adds a record to the journal, so that it holds also when the merging is cut off.
    fn add(&mut self, file: &File, record: Record<'_>) -> io::Result<()> {
        append_to(file, std::mem::take(&mut self.is_torn), record)?;
        self.pending.apply(record);
        Ok(())
    }

    fn take_in(&mut self, line: Line<Value, Value>) {
        let entries =
            |all: Vec<Value>| -> Vec<_> { all.into_iter().filter_map(Entry::from_value).map(Arc::new).collect() };
        match line {
            Line::Tape { name, mark, is_main } => {
                let name = TapeName::free(&name);
                if is_main {
                    self.main = Some(name.clone());
                }
                self.marks.entry(name).or_insert(mark);
            }
            Line::Append { tape, entries: all } => {
                self.pending.apply(Record::Append { tape: &TapeName::free(&tape), entries: &entries(all) });
            }
            Line::Replace { tape, entries: all } => {
                self.pending.apply(Record::Replace { tape: &TapeName::free(&tape), entries: &entries(all) });
            }
            Line::Foresee { n_kept, entries: all } => {
                self.pending.apply(Record::Foresee { n_kept, entries: &entries(all) });
            }
            Line::Result { position, result, date } => {
                self.pending.apply(Record::Result { position, result: &result, date: &date });
            }
            Line::Settle { tape, n_kept, entries: all } => {
                self.pending.apply(Record::Settle { tape: &TapeName::free(&tape), n_kept, entries: &entries(all) });
            }
        }
    }
}

/// Locks a journal that nobody holds. Those of this process are those of its living forks; one of another
/// process may be merged by it just now.
fn take(path: &Path, wait: Duration) -> io::Result<Option<File>> {
    let file = match OpenOptions::new().read(true).append(true).open(path) {
        Ok(file) => file,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(err) => return Err(err),
    };
    let wait = match owner(path) {
        Some(owner) if owner == rustix::process::getpid() => Duration::ZERO,
        Some(owner) if test_kill_process(owner) == Err(rustix::io::Errno::SRCH) => wait.max(CHILD_WAIT),
        _ => wait,
    };
    match lock_exclusive(&file, wait) {
        Ok(()) => {}
        Err(err) if err.kind() == io::ErrorKind::TimedOut => return Ok(None),
        Err(err) => return Err(err),
    }
    let status = file.metadata()?;
    if status.len() > MAX_JOURNAL {
        return Err(io::Error::other(format!("it has more than {} MiB", MAX_JOURNAL >> 20)));
    }
    // Whoever held it may have removed it.
    Ok((status.nlink() > 0).then_some(file))
}

/// The process that made a journal. Its id only tells how long to wait: it may be another's by now.
fn owner(path: &Path) -> Option<Pid> {
    let name = path.file_stem()?.to_str()?;
    let id = name.rsplit_once('.')?.1.split_once('-')?.0;
    Pid::from_raw(id.parse().ok()?)
}

/// Reads a journal; damaged lines hide nothing else.
fn read(file: &File) -> io::Result<Leftover> {
    let mut left = Leftover::default();
    let len = file.metadata()?.len();
    let mut lines = Forward::new(file, 0..len, None, Limits::default());
    while let Some(line) = lines.next()? {
        left.is_torn = !line.is_ended;
        match serde_json::from_slice(line.bytes) {
            Ok(line) => left.take_in(line),
            Err(_) if left.is_torn => {}
            Err(err) => tracing::warn!(error = %err, "damaged line of a journal skipped"),
        }
    }
    Ok(left)
}
