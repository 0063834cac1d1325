//! One event of a Gemini stream, typed. Unknown fields are ignored, odd types are forgiven.

use std::{borrow::Cow, fmt};

use bub_kernel::{message::TokenUsage, model::Citation};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value, json};

use super::SIGNATURE;
use crate::lenient::{self, json_text, number, text};

/// One event.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Chunk {
    pub(crate) candidates: Option<Vec<Candidate>>,
    pub(crate) prompt_feedback: Option<PromptFeedback>,
    pub(crate) usage_metadata: Option<Usage>,
    pub(crate) error: Option<Value>,
}

impl Chunk {
    /// Whether it holds neither an answer nor a reason why there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.candidates.is_none() && self.prompt_feedback.is_none() && self.error.is_none()
    }
}

/// The answer's next piece.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Candidate {
    #[serde(deserialize_with = "number")]
    pub(crate) index: Option<u64>,
    pub(crate) content: Option<Content>,
    #[serde(deserialize_with = "text")]
    pub(crate) finish_reason: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(crate) finish_message: Option<String>,
    grounding_metadata: Option<Grounding>,
    citation_metadata: Option<Citations>,
    url_context_metadata: Option<UrlContext>,
}

/// The pieces of a content.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Content {
    pub(crate) parts: Option<Vec<Part>>,
}

/// What an answer rests on.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Grounding {
    grounding_chunks: Option<Vec<GroundingChunk>>,
    web_search_queries: Option<Vec<Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GroundingChunk {
    web: Option<Source>,
    retrieved_context: Option<Source>,
    maps: Option<Source>,
}

/// What an answer repeats.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Citations {
    #[serde(alias = "citations")]
    citation_sources: Option<Vec<Source>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Source {
    #[serde(deserialize_with = "text")]
    uri: Option<String>,
    #[serde(deserialize_with = "text")]
    title: Option<String>,
}

/// The pages that were read.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct UrlContext {
    url_metadata: Option<Vec<Page>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Page {
    #[serde(deserialize_with = "text")]
    retrieved_url: Option<String>,
}

impl Candidate {
    /// The sources that it names.
    pub(crate) fn citations(&mut self) -> Vec<Citation> {
        let chunks = self.grounding_metadata.as_mut().and_then(|it| it.grounding_chunks.take());
        let chunks = chunks.into_iter().flatten().filter_map(|it| it.web.or(it.retrieved_context).or(it.maps));
        let repeated = self.citation_metadata.as_mut().and_then(|it| it.citation_sources.take());
        let sources = chunks.chain(repeated.into_iter().flatten());
        sources.filter_map(|it| Some(Citation { url: it.uri.filter(|it| !it.is_empty())?, title: it.title })).collect()
    }

    /// What the provider's tools did that is told beside the parts: their names and what they got.
    pub(crate) fn tools(&mut self) -> Vec<(&'static str, Value)> {
        let queries = self.grounding_metadata.as_mut().and_then(|it| it.web_search_queries.take());
        let queries = queries.filter(|it| !it.is_empty()).map(|it| ("google_search", json!({"queries": it})));
        let pages = self.url_context_metadata.as_mut().and_then(|it| it.url_metadata.take());
        let pages = pages.into_iter().flatten().filter_map(|it| it.retrieved_url);
        queries.into_iter().chain(pages.map(|it| ("url_context", json!({"url": it})))).collect()
    }
}

/// Why a request was not answered.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PromptFeedback {
    #[serde(deserialize_with = "text")]
    block_reason: Option<String>,
    #[serde(deserialize_with = "text")]
    block_reason_message: Option<String>,
}

impl PromptFeedback {
    pub(crate) fn reason(self) -> Option<String> {
        let reason = self.block_reason.filter(|it| !it.is_empty() && it != "BLOCKED_REASON_UNSPECIFIED")?;
        Some(match self.block_reason_message {
            Some(message) => format!("{reason} ({message})"),
            None => reason,
        })
    }
}

/// Tokens so far.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Usage {
    #[serde(deserialize_with = "number")]
    prompt_token_count: Option<u64>,
    #[serde(deserialize_with = "number")]
    tool_use_prompt_token_count: Option<u64>,
    #[serde(deserialize_with = "number")]
    candidates_token_count: Option<u64>,
    #[serde(deserialize_with = "number")]
    thoughts_token_count: Option<u64>,
    #[serde(deserialize_with = "number")]
    cached_content_token_count: Option<u64>,
}

impl Usage {
    /// Writes what is told over what was told before.
    pub(crate) fn update(&mut self, told: Self) {
        let fields = [
            (told.prompt_token_count, &mut self.prompt_token_count),
            (told.tool_use_prompt_token_count, &mut self.tool_use_prompt_token_count),
            (told.candidates_token_count, &mut self.candidates_token_count),
            (told.thoughts_token_count, &mut self.thoughts_token_count),
            (told.cached_content_token_count, &mut self.cached_content_token_count),
        ];
        for (new, old) in fields {
            *old = new.or(*old);
        }
    }

    /// The kernel's numbers: what the provider's tools read is input, thinking is output.
    pub(crate) fn write(&self, usage: &mut TokenUsage) {
        let sum = |one: Option<u64>, two: Option<u64>| one.unwrap_or(0).saturating_add(two.unwrap_or(0));
        *usage = TokenUsage {
            input_tokens: sum(self.prompt_token_count, self.tool_use_prompt_token_count),
            output_tokens: sum(self.candidates_token_count, self.thoughts_token_count),
            reasoning_tokens: self.thoughts_token_count.unwrap_or(0),
            cached_tokens: self.cached_content_token_count.unwrap_or(0),
            cache_write_tokens: 0,
        };
    }
}

/// One piece: words, a thought, a call, media, or something that only this API understands.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) text: Option<String>,
    pub(crate) is_thought: bool,
    pub(crate) signature: Option<String>,
    pub(crate) call: Option<Call>,
    pub(crate) media: Option<Blob>,
    /// All other fields, as they came.
    pub(crate) rest: Map<String, Value>,
}

/// A call, whole.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Call {
    #[serde(deserialize_with = "text")]
    pub(crate) id: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(crate) name: Option<String>,
    #[serde(deserialize_with = "json_text")]
    pub(crate) args: Option<String>,
}

/// Media in base64.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Blob {
    pub(crate) mime_type: String,
    pub(crate) data: String,
}

impl Part {
    /// Whether it has to go back as it is. Calls go back with their signature anyway, and plain words,
    /// thoughts and media need not.
    pub(crate) fn is_kept(&self) -> bool {
        let is_plain = self.text.is_some() || self.media.is_some();
        self.call.is_none() && (self.signature.is_some() || !(is_plain || self.rest.is_empty()))
    }

    /// The part as it came.
    pub(crate) fn to_value(&self) -> Value {
        let mut part = Map::new();
        if let Some(text) = &self.text {
            part.insert("text".into(), text.as_str().into());
        }
        if self.is_thought {
            part.insert("thought".into(), true.into());
        }
        if let Some(Blob { mime_type, data }) = &self.media {
            part.insert("inlineData".into(), json!({"mimeType": mime_type, "data": data}));
        }
        part.extend(self.rest.clone());
        if let Some(signature) = &self.signature {
            part.insert(SIGNATURE.into(), signature.as_str().into());
        }
        part.into()
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(transparent)]
        struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

        #[derive(Deserialize)]
        #[serde(transparent)]
        struct Text(#[serde(deserialize_with = "text")] Option<String>);

        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Part;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a part of a content")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Part, A::Error> {
                let mut part = Part::default();
                while let Some(Key(key)) = fields.next_key()? {
                    match &*key {
                        "text" => part.text = fields.next_value::<Text>()?.0,
                        "thought" => part.is_thought = fields.next_value::<Value>()? == true,
                        SIGNATURE => part.signature = fields.next_value::<Text>()?.0.filter(|it| !it.is_empty()),
                        "functionCall" => part.call = fields.next_value()?,
                        "inlineData" => part.media = fields.next_value()?,
                        _ => {
                            let value: Value = fields.next_value()?;
                            if !value.is_null() {
                                part.rest.insert(key.into_owned(), value);
                            }
                        }
                    }
                }
                Ok(part)
            }
        }
        from.deserialize_map(Fields)
    }
}

/// Reads a list of events, as far as it is whole: the events, and what is wrong with the rest.
pub(crate) fn list(body: &[u8]) -> (Vec<Chunk>, Option<serde_json::Error>) {
    struct Items<'a>(&'a mut Vec<Chunk>);
    impl<'de> Visitor<'de> for Items<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of events")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
            while let Some(chunk) = items.next_element()? {
                self.0.push(chunk);
            }
            Ok(())
        }
    }
    let mut chunks = Vec::new();
    let mut json = serde_json::Deserializer::from_slice(body);
    match json.deserialize_seq(Items(&mut chunks)).and_then(|()| json.end()) {
        Ok(()) => (chunks, None),
        // Once more, with what is not quite right mended.
        Err(err) => match lenient::parse(body) {
            Ok(chunks) => (chunks, None),
            Err(_) => (chunks, Some(err)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str) -> Part {
        lenient::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn kept_parts_are_as_they_came() {
        for whole in [
            r#"{"text":"a","thoughtSignature":"S=="}"#,
            r#"{"text":"","thoughtSignature":"S=="}"#,
            r#"{"text":"a","thought":true,"thoughtSignature":"S=="}"#,
            r#"{"inlineData":{"mimeType":"image/png","data":"AA"},"thoughtSignature":"S=="}"#,
            r#"{"executableCode":{"language":"PYTHON","code":"1"},"new":[1.0],"thoughtSignature":"S=="}"#,
            r#"{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1\n"}}"#,
            r#"{"thoughtSignature":"S=="}"#,
        ] {
            let part = part(whole);
            assert!(part.is_kept(), "{whole}");
            assert_eq!(part.to_value().to_string(), whole);
        }
        for plain in [
            r#"{"text":"a"}"#,
            r#"{"text":"a","thought":true}"#,
            r#"{"text":"a","partMetadata":{"x":1}}"#,
            r#"{"inlineData":{"mimeType":"image/png","data":"AA"}}"#,
            r#"{"functionCall":{"name":"f"},"thoughtSignature":"S=="}"#,
            r#"{"executableCode":null}"#,
            "{}",
        ] {
            assert!(!part(plain).is_kept(), "{plain}");
        }
    }

    #[test]
    fn odd_events_are_read_or_refused_but_never_panic() {
        for odd in [
            "{}",
            r#"{"candidates":null,"usageMetadata":null,"promptFeedback":null,"error":null}"#,
            r#"{"candidates":[],"modelVersion":"x","responseId":7}"#,
            r#"{"candidates":[{"index":"x","content":null,"finishReason":5}]}"#,
            r#"{"candidates":[{"content":{"role":"model"}},{"content":{"parts":null}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{},{"text":7},{"text":null},{"thought":"yes"},{"functionCall":{}}]}}]}"#,
            r#"{"candidates":[{"groundingMetadata":{"groundingChunks":[{"web":{}},{}]},"citationMetadata":{}}]}"#,
            r#"{"usageMetadata":{"promptTokenCount":"7","candidatesTokenCount":-1,"thoughtsTokenCount":null}}"#,
        ] {
            assert!(lenient::parse::<Chunk>(odd.as_bytes()).is_ok(), "{odd}");
        }
        for bad in ["", "x", "[1", r#"{"candidates":5}"#, r#"{"candidates":[{"content":{"parts":["a"]}}]}"#] {
            assert!(lenient::parse::<Chunk>(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn damaged_text_is_mended_not_lost() {
        assert_eq!(part(r#"{"text":"a\ud83d"}"#).text.as_deref(), Some("a\u{fffd}"));
        assert_eq!(part(r#"{"text":"a","te\u0078t":"b\nc"}"#).text.as_deref(), Some("b\nc"));
        let (chunks, broken) = list(br#"[{"candidates":[{"content":{"parts":[{"text":"\ude00"}]}}]}]"#);
        assert!(broken.is_none() && chunks.len() == 1);
    }

    #[test]
    fn lists_are_read_as_far_as_they_are_whole() {
        let count = |body: &str| {
            let (chunks, broken) = list(body.as_bytes());
            (chunks.len(), broken.is_some())
        };
        assert_eq!(count(" [{},\r\n{}]\n"), (2, false));
        assert_eq!(count("[]"), (0, false));
        assert_eq!(count("[{},{\"candidates\":["), (1, true));
        assert_eq!(count("[{}"), (1, true));
        assert_eq!(count("[{}] more"), (1, true));
        assert_eq!(count("[7]"), (0, true));
    }

    #[test]
    fn usage_adds_up_and_keeps_what_is_not_told_again() {
        let mut usage = Usage::default();
        let mut told = |text: &str| {
            usage.update(serde_json::from_str(text).unwrap());
            let mut sums = TokenUsage::default();
            usage.write(&mut sums);
            sums
        };
        told(r#"{"promptTokenCount":10,"cachedContentTokenCount":4,"totalTokenCount":10}"#);
        told(r#"{"promptTokenCount":10,"thoughtsTokenCount":3}"#);
        let expected = TokenUsage {
            input_tokens: 12,
            output_tokens: 8,
            reasoning_tokens: 3,
            cached_tokens: 4,
            cache_write_tokens: 0,
        };
        assert_eq!(told(r#"{"candidatesTokenCount":5,"toolUsePromptTokenCount":2}"#), expected);
        assert_eq!(told(r#"{"thoughtsTokenCount":18446744073709551615}"#).output_tokens, u64::MAX);
    }
}
