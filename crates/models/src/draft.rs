//! An answer as it comes in: what all wires have in common.

use std::collections::VecDeque;

use bub_kernel::{
    message::{Media, MediaSource, ProviderData, TokenUsage},
    model::{Citation, FinishReason, ModelError, ModelEvent},
};
use serde_json::{Value, json};

use crate::{
    calls::{CallPiece, Calls},
    decode::{MAX_REPLY_BYTES, too_large},
    wire::Wire,
};

/// A point of the answer: how many characters of its words, and how many calls, came before.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Place {
    chars: usize,
    calls: usize,
}

impl Place {
    /// The place of what was opened here, but whose words begin only now.
    pub(crate) fn speaking(self, now: Self) -> Self {
        Self { chars: now.chars, calls: self.calls }
    }
}

/// Takes in what a wire reads, and makes the kernel's events of it.
#[derive(Debug)]
pub(crate) struct Draft {
    wire: Wire,
    /// The provider's name, for what only it can take back.
    provider: String,
    /// Makes ids for calls that come without one.
    unique: String,
    events: VecDeque<ModelEvent>,
    calls: Calls,
    usage: TokenUsage,
    finish: Option<FinishReason>,
    refused: bool,
    /// Characters of the answer's words so far.
    n_chars: usize,
    /// Bytes of everything so far.
    size: usize,
    is_done: bool,
}

impl Draft {
    pub(crate) fn new(wire: Wire, provider: &str, unique: &str) -> Self {
        Self {
            wire,
            provider: provider.to_owned(),
            unique: unique.to_owned(),
            events: VecDeque::new(),
            calls: Calls::default(),
            usage: TokenUsage::default(),
            finish: None,
            refused: false,
            n_chars: 0,
            size: 0,
            is_done: false,
        }
    }

    /// Whether the provider has said why it stopped, so that only usage may still come.
    pub(crate) fn has_finish(&self) -> bool {
        self.finish.is_some()
    }

    /// Moves what happened since the last time to `out`.
    pub(crate) fn drain_into(&mut self, out: &mut VecDeque<ModelEvent>) {
        out.append(&mut self.events);
    }

    /// More words.
    pub(crate) fn text(&mut self, text: String) -> Result<(), ModelError> {
        if text.is_empty() {
            return Ok(());
        }
        self.grow(text.len())?;
        self.n_chars = self.n_chars.saturating_add(text.chars().count());
        self.events.push_back(ModelEvent::Text(text));
        Ok(())
    }

    /// More thinking.
    pub(crate) fn reasoning(&mut self, text: String) -> Result<(), ModelError> {
        if text.is_empty() {
            return Ok(());
        }
        self.grow(text.len())?;
        self.events.push_back(ModelEvent::Reasoning(text));
        Ok(())
    }

    /// More of a refusal.
    pub(crate) fn refusal(&mut self, text: String) -> Result<(), ModelError> {
        if text.is_empty() {
            return Ok(());
        }
        self.grow(text.len())?;
        self.refused = true;
        self.events.push_back(ModelEvent::Refusal(text));
        Ok(())
    }

    /// A piece of a tool call.
    pub(crate) fn call(&mut self, piece: CallPiece) -> Result<(), ModelError> {
        self.grow(piece.arguments.len())?;
        self.calls.add(piece, &mut self.events)
    }

    /// All arguments of a call that the wire numbers: they replace what came of them.
    pub(crate) fn settle_call(&mut self, index: u64, arguments: String) -> Result<(), ModelError> {
        let n_new = self.calls.settle(index, arguments, &mut self.events);
        self.grow(n_new)
    }

    /// The provider's name.
    pub(crate) fn provider(&self) -> &str {
        &self.provider
    }

    /// Where the answer has come to.
    pub(crate) fn place(&self) -> Place {
        Place { chars: self.n_chars, calls: self.calls.len() }
    }

    /// Something that has to go back with this answer, unchanged and in its place: after the words
    /// and calls that came before it.
    pub(crate) fn item(&mut self, item: Value) -> Result<(), ModelError> {
        self.item_at(self.place(), item)
    }

    /// Something that has to go back with this answer, at an earlier place.
    pub(crate) fn item_at(&mut self, place: Place, item: Value) -> Result<(), ModelError> {
        self.grow(item.to_string().len())?;
        let payload = json!({
            "provider": self.provider,
            "after_chars": place.chars,
            "after_calls": place.calls,
            "item": item,
        });
        self.events
            .push_back(ModelEvent::ProviderData(ProviderData { api_format: self.wire.as_str().to_owned(), payload }));
        Ok(())
    }

    /// A picture or a sound that the model made.
    pub(crate) fn media(&mut self, media: Media) -> Result<(), ModelError> {
        let (MediaSource::Url(content) | MediaSource::Data(content)) = &media.source;
        self.grow(content.len())?;
        self.events.push_back(ModelEvent::Media(media));
        Ok(())
    }

    /// A source of the answer.
    pub(crate) fn citation(&mut self, citation: Citation) -> Result<(), ModelError> {
        self.grow(citation.url.len())?;
        self.events.push_back(ModelEvent::Citation(citation));
        Ok(())
    }

    /// A call of one of the provider's own tools.
    pub(crate) fn provider_tool_call(&mut self, name: String, input: Value) -> Result<(), ModelError> {
        self.grow(name.len().saturating_add(input.to_string().len()))?;
        self.events.push_back(ModelEvent::ProviderToolCall { name, input });
        Ok(())
    }

    /// Lets `update` write the tokens that are told over those told before, and reports a change.
    pub(crate) fn usage(&mut self, update: impl FnOnce(&mut TokenUsage)) {
        let before = self.usage;
        update(&mut self.usage);
        if self.usage != before {
            self.events.push_back(ModelEvent::Usage(self.usage));
        }
    }

    /// Notes why the provider stopped.
    pub(crate) fn finish(&mut self, reason: FinishReason) {
        self.finish = Some(reason);
    }

    /// Ends the answer.
    pub(crate) fn release(&mut self) {
        if std::mem::replace(&mut self.is_done, true) {
            return;
        }
        let has_calls = !self.calls.is_empty();
        self.events.extend(self.calls.release(&self.unique).into_iter().map(ModelEvent::ToolCall));
        let reason = match self.finish.take() {
            _ if self.refused => FinishReason::Refusal,
            None | Some(FinishReason::Stop | FinishReason::ToolCalls) if has_calls => FinishReason::ToolCalls,
            None | Some(FinishReason::Stop | FinishReason::ToolCalls) => FinishReason::Stop,
            Some(other) => other,
        };
        self.events.push_back(ModelEvent::Finish(reason));
    }

    /// Counts what a wire keeps of the answer until it can be told.
    ///
    /// # Errors
    /// When the answer is larger than [`MAX_REPLY_BYTES`].
    pub(crate) fn grow(&mut self, by: usize) -> Result<(), ModelError> {
        self.size = self.size.saturating_add(by);
        if self.size > MAX_REPLY_BYTES { Err(too_large()) } else { Ok(()) }
    }
}
