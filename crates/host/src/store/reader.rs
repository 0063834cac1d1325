//! Reading a tape: from the end where possible, and only lines that may matter.

use std::{
    cell::Cell,
    fs::{self, File},
    io,
    ops::Range,
    path::Path,
    sync::Arc,
};

use bub_kernel::tape::{Entry, EntryKind, Slice, TapeError, TapeName, TapeQuery, trim_line};

use super::{
    Inner,
    blocks::{BLOCK, Blocks},
    failed,
    index::Whereabouts,
    index_build::next_line,
    lines::{Backward, Forward, Limits, Line, Needle},
    text_filter::{TextFilter, is_wanted},
};

/// How often a read starts again when another program changes the file meanwhile.
const MAX_RESTARTS: usize = 3;
/// Bytes that are read before the index is asked: most answers are so near, and most tapes so short.
pub(super) const NEAR_BYTES: u64 = 1 << 20;
/// Bytes that are read at once for one line.
const LINE_BLOCK: usize = 4 * 1024;

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

/// A part of what is to be visited.
enum Piece {
    /// All lines there.
    Lines(Range<u64>),
    /// The lines that start there.
    At(Vec<u64>),
}

/// Takes an entry, and where its line starts and the next one does; says whether to go on.
type Visit<'v> = dyn FnMut(Entry, Range<u64>) -> bool + 'v;

impl Inner {
    /// Reads the entries that a query selects.
    pub(super) fn read(&self, tape: &TapeName, query: &TapeQuery) -> Result<Vec<Arc<Entry>>, TapeError> {
        let mut n_restarts = 0;
        loop {
            let mut found = Vec::new();
            let mut take = |entry| {
                found.push(entry);
                true
            };
            match self.try_visit(tape, query, &mut take) {
                Ok(Ok(())) => return Ok(found),
                Ok(Err(err)) => return Err(err),
                Err(err) if is_changed(&err) && n_restarts < MAX_RESTARTS => n_restarts += 1,
                Err(err) => return Err(failed(tape.as_str(), "read", &self.path(tape), err)),
            }
        }
    }

    /// Hands over the entries that a query selects, one by one, as long as they are taken. When another
    /// program changes the file meanwhile, it is read again unless something was handed over already.
    pub(super) fn visit(
        &self,
        tape: &TapeName,
        query: &TapeQuery,
        mut take: impl FnMut(Arc<Entry>) -> bool,
    ) -> Result<(), TapeError> {
        let mut n_restarts = 0;
        let has_begun = Cell::new(false);
        let mut take = |entry| {
            has_begun.set(true);
            take(entry)
        };
        loop {
            match self.try_visit(tape, query, &mut take) {
                Ok(done) => return done,
                Err(err) if is_changed(&err) && !has_begun.get() && n_restarts < MAX_RESTARTS => n_restarts += 1,
                Err(err) => return Err(failed(tape.as_str(), "read", &self.path(tape), err)),
            }
        }
    }

    fn try_visit(
        &self,
        tape: &TapeName,
        query: &TapeQuery,
        take: &mut dyn FnMut(Arc<Entry>) -> bool,
    ) -> io::Result<Result<(), TapeError>> {
        let Some(Snapshot { file, len }) = Snapshot::open(&self.path(tape))? else {
            return Ok(query.select(&[]).map(drop));
        };
        let reader = Reader { store: self, tape, file: &file, len, is_locked: false };
        let done = reader.select(query, take);
        if done.as_ref().is_err_and(is_changed) {
            self.forget(tape);
        }
        done
    }
}

/// Reads again, within limits, when another program changed the file meanwhile.
pub(super) fn unless_changed<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut n_restarts = 0;
    loop {
        match read() {
            Err(err) if is_changed(&err) && n_restarts < MAX_RESTARTS => n_restarts += 1,
            done => return done,
        }
    }
}

/// Whether reading failed because the file is not what it was when reading began.
fn is_changed(err: &io::Error) -> bool {
    err.kind() == io::ErrorKind::UnexpectedEof
}

impl<'a> Reader<'a> {
    fn select(self, query: &TapeQuery, take: &mut dyn FnMut(Arc<Entry>) -> bool) -> io::Result<Result<(), TapeError>> {
        let range = match self.range(&query.slice)? {
            Ok(range) => range,
            Err(err) => return Ok(Err(err)),
        };
        let mut selector = query.selector();
        if !selector.is_full() {
            self.walk(range, query, &mut |entry, _| {
                let goes_on = !selector.accepts(&entry) || take(Arc::new(entry));
                goes_on && !selector.is_full()
            })?;
        }
        Ok(Ok(()))
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
        let mut found = None;
        self.walk(0..self.len, &anchors(name).newest_first(), &mut |entry, line| {
            found = entry.is_anchor(name).then_some(line.end);
            found.is_none()
        })?;
        Ok(found)
    }

    /// Where the first anchor of that name behind `start` is.
    fn next_anchor(self, name: &str, start: u64) -> io::Result<Option<u64>> {
        let mut found = None;
        self.walk(start..self.len, &anchors(Some(name)), &mut |entry, line| {
            found = entry.is_anchor(Some(name)).then_some(line.start);
            found.is_none()
        })?;
        Ok(found)
    }

    /// Visits the entries of a stretch that may be those of a query, in its order. Its slice and limit
    /// are the caller's business, and what is visited has to be matched.
    fn walk(self, range: Range<u64>, query: &TapeQuery, visit: &mut Visit<'_>) -> io::Result<()> {
        let is_sparse = match query.kinds.as_slice() {
            [EntryKind::Anchor] => true,
            [EntryKind::Event] => !query.names.is_empty(),
            _ => false,
        };
        let has_bounds = query.from.is_some() || query.to.is_some() || query.ids.is_some();
        let is_short = range.end.saturating_sub(range.start) <= NEAR_BYTES;
        if is_short || !(is_sparse || has_bounds) {
            return self.walk_lines(range, query, visit).map(drop);
        }
        let border = if query.newest_first { range.end - NEAR_BYTES } else { range.start + NEAR_BYTES };
        let border = next_line(self.file, border..range.end)?.unwrap_or(range.end);
        let (mut near, mut far) = (range.start..border, border..range.end);
        if query.newest_first {
            std::mem::swap(&mut near, &mut far);
        }
        if self.walk_lines(near, query, visit)? {
            self.walk_far(far, query, visit)?;
        }
        Ok(())
    }

    /// Visits what the index knows of, and all that it knows nothing of.
    fn walk_far(self, range: Range<u64>, query: &TapeQuery, visit: &mut Visit<'_>) -> io::Result<bool> {
        let (known, _) = self.store.index(self)?;
        let index = &known.index;
        let within = |it: Range<u64>| it.start.max(range.start)..it.end.min(range.end);
        let mut pieces = Vec::new();
        match index.whereabouts(query) {
            Some(Whereabouts::At { floor, mut starts }) => {
                starts.retain(|it| *it >= floor && range.contains(it));
                // What lies below the floor ends with a line that is known.
                let below = match starts.first() {
                    _ if floor == 0 => 0..0,
                    Some(first) => 0..*first,
                    None => 0..index.end,
                };
                pieces.push(Piece::Lines(within(below)));
                pieces.push(Piece::At(starts));
            }
            Some(Whereabouts::In(ranges)) => pieces.extend(ranges.into_iter().map(|it| Piece::Lines(within(it)))),
            None => pieces.push(Piece::Lines(within(0..index.end))),
        }
        pieces.push(Piece::Lines(within(index.end..self.len)));
        if query.newest_first {
            pieces.reverse();
        }
        for piece in pieces {
            let goes_on = match piece {
                Piece::Lines(range) => range.is_empty() || self.walk_lines(range, query, visit)?,
                Piece::At(starts) => self.walk_places(starts, query, visit)?,
            };
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn walk_places(self, mut starts: Vec<u64>, query: &TapeQuery, visit: &mut Visit<'_>) -> io::Result<bool> {
        if query.newest_first {
            starts.reverse();
        }
        for start in starts {
            let mut lines = self.line_at(start);
            let entry = lines.next()?.and_then(|line| Some((Entry::from_line(line.bytes)?, line.start..line.next)));
            match entry {
                Some((entry, line)) if query.kinds.contains(&entry.kind) => {
                    if !visit(entry, line) {
                        return Ok(false);
                    }
                }
                // The tape is not the one that was indexed.
                _ => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        Ok(true)
    }

    /// Visits lines one after the other; says whether to go on.
    fn walk_lines(self, range: Range<u64>, query: &TapeQuery, visit: &mut Visit<'_>) -> io::Result<bool> {
        if let Some(text) = &query.text {
            return self.walk_blocks(range, query, TextFilter::new(text, &query.kinds), visit);
        }
        let needle = needle_of(query);
        let mut goes_on = true;
        let mut look_at = |line: &Line<'_>| {
            if is_wanted(&query.kinds, line.bytes)
                && let Some(entry) = self.entry(line)
            {
                goes_on = visit(entry, line.start..line.next);
            }
            goes_on
        };
        if query.newest_first {
            let mut lines = self.backward(range, needle.as_ref());
            while let Some(line) = lines.next()? {
                if !look_at(&line) {
                    break;
                }
            }
        } else {
            let mut lines = self.forward(range, needle.as_ref());
            while let Some(line) = lines.next()? {
                if !look_at(&line) {
                    break;
                }
            }
        }
        Ok(goes_on)
    }

    /// Visits the lines that a filter lets through; says whether to go on.
    fn walk_blocks(
        self,
        range: Range<u64>,
        query: &TapeQuery,
        mut filter: TextFilter,
        visit: &mut Visit<'_>,
    ) -> io::Result<bool> {
        let limits = Limits { block: BLOCK, ..Limits::default() };
        let mut blocks = Blocks::new(self.file, range, query.newest_first, limits);
        let mut found = Vec::new();
        while let Some(block) = blocks.next()? {
            found.clear();
            filter.lines(block.bytes, &mut found);
            if query.newest_first {
                found.reverse();
            }
            for range in &found {
                let start = block.start + range.start as u64;
                let is_ended = range.end < block.bytes.len();
                let next = block.start + range.end as u64 + u64::from(is_ended);
                let bytes = block.bytes.get(range.clone()).unwrap_or_default();
                let line = Line { start, next, bytes, is_ended, is_too_long: false };
                if let Some(entry) = self.entry(&line)
                    && !visit(entry, start..next)
                {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The entry whose line starts there, if there is one.
    pub(super) fn entry_at(self, start: u64) -> io::Result<Option<Entry>> {
        Ok(self.line_at(start).next()?.and_then(|it| Entry::from_line(it.bytes)))
    }

    /// The lines from one on, of which only few are wanted.
    fn line_at(self, start: u64) -> Forward<'a, File> {
        let limits = Limits { block: LINE_BLOCK, ..Limits::default() };
        Forward::new(self.file, start..self.len, None, limits)
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

    /// Warns of a line that is no entry and starts there.
    pub(super) fn report_at(self, start: u64, is_ended: bool) {
        self.report(&Line { start, next: start, bytes: b"?", is_ended, is_too_long: false });
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

/// Finds anchors, of that name if one is given.
fn anchors(name: Option<&str>) -> TapeQuery {
    TapeQuery { names: name.into_iter().map(str::to_owned).collect(), ..TapeQuery::default().kind(EntryKind::Anchor) }
}

/// What the lines of a query's entries have in common.
fn needle_of(query: &TapeQuery) -> Option<Needle> {
    match (query.names.as_slice(), query.kinds.as_slice()) {
        ([name], _) => Needle::string(name).or_else(|| Needle::string(query.kinds.first()?.as_str())),
        (_, [kind]) => Needle::string(kind.as_str()),
        _ => None,
    }
}
