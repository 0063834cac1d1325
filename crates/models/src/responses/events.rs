//! One event of a responses stream, typed. Unknown fields are ignored, odd types are forgiven.

use bub_kernel::message::TokenUsage;
use serde::Deserialize;
use serde_json::Value;

use crate::lenient::{json_text, number, text};

/// The events that say something; the others only frame them.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub(super) enum EventKind {
    #[serde(rename = "response.output_item.added")]
    ItemAdded,
    #[serde(rename = "response.output_item.done")]
    ItemDone,
    #[serde(rename = "response.output_text.delta")]
    TextDelta,
    #[serde(rename = "response.output_text.done")]
    TextDone,
    #[serde(rename = "response.output_text.annotation.added")]
    Annotation,
    #[serde(rename = "response.refusal.delta")]
    RefusalDelta,
    #[serde(rename = "response.reasoning_summary_text.delta")]
    SummaryDelta,
    #[serde(rename = "response.reasoning_text.delta")]
    ReasoningDelta,
    #[serde(rename = "response.function_call_arguments.delta")]
    ArgumentsDelta,
    #[serde(rename = "response.function_call_arguments.done")]
    ArgumentsDone,
    /// Some gateways call it `done`.
    #[serde(rename = "response.completed", alias = "response.done")]
    Completed,
    #[serde(rename = "response.incomplete")]
    Incomplete,
    #[serde(rename = "response.failed")]
    Failed,
    #[serde(rename = "response.cancelled")]
    Cancelled,
    #[serde(rename = "error")]
    Error,
    #[serde(other)]
    Other,
}

/// One event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    #[serde(rename = "type")]
    pub(super) kind: Option<EventKind>,
    #[serde(deserialize_with = "number")]
    pub(super) output_index: Option<u64>,
    #[serde(deserialize_with = "number")]
    pub(super) content_index: Option<u64>,
    #[serde(deserialize_with = "number")]
    pub(super) summary_index: Option<u64>,
    #[serde(deserialize_with = "text")]
    pub(super) item_id: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) delta: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) text: Option<String>,
    #[serde(deserialize_with = "json_text")]
    pub(super) arguments: Option<String>,
    pub(super) annotation: Option<Value>,
    pub(super) item: Option<Value>,
    pub(super) response: Option<Response>,
    pub(super) error: Option<Value>,
}

/// The answer as a whole.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Response {
    #[serde(deserialize_with = "text")]
    pub(super) object: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) status: Option<String>,
    pub(super) output: Option<Vec<Value>>,
    pub(super) usage: Option<Usage>,
    pub(super) error: Option<Value>,
    incomplete_details: Option<IncompleteDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct IncompleteDetails {
    #[serde(deserialize_with = "text")]
    reason: Option<String>,
}

impl Response {
    /// Why it is not complete.
    pub(super) fn incomplete_reason(&self) -> Option<&str> {
        self.incomplete_details.as_ref()?.reason.as_deref()
    }
}

/// Tokens of the whole answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    #[serde(deserialize_with = "number")]
    input_tokens: Option<u64>,
    #[serde(deserialize_with = "number")]
    output_tokens: Option<u64>,
    input_tokens_details: Option<Details>,
    output_tokens_details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    #[serde(deserialize_with = "number")]
    cached_tokens: Option<u64>,
    #[serde(deserialize_with = "number")]
    cache_write_tokens: Option<u64>,
    #[serde(deserialize_with = "number")]
    reasoning_tokens: Option<u64>,
}

impl Usage {
    /// Writes what is told over what was told before.
    pub(super) fn update(&self, usage: &mut TokenUsage) {
        let input = self.input_tokens_details.as_ref();
        let output = self.output_tokens_details.as_ref();
        let told = [
            (self.input_tokens, &mut usage.input_tokens),
            (self.output_tokens, &mut usage.output_tokens),
            (input.and_then(|it| it.cached_tokens), &mut usage.cached_tokens),
            (input.and_then(|it| it.cache_write_tokens), &mut usage.cache_write_tokens),
            (output.and_then(|it| it.reasoning_tokens), &mut usage.reasoning_tokens),
        ];
        for (new, old) in told {
            *old = new.unwrap_or(*old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lenient;

    #[test]
    fn odd_events_are_read_or_refused_but_never_panic() {
        for odd in [
            r#"{}"#,
            r#"{"type":null,"response":null,"item":null,"error":null}"#,
            r#"{"type":"response.of_tomorrow","delta":{"a":[1]},"output_index":"x","item_id":7}"#,
            r#"{"type":"response.output_text.delta","delta":["a"],"content_index":-1}"#,
            r#"{"type":"response.output_item.done","item":"odd"}"#,
            r#"{"type":"response.completed","response":{"output":null,"usage":null,"status":5}}"#,
        ] {
            assert!(lenient::parse::<Event>(odd.as_bytes()).is_ok(), "{odd}");
        }
        for bad in ["", "x", "[1", r#"{"type":5}"#, r#"{"response":NaN}"#, r#""\ud83d""#] {
            assert!(lenient::parse::<Event>(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
