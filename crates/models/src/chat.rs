//! The wire of OpenAI's chat completions, which many servers speak, each a little differently.

mod chunk;
mod request;

use bub_kernel::model::{FinishReason, ModelError};

use crate::{calls::CallPiece, decode, draft::Draft, errors, lenient, wire::WireReader};

use chunk::{Chunk, Delta};
pub(crate) use request::{Dialect, body};

/// Reads the events of a chat stream.
#[derive(Debug, Default)]
pub(crate) struct ChatReader;

impl WireReader for ChatReader {
    fn event(&mut self, data: &[u8], draft: &mut Draft) -> Result<bool, ModelError> {
        let chunk = lenient::parse(data).map_err(|err| decode::not_json(&err, data))?;
        read(chunk, draft)?;
        // The end is a mark of its own, which the decoder knows.
        Ok(false)
    }

    fn whole(&mut self, body: &[u8], draft: &mut Draft) -> Result<bool, ModelError> {
        let mut chunk: Chunk = lenient::parse(body).unwrap_or_default();
        if chunk.error.is_some() || chunk.choice.is_none() {
            return Ok(false);
        }
        if let Some(choice) = &mut chunk.choice {
            choice.finish_reason.get_or_insert_with(|| "stop".into());
        }
        read(chunk, draft)?;
        Ok(true)
    }
}

fn read(mut chunk: Chunk, draft: &mut Draft) -> Result<(), ModelError> {
    if let Some(error) = &chunk.error {
        return Err(errors::of_event(error));
    }
    let mut usage = chunk.usage.take();
    if let Some(mut choice) = chunk.choice.take() {
        if let Some(delta) = choice.delta() {
            read_delta(delta, draft)?;
        }
        if let Some(reason) = choice.finish_reason.take().filter(|it| !it.is_empty()) {
            draft.finish(finish_reason(&reason));
        }
        usage = usage.or_else(|| choice.usage.take());
    }
    if let Some(told) = usage {
        draft.usage(|usage| told.update(usage));
    }
    Ok(())
}

fn read_delta(delta: Delta, draft: &mut Draft) -> Result<(), ModelError> {
    let Delta { content, reasoning_content, reasoning, refusal, tool_calls } = delta;
    let present = |it: Option<String>| it.filter(|it| !it.is_empty());
    // Some servers send their thinking under both names.
    let thinking = present(reasoning_content).or_else(|| present(reasoning)).or_else(|| present(content.thinking));
    draft.reasoning(thinking.unwrap_or_default())?;
    draft.text(content.text.unwrap_or_default())?;
    draft.refusal(refusal.unwrap_or_default())?;
    for call in tool_calls.into_iter().flatten() {
        let function = call.function.unwrap_or_default();
        draft.call(CallPiece {
            index: call.index,
            id: call.id,
            name: function.name,
            arguments: function.arguments.unwrap_or_default(),
            metadata: call.extra_content.map(|it| ("extra_content", it)),
        })?;
    }
    Ok(())
}

fn finish_reason(reason: &str) -> FinishReason {
    match reason {
        "stop" => FinishReason::Stop,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "length" => FinishReason::Length,
        "content_filter" => FinishReason::ContentFilter,
        "refusal" => FinishReason::Refusal,
        other => FinishReason::Other(other.to_owned()),
    }
}
