//! The conversation as this API takes it: messages of a person and of the model in turns, each a list
//! of blocks.
//!
//! Much of what is done here is there because the API refuses the whole request otherwise, and would
//! refuse every later one of the session too.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use bub_kernel::{
    message::{Media, MediaKind, MediaSource, Part},
    model::ModelError,
};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::{
    errors,
    history::{self, Answer, CallResult, Piece, Said},
    kind::ProviderKind,
    lenient,
};

use super::{HIDDEN_THINKING, TEXT, THINKING};

/// The types of pictures that are taken, and how each begins in base64.
const PICTURES: [(&str, &str); 4] =
    [("image/png", "iVBORw0KGgo"), ("image/jpeg", "/9j/"), ("image/gif", "R0lGOD"), ("image/webp", "UklGR")];

/// A message.
#[derive(Serialize)]
pub(super) struct WireMessage<'a> {
    role: Speaker,
    content: Vec<Block<'a>>,
}

#[derive(Clone, Copy, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Speaker {
    User,
    Assistant,
}

/// A piece of a message.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        citations: Option<&'a Value>,
    },
    Image {
        source: Source<'a>,
    },
    ToolUse {
        id: String,
        name: Cow<'a, str>,
        input: Input<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        caller: Option<&'a Value>,
    },
    ToolResult {
        tool_use_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<ResultContent<'a>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// What the provider sent, as it came.
    #[serde(untagged)]
    Item(&'a Value),
}

/// The arguments of a call. They are read when they are written: a long conversation has many, and as
/// values they take several times their room.
struct Input<'a>(&'a str);

impl Serialize for Input<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let arguments: Map<String, Value> = lenient::parse(self.0.as_bytes()).unwrap_or_default();
        arguments.serialize(serializer)
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Source<'a> {
    Base64 { media_type: &'static str, data: &'a str },
    Url { url: &'a str },
}

#[derive(Serialize)]
#[serde(untagged)]
enum ResultContent<'a> {
    Text(Cow<'a, str>),
    Blocks(Vec<Block<'a>>),
}

/// The conversation, laid out.
pub(super) struct Layout<'a> {
    /// All that the runtime says, with blank lines between.
    pub(super) system: String,
    pub(super) messages: Vec<WireMessage<'a>>,
}

impl<'a> Layout<'a> {
    /// Lays out what was said.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for media that this API does not take.
    pub(super) fn new(said: &'a [Said<'_>], kind: ProviderKind) -> Result<Self, ModelError> {
        let mut layout = Self { system: String::new(), messages: Vec::with_capacity(said.len()) };
        let mut ids = Ids::default();
        for it in said {
            match it {
                Said::System(text) => {
                    if !layout.system.is_empty() {
                        layout.system.push_str("\n\n");
                    }
                    layout.system.push_str(text);
                }
                Said::User(parts) => layout.push(Speaker::User, blocks(parts.iter().copied())?),
                Said::Assistant(answer) => layout.push(Speaker::Assistant, answer_blocks(answer, kind, &mut ids)),
                Said::Results(results) => {
                    let blocks: Result<_, _> = results.iter().map(|it| result_block(*it, &ids)).collect();
                    layout.push(Speaker::User, blocks?);
                }
            }
        }
        layout.settle(true);
        if layout.messages.first().is_some_and(|it| it.role == Speaker::Assistant) {
            layout
                .messages
                .insert(0, WireMessage { role: Speaker::User, content: vec![Block::text(history::OPENING)] });
        }
        Ok(layout)
    }

    /// Adds blocks to the last message, if it is of the same speaker, or in a new one.
    fn push(&mut self, role: Speaker, mut blocks: Vec<Block<'a>>) {
        if blocks.is_empty() {
            return;
        }
        if role == Speaker::User {
            self.settle(false);
        }
        match self.messages.last_mut().filter(|it| it.role == role) {
            Some(last) => last.content.append(&mut blocks),
            None => self.messages.push(WireMessage { role, content: blocks }),
        }
    }

    /// Takes out of the model's last message what can't stand in it now that it is complete.
    fn settle(&mut self, is_last: bool) {
        let Some(message) = self.messages.last_mut().filter(|it| it.role == Speaker::Assistant) else { return };
        let content = &mut message.content;
        // A tool of the provider that has no result was cut off, unless the provider goes on with it:
        // when the answer was paused, or the results of other calls are awaited.
        if !is_last && !content.iter().any(|it| matches!(it, Block::ToolUse { .. })) {
            drop_unanswered(content);
        }
        while content.last().is_some_and(Block::is_thinking) {
            content.pop();
        }
        if let Some(Block::Text { text, .. }) = content.last_mut().filter(|_| is_last) {
            *text = text.trim_end().to_owned().into();
        }
        if content.is_empty() {
            self.messages.pop();
        }
    }
}

impl<'a> Block<'a> {
    fn text(text: &'a str) -> Self {
        Self::Text { text: text.into(), citations: None }
    }

    fn is_thinking(&self) -> bool {
        matches!(self, Self::Item(item) if is_thinking(item))
    }
}

fn field<'a>(item: &'a Value, key: &str) -> &'a str {
    item.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn is_thinking(item: &Value) -> bool {
    [THINKING, HIDDEN_THINKING].contains(&field(item, "type"))
}

/// Takes out calls of the provider's tools that have no result.
fn drop_unanswered(content: &mut Vec<Block<'_>>) {
    let answered: HashSet<&str> = content
        .iter()
        .filter_map(|it| if let Block::Item(item) = it { Some(field(item, "tool_use_id")) } else { None })
        .collect();
    let is_cut = |item: &Value| field(item, "type").ends_with("_tool_use") && !answered.contains(field(item, "id"));
    let is_kept: Vec<bool> = content.iter().map(|it| !matches!(it, Block::Item(item) if is_cut(item))).collect();
    let mut is_kept = is_kept.into_iter();
    content.retain(|_| is_kept.next().unwrap_or(true));
}

/// An answer's blocks, in the order in which they came.
fn answer_blocks<'a>(answer: &'a Answer<'_>, kind: ProviderKind, ids: &mut Ids<'a>) -> Vec<Block<'a>> {
    ids.begin();
    let mut blocks = Vec::new();
    // Whether the last piece was words that are sent.
    let mut after_words = false;
    for piece in answer.pieces() {
        match piece {
            Piece::Text(text) => {
                after_words = !text.trim().is_empty();
                if after_words {
                    blocks.push(Block::text(text));
                }
                continue;
            }
            Piece::Item(item) if field(item, "type") == TEXT => {
                if let Some(Block::Text { citations, .. }) = blocks.last_mut().filter(|_| after_words) {
                    *citations = item.get("citations");
                }
            }
            // Thinking that was cut off has no signature; Anthropic refuses it.
            Piece::Item(item)
                if kind == ProviderKind::Anthropic
                    && field(item, "type") == THINKING
                    && field(item, "signature").is_empty() => {}
            Piece::Item(item) => blocks.push(Block::Item(item)),
            Piece::Call(call) => blocks.push(Block::ToolUse {
                id: ids.of_call(&call.id),
                name: history::tool_name(&call.name),
                input: Input(&call.arguments),
                caller: call.metadata.get("caller"),
            }),
        }
        after_words = false;
    }
    blocks
}

fn result_block<'a>(result: CallResult<'a>, ids: &Ids<'a>) -> Result<Block<'a>, ModelError> {
    let has_media = result.parts().any(|it| matches!(it, Part::Media(_)));
    let content = if has_media {
        Some(ResultContent::Blocks(blocks(result.parts())?))
    } else {
        Some(result.text()).filter(|it| !it.trim().is_empty()).map(ResultContent::Text)
    };
    // An error may only have words; that one with a picture is an error is said by them.
    let is_error = result.is_error() && !has_media;
    Ok(Block::ToolResult { tool_use_id: ids.of_result(&result.call.id), content, is_error })
}

/// Words that are not blank, and pictures.
fn blocks<'a>(parts: impl Iterator<Item = &'a Part>) -> Result<Vec<Block<'a>>, ModelError> {
    let mut blocks = Vec::new();
    for part in parts {
        match part {
            Part::Text(text) if text.trim().is_empty() => (),
            Part::Text(text) => blocks.push(Block::text(text)),
            Part::Media(media) => blocks.push(Block::Image { source: picture(media)? }),
            Part::Reasoning(_) | Part::ProviderData(_) => (),
        }
    }
    Ok(blocks)
}

fn picture(media: &Media) -> Result<Source<'_>, ModelError> {
    let refused = |what: &str| {
        let taken = PICTURES.map(|(it, _)| it).join(", ");
        Err(ModelError::Unsupported(format!("the Messages API takes pictures ({taken}), not {what}")))
    };
    if media.kind != MediaKind::Image {
        return refused(media.kind.as_str());
    }
    let (data, told) = match &media.source {
        MediaSource::Data(data) => (data.as_str(), media.media_type.as_str()),
        MediaSource::Url(url) if url.starts_with("https://") || url.starts_with("http://") => {
            return Ok(Source::Url { url });
        }
        MediaSource::Url(url) => match url.strip_prefix("data:").and_then(|it| it.split_once(";base64,")) {
            Some((told, data)) => (data, told),
            None => return refused(&format!("what is at '{}'", errors::shorten(url, 80))),
        },
    };
    // What it is counts more than what it is called: the API looks too, and refuses a wrong name.
    let found = PICTURES.iter().find(|(_, start)| data.starts_with(start));
    let told = if told == "image/jpg" { "image/jpeg" } else { told };
    match found.or_else(|| PICTURES.iter().find(|(name, _)| *name == told)) {
        Some((media_type, _)) => Ok(Source::Base64 { media_type, data }),
        None if told.is_empty() => refused("data of an unknown type"),
        None => refused(told),
    }
}

/// The ids of calls as this API takes them: of letters, digits, `_` and `-`, each only once.
///
/// Those of other providers may have other characters, or begin anew in each answer.
#[derive(Default)]
struct Ids<'a> {
    /// Ids that were given, each with how often it was wanted again.
    given: HashMap<String, usize>,
    /// Those of the answer that is laid out.
    current: HashMap<&'a str, String>,
}

impl<'a> Ids<'a> {
    fn begin(&mut self) {
        self.current.clear();
    }

    /// A new id for a call.
    fn of_call(&mut self, id: &'a str) -> String {
        let wanted = plain(id, "call").into_owned();
        let mut given = wanted.clone();
        while self.given.contains_key(&given) {
            let times = self.given.entry(wanted.clone()).or_default();
            *times = times.saturating_add(1);
            given = format!("{wanted}_{times}");
        }
        self.given.insert(given.clone(), 0);
        self.current.insert(id, given.clone());
        given
    }

    /// The id that the call of a result was given.
    fn of_result(&self, id: &str) -> String {
        self.current.get(id).cloned().unwrap_or_else(|| plain(id, "call").into_owned())
    }
}

/// A name of letters, digits, `_` and `-`.
fn plain<'a>(name: &'a str, default: &'a str) -> Cow<'a, str> {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    if name.is_empty() {
        default.into()
    } else if name.chars().all(is_plain) {
        name.into()
    } else {
        name.chars().map(|it| if is_plain(it) { it } else { '_' }).collect::<String>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_plain_and_given_once() {
        let mut ids = Ids::default();
        let mut of = |it: &'static str| {
            ids.begin();
            let given = ids.of_call(it);
            assert_eq!(ids.of_result(it), given);
            given
        };
        assert_eq!(of("toolu_01-x"), "toolu_01-x");
        assert_eq!(of("a.b|c:é"), "a_b_c__");
        assert_eq!(of("a.b|c::"), "a_b_c___1");
        assert_eq!(of("a.b|c::"), "a_b_c___2");
        assert_eq!(of("c_1"), "c_1");
        assert_eq!((of("c"), of("c"), of("c")), ("c".into(), "c_2".into(), "c_3".into()));
        assert_eq!((of(""), of("")), ("call".into(), "call_1".into()));
    }
}
