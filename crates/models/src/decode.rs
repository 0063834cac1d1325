//! From the events of a chat stream to those of the kernel.

use std::collections::VecDeque;

use bub_kernel::{
    message::TokenUsage,
    model::{FinishReason, ModelError, ModelEvent},
};

use crate::{
    calls::Calls,
    chunk::{Chunk, Delta},
    errors,
    sse::SseParser,
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
    unique: String,
    calls: Calls,
    usage: TokenUsage,
    finish: Option<String>,
    refused: bool,
    size: usize,
    n_events: usize,
    is_done: bool,
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
    /// A decoder; `unique` makes ids for calls that come without one.
    pub(crate) fn new(unique: impl Into<String>) -> Self {
        Self {
            sse: SseParser::default(),
            body: Body::Unknown,
            unique: unique.into(),
            calls: Calls::default(),
            usage: TokenUsage::default(),
            finish: None,
            refused: false,
            size: 0,
            n_events: 0,
            is_done: false,
        }
    }

    /// Whether the provider has said why it stopped, so that only usage may still come.
    pub(crate) fn has_finish(&self) -> bool {
        self.finish.is_some()
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
        let read = self.read(&mut sse, out);
        self.sse = sse;
        if read? {
            return Ok(true);
        }
        if self.sse.pending() > MAX_REPLY_BYTES { Err(too_large()) } else { Ok(false) }
    }

    /// Reads the rest at the end of the stream.
    pub(crate) fn end(&mut self, out: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        if let Body::Other(body) = &mut self.body {
            let body = std::mem::take(body);
            return self.whole(&body, out);
        }
        let mut sse = std::mem::take(&mut self.sse);
        if let Some(event) = sse.finish()
            && self.event(&event, out)?
        {
            return Ok(());
        }
        if self.has_finish() {
            self.release(out);
            return Ok(());
        }
        Err(ModelError::Incomplete(match self.n_events {
            0 => "the provider sent an empty reply".into(),
            n => format!("the stream ended after {n} events without its finish"),
        }))
    }

    /// Reads a body that is not an event stream: a whole answer, from a server that does not
    /// stream, or something unexpected.
    fn whole(&mut self, body: &[u8], out: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        let mut chunk = Chunk::parse(body).unwrap_or_default();
        if chunk.error.is_some() || chunk.choice.is_none() {
            return Err(ModelError::Protocol(format!("not an event stream: {}", quote(body))));
        }
        if let Some(choice) = &mut chunk.choice {
            choice.finish_reason.get_or_insert_with(|| "stop".into());
        }
        self.chunk(chunk, out)?;
        self.release(out);
        Ok(())
    }

    fn read(&mut self, sse: &mut SseParser, out: &mut VecDeque<ModelEvent>) -> Result<bool, ModelError> {
        while let Some(event) = sse.next_event() {
            if self.event(&event, out)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn event(&mut self, data: &[u8], out: &mut VecDeque<ModelEvent>) -> Result<bool, ModelError> {
        let data = data.trim_ascii();
        if data.is_empty() {
            return Ok(false);
        }
        self.n_events = self.n_events.saturating_add(1);
        if data == b"[DONE]" {
            self.release(out);
            return Ok(true);
        }
        let chunk = Chunk::parse(data)
            .map_err(|err| ModelError::Protocol(format!("an event is not valid JSON ({err}): {}", quote(data))))?;
        self.chunk(chunk, out)?;
        Ok(false)
    }

    fn chunk(&mut self, mut chunk: Chunk, out: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        if let Some(error) = &chunk.error {
            return Err(errors::of_event(error));
        }
        let mut usage = chunk.usage.take();
        if let Some(mut choice) = chunk.choice.take() {
            if let Some(delta) = choice.delta() {
                self.delta(delta, out)?;
            }
            if let Some(reason) = choice.finish_reason.take().filter(|it| !it.is_empty()) {
                self.finish = Some(reason);
            }
            usage = usage.or_else(|| choice.usage.take());
        }
        let before = self.usage;
        if usage.is_some_and(|it| it.update(&mut self.usage)) && self.usage != before {
            out.push_back(ModelEvent::Usage(self.usage));
        }
        Ok(())
    }

    fn delta(&mut self, delta: Delta, out: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        let Delta { content, reasoning_content, reasoning, refusal, tool_calls } = delta;
        let present = |it: Option<String>| it.filter(|it| !it.is_empty());
        // Some servers send their thinking under both names.
        let thinking = present(reasoning_content).or_else(|| present(reasoning)).or_else(|| present(content.thinking));
        if let Some(text) = thinking {
            self.grow(text.len())?;
            out.push_back(ModelEvent::Reasoning(text));
        }
        if let Some(text) = present(content.text) {
            self.grow(text.len())?;
            out.push_back(ModelEvent::Text(text));
        }
        if let Some(text) = present(refusal) {
            self.grow(text.len())?;
            self.refused = true;
            out.push_back(ModelEvent::Refusal(text));
        }
        for call in tool_calls.into_iter().flatten() {
            let size = call.function.as_ref().and_then(|it| it.arguments.as_ref()).map_or(0, String::len);
            self.grow(size)?;
            self.calls.add(call, out)?;
        }
        Ok(())
    }

    fn grow(&mut self, by: usize) -> Result<(), ModelError> {
        self.size = self.size.saturating_add(by);
        if self.size > MAX_REPLY_BYTES { Err(too_large()) } else { Ok(()) }
    }

    /// Ends the answer.
    pub(crate) fn release(&mut self, out: &mut VecDeque<ModelEvent>) {
        if std::mem::replace(&mut self.is_done, true) {
            return;
        }
        let has_calls = !self.calls.is_empty();
        out.extend(self.calls.release(&self.unique).into_iter().map(ModelEvent::ToolCall));
        let reason = match self.finish.take().as_deref() {
            _ if self.refused => FinishReason::Refusal,
            None | Some("stop" | "tool_calls" | "function_call") if has_calls => FinishReason::ToolCalls,
            None | Some("stop" | "tool_calls" | "function_call") => FinishReason::Stop,
            Some("length") => FinishReason::Length,
            Some("content_filter") => FinishReason::ContentFilter,
            Some("refusal") => FinishReason::Refusal,
            Some(other) => FinishReason::Other(other.to_owned()),
        };
        out.push_back(ModelEvent::Finish(reason));
    }
}

fn too_large() -> ModelError {
    ModelError::Protocol(format!("the reply is larger than {} MiB", MAX_REPLY_BYTES / 1024 / 1024))
}

/// The start of something unexpected.
fn quote(bytes: &[u8]) -> String {
    let start = bytes.get(..MAX_QUOTE_CHARS.saturating_mul(4)).unwrap_or(bytes);
    errors::shorten(&String::from_utf8_lossy(start), MAX_QUOTE_CHARS)
}
