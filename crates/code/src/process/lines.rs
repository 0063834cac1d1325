//! Lines of any length, up to a limit, from a pipe.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// How much is read at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// Reads lines. A wait for the next one may be dropped and begun again; nothing is lost.
pub(super) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// There is no line end before this place.
    searched: usize,
    limit: usize,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Reads lines of at most `limit` bytes.
    pub(super) fn new(reader: R, limit: usize) -> Self {
        Self { reader, buffer: Vec::new(), searched: 0, limit, ended: false }
    }

    /// The next line without its end; a last one need not have an end. `None` at the end of input.
    ///
    /// # Errors
    /// [`io::ErrorKind::FileTooLarge`] for a line beyond the limit, or what the pipe says.
    pub(super) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(at) = memchr::memchr(b'\n', unsearched) {
                let rest = self.buffer.split_off(self.searched + at + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                self.searched = 0;
                line.pop();
                return Ok(Some(line));
            }
            self.searched = self.buffer.len();
            if self.searched > self.limit {
                let text = format!("a line of more than {} bytes", self.limit);
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
            }
            if self.ended {
                self.searched = 0;
                let line = std::mem::take(&mut self.buffer);
                return Ok((!line.is_empty()).then_some(line));
            }
            self.buffer.reserve(CHUNK_BYTES);
            self.ended = self.reader.read_buf(&mut self.buffer).await? == 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(input: &[u8], limit: usize) -> Vec<String> {
        let mut lines = Lines::new(input, limit);
        let mut found = Vec::new();
        loop {
            match lines.next().await {
                Ok(Some(it)) => found.push(String::from_utf8_lossy(&it).into_owned()),
                Ok(None) => return found,
                Err(err) => {
                    found.push(format!("! {err}"));
                    return found;
                }
            }
        }
    }

    #[tokio::test]
    async fn lines_end_at_line_feeds_and_at_the_end() {
        assert_eq!(lines(b"", 9).await, Vec::<String>::new());
        assert_eq!(lines(b"a\n\nb\r\nlast", 9).await, ["a", "", "b\r", "last"]);
        assert_eq!(lines(b"123456789\n1234567890", 9).await, ["123456789", "! a line of more than 9 bytes"]);
    }
}
