//! Lines of a stream of bytes, one at a time.
//!
//! Only `\n`, `\r\n` and a lone `\r` end a line; form feeds and Unicode's separators are text.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::text::{BOM, HEAD_BYTES};

/// Bytes that are read first: most files have no more.
const FIRST_BYTES: usize = 2 * HEAD_BYTES;
/// Bytes that are read at once from then on.
const BUFFER_BYTES: usize = 256 * 1024;

/// What ended a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Terminator {
    /// `\n`
    Lf,
    /// `\r\n`
    CrLf,
    /// `\r`
    Cr,
    /// The end of the file.
    None,
}

impl Terminator {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Lf => "\n",
            Self::CrLf => "\r\n",
            Self::Cr => "\r",
            Self::None => "",
        }
    }
}

/// One line that was read or skipped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Where it starts in the file, in bytes.
    pub(super) start: u64,
    /// Its length in bytes, terminator excluded.
    pub(super) len: u64,
    /// What ended it.
    pub(super) terminator: Terminator,
}

/// Reads lines; holds one buffer, however long the file or the line.
pub(super) struct Lines<R> {
    reader: R,
    buffer: Box<[u8]>,
    /// How large the buffer is from the second reading on, in bytes.
    more: usize,
    /// The part of the buffer that was read and not yet used.
    unused: std::ops::Range<usize>,
    /// Where the unused part starts in the file.
    position: u64,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Reads the beginning of the file.
    pub(super) async fn start(reader: R) -> io::Result<Self> {
        let buffer = vec![0; FIRST_BYTES].into_boxed_slice();
        let mut lines = Self { reader, buffer, more: BUFFER_BYTES, unused: 0..0, position: 0 };
        while lines.unused.end < HEAD_BYTES {
            let free = lines.buffer.get_mut(lines.unused.end..).unwrap_or_default();
            match lines.reader.read(free).await? {
                0 => break,
                n => lines.unused.end += n,
            }
        }
        Ok(lines)
    }

    /// What is in the buffer; right after [`Lines::start`], the beginning of the file.
    pub(super) fn buffered(&self) -> &[u8] {
        self.buffer.get(self.unused.clone()).unwrap_or_default()
    }

    /// Passes over a byte order mark; only right after [`Lines::start`].
    pub(super) fn skip_bom(&mut self) {
        if self.buffered().starts_with(BOM) {
            self.advance(BOM.len());
        }
    }

    /// Whether nothing follows.
    pub(super) async fn at_end(&mut self) -> io::Result<bool> {
        Ok(self.buffered().is_empty() && !self.fill().await?)
    }

    /// Passes over one line; `None` at the end of the file.
    pub(super) async fn skip(&mut self) -> io::Result<Option<Line>> {
        self.line(&mut Vec::new(), 0).await
    }

    /// Appends the first `max` bytes of the next line to `kept`; `None` at the end of the file.
    pub(super) async fn line(&mut self, kept: &mut Vec<u8>, max: usize) -> io::Result<Option<Line>> {
        if self.at_end().await? {
            return Ok(None);
        }
        let start = self.position;
        let mut len = 0;
        let mut room = max;
        loop {
            let piece = self.buffered();
            let end = memchr::memchr2(b'\n', b'\r', piece);
            let text = piece.get(..end.unwrap_or(piece.len())).unwrap_or_default();
            let is_lf = end.and_then(|at| piece.get(at)) == Some(&b'\n');
            let taken = text.len().min(room);
            kept.extend_from_slice(text.get(..taken).unwrap_or_default());
            room -= taken;
            let n_used = text.len();
            len += n_used as u64;
            self.advance(n_used);
            if end.is_some() {
                self.advance(1);
                let terminator = if is_lf { Terminator::Lf } else { self.after_cr().await? };
                return Ok(Some(Line { start, len, terminator }));
            }
            if !self.fill().await? {
                return Ok(Some(Line { start, len, terminator: Terminator::None }));
            }
        }
    }

    /// Decides between `\r` and `\r\n`, whose halves may come by different reads.
    async fn after_cr(&mut self) -> io::Result<Terminator> {
        if !self.at_end().await? && self.buffered().first() == Some(&b'\n') {
            self.advance(1);
            return Ok(Terminator::CrLf);
        }
        Ok(Terminator::Cr)
    }

    fn advance(&mut self, n_bytes: usize) {
        self.unused.start += n_bytes;
        self.position += n_bytes as u64;
    }

    /// Reads more once everything is used; `false` at the end of the file.
    async fn fill(&mut self) -> io::Result<bool> {
        if self.buffer.len() < self.more && self.unused.end > 0 {
            self.buffer = vec![0; self.more].into();
        }
        let n_bytes = self.reader.read(&mut self.buffer).await?;
        self.unused = 0..n_bytes;
        Ok(n_bytes > 0)
    }
}

/// The byte at which line `wanted` of `text` starts; `None` when there are fewer lines.
pub(super) fn line_start(text: &str, wanted: u64) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    for _ in 0..wanted {
        let rest = bytes.get(at..).unwrap_or_default();
        at += memchr::memchr2(b'\n', b'\r', rest)? + 1;
        if bytes.get(at - 1) == Some(&b'\r') && bytes.get(at) == Some(&b'\n') {
            at += 1;
        }
    }
    (at < bytes.len() || wanted == 0).then_some(at)
}

/// Whether there are line ends, and all of them are `\r\n`.
pub(super) fn is_crlf_throughout(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut n_ends = 0_usize;
    let mut rest = 0;
    while let Some(at) = memchr::memchr2(b'\n', b'\r', bytes.get(rest..).unwrap_or_default()) {
        if bytes.get(rest + at..).is_none_or(|it| !it.starts_with(b"\r\n")) {
            return false;
        }
        n_ends += 1;
        rest += at + 2;
    }
    n_ends > 0
}

/// Whether there is a `\n` without a `\r` before it.
pub(super) fn has_lone_lf(text: &str) -> bool {
    memchr::memchr_iter(b'\n', text.as_bytes()).any(|at| at == 0 || text.as_bytes().get(at - 1) != Some(&b'\r'))
}

/// The text with `\r\n` for each line end.
pub(super) fn to_crlf(text: &str) -> String {
    to_lf(text).replace('\n', "\r\n")
}

/// The text with `\n` for each `\r\n`.
pub(super) fn to_lf(text: &str) -> String {
    text.replace("\r\n", "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_start_counts_all_three_line_ends_and_nothing_else() {
        let text = "a\nb\r\nc\rd\u{2028}e\x0cf\n";
        let starts: Vec<_> = (0..6).map(|it| line_start(text, it)).collect();
        assert_eq!(starts, [Some(0), Some(2), Some(5), Some(7), None, None]);
        assert_eq!((line_start("", 0), line_start("", 1), line_start("x", u64::MAX)), (Some(0), None, None));
    }

    #[test]
    fn crlf_throughout_needs_at_least_one_and_no_other() {
        let cases = ["a\r\nb\r\n", "a\r\nb", "ab", "a\nb", "a\r\nb\n", "a\rb\r\n", "\r\n", "a\r\n\r"];
        assert_eq!(cases.map(is_crlf_throughout), [true, true, false, false, false, false, true, false]);
    }

    #[tokio::test]
    async fn line_ends_are_whole_however_the_bytes_come() {
        let bytes = b"a\r\nbc\rd\n\r\n\r\re".as_slice();
        for size in 1..bytes.len() {
            // The buffer's size is how many bytes come at a time.
            let mut lines =
                Lines { reader: bytes, buffer: vec![0; size].into(), more: size, unused: 0..0, position: 0 };
            let mut seen = String::new();
            let mut kept = Vec::new();
            while let Some(line) = lines.line(&mut kept, 100).await.unwrap() {
                assert_eq!(line.start, seen.len() as u64);
                assert_eq!(line.len, kept.len() as u64);
                seen.push_str(std::str::from_utf8(&kept).unwrap());
                seen.push_str(line.terminator.as_str());
                kept.clear();
            }
            assert_eq!(seen.as_bytes(), bytes, "{size} bytes at a time");
        }
    }
}
