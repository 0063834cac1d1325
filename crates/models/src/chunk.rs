//! One event of a chat stream, typed. Unknown fields are ignored, odd types are forgiven.

use std::{borrow::Cow, fmt};

use bub_kernel::message::TokenUsage;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::Value;

/// One event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Chunk {
    #[serde(deserialize_with = "first_choice", rename = "choices")]
    pub(crate) choice: Option<Choice>,
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
    pub(crate) usage: Option<Usage>,
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
    #[serde(deserialize_with = "text")]
    pub(crate) refusal: Option<String>,
    pub(crate) tool_calls: Option<Vec<CallDelta>>,
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
    prompt_tokens_details: Option<Details>,
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
    /// Writes what is told over what was told before; false when nothing was told.
    pub(crate) fn update(&self, usage: &mut TokenUsage) -> bool {
        let input = self.prompt_tokens_details.as_ref();
        let output = self.completion_tokens_details.as_ref();
        let told = [
            (self.prompt_tokens, &mut usage.input_tokens),
            (self.completion_tokens, &mut usage.output_tokens),
            (input.and_then(|it| it.cached_tokens).or(self.prompt_cache_hit_tokens), &mut usage.cached_tokens),
            (input.and_then(|it| it.cache_write_tokens), &mut usage.cache_write_tokens),
            (output.and_then(|it| it.reasoning_tokens), &mut usage.reasoning_tokens),
        ];
        let mut any = false;
        for (new, old) in told {
            if let Some(new) = new {
                *old = new;
                any = true;
            }
        }
        any
    }
}

impl Chunk {
    /// Reads an event's data.
    ///
    /// # Errors
    /// When it is no JSON of this shape.
    pub(crate) fn parse(data: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(data).or_else(|_| Self::parse_lenient(data))
    }

    /// The same for text that is not quite right: half characters, half surrogate pairs, keys that
    /// occur twice (the last one counts).
    fn parse_lenient(data: &[u8]) -> Result<Self, serde_json::Error> {
        let text = String::from_utf8_lossy(data);
        serde_json::from_value(serde_json::from_str::<Value>(&mend_surrogates(&text))?)
    }
}

/// Replaces each `\uD800` … `\uDFFF` that has no partner by the replacement character.
fn mend_surrogates(text: &str) -> Cow<'_, str> {
    if !text.contains("\\u") {
        return Cow::Borrowed(text);
    }
    let unit = |at: usize| {
        let digits = text.get(at..at.checked_add(6)?)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut mended = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|it| !it.is_empty()) {
        let Some(next) = rest.find('\\') else {
            mended.push_str(rest);
            break;
        };
        mended.push_str(rest.get(..next).unwrap_or_default());
        at += next;
        // An escape is two characters, or six, or a pair of six.
        let (kept, length) = match (unit(at), unit(at + 6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => (text.get(at..at + 12), 12),
            (Some(0xD800..=0xDFFF), _) => (Some("\\ufffd"), 6),
            _ => {
                let length = 1 + text.get(at + 1..).and_then(|it| it.chars().next()).map_or(0, char::len_utf8);
                (text.get(at..at + length), length)
            }
        };
        mended.push_str(kept.unwrap_or_default());
        at += length;
    }
    Cow::Owned(mended)
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

/// How a scalar field is read: what a type can't be made of is taken for absent.
macro_rules! forgiving {
    ($name:ident -> $value:ty { $($body:tt)* }) => {
        fn $name<'de, D: Deserializer<'de>>(from: D) -> Result<$value, D::Error> {
            struct Forgiving;
            impl<'de> Visitor<'de> for Forgiving {
                type Value = $value;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("anything")
                }

                fn visit_unit<E>(self) -> Result<Self::Value, E> {
                    Ok(Default::default())
                }

                fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                    Ok(Default::default())
                }

                $($body)*
            }
            from.deserialize_any(Forgiving)
        }
    };
}

forgiving!(text -> Option<String> {
    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Some(text))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(number.to_string()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Some(number.to_string()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
});

forgiving!(number -> Option<u64> {
    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(u64::try_from(number).ok())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        // A saturating cast is what is wanted of a number that no counter can reach.
        Ok((number >= 0.0).then_some(number as u64))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(text.parse().ok())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
});

forgiving!(json_text -> Option<String> {
    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Some(text))
    }

    // Some servers send the arguments as JSON instead of as JSON text.
    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
        Ok(Some(Value::deserialize(MapAccessDeserializer::new(fields))?.to_string()))
    }
});

forgiving!(content -> Content {
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
        Chunk::parse(data).unwrap().choice.unwrap().delta().unwrap().content.text
    }

    fn content_of(content: &str) -> Option<String> {
        text_of(format!(r#"{{"choices":[{{"delta":{{"content":{content}}}}}]}}"#).as_bytes())
    }

    #[test]
    fn content_is_read_in_every_form() {
        assert_eq!(content_of(r#""a\nb""#).as_deref(), Some("a\nb"));
        assert_eq!(content_of("null"), None);
        assert_eq!(content_of(r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#).as_deref(), Some("ab"));
        assert_eq!(content_of("true"), None);
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
            r#"{"choices":[{"delta":{"tool_calls":[{"index":-1,"id":7,"function":null}]}}]}"#,
        ] {
            assert!(Chunk::parse(odd.as_bytes()).is_ok(), "{odd}");
        }
        for bad in ["", "x", "[1", r#"{"choices":5}"#, r#"{"usage":NaN}"#, "\u{feff}", r#""\ud83d"#] {
            assert!(Chunk::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn usage_keeps_what_is_not_told_again() {
        let mut usage = TokenUsage::default();
        let mut told = |text: &str| serde_json::from_str::<Usage>(text).unwrap().update(&mut usage);
        assert!(told(r#"{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":4}}"#));
        assert!(told(
            r#"{"completion_tokens":3.0,"completion_tokens_details":{"reasoning_tokens":2},"prompt_tokens_details":null}"#
        ));
        assert!(!told("{}"));
        assert!(told(r#"{"prompt_tokens":-1,"completion_tokens":1e30,"prompt_cache_hit_tokens":"7"}"#));
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
