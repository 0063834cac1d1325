//! What scripts say, told apart from all else that comes on standard error.

use std::io;

use memchr::memmem;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes that are read at once.
const CHUNK: usize = 16 * 1024;
/// The longest line that a script says, in bytes; what is longer is none.
const MAX_LINE: usize = 16 * 1024;
/// Bytes of other words that are kept for an error: whoever leads inside says little.
const MAX_NOISE: usize = 4 * 1024;

/// A piece of standard error.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Piece {
    /// A script said this.
    Line(String),
    /// Somebody else did.
    Bytes(Vec<u8>),
}

/// Reads standard error piece by piece. Nothing is lost when a read is dropped.
pub(super) struct Control {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    /// What a script's line begins with: its word and a blank.
    prefixes: Vec<Vec<u8>>,
    buffer: Vec<u8>,
    ended: bool,
    noise: Vec<u8>,
}

impl Control {
    pub(super) fn new(reader: Box<dyn AsyncRead + Send + Unpin>, word: &str) -> Self {
        Self {
            reader,
            prefixes: vec![format!("{word} ").into_bytes()],
            buffer: Vec::new(),
            ended: false,
            noise: Vec::new(),
        }
    }

    /// Listens to a second word too.
    pub(super) fn also(&mut self, word: &str) {
        self.prefixes.push(format!("{word} ").into_bytes());
    }

    /// The next piece; `None` at the end.
    pub(super) async fn next(&mut self) -> io::Result<Option<Piece>> {
        loop {
            if let Some(piece) = self.take() {
                return Ok(Some(piece));
            }
            if self.ended {
                return Ok(None);
            }
            self.buffer.reserve(CHUNK);
            self.ended = self.reader.read_buf(&mut self.buffer).await? == 0;
        }
    }

    /// The next line of a script; what others say is kept for [`Control::noise`].
    pub(super) async fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            match self.next().await? {
                Some(Piece::Line(line)) => return Ok(Some(line)),
                Some(Piece::Bytes(bytes)) => self.keep(&bytes),
                None => return Ok(None),
            }
        }
    }

    /// Keeps what somebody else said, for an error.
    pub(super) fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_NOISE.saturating_sub(self.noise.len());
        self.noise.extend(bytes.iter().take(room));
    }

    /// What others said, on one line.
    pub(super) fn noise(&self) -> String {
        String::from_utf8_lossy(&self.noise).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// A piece of what was read, if there is a whole one.
    fn take(&mut self) -> Option<Piece> {
        if self.buffer.is_empty() {
            return None;
        }
        let starts = self.prefixes.iter().filter_map(|it| Some((memmem::find(&self.buffer, it)?, it.len())));
        let n_other = match starts.min() {
            Some((0, n_prefix)) => return self.take_line(n_prefix),
            Some((start, _)) => start,
            None if self.ended => self.buffer.len(),
            None => self.buffer.len() - self.n_begun(),
        };
        (n_other > 0).then(|| Piece::Bytes(self.buffer.drain(..n_other).collect()))
    }

    /// The line that the buffer begins with.
    fn take_line(&mut self, n_prefix: usize) -> Option<Piece> {
        match memchr::memchr(b'\n', &self.buffer) {
            Some(end) => {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let said = line.get(n_prefix..end).unwrap_or_default();
                Some(Piece::Line(String::from_utf8_lossy(said).into_owned()))
            }
            None if self.ended || self.buffer.len() > MAX_LINE => Some(Piece::Bytes(std::mem::take(&mut self.buffer))),
            None => None,
        }
    }

    /// How many bytes at the end may be the beginning of a line's prefix.
    fn n_begun(&self) -> usize {
        let begun = |prefix: &Vec<u8>| {
            let longest = prefix.len().saturating_sub(1).min(self.buffer.len());
            (1..=longest).rev().find(|n| prefix.get(..*n).is_some_and(|it| self.buffer.ends_with(it)))
        };
        self.prefixes.iter().filter_map(begun).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `chunks` as they come, with `w` as the word.
    async fn check(chunks: &[&str], expected: &[&str]) {
        let (mut writer, reader) = tokio::io::duplex(1);
        let mut control = Control::new(Box::new(reader), "word");
        let write = async {
            for chunk in chunks {
                tokio::io::AsyncWriteExt::write_all(&mut writer, chunk.as_bytes()).await.unwrap();
            }
            drop(writer);
        };
        let read = async {
            let mut lines = Vec::new();
            let mut other = String::new();
            while let Some(piece) = control.next().await.unwrap() {
                match piece {
                    Piece::Line(line) => lines.push(format!("{other}|{line}")),
                    Piece::Bytes(bytes) => other.push_str(std::str::from_utf8(&bytes).unwrap()),
                }
            }
            lines.push(other);
            lines
        };
        let (lines, ()) = tokio::join!(read, write);
        assert_eq!(lines, expected, "{chunks:?}");
    }

    #[tokio::test]
    async fn lines_of_scripts_are_told_apart_from_other_words() {
        check(&[""], &[""]).await;
        check(&["word one\nword two 3\n"], &["|one", "|two 3", ""]).await;
        check(
            &["noise\nword one\nhalf a liword two\nrest"],
            &["noise\n|one", "noise\nhalf a li|two", "noise\nhalf a lirest"],
        )
        .await;
        check(&["wordwor", "word x\nwo"], &["wordwor|x", "wordworwo"]).await;
        check(&["word without an end"], &["word without an end"]).await;
    }

    #[tokio::test]
    async fn other_words_are_kept_within_a_limit() {
        let text = format!("Error:\n  no such\tbox {}\nword on\n", "x".repeat(100_000));
        let mut control = Control::new(Box::new(std::io::Cursor::new(text)), "word");
        assert_eq!(control.line().await.unwrap().as_deref(), Some("on"));
        assert_eq!(control.line().await.unwrap(), None);
        let noise = control.noise();
        assert!(noise.starts_with("Error: no such box xxx") && noise.len() <= MAX_NOISE, "{}", noise.len());
    }
}
