//! Printed text on its way to the host.

use std::{
    borrow::Cow,
    io::Write,
    time::{Duration, Instant},
};

use monty_types::{ExcType, MontyException, PrintWriterCallback};

use super::{
    confine::Parent,
    frame::{Kind, encode},
    values::raise,
};

/// Bytes kept back at most before they are sent.
const CHUNK: usize = 8 * 1024;
/// The first so many sends of a run happen at once: nothing printed is lost whatever comes next.
const PROMPT_SENDS: u32 = 10_000;
/// After those, how long text may wait.
const PATIENCE: Duration = Duration::from_millis(20);
/// How often to look whether the host is still there.
const PARENT_CHECK: Duration = Duration::from_millis(200);

/// The printing side of one run.
pub(super) struct Output {
    text: String,
    frames: Vec<u8>,
    sends: u32,
    sent: Instant,
    left: usize,
    limit: usize,
    parent: Parent,
    checked: Instant,
    broken: bool,
}

impl Output {
    /// For a run that may print `limit` bytes.
    pub(super) fn new(limit: usize, parent: Parent) -> Self {
        let now = Instant::now();
        Self {
            text: String::new(),
            frames: Vec::new(),
            sends: 0,
            sent: now,
            left: limit,
            limit,
            parent,
            checked: now,
            broken: false,
        }
    }

    /// Adds a frame behind all text printed so far; it leaves with the next [`Output::flush`].
    pub(super) fn frame(&mut self, kind: Kind, number: u32, body: &[u8]) {
        self.take_text();
        encode(kind, number, body, &mut self.frames);
    }

    /// Sends all that waits. `false` when the host no longer reads.
    pub(super) fn flush(&mut self) -> bool {
        self.take_text();
        if !self.frames.is_empty() {
            let mut stdout = std::io::stdout().lock();
            self.broken |= stdout.write_all(&self.frames).and_then(|()| stdout.flush()).is_err();
            self.frames.clear();
            self.sends = self.sends.saturating_add(1);
            self.sent = Instant::now();
        }
        !self.broken
    }

    fn take_text(&mut self) {
        if !self.text.is_empty() {
            encode(Kind::Output, 0, self.text.as_bytes(), &mut self.frames);
            self.text.clear();
        }
    }

    fn print(&mut self, text: &str) -> Result<(), MontyException> {
        let mut rest = text;
        if rest.len() > self.left {
            let cut = (0..=self.left).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or(0);
            rest = rest.get(..cut).unwrap_or_default();
        }
        self.left -= rest.len();
        while !rest.is_empty() {
            let room = CHUNK.max(4);
            let cut = (0..=room.min(rest.len())).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
            let (head, tail) = rest.split_at(cut);
            self.text.push_str(head);
            rest = tail;
            if self.text.len() >= CHUNK {
                self.send()?;
            }
        }
        if self.left == 0 {
            self.flush();
            return Err(raise(ExcType::RuntimeError, format!("output limit of {} bytes reached", self.limit)));
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), MontyException> {
        if self.flush() { Ok(()) } else { Err(lost()) }
    }

    fn is_due(&self) -> bool {
        !self.text.is_empty() && (self.sends < PROMPT_SENDS || self.sent.elapsed() >= PATIENCE)
    }
}

impl PrintWriterCallback for Output {
    fn stdout_write(&mut self, output: Cow<'_, str>) -> Result<(), MontyException> {
        self.print(&output)
    }

    fn stdout_push(&mut self, end: char) -> Result<(), MontyException> {
        self.print(end.encode_utf8(&mut [0; 4]))?;
        if end == '\n' && self.is_due() { self.send() } else { Ok(()) }
    }

    fn poll_flush(&mut self) -> Result<(), MontyException> {
        if self.is_due() {
            self.send()?;
        }
        if self.checked.elapsed() >= PARENT_CHECK {
            self.checked = Instant::now();
            if self.parent.is_gone() {
                return Err(lost());
            }
        }
        Ok(())
    }
}

fn lost() -> MontyException {
    raise(ExcType::SystemExit, "the host is gone")
}
