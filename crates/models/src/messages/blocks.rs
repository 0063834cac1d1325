//! The blocks of an answer, put together from their pieces.

use std::collections::BTreeMap;

use bub_kernel::model::{Citation, ModelError};
use serde_json::{Map, Value, json};

use crate::{calls::CallPiece, draft::Draft, lenient};

use super::{CALL, TEXT, THINKING, events::Delta};

/// The most blocks of one answer.
const MAX_BLOCKS: usize = 10_000;

/// The blocks of an answer that are not complete, and what has to be known of those before.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    open: BTreeMap<u64, Block>,
    /// The number of the block that began last, for events that name none.
    last: Option<u64>,
    n_blocks: usize,
    n_calls: u64,
    /// Whether words or calls came after the last item. Where a text follows them, a mark keeps the
    /// two apart: the words of an answer are kept as one text.
    needs_mark: bool,
}

/// A block on its way.
#[derive(Debug)]
enum Block {
    /// Words, and what they are taken from.
    Text { citations: Vec<Value> },
    /// Thinking, which only goes back as it came.
    Thinking { block: Map<String, Value>, thinking: String, signature: String },
    /// A call, by its number, and its input if that came at once.
    Call { number: u64, whole: Option<String> },
    /// What else goes back as it came: hidden thinking, the provider's own tools and their results.
    Item {
        block: Map<String, Value>,
        input: String,
        /// Whether all of it is understood: the rest must not go back in part.
        is_whole: bool,
    },
}

impl Blocks {
    /// Begins a block.
    ///
    /// # Errors
    /// When there are more than [`MAX_BLOCKS`], or more than an answer may hold.
    pub(super) fn start(&mut self, index: Option<u64>, block: Value, draft: &mut Draft) -> Result<(), ModelError> {
        let index = index.unwrap_or_else(|| self.last.map_or(0, |it| it.saturating_add(1)));
        self.stop(Some(index), draft)?;
        // Some servers end no block. Calls may stay open side by side; all else has its place.
        if !self.last.is_some_and(|it| matches!(self.open.get(&it), Some(Block::Call { .. }))) {
            self.stop(None, draft)?;
        }
        let Value::Object(block) = block else { return Ok(()) };
        let block = self.read(block, draft)?;
        self.insert(index, block)
    }

    /// Reads what a block begins with, which may be all of it.
    fn read(&mut self, mut block: Map<String, Value>, draft: &mut Draft) -> Result<Block, ModelError> {
        let text = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        match block.get("type").and_then(Value::as_str).unwrap_or_default() {
            TEXT => {
                if std::mem::take(&mut self.needs_mark) {
                    draft.item(json!({"type": TEXT}))?;
                }
                let text = text("text");
                self.needs_mark = !text.is_empty();
                draft.text(text)?;
                let mut citations = Vec::new();
                if let Some(Value::Array(came)) = block.remove("citations") {
                    for citation in came {
                        cite(citation, &mut citations, draft)?;
                    }
                }
                Ok(Block::Text { citations })
            }
            THINKING => {
                let (thinking, signature) = (text("thinking"), text("signature"));
                draft.reasoning(thinking.clone())?;
                Ok(Block::Thinking { block, thinking, signature })
            }
            CALL => {
                self.n_calls = self.n_calls.saturating_add(1);
                self.needs_mark = true;
                let (id, name) = (Some(text("id")), Some(text("name")));
                // Who calls is told when it is not the model itself, and has to be told again.
                let is_other = |it: &Value| it.get("type").is_some_and(|it| it != "direct");
                let metadata = block.remove("caller").filter(is_other).map(|it| ("caller", it));
                draft.call(CallPiece { index: Some(self.n_calls), id, name, arguments: String::new(), metadata })?;
                let whole = match block.remove("input") {
                    Some(Value::Object(input)) if !input.is_empty() => Some(Value::Object(input).to_string()),
                    Some(Value::String(input)) if !input.is_empty() => Some(input),
                    _ => None,
                };
                Ok(Block::Call { number: self.n_calls, whole })
            }
            _ => {
                draft.grow(block.values().map(size_of).sum())?;
                Ok(Block::Item { block, input: String::new(), is_whole: true })
            }
        }
    }

    /// Adds to a block: the one that began last, when none is named.
    ///
    /// # Errors
    /// As [`Blocks::start`].
    pub(super) fn delta(&mut self, index: Option<u64>, delta: Delta, draft: &mut Draft) -> Result<(), ModelError> {
        let index = index.or(self.last).unwrap_or_default();
        if !self.open.get(&index).is_some_and(|it| it.takes(&delta)) {
            let Some(kind) = delta.kind() else { return Ok(()) };
            self.start(Some(index), json!({"type": kind}), draft)?;
        }
        let Some(block) = self.open.get_mut(&index) else { return Ok(()) };
        let Delta { text, thinking, signature, partial_json, citation, .. } = delta;
        match block {
            Block::Text { citations } => {
                if let Some(text) = text {
                    self.needs_mark |= !text.is_empty();
                    draft.text(text)?;
                }
                if let Some(citation) = citation {
                    cite(citation, citations, draft)?;
                }
            }
            Block::Thinking { thinking: all, signature: signed, .. } => {
                if let Some(thinking) = thinking {
                    all.push_str(&thinking);
                    draft.reasoning(thinking)?;
                }
                if let Some(signature) = signature {
                    draft.grow(signature.len())?;
                    signed.push_str(&signature);
                }
            }
            Block::Call { number, whole } => {
                if let Some(arguments) = partial_json.filter(|it| !it.is_empty()) {
                    *whole = None;
                    draft.call(CallPiece { index: Some(*number), arguments, ..CallPiece::default() })?;
                }
            }
            Block::Item { input, is_whole, .. } => match partial_json {
                Some(more) => {
                    draft.grow(more.len())?;
                    input.push_str(&more);
                }
                None => *is_whole = false,
            },
        }
        Ok(())
    }

    /// Ends a block: the one that began last, when none is named.
    pub(super) fn stop(&mut self, index: Option<u64>, draft: &mut Draft) -> Result<(), ModelError> {
        match index.or(self.last).and_then(|it| self.open.remove(&it)) {
            Some(block) => self.finish(block, draft),
            None => Ok(()),
        }
    }

    /// Ends what is open.
    pub(super) fn close(&mut self, draft: &mut Draft) -> Result<(), ModelError> {
        while let Some((_, block)) = self.open.pop_first() {
            self.finish(block, draft)?;
        }
        Ok(())
    }

    fn finish(&mut self, block: Block, draft: &mut Draft) -> Result<(), ModelError> {
        match block {
            Block::Text { citations } if citations.is_empty() => Ok(()),
            Block::Text { citations } => self.item(json!({"type": TEXT, "citations": citations}), draft),
            Block::Thinking { thinking, signature, .. } if thinking.is_empty() && signature.is_empty() => Ok(()),
            Block::Thinking { mut block, thinking, signature } => {
                block.insert("thinking".into(), thinking.into());
                block.insert("signature".into(), signature.into());
                self.item(Value::Object(block), draft)
            }
            Block::Call { whole: None, .. } => Ok(()),
            Block::Call { number, whole: Some(arguments) } => {
                draft.call(CallPiece { index: Some(number), arguments, ..CallPiece::default() })
            }
            Block::Item { mut block, input, is_whole } => {
                if !input.is_empty() {
                    let input = lenient::parse::<Map<String, Value>>(input.as_bytes()).unwrap_or_default();
                    block.insert("input".into(), input.into());
                }
                if block.get("type").and_then(Value::as_str).is_some_and(|it| it.ends_with("_tool_use")) {
                    let name = block.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                    draft.provider_tool_call(name, block.get("input").cloned().unwrap_or_default())?;
                }
                if is_whole { self.item(Value::Object(block), draft) } else { Ok(()) }
            }
        }
    }

    fn item(&mut self, item: Value, draft: &mut Draft) -> Result<(), ModelError> {
        self.needs_mark = false;
        draft.item(item)
    }

    fn insert(&mut self, index: u64, block: Block) -> Result<(), ModelError> {
        self.n_blocks = self.n_blocks.saturating_add(1);
        if self.n_blocks > MAX_BLOCKS {
            return Err(ModelError::Protocol(format!("more than {MAX_BLOCKS} blocks in one answer")));
        }
        self.last = Some(index);
        self.open.insert(index, block);
        Ok(())
    }
}

impl Block {
    /// Whether a piece can be one of this block. Some servers number all their blocks alike.
    fn takes(&self, delta: &Delta) -> bool {
        match (self, delta.kind()) {
            (Self::Text { .. }, Some(THINKING)) | (Self::Thinking { .. }, Some(TEXT)) => false,
            (Self::Call { .. }, Some(kind)) => kind == CALL,
            _ => true,
        }
    }
}

impl Delta {
    /// The type of block that this is a piece of.
    fn kind(&self) -> Option<&'static str> {
        if self.text.is_some() || self.citation.is_some() {
            Some(TEXT)
        } else if self.thinking.is_some() || self.signature.is_some() {
            Some(THINKING)
        } else {
            self.partial_json.is_some().then_some(CALL)
        }
    }
}

/// Notes a citation, and tells its source if it is on the web.
fn cite(citation: Value, citations: &mut Vec<Value>, draft: &mut Draft) -> Result<(), ModelError> {
    let text = |key: &str| citation.get(key).and_then(Value::as_str).filter(|it| !it.is_empty()).map(str::to_owned);
    let source = text("source").filter(|it| it.starts_with("http"));
    if let Some(url) = text("url").or(source) {
        draft.citation(Citation { url, title: text("title") })?;
    }
    draft.grow(size_of(&citation))?;
    citations.push(citation);
    Ok(())
}

/// About how many bytes a value holds.
fn size_of(value: &Value) -> usize {
    value.to_string().len()
}
