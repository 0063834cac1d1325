//! The wire of Google's Gemini API.
//!
//! An answer is a list of parts. Some carry a signature of the thinking behind them, which the API
//! wants back on the very same part: those of calls are kept with the call, all other parts that
//! carry one are kept whole.

mod embed;
mod events;
mod request;

use std::collections::HashSet;

use bub_kernel::{
    message::{Media, MediaKind, MediaSource},
    model::{FinishReason, ModelError},
};
use serde_json::{Value, json};

use crate::{calls::CallPiece, decode, draft::Draft, errors, lenient, wire::WireReader};

pub(crate) use embed::embed;
use events::{Call, Candidate, Chunk, Part, PromptFeedback, Usage};
pub(crate) use request::body;

/// The field of a part, and of a call's metadata, that has the signature of the thinking behind it.
const SIGNATURE: &str = "thoughtSignature";

/// Where an answer of that model is asked for, below the base URL.
pub(crate) fn path(model: &str) -> String {
    format!("/{}:streamGenerateContent?alt=sse", escaped(&resource(model)))
}

/// The name of a model as the API's paths and bodies have it.
fn resource(model: &str) -> String {
    let is_full = ["models/", "tunedModels/"].iter().any(|it| model.starts_with(it));
    if is_full { model.to_owned() } else { format!("models/{model}") }
}

/// The name of a resource with everything escaped that could lead to another one.
fn escaped(resource: &str) -> String {
    let (kind, name) = resource.split_once('/').unwrap_or(("models", resource));
    let name: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
    format!("{kind}/{}", name.replace('+', "%20"))
}

/// Reads the events of a Gemini stream.
#[derive(Debug, Default)]
pub(crate) struct GeminiReader {
    n_calls: u64,
    usage: Usage,
    /// The sources, searches and pages that were told: each event may tell all of them again.
    told: HashSet<String>,
}

impl WireReader for GeminiReader {
    fn event(&mut self, data: &[u8], draft: &mut Draft) -> Result<bool, ModelError> {
        let chunk = lenient::parse(data).map_err(|err| decode::not_json(&err, data))?;
        self.read(chunk, draft)?;
        // More may follow the reason why it stopped; only the end of the stream is the end.
        Ok(false)
    }

    /// A whole answer is one event; without `alt=sse`, a stream is a list of events.
    fn whole(&mut self, body: &[u8], draft: &mut Draft) -> Result<bool, ModelError> {
        if body.trim_ascii_start().starts_with(b"[") {
            return self.list(body, draft);
        }
        let chunk: Chunk = lenient::parse(body).unwrap_or_default();
        if chunk.is_empty() {
            return Ok(false);
        }
        self.read(chunk, draft)?;
        if !draft.has_finish() {
            draft.finish(FinishReason::Stop);
        }
        Ok(true)
    }
}

impl GeminiReader {
    fn list(&mut self, body: &[u8], draft: &mut Draft) -> Result<bool, ModelError> {
        let (chunks, broken) = events::list(body);
        if chunks.is_empty() {
            return Ok(false);
        }
        let n_events = chunks.len();
        for chunk in chunks {
            self.read(chunk, draft)?;
        }
        match broken {
            Some(err) => Err(ModelError::Incomplete(format!("the list ended after {n_events} events: {err}"))),
            None if draft.has_finish() => Ok(true),
            None => Err(ModelError::Incomplete(format!("the list of {n_events} events has no finish"))),
        }
    }

    fn read(&mut self, chunk: Chunk, draft: &mut Draft) -> Result<(), ModelError> {
        if let Some(error) = &chunk.error {
            return Err(errors::of_event(error));
        }
        if let Some(told) = chunk.usage_metadata {
            self.usage.update(told);
            draft.usage(|usage| self.usage.write(usage));
        }
        if let Some(reason) = chunk.prompt_feedback.and_then(PromptFeedback::reason) {
            return Err(ModelError::ContentFilter(format!("Prompt blocked: {reason}")));
        }
        let mut candidates = chunk.candidates.into_iter().flatten();
        match candidates.find(|it| it.index.unwrap_or_default() == 0) {
            Some(candidate) => self.candidate(candidate, draft),
            None => Ok(()),
        }
    }

    fn candidate(&mut self, mut candidate: Candidate, draft: &mut Draft) -> Result<(), ModelError> {
        for part in candidate.content.take().and_then(|it| it.parts).into_iter().flatten() {
            self.part(part, draft)?;
        }
        for citation in candidate.citations() {
            if self.told.insert(citation.url.clone()) {
                draft.citation(citation)?;
            }
        }
        for (name, input) in candidate.tools() {
            if self.told.insert(format!("{name} {input}")) {
                draft.provider_tool_call(name.to_owned(), input)?;
            }
        }
        match candidate.finish_reason {
            Some(reason) => stop(&reason, candidate.finish_message, draft),
            None => Ok(()),
        }
    }

    fn part(&mut self, part: Part, draft: &mut Draft) -> Result<(), ModelError> {
        // Before its words are counted: the part stands where they begin.
        if part.is_kept() {
            draft.item(part.to_value())?;
        }
        let Part { text, is_thought, signature, call, media, rest } = part;
        if let Some(call) = call {
            return self.call(call, signature, draft);
        }
        match (text, is_thought) {
            (Some(text), true) => draft.reasoning(text)?,
            (Some(text), false) => draft.text(text)?,
            (None, _) => (),
        }
        // A picture among the thoughts is a sketch, not the answer's.
        if let Some(media) = media.filter(|_| !is_thought) {
            draft.media(Media {
                kind: kind_of(&media.mime_type),
                media_type: media.mime_type,
                source: MediaSource::Data(media.data),
            })?;
        }
        for (key, value) in rest {
            match key.as_str() {
                "executableCode" => draft.provider_tool_call("code_execution".to_owned(), value)?,
                "toolCall" => {
                    let name = value.get("toolType").and_then(Value::as_str).unwrap_or("tool").to_lowercase();
                    let input = value.get("args").cloned().unwrap_or_else(|| json!({}));
                    draft.provider_tool_call(name, input)?;
                }
                _ => (),
            }
        }
        Ok(())
    }

    /// Takes in a call, which always comes whole.
    fn call(&mut self, call: Call, signature: Option<String>, draft: &mut Draft) -> Result<(), ModelError> {
        let Some(name) = call.name.filter(|it| !it.is_empty()) else {
            return Err(ModelError::Protocol("a function call without the name of its function".into()));
        };
        let index = self.n_calls;
        self.n_calls = self.n_calls.saturating_add(1);
        draft.call(CallPiece {
            // Calls without an id are told apart by their number, also when their names are the same.
            index: Some(index),
            id: call.id,
            name: Some(name),
            arguments: call.args.filter(|it| it != "null").unwrap_or_default(),
            metadata: signature.map(|it| (SIGNATURE, it.into())),
        })
    }
}

/// Notes why the model stopped.
fn stop(reason: &str, message: Option<String>, draft: &mut Draft) -> Result<(), ModelError> {
    draft.finish(match reason {
        "" | "FINISH_REASON_UNSPECIFIED" => return Ok(()),
        "STOP" => FinishReason::Stop,
        "MAX_TOKENS" => FinishReason::Length,
        "SAFETY"
        | "RECITATION"
        | "PROHIBITED_CONTENT"
        | "BLOCKLIST"
        | "SPII"
        | "MODEL_ARMOR"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => FinishReason::ContentFilter,
        "MALFORMED_FUNCTION_CALL" => {
            let said = message.map(|it| format!(": {it}")).unwrap_or_default();
            let message = format!("the model wrote a function call that can't be read ({reason}){said}");
            return Err(ModelError::Failed { status: None, message });
        }
        other => FinishReason::Other(other.to_owned()),
    });
    Ok(())
}

fn kind_of(media_type: &str) -> MediaKind {
    match media_type.split('/').next() {
        Some("audio") => MediaKind::Audio,
        Some("video") => MediaKind::Video,
        _ => MediaKind::Image,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_the_model_and_nowhere_else() {
        for (model, expected) in [
            ("gemini-2.5-flash", "models/gemini-2.5-flash"),
            ("models/gemini-2.5-flash", "models/gemini-2.5-flash"),
            ("tunedModels/mine-1", "tunedModels/mine-1"),
            ("google/x y+z~", "models/google%2Fx%20y%2Bz%7E"),
            ("../../v1/x?a=b#c", "models/..%2F..%2Fv1%2Fx%3Fa%3Db%23c"),
            ("models/..", "models/.."),
            ("é:free", "models/%C3%A9%3Afree"),
        ] {
            assert_eq!(path(model), format!("/{expected}:streamGenerateContent?alt=sse"));
        }
    }
}
