//! The lines of a file, from either end, in memory that does not grow with the file.

use std::{fs::File, io, ops::Range};

use memchr::{memchr, memmem, memrchr};

/// Bytes that are read at once.
const BLOCK: usize = 64 * 1024;
/// The longest line that is read, in bytes; longer ones are passed over.
pub(super) const MAX_LINE: usize = 256 * 1024 * 1024;

/// Where bytes are read from.
pub(super) trait Source {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Source for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, buffer, offset)
    }
}

/// One line, without its newline.
#[derive(Debug, PartialEq)]
pub(super) struct Line<'a> {
    /// Where it starts in the file.
    pub(super) start: u64,
    /// Where the next line starts.
    pub(super) next: u64,
    /// Its bytes; none when it is too long.
    pub(super) bytes: &'a [u8],
    /// Whether a newline follows.
    pub(super) is_ended: bool,
    /// Whether it is longer than what is read.
    pub(super) is_too_long: bool,
}

/// Bytes that a line must have to be of interest, as JSON writes them.
///
/// JSON can write a letter as `\u0041` and a slash as `\/`. Where a block has such escapes all its
/// lines are returned, so that nothing is missed.
#[derive(Debug)]
pub(super) struct Needle {
    forward: memmem::Finder<'static>,
    backward: memmem::FinderRev<'static>,
    has_slash: bool,
}

impl Needle {
    /// The JSON string of a text; none when JSON has several usual ways to write it.
    pub(super) fn string(text: &str) -> Option<Self> {
        let is_plain = |it: u8| matches!(it, b' '..=b'~') && !matches!(it, b'"' | b'\\');
        if !text.bytes().all(is_plain) {
            return None;
        }
        let quoted = format!("\"{text}\"");
        Some(Self {
            forward: memmem::Finder::new(quoted.as_bytes()).into_owned(),
            backward: memmem::FinderRev::new(quoted.as_bytes()).into_owned(),
            has_slash: text.contains('/'),
        })
    }

    /// Whether lines without the needle can be passed over in this block.
    fn is_safe_in(&self, block: &[u8]) -> bool {
        let is_printable = |at: usize| block.get(at + 4).is_some_and(|it| matches!(it, b'2'..=b'7'));
        let has_letters = memmem::find_iter(block, b"\\u00").any(is_printable);
        let has_slashes = self.has_slash && memmem::find(block, b"\\/").is_some();
        !has_letters && !has_slashes
    }
}

/// How much is read at once and at most; the constants above, but in tests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) block: usize,
    pub(super) max_line: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { block: BLOCK, max_line: MAX_LINE }
    }
}

/// The lines of a stretch that begins at the start of a line, first to last.
#[derive(Debug)]
pub(super) struct Forward<'a, S: ?Sized> {
    source: &'a S,
    needle: Option<&'a Needle>,
    limits: Limits,
    end: u64,
    buffer: Vec<u8>,
    /// Where the buffer starts in the file.
    base: u64,
    /// What was returned of the buffer.
    pos: usize,
    /// Where the buffer's last newline ends.
    ready: usize,
    is_filtered: bool,
}

impl<'a, S: Source + ?Sized> Forward<'a, S> {
    pub(super) fn new(source: &'a S, range: Range<u64>, needle: Option<&'a Needle>, limits: Limits) -> Self {
        let Range { start, end } = range;
        Self { source, needle, limits, end, buffer: Vec::new(), base: start, pos: 0, ready: 0, is_filtered: false }
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let found = loop {
            match self.find_ready() {
                Some(found) => break found,
                None if self.pos < self.ready => self.pos = self.ready,
                None => {}
            }
            self.buffer.drain(..self.pos);
            self.base += self.pos as u64;
            (self.pos, self.ready) = (0, 0);
            if self.buffer.len() > self.limits.max_line {
                let start = self.base;
                let is_ended = self.skip_line()?;
                let next = self.base + self.pos as u64;
                return Ok(Some(Line { start, next, bytes: &[], is_ended, is_too_long: true }));
            }
            if !self.fill()? {
                if self.buffer.is_empty() {
                    return Ok(None);
                }
                self.pos = self.buffer.len();
                break 0..self.pos;
            }
        };
        let start = self.base + found.start as u64;
        let next = self.base + self.pos as u64;
        let is_ended = self.pos > found.end;
        let bytes = self.buffer.get(found).unwrap_or_default();
        Ok(Some(Line { start, next, bytes, is_ended, is_too_long: false }))
    }

    /// The next whole line of the buffer.
    fn find_ready(&mut self) -> Option<Range<usize>> {
        let rest = self.buffer.get(self.pos..self.ready)?;
        let mut start = 0;
        if self.is_filtered
            && let Some(needle) = self.needle
        {
            let at = needle.forward.find(rest)?;
            start = memrchr(b'\n', rest.get(..at)?).map_or(0, |it| it + 1);
        }
        let end = start + memchr(b'\n', rest.get(start..)?)?;
        let found = self.pos + start..self.pos + end;
        self.pos = found.end + 1;
        Some(found)
    }

    /// Reads on behind what the buffer has; false at the end.
    fn fill(&mut self) -> io::Result<bool> {
        let had = self.buffer.len();
        // Long lines are read in growing pieces, so that moving them stays cheap.
        let offset = self.base + had as u64;
        let wanted = (self.limits.block.max(had) as u64).min(self.end.saturating_sub(offset)) as usize;
        self.buffer.resize(had + wanted, 0);
        let n = match self.buffer.get_mut(had..) {
            Some(room) if !room.is_empty() => read_some(self.source, room, offset)?,
            _ => 0,
        };
        self.buffer.truncate(had + n);
        self.measure(had);
        Ok(n > 0)
    }

    /// Finds the last newline behind `from`.
    fn measure(&mut self, from: usize) {
        let new = self.buffer.get(from..).unwrap_or_default();
        self.ready = memrchr(b'\n', new).map_or(0, |it| from + it + 1);
        let whole = self.buffer.get(..self.ready).unwrap_or_default();
        self.is_filtered = self.needle.is_some_and(|it| it.is_safe_in(whole));
    }

    /// Passes over a line that is too long; says whether it ended.
    fn skip_line(&mut self) -> io::Result<bool> {
        loop {
            self.base += self.buffer.len() as u64;
            self.buffer.clear();
            if !self.fill()? {
                return Ok(false);
            }
            if let Some(at) = memchr(b'\n', &self.buffer) {
                self.pos = at + 1;
                return Ok(true);
            }
        }
    }
}

/// The lines of a stretch that begins at the start of a line, last to first.
#[derive(Debug)]
pub(super) struct Backward<'a, S: ?Sized> {
    source: &'a S,
    needle: Option<&'a Needle>,
    limits: Limits,
    range: Range<u64>,
    block: Vec<u8>,
    /// Where the block starts in the file.
    base: u64,
    /// Where what was not returned ends in the block, without a newline.
    pos: usize,
    is_filtered: bool,
    is_done: bool,
}

impl<'a, S: Source + ?Sized> Backward<'a, S> {
    pub(super) fn new(source: &'a S, range: Range<u64>, needle: Option<&'a Needle>, limits: Limits) -> Self {
        let (base, is_done) = (range.end, range.is_empty());
        Self { source, needle, limits, range, block: Vec::new(), base, pos: 0, is_filtered: false, is_done }
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let found = loop {
            if self.is_done {
                return Ok(None);
            }
            if let Some(found) = self.find_ready() {
                break found;
            }
            if self.is_done || self.base == self.range.start {
                self.is_done = true;
                continue;
            }
            if self.pos > self.limits.max_line {
                let next = self.base + self.pos as u64;
                let start = self.skip_line()?;
                let is_ended = next < self.range.end;
                return Ok(Some(Line {
                    start,
                    next: next + u64::from(is_ended),
                    bytes: &[],
                    is_ended,
                    is_too_long: true,
                }));
            }
            self.fill(self.limits.block.max(self.pos))?;
        };
        let is_ended = self.base + (found.end as u64) < self.range.end;
        Ok(Some(Line {
            start: self.base + found.start as u64,
            next: self.base + found.end as u64 + u64::from(is_ended),
            bytes: self.block.get(found).unwrap_or_default(),
            is_ended,
            is_too_long: false,
        }))
    }

    /// The last whole line of the block that was not returned.
    fn find_ready(&mut self) -> Option<Range<usize>> {
        let is_first_block = self.base == self.range.start;
        let rest = self.block.get(..self.pos)?;
        if self.is_filtered
            && let Some(needle) = self.needle
        {
            // Whether there is one at all is found several times faster from the front.
            let has_one = needle.forward.find(rest).is_some();
            match if has_one { needle.backward.rfind(rest) } else { None } {
                Some(at) => self.pos = at + memchr(b'\n', rest.get(at..)?).unwrap_or(rest.len() - at),
                None => {
                    // Only the line that may begin in the block before is still open.
                    match memchr(b'\n', rest) {
                        _ if is_first_block => self.is_done = true,
                        Some(first) => self.pos = first,
                        None => {}
                    }
                    return None;
                }
            }
        }
        let rest = self.block.get(..self.pos)?;
        match memrchr(b'\n', rest) {
            Some(at) => {
                let found = at + 1..self.pos;
                self.pos = at;
                Some(found)
            }
            None if is_first_block => {
                self.is_done = true;
                Some(0..self.pos)
            }
            None => None,
        }
    }

    /// Puts what comes before in front of what was not returned.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        let size = (wanted as u64).min(self.base - self.range.start) as usize;
        let mut block = vec![0; size];
        let offset = self.base - size as u64;
        if read_some(self.source, &mut block, offset)? < size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        block.extend_from_slice(self.block.get(..self.pos).unwrap_or_default());
        self.is_filtered = self.needle.is_some_and(|it| it.is_safe_in(&block));
        (self.block, self.base, self.pos) = (block, offset, self.pos + size);
        Ok(())
    }

    /// Passes over a line that is too long; returns where it starts.
    fn skip_line(&mut self) -> io::Result<u64> {
        loop {
            self.pos = 0;
            if self.base == self.range.start {
                self.is_done = true;
                return Ok(self.base);
            }
            self.fill(self.limits.block)?;
            if let Some(at) = memrchr(b'\n', &self.block) {
                self.pos = at;
                return Ok(self.base + at as u64 + 1);
            }
        }
    }
}

/// Reads until the buffer is full or the source ends.
pub(super) fn read_some<S: Source + ?Sized>(source: &S, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut n = 0;
    while let Some(room) = buffer.get_mut(n..).filter(|it| !it.is_empty()) {
        match source.read_at(room, offset + n as u64) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    Ok(n)
}

/// Which line of the file, from 1, starts at an offset.
pub(super) fn line_number(file: &File, offset: u64) -> io::Result<u64> {
    let mut block = vec![0; 16 * BLOCK];
    let (mut at, mut newlines) = (0, 0);
    while at < offset {
        let wanted = (block.len() as u64).min(offset - at) as usize;
        let n = file.read_at(block.get_mut(..wanted).unwrap_or_default(), at)?;
        if n == 0 {
            break;
        }
        newlines += memchr::memchr_iter(b'\n', block.get(..n).unwrap_or_default()).count() as u64;
        at += n as u64;
    }
    Ok(newlines + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Source for [u8] {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let rest = self.get(offset as usize..).unwrap_or_default();
            let n = rest.len().min(buffer.len());
            buffer[..n].copy_from_slice(&rest[..n]);
            Ok(n)
        }
    }

    type Owned = (u64, u64, Vec<u8>, bool, bool);

    fn owned(line: &Line<'_>) -> Owned {
        (line.start, line.next, line.bytes.to_vec(), line.is_ended, line.is_too_long)
    }

    fn forward(text: &[u8], needle: Option<&Needle>, limits: Limits) -> Vec<Owned> {
        let mut lines = Forward::new(text, 0..text.len() as u64, needle, limits);
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(owned(&line));
        }
        all
    }

    fn backward(text: &[u8], needle: Option<&Needle>, limits: Limits) -> Vec<Owned> {
        let mut lines = Backward::new(text, 0..text.len() as u64, needle, limits);
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(owned(&line));
        }
        all.reverse();
        // The nothing behind the last newline is a line only when read from the end.
        all.retain(|it| it.0 < text.len() as u64);
        all
    }

    /// The same by splitting.
    fn plain(text: &[u8], max_line: usize) -> Vec<Owned> {
        let mut start = 0;
        let mut all = Vec::new();
        for piece in text.split_inclusive(|it| *it == b'\n') {
            let bytes = piece.strip_suffix(b"\n").unwrap_or(piece);
            let next = start + piece.len() as u64;
            let is_too_long = bytes.len() > max_line;
            let kept = if is_too_long { Vec::new() } else { bytes.to_vec() };
            all.push((start, next, kept, bytes.len() < piece.len(), is_too_long));
            start = next;
        }
        all
    }

    proptest! {
        #[test]
        fn lines_are_the_same_from_either_end(text in "[ab\n]{0,80}", block in 1_usize..20) {
            let limits = Limits { block, max_line: MAX_LINE };
            let expected = plain(text.as_bytes(), MAX_LINE);
            prop_assert_eq!(forward(text.as_bytes(), None, limits), expected.clone());
            prop_assert_eq!(backward(text.as_bytes(), None, limits), expected);
        }

        #[test]
        fn a_needle_passes_over_lines_without_it_and_no_others(
            text in "(\"a\"|\"|a|b|\n|\\\\u0061|\\\\u0012){0,40}",
            block in 1_usize..20,
        ) {
            let limits = Limits { block, max_line: MAX_LINE };
            let needle = Needle::string("a").unwrap();
            let has = |it: &Owned| memmem::find(&it.2, b"\"a\"").is_some() || memmem::find(&it.2, b"\\u0061").is_some();
            let mut expected = plain(text.as_bytes(), MAX_LINE);
            expected.retain(has);
            for mut found in [forward(text.as_bytes(), Some(&needle), limits), backward(text.as_bytes(), Some(&needle), limits)] {
                found.retain(has);
                prop_assert_eq!(&found, &expected);
            }
        }

        #[test]
        fn lines_that_are_too_long_hide_no_others(text in "[ab\n]{0,200}", block in 1_usize..8) {
            // How far beyond the limit a line is still read depends on the blocks.
            let limits = Limits { block, max_line: 8 };
            let short = |all: Vec<Owned>| all.into_iter().filter(|it| !it.4 && it.2.len() <= 8).collect::<Vec<_>>();
            let expected = short(plain(text.as_bytes(), 8));
            prop_assert_eq!(short(forward(text.as_bytes(), None, limits)), expected.clone());
            prop_assert_eq!(short(backward(text.as_bytes(), None, limits)), expected);
        }
    }
}
