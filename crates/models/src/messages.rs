//! The wire of Anthropic's Messages API, which other services and gateways serve as well.

mod blocks;
mod conversation;
mod events;
mod request;

use bub_kernel::model::{FinishReason, ModelError};
use serde_json::{Value, json};

use crate::{decode, draft::Draft, errors, lenient, wire::WireReader};

use blocks::Blocks;
use events::{Event, Reply, Usage};
pub(crate) use request::body;

/// The version of the API that is spoken.
pub(crate) const VERSION: &str = "2023-06-01";

/// The types of blocks. An item of type `text` is ours: a mark of where a block of words ends or another
/// one begins, and of what the words before it cite.
const TEXT: &str = "text";
const THINKING: &str = "thinking";
const HIDDEN_THINKING: &str = "redacted_thinking";
const CALL: &str = "tool_use";

/// Reads the events of an answer: blocks, one after the other, each in pieces.
#[derive(Debug, Default)]
pub(crate) struct MessagesReader {
    blocks: Blocks,
    /// The tokens told so far.
    usage: Usage,
}

impl WireReader for MessagesReader {
    fn event(&mut self, data: &[u8], draft: &mut Draft) -> Result<bool, ModelError> {
        let event: Event = lenient::parse(data).map_err(|err| decode::not_json(&err, data))?;
        let Event { r#type, index, delta, content_block, message, usage, error } = event;
        match r#type.as_deref().unwrap_or_default() {
            "content_block_delta" => self.blocks.delta(index, delta.unwrap_or_default(), draft)?,
            "content_block_start" => self.blocks.start(index, content_block.unwrap_or_default(), draft)?,
            "content_block_stop" => self.blocks.stop(index, draft)?,
            "message_start" => self.reply(message.unwrap_or_default(), draft)?,
            "message_delta" => {
                let delta = delta.unwrap_or_default();
                self.tokens(usage.or(delta.usage).as_ref(), draft);
                finish(delta.stop_reason.as_deref(), delta.stop_details.as_ref(), draft)?;
            }
            "message_stop" => return Ok(true),
            "error" => return Err(error_of(error.as_ref())),
            // `ping`, and what later versions of the API send.
            _ if error.is_some() => return Err(error_of(error.as_ref())),
            _ => (),
        }
        Ok(false)
    }

    fn whole(&mut self, body: &[u8], draft: &mut Draft) -> Result<bool, ModelError> {
        let Ok(mut reply) = lenient::parse::<Reply>(body) else { return Ok(false) };
        match reply.r#type.as_deref() {
            Some("error") => return Err(error_of(reply.error.as_ref())),
            Some("message") if reply.content.is_some() => (),
            _ => return Ok(false),
        }
        reply.stop_reason.get_or_insert_with(|| "end_turn".into());
        self.reply(reply, draft)?;
        Ok(true)
    }

    fn close(&mut self, draft: &mut Draft) -> Result<(), ModelError> {
        self.blocks.close(draft)
    }
}

impl MessagesReader {
    /// Reads a message: an empty one at the start of a stream, or a whole one.
    fn reply(&mut self, reply: Reply, draft: &mut Draft) -> Result<(), ModelError> {
        let Reply { content, stop_reason, stop_details, usage, .. } = reply;
        for block in content.into_iter().flatten() {
            self.blocks.start(None, block, draft)?;
            self.blocks.stop(None, draft)?;
        }
        self.tokens(usage.as_ref(), draft);
        finish(stop_reason.as_deref(), stop_details.as_ref(), draft)
    }

    /// Notes tokens. Reports are sums, and some leave out what was told before or say 0 for it.
    fn tokens(&mut self, told: Option<&Usage>, draft: &mut Draft) {
        if let Some(told) = told {
            self.usage.raise(told);
            draft.usage(|usage| self.usage.write(usage));
        }
    }
}

fn finish(reason: Option<&str>, details: Option<&Value>, draft: &mut Draft) -> Result<(), ModelError> {
    let Some(reason) = reason.filter(|it| !it.is_empty()) else { return Ok(()) };
    if reason == "refusal"
        && let Some(why) = details.and_then(|it| it.get("explanation")).and_then(Value::as_str)
    {
        draft.refusal(why.to_owned())?;
    }
    draft.finish(match reason {
        "end_turn" | "stop_sequence" => FinishReason::Stop,
        "tool_use" => FinishReason::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "refusal" => FinishReason::Refusal,
        "pause_turn" => FinishReason::Pause,
        other => FinishReason::Other(other.to_owned()),
    });
    Ok(())
}

fn error_of(error: Option<&Value>) -> ModelError {
    errors::of_event(error.unwrap_or(&json!("an error without a word")))
}
