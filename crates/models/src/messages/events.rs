//! One event of a stream, typed. Unknown fields are ignored, odd types are forgiven.

use bub_kernel::message::TokenUsage;
use serde::Deserialize;
use serde_json::Value;

use crate::lenient::{number, text};

/// One event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    #[serde(deserialize_with = "text")]
    pub(super) r#type: Option<String>,
    /// Which block.
    #[serde(deserialize_with = "number")]
    pub(super) index: Option<u64>,
    pub(super) delta: Option<Delta>,
    pub(super) content_block: Option<Value>,
    pub(super) message: Option<Reply>,
    pub(super) usage: Option<Usage>,
    pub(super) error: Option<Value>,
}

/// What is new: of a block, or of the message. What is told besides its type says what it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta {
    #[serde(deserialize_with = "text")]
    pub(super) text: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) thinking: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) signature: Option<String>,
    /// More of a call's input.
    #[serde(deserialize_with = "text")]
    pub(super) partial_json: Option<String>,
    pub(super) citation: Option<Value>,
    #[serde(deserialize_with = "text")]
    pub(super) stop_reason: Option<String>,
    pub(super) stop_details: Option<Value>,
    pub(super) usage: Option<Usage>,
}

/// A message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Reply {
    #[serde(deserialize_with = "text")]
    pub(super) r#type: Option<String>,
    pub(super) content: Option<Vec<Value>>,
    #[serde(deserialize_with = "text")]
    pub(super) stop_reason: Option<String>,
    pub(super) stop_details: Option<Value>,
    pub(super) usage: Option<Usage>,
    pub(super) error: Option<Value>,
}

/// Tokens so far.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    /// Those that were neither read from the cache nor put into it.
    #[serde(deserialize_with = "number")]
    input_tokens: Option<u64>,
    #[serde(deserialize_with = "number")]
    cache_read_input_tokens: Option<u64>,
    #[serde(deserialize_with = "number")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(deserialize_with = "number")]
    output_tokens: Option<u64>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    #[serde(deserialize_with = "number")]
    thinking_tokens: Option<u64>,
}

impl Usage {
    /// Takes in a later report.
    pub(super) fn raise(&mut self, told: &Self) {
        // An absent number is less than any.
        self.input_tokens = self.input_tokens.max(told.input_tokens);
        self.cache_read_input_tokens = self.cache_read_input_tokens.max(told.cache_read_input_tokens);
        self.cache_creation_input_tokens = self.cache_creation_input_tokens.max(told.cache_creation_input_tokens);
        self.output_tokens = self.output_tokens.max(told.output_tokens);
        let thinking = |usage: &Self| usage.output_tokens_details.as_ref().and_then(|it| it.thinking_tokens);
        let thinking_tokens = thinking(self).max(thinking(told));
        self.output_tokens_details = Some(OutputDetails { thinking_tokens });
    }

    /// Writes the kernel's numbers.
    pub(super) fn write(&self, usage: &mut TokenUsage) {
        let cached = self.cache_read_input_tokens.unwrap_or_default();
        let written = self.cache_creation_input_tokens.unwrap_or_default();
        usage.input_tokens = self.input_tokens.unwrap_or_default().saturating_add(cached).saturating_add(written);
        usage.cached_tokens = cached;
        usage.cache_write_tokens = written;
        usage.output_tokens = self.output_tokens.unwrap_or_default();
        let details = self.output_tokens_details.as_ref();
        usage.reasoning_tokens = details.and_then(|it| it.thinking_tokens).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lenient;

    #[test]
    fn tokens_are_summed_up_and_never_fall() {
        let (mut usage, mut kernels) = (Usage::default(), TokenUsage::default());
        let mut told = |text: &str| {
            usage.raise(&serde_json::from_str(text).unwrap());
            usage.write(&mut kernels);
            (kernels.input_tokens, kernels.cached_tokens, kernels.cache_write_tokens, kernels.output_tokens)
        };
        let start =
            r#"{"input_tokens":5,"cache_read_input_tokens":90,"cache_creation_input_tokens":7,"output_tokens":1}"#;
        assert_eq!(told(start), (102, 90, 7, 1));
        assert_eq!(told(r#"{"output_tokens":30,"input_tokens":0,"cache_read_input_tokens":null}"#), (102, 90, 7, 30));
        assert_eq!(told(r#"{"output_tokens":"31","output_tokens_details":{"thinking_tokens":20}}"#).3, 31);
        assert_eq!(told(r#"{"input_tokens":18446744073709551615}"#).0, u64::MAX);
        assert_eq!(kernels.reasoning_tokens, 20);
    }

    #[test]
    fn odd_events_are_read_or_refused_but_never_panic() {
        for odd in [
            "{}",
            r#"{"type":5,"index":"x","delta":null,"content_block":[],"message":null,"usage":null}"#,
            r#"{"type":"content_block_delta","index":-1,"delta":{"type":"x","text":{},"thinking":[1],"partial_json":7}}"#,
            r#"{"type":"message_start","message":{"content":null,"usage":{"input_tokens":{}}}}"#,
        ] {
            assert!(lenient::parse::<Event>(odd.as_bytes()).is_ok(), "{odd}");
        }
        for bad in ["", "x", "[", r#"{"delta":5}"#, r#"{"usage":"x"}"#] {
            assert!(lenient::parse::<Event>(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
