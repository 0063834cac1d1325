//! One event of a chat stream, typed. Unknown fields are ignored, odd types are forgiven.

use std::fmt;

use bub_kernel::message::TokenUsage;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::Value;

use crate::lenient::{self, json_text, number, or_none, text};

/// One event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Chunk {
    #[serde(deserialize_with = "first_choice", rename = "choices")]
    pub(crate) choice: Option<Choice>,
    #[serde(deserialize_with = "or_none")]
    pub(crate) usage: Option<Usage>,
    pub(crate) error: Option<Value>,
}

/// The answer's next piece.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Choice {
    #[serde(deserialize_with = "number")]
    index: Option<u64>,
    delta: Option<Delta>,
    /// Instead of a delta, from servers that answer all at once.
    message: Option<Delta>,
    #[serde(deserialize_with = "text")]
    pub(crate) finish_reason: Option<String>,
    #[serde(deserialize_with = "or_none")]
    pub(crate) usage: Option<Usage>,
    /// What went wrong in the middle of the answer.
    pub(crate) error: Option<Value>,
}

impl Choice {
    pub(crate) fn delta(&mut self) -> Option<Delta> {
        self.delta.take().or_else(|| self.message.take())
    }
}

/// What is new.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Delta {
    #[serde(deserialize_with = "content")]
    pub(crate) content: Content,
    #[serde(deserialize_with = "text")]
    pub(crate) reasoning_content: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(crate) reasoning: Option<String>,
    /// Thinking in pieces of the server's own kinds, which it wants back.
    #[serde(deserialize_with = "or_none")]
    pub(crate) reasoning_details: Option<Vec<Value>>,
    #[serde(deserialize_with = "text")]
    pub(crate) refusal: Option<String>,
    pub(crate) tool_calls: Option<Vec<CallDelta>>,
    /// Pictures that the model made.
    #[serde(deserialize_with = "or_none")]
    pub(crate) images: Option<Vec<Image>>,
    #[serde(deserialize_with = "or_none")]
    pub(crate) annotations: Option<Vec<Annotation>>,
}

/// A picture.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Image {
    image_url: Option<Link>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Link {
    #[serde(deserialize_with = "text")]
    url: Option<String>,
}

impl Image {
    pub(crate) fn url(&self) -> Option<&str> {
        self.image_url.as_ref()?.url.as_deref()
    }
}

/// A note on the answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Annotation {
    pub(crate) url_citation: Option<Cited>,
}

/// A source.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Cited {
    #[serde(deserialize_with = "text")]
    pub(crate) url: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(crate) title: Option<String>,
}

/// Words, and the thinking that some servers put beside them.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Content {
    pub(crate) text: Option<String>,
    pub(crate) thinking: Option<String>,
}

/// A piece of a tool call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CallDelta {
    #[serde(deserialize_with = "number")]
    pub(crate) index: Option<u64>,
    #[serde(deserialize_with = "text")]
    pub(crate) id: Option<String>,
    pub(crate) function: Option<FunctionDelta>,
    /// What some servers want back with the call, such as signatures of its thinking.
    pub(crate) extra_content: Option<Value>,
}

/// A piece of the function that a call names.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FunctionDelta {
    #[serde(deserialize_with = "text")]
    pub(crate) name: Option<String>,
    #[serde(deserialize_with = "json_text")]
    pub(crate) arguments: Option<String>,
}

/// Tokens so far.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Usage {
    #[serde(deserialize_with = "number")]
    prompt_tokens: Option<u64>,
    #[serde(deserialize_with = "number")]
    completion_tokens: Option<u64>,
    #[serde(deserialize_with = "number")]
    prompt_cache_hit_tokens: Option<u64>,
    #[serde(deserialize_with = "or_none")]
    prompt_tokens_details: Option<Details>,
    #[serde(deserialize_with = "or_none")]
    completion_tokens_details: Option<Details>,
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
    pub(crate) fn update(&self, usage: &mut TokenUsage) {
        let input = self.prompt_tokens_details.as_ref();
        let output = self.completion_tokens_details.as_ref();
        let told = [
            (self.prompt_tokens, &mut usage.input_tokens),
            (self.completion_tokens, &mut usage.output_tokens),
            (input.and_then(|it| it.cached_tokens).or(self.prompt_cache_hit_tokens), &mut usage.cached_tokens),
            (input.and_then(|it| it.cache_write_tokens), &mut usage.cache_write_tokens),
            (output.and_then(|it| it.reasoning_tokens), &mut usage.reasoning_tokens),
        ];
        for (new, old) in told {
            *old = new.unwrap_or(*old);
        }
    }
}

/// The first choice; others are not asked for.
fn first_choice<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Choice>, D::Error> {
    struct First;
    impl<'de> Visitor<'de> for First {
        type Value = Option<Choice>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of choices")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut first = None;
            while let Some(choice) = items.next_element::<Choice>()? {
                if first.is_none() && choice.index.unwrap_or_default() == 0 {
                    first = Some(choice);
                }
            }
            Ok(first)
        }
    }
    from.deserialize_any(First)
}

lenient::forgiving!(content -> Content {
    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Content::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Content::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Content::default())
    }

    // One part, where others send a list.
    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
        let part = Value::deserialize(MapAccessDeserializer::new(fields))?;
        let text = part.get("text").and_then(Value::as_str).map(str::to_owned);
        Ok(Content { text, thinking: None })
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Content { text: Some(text.to_owned()), thinking: None })
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Content { text: Some(text), thinking: None })
    }

    // Some servers send a list of typed parts.
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut content = Content::default();
        while let Some(part) = items.next_element::<Value>()? {
            if let Some(text) = part.get("text").and_then(Value::as_str) {
                content.text.get_or_insert_default().push_str(text);
            }
            match part.get("thinking") {
                Some(Value::String(text)) => content.thinking.get_or_insert_default().push_str(text),
                Some(Value::Array(parts)) => {
                    let texts = parts.iter().filter_map(|it| it.get("text").and_then(Value::as_str));
                    content.thinking.get_or_insert_default().extend(texts);
                }
                _ => (),
            }
        }
        Ok(content)
    }
});

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(data: &[u8]) -> Option<String> {
        lenient::parse::<Chunk>(data).unwrap().choice.unwrap().delta().unwrap().content.text
    }

    fn content_of(content: &str) -> Option<String> {
        text_of(format!(r#"{{"choices":[{{"delta":{{"content":{content}}}}}]}}"#).as_bytes())
    }

    #[test]
    fn content_is_read_in_every_form() {
        assert_eq!(content_of(r#""a\nb""#).as_deref(), Some("a\nb"));
        assert_eq!(content_of("null"), None);
        assert_eq!(content_of(r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#).as_deref(), Some("ab"));
        assert_eq!(content_of(r#"{"type":"text","text":"a"}"#).as_deref(), Some("a"));
        for none in ["true", "1", "-1", "1.5", "{}", "[]"] {
            assert_eq!(content_of(none), None, "{none}");
        }
    }

    #[test]
    fn damaged_text_is_mended_not_lost() {
        assert_eq!(content_of(r#""a\ud83d""#).as_deref(), Some("a\u{fffd}"));
        assert_eq!(content_of(r#""\ude00b""#).as_deref(), Some("\u{fffd}b"));
        assert_eq!(content_of(r#""\ud83d\ud83d\ude00 \\ud83d \"""#).as_deref(), Some("\u{fffd}😀 \\ud83d \""));
        let mut data = br#"{"choices":[{"delta":{"content":"a_b"}}]}"#.to_vec();
        let at = data.iter().position(|it| *it == b'_').unwrap();
        data[at] = 0xFF;
        assert_eq!(text_of(&data).as_deref(), Some("a\u{fffd}b"));
        let twice = br#"{"choices":[{"delta":{"content":"a","content":"b"}}]}"#;
        assert_eq!(text_of(twice).as_deref(), Some("b"));
    }

    #[test]
    fn odd_chunks_are_read_or_refused_but_never_panic() {
        for odd in [
            r#"{}"#,
            r#"{"choices":null,"usage":null,"error":null}"#,
            r#"{"choices":[],"extra":[[1e999999]]}"#.replace("1e999999", "1e9").as_str(),
            r#"{"choices":[{"index":"x","delta":null,"finish_reason":5}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":null,"refusal":{}}}]}"#,
            r#"{"choices":[{"delta":{"content":{},"annotations":{},"images":"x","reasoning_details":7}}],"usage":[]}"#,
            r#"{"choices":[{"delta":{"content":5},"error":false,"usage":"x"}],"usage":{"prompt_tokens_details":1}}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":-1,"id":7,"function":null}]}}]}"#,
        ] {
            assert!(lenient::parse::<Chunk>(odd.as_bytes()).is_ok(), "{odd}");
        }
        for bad in ["", "x", "[1", r#"{"choices":5}"#, r#"{"usage":NaN}"#, "\u{feff}", r#""\ud83d"#] {
            assert!(lenient::parse::<Chunk>(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn usage_keeps_what_is_not_told_again() {
        let mut usage = TokenUsage::default();
        let mut told = |text: &str| serde_json::from_str::<Usage>(text).unwrap().update(&mut usage);
        told(r#"{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":4}}"#);
        told(
            r#"{"completion_tokens":3.0,"completion_tokens_details":{"reasoning_tokens":2},"prompt_tokens_details":null}"#,
        );
        told("{}");
        told(r#"{"prompt_tokens":-1,"completion_tokens":1e30,"prompt_cache_hit_tokens":"7"}"#);
        let expected = TokenUsage {
            input_tokens: 10,
            output_tokens: u64::MAX,
            reasoning_tokens: 2,
            cached_tokens: 7,
            cache_write_tokens: 0,
        };
        assert_eq!(usage, expected);
    }
}
