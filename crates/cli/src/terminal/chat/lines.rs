//! Input without an editor: a pipe, a file, or a terminal that can do nothing but print.

use std::{
    io::{self, BufRead as _, Read as _},
    time::Duration,
};

use tokio::sync::mpsc;

/// The longest line, in bytes.
const MAX_LINE: u64 = 10 << 20;
/// Lines of a terminal that come closer together than this are one message: they were pasted.
const TOGETHER: Duration = Duration::from_millis(50);

/// What was read, or why not.
type Read = io::Result<String>;

/// The lines of standard input.
#[derive(Debug)]
pub(super) struct Lines {
    lines: mpsc::Receiver<Read>,
    joins: bool,
    /// Lines that were read, of a message that may go on.
    joined: Option<String>,
}

impl Lines {
    /// Begins to read. With `joins`, lines that come together are one.
    pub(super) fn new(joins: bool) -> Self {
        // One line is read ahead, no more: what stands in a pipe stays there.
        let (tx, lines) = mpsc::channel(1);
        drop(tokio::task::spawn_blocking(move || {
            loop {
                let line = next_line();
                let is_last = !matches!(line, Some(Ok(_)));
                if line.is_none_or(|it| tx.blocking_send(it).is_err()) || is_last {
                    return;
                }
            }
        }));
        Self { lines, joins, joined: None }
    }

    /// The next message; `None` at the end. May be dropped and called again: nothing is lost.
    pub(super) async fn next(&mut self) -> Option<Read> {
        loop {
            let next = match &self.joined {
                None => self.lines.recv().await,
                Some(_) => match tokio::time::timeout(TOGETHER, self.lines.recv()).await {
                    Ok(next) => next,
                    Err(_) => return self.joined.take().map(Ok),
                },
            };
            match (next, &mut self.joined) {
                (Some(Ok(line)), None) if !self.joins => return Some(Ok(line)),
                (Some(Ok(line)), None) => self.joined = Some(line),
                (Some(Ok(line)), Some(text)) => {
                    text.push('\n');
                    text.push_str(&line);
                }
                (Some(Err(err)), _) => return Some(Err(err)),
                (None, _) => return self.joined.take().map(Ok),
            }
        }
    }
}

/// Reads a line without its end.
fn next_line() -> Option<Read> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().take(MAX_LINE + 1).read_until(b'\n', &mut bytes);
    let line = match read {
        Ok(0) => return None,
        Ok(_) if bytes.len() as u64 > MAX_LINE => {
            Err(io::Error::other(format!("a line of more than {} MiB", MAX_LINE >> 20)))
        }
        Ok(_) => String::from_utf8(bytes).map_err(|err| {
            io::Error::other(format!("a line is not UTF-8 (at byte {})", err.utf8_error().valid_up_to()))
        }),
        Err(err) => Err(err),
    };
    Some(line.map(|it| it.trim_end_matches(['\n', '\r']).to_owned()))
}
