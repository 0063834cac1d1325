//! Reading a tape: from the end where possible, and only lines that may matter.

use std::{
    fs::{self, File},
    io,
    ops::Range,
    path::Path,
    sync::Arc,
};

use bub_kernel::tape::{Entry, Slice, TapeError, TapeName, TapeQuery, trim_line};

use super::{
    Inner, failed,
    lines::{Backward, Forward, Limits, Line, Needle},
};

/// How often a read starts again when another program makes the file shorter meanwhile.
const MAX_RESTARTS: usize = 3;

/// A tape's file as long as it was when it was opened.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) file: File,
    pub(super) len: u64,
}

impl Snapshot {
    /// Opens a regular file; none when there is no file.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        // Opening a pipe would wait for its other end, so the kind of file comes first.
        match fs::metadata(path) {
            Ok(it) if it.is_file() => {}
            Ok(_) => return Err(io::Error::other("not a regular file")),
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(err) => return Err(err),
        }
        let file = match File::open(path) {
            Ok(file) => file,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(err) => return Err(err),
        };
        let len = file.metadata()?.len();
        Ok(Some(Self { file, len }))
    }
}

/// A tape being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) store: &'a Inner,
    pub(super) tape: &'a TapeName,
    pub(super) file: &'a File,
    pub(super) len: u64,
    /// Whether the file is locked through this very handle.
    pub(super) is_locked: bool,
}

impl Inner {
    /// Reads the entries that a query selects.
    pub(super) fn read(&self, tape: &TapeName, query: &TapeQuery) -> Result<Vec<Arc<Entry>>, TapeError> {
        let path = self.path(tape);
        let failed = |err| failed(tape.as_str(), "read", &path, err);
        let mut n_restarts = 0;
        loop {
            let Some(Snapshot { file, len }) = Snapshot::open(&path).map_err(failed)? else {
                return query.select(&[]);
            };
            let reader = Reader { store: self, tape, file: &file, len, is_locked: false };
            match reader.select(query) {
                Ok(found) => return found,
                Err(err) if err.kind() == io::ErrorKind::UnexpectedEof && n_restarts < MAX_RESTARTS => n_restarts += 1,
                Err(err) => return Err(failed(err)),
            }
        }
    }
}

impl<'a> Reader<'a> {
    fn select(self, query: &TapeQuery) -> io::Result<Result<Vec<Arc<Entry>>, TapeError>> {
        let range = match self.range(&query.slice)? {
            Ok(range) => range,
            Err(err) => return Ok(Err(err)),
        };
        let needle = needle_of(query);
        let mut selector = query.selector();
        if query.newest_first {
            let mut lines = self.backward(range, needle.as_ref());
            while !selector.is_full()
                && let Some(line) = lines.next()?
            {
                if let Some(entry) = self.entry(&line) {
                    selector.offer(&Arc::new(entry));
                }
            }
        } else {
            let mut lines = self.forward(range, needle.as_ref());
            while !selector.is_full()
                && let Some(line) = lines.next()?
            {
                if let Some(entry) = self.entry(&line) {
                    selector.offer(&Arc::new(entry));
                }
            }
        }
        Ok(Ok(selector.into_entries()))
    }

    /// Where in the file a slice lies.
    fn range(self, slice: &Slice) -> io::Result<Result<Range<u64>, TapeError>> {
        let missing = |name: &String| TapeError::NoAnchor(name.clone());
        Ok(match slice {
            Slice::All => Ok(0..self.len),
            Slice::AfterLastAnchor => match self.newest_anchor(None)? {
                Some(start) => Ok(start..self.len),
                None => Err(TapeError::NoAnchors),
            },
            Slice::AfterAnchor(name) => match self.newest_anchor(Some(name))? {
                Some(start) => Ok(start..self.len),
                None => Err(missing(name)),
            },
            Slice::Between(first, last) => match self.newest_anchor(Some(first))? {
                None => Err(missing(first)),
                Some(start) => match self.next_anchor(last, start)? {
                    Some(end) => Ok(start..end),
                    None => Err(missing(last)),
                },
            },
        })
    }

    /// Where the line after the newest anchor, of that name if one is given, starts.
    fn newest_anchor(self, name: Option<&str>) -> io::Result<Option<u64>> {
        let needle = anchor_needle(name);
        let mut lines = self.backward(0..self.len, needle.as_ref());
        while let Some(line) = lines.next()? {
            if self.entry(&line).is_some_and(|it| it.is_anchor(name)) {
                return Ok(Some(line.next));
            }
        }
        Ok(None)
    }

    /// Where the first anchor of that name behind `start` is.
    fn next_anchor(self, name: &str, start: u64) -> io::Result<Option<u64>> {
        let needle = anchor_needle(Some(name));
        let mut lines = self.forward(start..self.len, needle.as_ref());
        while let Some(line) = lines.next()? {
            if self.entry(&line).is_some_and(|it| it.is_anchor(Some(name))) {
                return Ok(Some(line.start));
            }
        }
        Ok(None)
    }

    /// The newest entry's id, and whether the file ends with a newline.
    pub(super) fn last_id(self) -> io::Result<(u64, bool)> {
        let mut lines = self.backward(0..self.len, None);
        let mut is_ended = None;
        while let Some(line) = lines.next()? {
            // Behind the last newline there is an empty line.
            let is_last_ended = *is_ended.get_or_insert(line.bytes.is_empty() && !line.is_too_long);
            if let Some(entry) = self.peek(&line) {
                return Ok((entry.id, is_last_ended));
            }
        }
        Ok((0, is_ended.unwrap_or(true)))
    }

    pub(super) fn forward<'n>(self, range: Range<u64>, needle: Option<&'n Needle>) -> Forward<'n, File>
    where
        'a: 'n,
    {
        Forward::new(self.file, range, needle, Limits::default())
    }

    fn backward<'n>(self, range: Range<u64>, needle: Option<&'n Needle>) -> Backward<'n, File>
    where
        'a: 'n,
    {
        Backward::new(self.file, range, needle, Limits::default())
    }

    fn entry(self, line: &Line<'_>) -> Option<Entry> {
        let entry = Entry::from_line(line.bytes);
        if entry.is_none() {
            self.report(line);
        }
        entry
    }

    pub(super) fn peek(self, line: &Line<'_>) -> Option<super::peek::Peek> {
        let peek = super::peek::peek(line.bytes);
        if peek.is_none() {
            self.report(line);
        }
        peek
    }

    /// Warns of a line that is no entry, unless it is blank or still being written.
    fn report(self, line: &Line<'_>) {
        if trim_line(line.bytes).is_empty() && !line.is_too_long {
            return;
        }
        if !line.is_ended && !self.is_locked {
            let nobody_writes = self.file.try_lock_shared().is_ok();
            let is_whole = nobody_writes && self.file.metadata().is_ok_and(|it| it.len() == self.len);
            if nobody_writes {
                // The lock was only a question; it goes with the handle at the latest.
                drop(self.file.unlock());
            }
            if !is_whole {
                return;
            }
        }
        self.store.warn_of(self.tape, self.file, line.start);
    }
}

/// What the lines of a query's entries have in common.
fn needle_of(query: &TapeQuery) -> Option<Needle> {
    match (query.names.as_slice(), query.kinds.as_slice()) {
        ([name], _) => Needle::string(name).or_else(|| Needle::string(query.kinds.first()?.as_str())),
        (_, [kind]) => Needle::string(kind.as_str()),
        _ => None,
    }
}

fn anchor_needle(name: Option<&str>) -> Option<Needle> {
    name.and_then(Needle::string).or_else(|| Needle::string("anchor"))
}
