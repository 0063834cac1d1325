//! The text that a shell printed, addressed by characters, in bounded memory.
//!
//! The newest text is in memory. What does not fit there goes to the head: a spool file, or a little
//! memory when there is none. Once the head is full, text between it and the newest is dropped.
//! Offsets count all characters that were ever printed, so they stay valid.

use std::{
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use bub_kernel::text::thousands;
use encoding_rs::{Decoder, UTF_8};

/// Characters that one read returns at most.
pub(super) const MAX_SHOWN: u64 = 1024 * 1024;

/// Characters that the result of a command has at most. What is too long for the conversation is set
/// aside whole, so this bounds memory alone.
pub(super) const MAX_RESULT: u64 = 8 * 1024 * 1024;

/// Memory below which a limit makes no sense, in bytes.
const MIN_MEMORY: usize = 4 * 1024;

/// Memory that a finished shell may keep when it has a spool file, in bytes.
const SETTLED: usize = 64 * 1024;

/// Limits of one shell's output.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    /// Bytes in memory.
    pub(super) memory: usize,
    /// Bytes in all.
    pub(super) total: u64,
    /// Where spool files are made.
    pub(super) spool_dir: Option<PathBuf>,
}

/// A place in the text.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Position {
    bytes: u64,
    chars: u64,
}

impl Position {
    fn after(self, text: &str) -> Self {
        Self { bytes: self.bytes + text.len() as u64, chars: self.chars + text.chars().count() as u64 }
    }
}

/// A piece of the text.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Slice {
    pub(super) text: String,
    /// The offset after it.
    pub(super) next: u64,
}

/// The text that a shell printed.
pub(super) struct OutputBuffer {
    limits: Limits,
    /// `None` after the end.
    decoder: Option<Decoder>,
    head: Head,
    /// How many bytes the head may take.
    head_room: u64,
    /// Where the pieces of the head begin.
    pieces: Vec<Position>,
    head_end: Position,
    /// The newest text; begins where the head ends, unless text was dropped.
    memory: String,
    memory_start: Position,
    end: Position,
}

/// The oldest text.
enum Head {
    Memory(Vec<u8>),
    Spool(Arc<File>),
}

/// Text on its way to the spool file. Writing the same piece twice does no harm.
pub(super) struct Flush {
    file: Option<Arc<File>>,
    dir: PathBuf,
    at: u64,
    text: String,
}

impl OutputBuffer {
    pub(super) fn new(limits: Limits) -> Self {
        let half = usize::try_from(limits.total / 2).unwrap_or(usize::MAX);
        let memory = limits.memory.min(half).max(MIN_MEMORY);
        let head_room = match limits.spool_dir {
            Some(_) => limits.total.saturating_sub(memory as u64),
            None => memory as u64 / 2,
        };
        Self {
            limits: Limits { memory, ..limits },
            decoder: Some(UTF_8.new_decoder_without_bom_handling()),
            head: Head::Memory(Vec::new()),
            head_room,
            pieces: Vec::new(),
            head_end: Position::default(),
            memory: String::new(),
            memory_start: Position::default(),
            end: Position::default(),
        }
    }

    /// Adds what was printed; a character that is cut in two waits for its rest.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.decode(bytes, false);
    }

    /// Adds what was left of a cut character; nothing is added any more.
    pub(super) fn finish(&mut self) {
        self.decode(&[], true);
        self.decoder = None;
        self.memory.shrink_to_fit();
    }

    /// Characters that were printed so far.
    pub(super) fn n_chars(&self) -> u64 {
        self.end.chars
    }

    /// Whether reading may have to wait for the disk.
    pub(super) fn is_spooled(&self) -> bool {
        matches!(self.head, Head::Spool(_))
    }

    /// Makes room in memory. What is returned has to be written and handed to [`Self::flushed`], then
    /// this is to be called again.
    pub(super) fn make_room(&mut self) -> Option<Flush> {
        if self.memory.len() <= self.limits.memory {
            return None;
        }
        let mut n_bytes = self.memory.floor_char_boundary(self.memory.len() - self.limits.memory / 2);
        let flush = self.flush(n_bytes);
        if flush.is_none() {
            n_bytes -= self.move_to_memory_head(n_bytes);
            self.forget(n_bytes);
        }
        flush
    }

    /// Like [`Self::make_room`], for a text to which nothing is added any more; drops nothing.
    pub(super) fn settle(&mut self) -> Option<Flush> {
        if self.memory.len() > SETTLED { self.flush(self.memory.len()) } else { None }
    }

    /// Notes what became of a flush.
    pub(super) fn flushed(&mut self, flush: &Flush, written: io::Result<Arc<File>>) {
        if flush.at != self.head_end.bytes || !self.memory.starts_with(&flush.text) {
            return;
        }
        match written {
            Ok(file) => {
                self.head = Head::Spool(file);
                self.forget(flush.text.len());
                self.extend_head();
                if self.decoder.is_none() {
                    self.memory.shrink_to_fit();
                }
            }
            Err(err) => {
                tracing::warn!(%err, "the output of a shell can't be spooled");
                // What is there stays readable; from here on the middle is dropped.
                self.head_room = if self.is_spooled() { self.head_end.bytes } else { self.limits.memory as u64 / 2 };
                self.limits.spool_dir = None;
            }
        }
    }

    /// The text from character `start` to `end`, at most [`MAX_SHOWN`] characters. A part that was
    /// dropped is named instead, and the offset is then behind it.
    pub(super) fn read(&self, start: u64, end: u64) -> Slice {
        self.slice(start, end, MAX_SHOWN)
    }

    fn slice(&self, start: u64, end: u64, max: u64) -> Slice {
        let start = start.min(self.end.chars);
        let mut end = end.clamp(start, self.end.chars).min(start + max);
        let dropped = self.dropped();
        let mut text = self.head_text(start..end.min(dropped.start));
        if !dropped.is_empty() && start < dropped.end && end > dropped.start {
            let n_chars = dropped.end - start.max(dropped.start);
            text.push_str(&format!("\n...[{} characters were not kept]...\n", thousands(n_chars)));
            end = end.max(dropped.end);
        }
        let in_memory = start.max(self.memory_start.chars)..end;
        if !in_memory.is_empty() {
            let from = in_memory.start - self.memory_start.chars;
            text.push_str(chars_of(&self.memory, from, in_memory.end - in_memory.start));
        }
        Slice { text, next: end }
    }

    /// The whole text, or its start and end when it is too long to show.
    pub(super) fn summary(&self) -> String {
        let total = self.end.chars;
        let dropped = self.dropped();
        if total <= MAX_RESULT && dropped.is_empty() {
            return self.slice(0, total, MAX_RESULT).text;
        }
        let mut head_end = MAX_RESULT / 2;
        let mut tail_start = total.saturating_sub(MAX_RESULT / 2);
        if !dropped.is_empty() {
            head_end = head_end.min(dropped.start);
            tail_start = tail_start.max(dropped.end);
        }
        format!(
            "{}\n...[{} of {} characters omitted]...\n{}",
            self.slice(0, head_end, MAX_RESULT).text,
            thousands(tail_start - head_end),
            thousands(total),
            self.slice(tail_start, total, MAX_RESULT).text
        )
    }

    fn decode(&mut self, bytes: &[u8], last: bool) {
        let Some(decoder) = &mut self.decoder else { return };
        let n_before = self.memory.len();
        let needed = decoder.max_utf8_buffer_length(bytes.len()).unwrap_or(bytes.len());
        self.memory.reserve(needed);
        // With that room the decoder takes all of it at once.
        let _ = decoder.decode_to_string(bytes, &mut self.memory, last);
        self.end = self.end.after(self.memory.get(n_before..).unwrap_or_default());
    }

    /// The oldest bytes in memory as a flush to the spool file, if there is one and it has room.
    fn flush(&self, n_bytes: usize) -> Option<Flush> {
        let dir = self.limits.spool_dir.clone()?;
        let text = self.memory.get(..self.fitting(n_bytes)).filter(|it| !it.is_empty())?.to_owned();
        let file = match &self.head {
            Head::Spool(file) => Some(Arc::clone(file)),
            Head::Memory(_) => None,
        };
        Some(Flush { file, dir, at: self.head_end.bytes, text })
    }

    /// Moves the oldest bytes to a head in memory, as far as there is room, and returns how many.
    fn move_to_memory_head(&mut self, n_bytes: usize) -> usize {
        let fits = self.fitting(n_bytes);
        let Head::Memory(head) = &mut self.head else { return 0 };
        let Some(text) = self.memory.get(..fits).filter(|it| !it.is_empty()) else { return 0 };
        head.extend_from_slice(text.as_bytes());
        self.forget(fits);
        self.extend_head();
        fits
    }

    /// How many of the oldest bytes the head takes; none once text was dropped behind it.
    fn fitting(&self, n_bytes: usize) -> usize {
        if self.head_end != self.memory_start {
            return 0;
        }
        let room = self.head_room.saturating_sub(self.head_end.bytes);
        self.memory.floor_char_boundary(n_bytes.min(usize::try_from(room).unwrap_or(usize::MAX)))
    }

    /// The head now reaches to where memory starts.
    fn extend_head(&mut self) {
        self.pieces.push(self.head_end);
        self.head_end = self.memory_start;
    }

    /// Takes the oldest bytes out of memory.
    fn forget(&mut self, n_bytes: usize) {
        self.memory_start = self.memory_start.after(self.memory.get(..n_bytes).unwrap_or_default());
        self.memory.drain(..n_bytes);
    }

    /// The characters that are neither in the head nor in memory.
    fn dropped(&self) -> Range<u64> {
        self.head_end.chars..self.memory_start.chars
    }

    fn head_text(&self, range: Range<u64>) -> String {
        let mut text = String::new();
        if range.is_empty() {
            return text;
        }
        let first = self.pieces.partition_point(|it| it.chars <= range.start).saturating_sub(1);
        let starts = self.pieces.iter().skip(first);
        let ends = self.pieces.iter().skip(first + 1).chain([&self.head_end]);
        for (start, end) in starts.zip(ends) {
            if start.chars >= range.end {
                break;
            }
            match self.head.read(start.bytes, end.bytes - start.bytes) {
                Ok(piece) => {
                    let skipped = range.start.saturating_sub(start.chars);
                    let n_chars = range.end.saturating_sub(start.chars + skipped);
                    text.push_str(chars_of(&piece, skipped, n_chars));
                }
                Err(err) => {
                    text.push_str(&format!("\n...[the output can't be read back: {err}]...\n"));
                    break;
                }
            }
        }
        text
    }
}

impl Head {
    fn read(&self, at: u64, n_bytes: u64) -> io::Result<String> {
        let n_bytes = usize::try_from(n_bytes).map_err(io::Error::other)?;
        let bytes = match self {
            Self::Memory(head) => {
                let at = usize::try_from(at).map_err(io::Error::other)?;
                head.iter().skip(at).take(n_bytes).copied().collect()
            }
            Self::Spool(file) => {
                let mut bytes = vec![0; n_bytes];
                file.read_exact_at(&mut bytes, at)?;
                bytes
            }
        };
        String::from_utf8(bytes).map_err(io::Error::other)
    }
}

impl Flush {
    /// Writes it; to be called where blocking is allowed.
    pub(super) fn write(&self) -> io::Result<Arc<File>> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => Arc::new(new_spool(&self.dir)?),
        };
        file.write_all_at(self.text.as_bytes(), self.at)?;
        Ok(file)
    }
}

/// Makes a file without a name, which vanishes with this process.
fn new_spool(dir: &Path) -> io::Result<File> {
    std::fs::create_dir_all(dir)?;
    tempfile::tempfile_in(dir)
}

/// Part of a text, by characters.
fn chars_of(text: &str, skip: u64, n_chars: u64) -> &str {
    let rest = text.get(byte_of(text, skip)..).unwrap_or_default();
    rest.get(..byte_of(rest, n_chars)).unwrap_or_default()
}

/// Where a character begins.
fn byte_of(text: &str, n_chars: u64) -> usize {
    let n_chars = usize::try_from(n_chars).unwrap_or(usize::MAX);
    if text.is_ascii() {
        return n_chars.min(text.len());
    }
    text.char_indices().nth(n_chars).map_or(text.len(), |(byte, _)| byte)
}

#[cfg(test)]
mod tests;
