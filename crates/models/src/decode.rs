//! From the bytes of a reply to the events that its wire reads.

use std::collections::VecDeque;

use bub_kernel::model::{ModelError, ModelEvent};

use crate::{
    draft::Draft,
    errors,
    sse::SseParser,
    wire::{Wire, WireReader},
};

/// The most that one answer may hold, in bytes of text, thinking and arguments together; a single
/// event may not be larger either. What is beyond is an error, after what came before.
pub const MAX_REPLY_BYTES: usize = 50 * 1024 * 1024;

/// How much of something unexpected an error quotes, in characters.
const MAX_QUOTE_CHARS: usize = 200;

/// Reads one answer.
#[derive(Debug)]
pub(crate) struct Decoder {
    sse: SseParser,
    body: Body,
    reader: Box<dyn WireReader>,
    draft: Draft,
    n_events: usize,
}

/// What kind of body it is.
#[derive(Debug)]
enum Body {
    /// Nothing but blanks came yet.
    Unknown,
    Events,
    /// Not an event stream, whatever its content type says.
    Other(Vec<u8>),
}

impl Decoder {
    /// A decoder for an answer of that provider; `unique` makes ids for calls that come without one.
    pub(crate) fn new(wire: Wire, provider: &str, unique: &str) -> Self {
        Self {
            sse: SseParser::default(),
            body: Body::Unknown,
            reader: wire.reader(),
            draft: Draft::new(wire, provider, unique),
            n_events: 0,
        }
    }

    /// Whether the provider has said why it stopped, so that only usage may still come.
    pub(crate) fn has_finish(&self) -> bool {
        self.draft.has_finish()
    }

    /// Reads what came; true when the answer is complete.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut VecDeque<ModelEvent>) -> Result<bool, ModelError> {
        if matches!(self.body, Body::Unknown) {
            let first = bytes.iter().find(|it| !it.is_ascii_whitespace());
            self.body = match first {
                None => Body::Unknown,
                // Fields of events, a comment, a byte order mark.
                Some(b'd' | b'e' | b'i' | b'r' | b':' | 0xEF) => Body::Events,
                Some(_) => Body::Other(Vec::new()),
            };
        }
        if let Body::Other(body) = &mut self.body {
            if body.len().saturating_add(bytes.len()) > MAX_REPLY_BYTES {
                return Err(too_large());
            }
            body.extend_from_slice(bytes);
            return Ok(false);
        }
        let mut sse = std::mem::take(&mut self.sse);
        sse.push(bytes);
        let read = self.read(&mut sse);
        self.sse = sse;
        self.draft.drain_into(out);
        if read? {
            return Ok(true);
        }
        if self.sse.pending() > MAX_REPLY_BYTES { Err(too_large()) } else { Ok(false) }
    }

    /// Reads the rest at the end of the stream.
    pub(crate) fn end(&mut self, out: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        let ended = self.rest();
        self.draft.drain_into(out);
        ended
    }

    /// Ends the answer with what came.
    pub(crate) fn release(&mut self, out: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        let closed = self.close();
        self.draft.drain_into(out);
        closed
    }

    fn close(&mut self) -> Result<(), ModelError> {
        self.reader.close(&mut self.draft)?;
        self.draft.release();
        Ok(())
    }

    fn rest(&mut self) -> Result<(), ModelError> {
        if let Body::Other(body) = &mut self.body {
            let body = std::mem::take(body);
            return self.whole(&body);
        }
        let mut sse = std::mem::take(&mut self.sse);
        if let Some(event) = sse.finish()
            && self.event(&event)?
        {
            return Ok(());
        }
        if self.has_finish() {
            return self.close();
        }
        Err(ModelError::Incomplete(match self.n_events {
            0 => "the provider sent an empty reply".into(),
            1 => "the stream ended after 1 event without its finish".into(),
            n => format!("the stream ended after {n} events without its finish"),
        }))
    }

    /// Reads a body that is not an event stream: a whole answer, from a server that does not
    /// stream, or something unexpected.
    fn whole(&mut self, body: &[u8]) -> Result<(), ModelError> {
        if !self.reader.whole(body, &mut self.draft)? {
            if let Some(error) = errors::of_body(body) {
                return Err(error);
            }
            return Err(ModelError::Protocol(format!("not an event stream: {}", quote(body))));
        }
        self.close()
    }

    fn read(&mut self, sse: &mut SseParser) -> Result<bool, ModelError> {
        while let Some(event) = sse.next_event() {
            if self.event(&event)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn event(&mut self, data: &[u8]) -> Result<bool, ModelError> {
        let data = data.trim_ascii();
        if data.is_empty() {
            return Ok(false);
        }
        self.n_events = self.n_events.saturating_add(1);
        let is_done = data == b"[DONE]" || self.reader.event(data, &mut self.draft)?;
        if is_done {
            self.close()?;
        }
        Ok(is_done)
    }
}

/// The error for an event that is no JSON of its wire's shape.
pub(crate) fn not_json(err: &serde_json::Error, data: &[u8]) -> ModelError {
    ModelError::Protocol(format!("an event is not valid JSON ({err}): {}", quote(data)))
}

/// The error for more than [`MAX_REPLY_BYTES`].
pub(crate) fn too_large() -> ModelError {
    ModelError::Protocol(format!("the reply is larger than {} MiB", MAX_REPLY_BYTES / 1024 / 1024))
}

/// The start of something unexpected.
fn quote(bytes: &[u8]) -> String {
    let start = bytes.get(..MAX_QUOTE_CHARS.saturating_mul(4)).unwrap_or(bytes);
    errors::shorten(&String::from_utf8_lossy(start), MAX_QUOTE_CHARS)
}
