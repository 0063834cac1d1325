//! Starting a tape from an earlier point of another.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, BufWriter, Write as _},
};

use bub_kernel::{
    clock::FixedClock,
    tape::{Entry, EntryKind, NewEntry, TapeError, TapeName, trim_line},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Inner, JsonlStore, failed,
    lines::{Forward, Limits},
    reader::Snapshot,
    sequence::Sequence,
    verify::SPILL,
    writer::{make_dir, open_locked},
};

/// What was copied to a new tape.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Branched {
    /// The entry that the new tape begins with, up to which it is the old one.
    pub at: u64,
    /// How many entries that are.
    pub entries: u64,
    /// Why that is not the entry that was asked for, if it is not.
    pub moved: Option<String>,
}

/// Why a tape can't be started from another.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BranchError {
    /// The new tape has entries.
    #[error("the new session has a tape already, with entries on it")]
    NotEmpty,
    /// There is no such entry.
    #[error("there is no entry {asked}: the tape has {first} to {last}")]
    NoEntry {
        /// Which was asked for.
        asked: u64,
        /// The oldest one's id.
        first: u64,
        /// The newest one's id.
        last: u64,
    },
    /// That is before the first entry.
    #[error("there is no entry {asked}: the tape begins with {first}")]
    BeforeFirst {
        /// Which was asked for.
        asked: u64,
        /// The oldest one's id.
        first: u64,
    },
    /// There is no point up to that entry at which a tape can end.
    #[error("up to entry {asked} there is no place where a tape can end")]
    NoPlace {
        /// Which was asked for.
        asked: u64,
    },
    /// There is nothing to copy.
    #[error("the tape has no entries")]
    Empty,
    /// A file can't be read or written.
    #[error(transparent)]
    Tape(#[from] TapeError),
}

/// Where to cut.
#[derive(Debug, Default, PartialEq)]
struct Cut {
    /// Where the copied part ends in the file.
    end: u64,
    id: u64,
    moved: Option<String>,
}

impl JsonlStore {
    /// Copies a tape up to an entry (all of it, without one) to a new tape, with what its sidecars have
    /// for it, and records there where it comes from. A cut between calls and their results is moved to
    /// before the calls. Blocks the calling thread.
    ///
    /// # Errors
    /// When the new tape has entries, there is no such entry, or files can't be read or written.
    pub fn branch(
        &self,
        from: &TapeName,
        at: Option<u64>,
        to: &TapeName,
        now: Timestamp,
    ) -> Result<Branched, BranchError> {
        self.inner.branch(from, at, to, now)
    }
}

impl Inner {
    fn branch(&self, from: &TapeName, at: Option<u64>, to: &TapeName, now: Timestamp) -> Result<Branched, BranchError> {
        let (source, target) = (self.path(from), self.path(to));
        let read = |err| failed(from.as_str(), "read", &source, err);
        let write = |err| failed(to.as_str(), "start", &target, err);
        let Some(Snapshot { file, len }) = Snapshot::open(&source).map_err(read)? else {
            return Err(BranchError::Empty);
        };
        let cut = find_cut(&file, len, at).map_err(read)??;

        make_dir(&self.dir).map_err(write)?;
        let existed = target.exists();
        let (locked, _) = open_locked(&target).map_err(write)?;
        let copied = (|| {
            if has_entries(&locked).map_err(write)? {
                return Err(BranchError::NotEmpty);
            }
            let handles = spilled(&file, cut.end).map_err(read)?;
            for sidecar in self.sidecars(from)? {
                self.branch_sidecar(from, &sidecar, to, &handles)?;
            }
            let data = json!({"tape": from.as_str(), "id": cut.id});
            let event = NewEntry::event("tape.fork", data).outside_context().dated(&FixedClock(now));
            let mut entries = 0;
            let keep = |_: &Entry| {
                entries += 1;
                true
            };
            self.copy_entries(&file, cut.end, to, keep, Some(&event)).map_err(write)?;
            Ok(Branched { at: cut.id, entries, moved: cut.moved })
        })();
        if copied.is_err() && !existed && locked.metadata().is_ok_and(|it| it.len() == 0) {
            // The name was only taken for this.
            drop(fs::remove_file(&target));
        }
        self.forget(to);
        copied
    }

    /// Copies what a sidecar has for the copied part: the results that were spilled by then, or all of a
    /// sidecar that is not known.
    fn branch_sidecar(
        &self,
        from: &TapeName,
        sidecar: &TapeName,
        to: &TapeName,
        handles: &HashSet<String>,
    ) -> Result<(), BranchError> {
        let is_spill = *sidecar == from.sidecar(SPILL);
        if is_spill && handles.is_empty() {
            return Ok(());
        }
        let suffix = sidecar.as_str().strip_prefix(from.as_str()).unwrap_or_default();
        let new = TapeName::free(&format!("{to}{suffix}"));
        let path = self.path(sidecar);
        let copy = || -> io::Result<()> {
            let Some(Snapshot { file, len }) = Snapshot::open(&path)? else { return Ok(()) };
            let keep = |it: &Entry| {
                let handle = it.meta.get("spill_handle").and_then(Value::as_str);
                let named = it.name().and_then(|it| it.strip_prefix("spill/")?.split('/').next());
                !is_spill || handle.or(named).is_some_and(|it| handles.contains(it))
            };
            let (_locked, _) = open_locked(&self.path(&new))?;
            self.copy_entries(&file, len, &new, keep, None)
        };
        copy().map_err(|err| failed(sidecar.as_str(), "copy", &path, err))?;
        Ok(())
    }

    /// Writes the wanted entries before `end`, and one behind them, in the place of a tape.
    fn copy_entries(
        &self,
        file: &File,
        end: u64,
        to: &TapeName,
        mut keep: impl FnMut(&Entry) -> bool,
        last: Option<&Entry>,
    ) -> io::Result<()> {
        let prefix = format!(".{to}.");
        let new = tempfile::Builder::new().prefix(&prefix).suffix(".tmp").tempfile_in(&self.dir)?;
        let mut out = BufWriter::new(new);
        let mut last_id = 0;
        let mut lines = Forward::new(file, 0..end, None, Limits::default());
        while let Some(line) = lines.next()? {
            if let Some(entry) = Entry::from_line(line.bytes).filter(|it| keep(it)) {
                last_id = entry.id;
                out.write_all(trim_line(line.bytes))?;
                out.write_all(b"\n")?;
            }
        }
        if let Some(entry) = last {
            writeln!(out, "{}", entry.to_numbered_line(last_id.saturating_add(1)))?;
        }
        let new = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        new.as_file().sync_data()?;
        new.persist(self.path(to)).map_err(|err| err.error)?;
        self.sync_dir()
    }
}

/// Where to cut a tape after an entry.
fn find_cut(file: &File, len: u64, at: Option<u64>) -> io::Result<Result<Cut, BranchError>> {
    let mut sequence = Sequence::default();
    // The newest place where the tape can end, and the newest entry that is wanted.
    let mut safe: Option<Cut> = None;
    let (mut first, mut last) = (None, None);
    let mut wanted = None;
    let mut lines = Forward::new(file, 0..len, None, Limits::default());
    while let Some(line) = lines.next()? {
        let Some(entry) = Entry::from_line(line.bytes) else { continue };
        first.get_or_insert(entry.id);
        if at.is_some_and(|at| entry.id > at) {
            let is_its_handoff = entry.kind == EntryKind::Event && entry.name() == Some("handoff");
            if wanted.is_some() && sequence.waits_for_handoff() && is_its_handoff {
                let moved = format!("the event of the anchor before it, entry {}, belongs to it", entry.id);
                return Ok(Ok(Cut { end: line.next, id: entry.id, moved: Some(moved) }));
            }
            last = Some(entry.id);
            break;
        }
        last = Some(entry.id);
        wanted = Some(entry.id);
        sequence.next(0, &entry);
        if sequence.is_closed() {
            safe = Some(Cut { end: line.next, id: entry.id, moved: None });
        }
    }
    let (Some(first), Some(last)) = (first, last) else { return Ok(Err(BranchError::Empty)) };
    let asked = at.unwrap_or(last);
    if asked < first {
        return Ok(Err(BranchError::BeforeFirst { asked, first }));
    }
    let Some(wanted) = wanted.filter(|it| at.is_none_or(|at| *it == at || last > at)) else {
        return Ok(Err(BranchError::NoEntry { asked, first, last }));
    };
    Ok(match safe {
        None => Err(BranchError::NoPlace { asked }),
        Some(cut) if cut.id == asked => Ok(cut),
        Some(cut) if cut.id == wanted => {
            let moved = format!("there is no entry {asked}; this is the last one before it");
            Ok(Cut { moved: Some(moved), ..cut })
        }
        Some(cut) => {
            let moved = format!("entry {asked} lies between calls and their results; this is the last one before them");
            Ok(Cut { moved: Some(moved), ..cut })
        }
    })
}

/// Whether any line of a file is an entry.
fn has_entries(file: &File) -> io::Result<bool> {
    let mut lines = Forward::new(file, 0..file.metadata()?.len(), None, Limits::default());
    while let Some(line) = lines.next()? {
        if super::peek::peek(line.bytes).is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The results that a part of a tape spilled.
fn spilled(file: &File, end: u64) -> io::Result<HashSet<String>> {
    let mut handles = HashSet::new();
    let needle = super::lines::Needle::string("spill.write");
    let mut lines = Forward::new(file, 0..end, needle.as_ref(), Limits::default());
    while let Some(line) = lines.next()? {
        let Some(entry) = Entry::from_line(line.bytes) else { continue };
        if entry.kind == EntryKind::Event && entry.name() == Some("spill.write") {
            handles.extend(entry.data().and_then(|it| it.get("handle")?.as_str()).map(str::to_owned));
        }
    }
    Ok(handles)
}
