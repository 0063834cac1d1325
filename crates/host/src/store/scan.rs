//! Reading a tape piece by piece: from where one likes to its end, and on as it grows.

use std::{
    fs::{self, File},
    io,
    ops::RangeInclusive,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    sync::Arc,
};

use bub_kernel::tape::{Entry, TapeError, TapeName, TapeQuery, trim_line};

use super::{
    Inner, JsonlStore, failed,
    lines::{Backward, Forward, Limits, Needle},
    peek::peek,
    reader::{NEAR_BYTES, Reader, Snapshot},
};

/// Bytes of a file that one step looks at, but for a line that is longer.
const STEP_BYTES: u64 = 4 << 20;
/// Bytes of lines after which a step returns what it has.
const BATCH_BYTES: usize = 512 << 10;
/// Bytes before the place that was read to, by which it is recognised.
const N_MARK_BYTES: u64 = 64;

/// Which entries a scan returns.
#[derive(Clone, Debug, PartialEq)]
pub struct ScanFilter {
    /// Kinds, names, dates and text; slice, limit and order do not count.
    pub query: TapeQuery,
    /// Which ids.
    pub ids: RangeInclusive<u64>,
}

impl Default for ScanFilter {
    fn default() -> Self {
        Self { query: TapeQuery::default(), ids: 0..=u64::MAX }
    }
}

impl ScanFilter {
    /// What the lines of all wanted entries have in common.
    fn needle(&self) -> Option<Needle> {
        match (self.query.names.as_slice(), self.query.kinds.as_slice()) {
            ([name], _) => Needle::string(name),
            (_, [kind]) => Needle::string(kind.as_str()),
            _ => None,
        }
    }
}

/// An entry with its line as it stands in the file, without blanks around it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScannedEntry {
    /// The entry.
    pub entry: Entry,
    /// Its line.
    pub line: Vec<u8>,
}

/// What another program did to a tape that is being followed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TapeChange {
    /// Its file is gone; the scan goes on when there is one again.
    Removed,
    /// Another file took its place; the scan goes on at its start.
    Replaced,
    /// It was cut or written anew; the scan goes on at its start.
    Rewritten,
}

/// What one step of a scan found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScanStep {
    /// Entries that the filter keeps, oldest first.
    pub entries: Vec<ScannedEntry>,
    /// What happened to the tape since the last step.
    pub change: Option<TapeChange>,
    /// Whether there is nothing more at present.
    pub is_at_end: bool,
    /// Bytes of the file that were read.
    pub position: u64,
    /// Bytes that the file has.
    pub len: u64,
}

/// A tape being read forward. Its memory does not grow with the tape. Blocks the calling thread.
#[derive(Debug)]
pub struct TapeScan {
    store: Arc<Inner>,
    tape: TapeName,
    filter: ScanFilter,
    needle: Option<Needle>,
    file: Option<File>,
    pos: u64,
    mark: Vec<u8>,
    /// How long the file was at the last step.
    len: u64,
    is_at_end: bool,
    /// Whether the last wanted id has been passed.
    is_done: bool,
}

impl JsonlStore {
    /// Starts to read a tape from its beginning.
    #[must_use]
    pub fn scan(&self, tape: &TapeName, filter: ScanFilter) -> TapeScan {
        TapeScan {
            store: self.inner.clone(),
            tape: tape.clone(),
            needle: filter.needle(),
            filter,
            file: None,
            pos: 0,
            mark: Vec::new(),
            len: 0,
            is_at_end: false,
            is_done: false,
        }
    }
}

impl TapeScan {
    /// Goes to the last `n` entries that the filter keeps, reading backward from the end.
    ///
    /// # Errors
    /// When the tape can't be read.
    pub fn skip_to_last(&mut self, n: usize) -> Result<(), TapeError> {
        let path = self.store.path(&self.tape);
        self.find_last(n).map_err(|err| failed(self.tape.as_str(), "read", &path, err))
    }

    /// Reads on: a few megabytes at most. At the end, looks whether the tape has grown or was changed
    /// by somebody; that costs little.
    ///
    /// # Errors
    /// When the tape can't be read.
    pub fn step(&mut self) -> Result<ScanStep, TapeError> {
        let path = self.store.path(&self.tape);
        self.read_on().map_err(|err| failed(self.tape.as_str(), "read", &path, err))
    }

    fn find_last(&mut self, n: usize) -> io::Result<()> {
        if !self.open()? {
            return Ok(());
        }
        let Some(file) = &self.file else { return Ok(()) };
        // The start of a line that is still being written lies behind all of them.
        let last = Backward::new(file, 0..self.len, None, Limits::default())
            .next()?
            .map(|it| if peek(it.bytes).is_none() { it.start } else { it.next });
        let mut pos = last.unwrap_or_default();
        let mut left = n;
        let mut lines = Backward::new(file, 0..self.len, self.needle.as_ref(), Limits::default());
        while let Some(line) = lines.next()? {
            if left == 0 {
                break;
            }
            let Some(entry) = Entry::from_line(line.bytes) else { continue };
            if entry.id < *self.filter.ids.start() {
                break;
            }
            if self.filter.ids.contains(&entry.id) && self.filter.query.keeps(&entry) {
                left -= 1;
                pos = line.start;
            }
        }
        self.mark = mark(file, pos)?;
        self.pos = pos;
        Ok(())
    }

    fn read_on(&mut self) -> io::Result<ScanStep> {
        let change = if self.is_at_end { self.look()? } else { None };
        self.is_at_end = true;
        let mut step = ScanStep { change, is_at_end: true, ..ScanStep::default() };
        if self.is_done || !self.open()? {
            return Ok(step);
        }
        let Some(file) = &self.file else { return Ok(step) };
        let len = file.metadata()?.len();
        let mut pos = self.pos;
        let mut end = len.min(pos.saturating_add(STEP_BYTES)).max(pos);
        let mut n_bytes = 0;
        'lines: loop {
            let mut lines = Forward::new(file, pos..end, self.needle.as_ref(), Limits::default());
            while let Some(line) = lines.next()? {
                if !line.is_ended && end < len {
                    // The step's end lies inside this line.
                    if line.start == pos && n_bytes == 0 {
                        end = len;
                        continue 'lines;
                    }
                    pos = line.start;
                    break 'lines;
                }
                let found = peek(line.bytes);
                match &found {
                    Some(it) if it.id > *self.filter.ids.end() => {
                        self.is_done = true;
                        break 'lines;
                    }
                    Some(it) if self.filter.ids.contains(&it.id) => {
                        if let Some(entry) = Entry::from_line(line.bytes)
                            && self.filter.query.keeps(&entry)
                        {
                            let line = trim_line(line.bytes).to_vec();
                            n_bytes += line.len();
                            step.entries.push(ScannedEntry { entry, line });
                        }
                    }
                    Some(_) => {}
                    None if !line.is_ended => {
                        // It may be whole the next time.
                        pos = line.start;
                        break 'lines;
                    }
                    None if trim_line(line.bytes).is_empty() && !line.is_too_long => {}
                    None => self.store.warn_of(&self.tape, file, line.start),
                }
                pos = line.next;
                if n_bytes >= BATCH_BYTES {
                    break 'lines;
                }
            }
            pos = end;
            break;
        }
        // What follows the place that was read to, at the file's end, is a line that is not whole yet.
        self.is_at_end = self.is_done || end == len && n_bytes < BATCH_BYTES;
        self.mark = mark(file, pos)?;
        (self.pos, self.len) = (pos, len);
        (step.is_at_end, step.position, step.len) = (self.is_at_end, pos, len);
        Ok(step)
    }

    /// Opens the tape's file, if it is not open; false when there is none.
    fn open(&mut self) -> io::Result<bool> {
        if self.file.is_some() {
            return Ok(true);
        }
        let Some(Snapshot { file, len }) = Snapshot::open(&self.store.path(&self.tape))? else { return Ok(false) };
        self.pos = self.first_place(&file, len)?;
        self.mark = mark(&file, self.pos)?;
        (self.file, self.len) = (Some(file), len);
        Ok(true)
    }

    /// Before which place of a long tape nothing is wanted, by its index.
    fn first_place(&self, file: &File, len: u64) -> io::Result<u64> {
        let ScanFilter { query, ids } = &self.filter;
        if len <= NEAR_BYTES || (*ids.start() <= 1 && query.from.is_none()) {
            return Ok(0);
        }
        let reader = Reader { store: &self.store, tape: &self.tape, file, len, is_locked: false };
        let bounds = TapeQuery { from: query.from, ..TapeQuery::default().ids(ids.clone()) };
        self.store.first_place(reader, &bounds)
    }

    /// Finds out what others did to the file.
    fn look(&mut self) -> io::Result<Option<TapeChange>> {
        let Some(file) = &self.file else { return Ok(None) };
        let ours = file.metadata()?;
        let named = match fs::metadata(self.store.path(&self.tape)) {
            Ok(named) => Some(named),
            Err(err) if err.kind() == io::ErrorKind::NotFound => None,
            Err(err) => return Err(err),
        };
        let change = match named {
            Some(it) if (it.dev(), it.ino()) == (ours.dev(), ours.ino()) => {
                if ours.len() >= self.pos && mark(file, self.pos)? == self.mark {
                    return Ok(None);
                }
                TapeChange::Rewritten
            }
            // What was written before the file went is read first.
            _ if ours.len() > self.len => return Ok(None),
            Some(_) => TapeChange::Replaced,
            None => TapeChange::Removed,
        };
        (self.file, self.pos, self.len, self.is_done) = (None, 0, 0, false);
        self.mark.clear();
        Ok(Some(change))
    }
}

/// The bytes before a place; none when the file is shorter by now.
fn mark(file: &File, end: u64) -> io::Result<Vec<u8>> {
    let size = end.min(N_MARK_BYTES);
    let mut bytes = vec![0; size as usize];
    match file.read_exact_at(&mut bytes, end - size) {
        Ok(()) => Ok(bytes),
        Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => Ok(Vec::new()),
        Err(err) => Err(err),
    }
}
