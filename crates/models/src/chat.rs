//! The wire of OpenAI's chat completions, which many servers speak, each a little differently.

mod chunk;
mod details;
mod dialect;
mod request;

use bub_kernel::{
    message::{Media, MediaKind, MediaSource},
    model::{Citation, FinishReason, ModelError},
};
use serde_json::{Value, json};

use crate::{calls::CallPiece, decode, draft::Draft, errors, lenient, wire::WireReader};

use chunk::{Chunk, Delta};
use details::Details;
pub(crate) use dialect::Dialect;
pub(crate) use request::body;

/// The field in which some servers send their thinking in pieces of their own kinds, and want it back.
const REASONING_DETAILS: &str = "reasoning_details";

/// Reads the events of a chat stream.
#[derive(Debug, Default)]
pub(crate) struct ChatReader {
    details: Details,
}

impl WireReader for ChatReader {
    fn event(&mut self, data: &[u8], draft: &mut Draft) -> Result<bool, ModelError> {
        let chunk: Chunk = lenient::parse(data).map_err(|err| decode::not_json(&err, data))?;
        if chunk.choice.is_none() && chunk.usage.is_none() {
            // Some servers send an error without a name around it.
            let told: Value = lenient::parse(data).unwrap_or_default();
            if errors::tells_error(&told) {
                return Err(errors::of_event(&told));
            }
        }
        self.read(chunk, draft)?;
        // The end is a mark of its own, which the decoder knows.
        Ok(false)
    }

    fn whole(&mut self, body: &[u8], draft: &mut Draft) -> Result<bool, ModelError> {
        let mut chunk: Chunk = lenient::parse(body).unwrap_or_default();
        if chunk.error.as_ref().is_some_and(says_something) || chunk.choice.is_none() {
            return Ok(false);
        }
        if let Some(choice) = &mut chunk.choice {
            choice.finish_reason.get_or_insert_with(|| "stop".into());
        }
        self.read(chunk, draft)?;
        Ok(true)
    }

    fn close(&mut self, draft: &mut Draft) -> Result<(), ModelError> {
        match self.details.take() {
            Some(details) => draft.item(json!({REASONING_DETAILS: details})),
            None => Ok(()),
        }
    }
}

impl ChatReader {
    fn read(&mut self, mut chunk: Chunk, draft: &mut Draft) -> Result<(), ModelError> {
        if let Some(error) = chunk.error.as_ref().filter(|it| says_something(it)) {
            return Err(errors::of_event(error));
        }
        let mut usage = chunk.usage.take();
        if let Some(mut choice) = chunk.choice.take() {
            if let Some(delta) = choice.delta() {
                self.read_delta(delta, draft)?;
            }
            if let Some(error) = choice.error.as_ref().filter(|it| says_something(it)) {
                return Err(errors::of_event(error));
            }
            if let Some(reason) = choice.finish_reason.take().filter(|it| !it.is_empty()) {
                draft.finish(finish_reason(&reason)?);
            }
            usage = usage.or_else(|| choice.usage.take());
        }
        if let Some(told) = usage {
            draft.usage(|usage| told.update(usage));
        }
        Ok(())
    }

    fn read_delta(&mut self, delta: Delta, draft: &mut Draft) -> Result<(), ModelError> {
        let Delta {
            content,
            reasoning_content,
            reasoning,
            reasoning_details,
            refusal,
            tool_calls,
            images,
            annotations,
        } = delta;
        for detail in reasoning_details.into_iter().flatten() {
            self.details.add(detail)?;
        }
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
        for image in images.into_iter().flatten() {
            if let Some(media) = image.url().and_then(data_image) {
                draft.media(media)?;
            }
        }
        for note in annotations.into_iter().flatten() {
            if let Some(cited) = note.url_citation.filter(|it| it.url.is_some()) {
                draft.citation(Citation { url: cited.url.unwrap_or_default(), title: cited.title })?;
            }
        }
        Ok(())
    }
}

/// Whether the field of an error holds one; some servers always send it.
fn says_something(error: &Value) -> bool {
    match error {
        Value::Object(_) => true,
        Value::String(text) => !text.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => false,
    }
}

/// An image that came as a data URL.
fn data_image(url: &str) -> Option<Media> {
    let (media_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    Some(Media {
        kind: MediaKind::Image,
        media_type: media_type.to_owned(),
        source: MediaSource::Data(data.to_owned()),
    })
}

/// Why the model stopped. Servers that speak for models of others hand on the words of those.
fn finish_reason(reason: &str) -> Result<FinishReason, ModelError> {
    let lower = reason.to_lowercase();
    Ok(match lower.split(':').next().unwrap_or_default() {
        "stop" | "eos" | "end_turn" | "stop_sequence" => FinishReason::Stop,
        "tool_calls" | "function_call" | "tool_use" => FinishReason::ToolCalls,
        "length" | "max_tokens" | "model_length" | "max_output_tokens" => FinishReason::Length,
        "content_filter" | "sensitive" | "safety" => FinishReason::ContentFilter,
        "refusal" => FinishReason::Refusal,
        "error" | "network_error" | "network-error" | "insufficient_system_resource" | "abort" => {
            let message = format!("the server gave up in the middle of the answer (finish reason '{reason}')");
            return Err(ModelError::Failed { status: None, message });
        }
        _ => FinishReason::Other(reason.to_owned()),
    })
}
