//! The conversation as every wire needs it: each call has one result right after it.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use bub_kernel::message::{Media, Message, Part, ProviderData, Role, ToolCallRequest};
use serde_json::Value;

use crate::wire::{Asked, Wire};

/// What stands for the result of a call that was cut off before it had one.
pub(crate) const INTERRUPTED: &str = "interrupted: the call ended without a result";

/// What stands before an answer that nobody asked for, as after a handoff: services and the templates of
/// models want a person's message first.
pub(crate) const OPENING: &str = "[the conversation begins here]";

/// One entry of the conversation.
#[derive(Debug)]
pub(crate) enum Said<'a> {
    /// The runtime's instructions.
    System(Cow<'a, str>),
    /// A person's message: texts that are not empty, and media.
    User(Vec<&'a Part>),
    /// The model's answer.
    Assistant(Answer<'a>),
    /// The results of that answer's calls, in the order of the calls.
    Results(Vec<CallResult<'a>>),
}

/// An answer of the model.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) text: Cow<'a, str>,
    /// Its thinking, in words.
    pub(crate) reasoning: Cow<'a, str>,
    /// What it called, each id once.
    pub(crate) calls: Vec<&'a ToolCallRequest>,
    /// The pictures and sounds that it made.
    pub(crate) media: Vec<&'a Media>,
    /// What goes back to this provider by this wire, in order.
    items: Vec<Item<'a>>,
}

#[derive(Debug)]
struct Item<'a> {
    value: &'a Value,
    after_chars: usize,
    after_calls: usize,
}

/// A piece of an answer, in its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Piece<'a> {
    Text(&'a str),
    /// What the provider sent, unchanged.
    Item(&'a Value),
    Call(&'a ToolCallRequest),
}

/// The result of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallResult<'a> {
    pub(crate) call: &'a ToolCallRequest,
    /// None when the call was cut off.
    message: Option<&'a Message>,
}

impl<'a> CallResult<'a> {
    pub(crate) fn text(self) -> Cow<'a, str> {
        self.message.map_or(Cow::Borrowed(INTERRUPTED), text_of)
    }

    pub(crate) fn is_error(self) -> bool {
        self.message.is_none_or(|it| it.is_error)
    }

    /// Texts and media.
    pub(crate) fn parts(self) -> impl Iterator<Item = &'a Part> {
        self.message.into_iter().flat_map(|it| &it.parts)
    }
}

/// Lays the conversation out for a wire. Results without a call, and messages that say nothing, are
/// left out; a call without a result gets [`INTERRUPTED`].
pub(crate) fn conversation<'a>(asked: &Asked<'a>, wire: Wire) -> Vec<Said<'a>> {
    let request = asked.request;
    let mut said = Vec::with_capacity(request.messages.len().saturating_add(1));
    if let Some(system) = request.system.as_deref().filter(|it| !it.is_empty()) {
        said.push(Said::System(system.into()));
    }
    for (idx, message) in request.messages.iter().enumerate() {
        match message.role {
            Role::System => {
                let text = text_of(message);
                if !text.is_empty() {
                    said.push(Said::System(text));
                }
            }
            Role::User => {
                let parts: Vec<&Part> = message.parts.iter().filter(|it| is_said(it)).collect();
                if !parts.is_empty() {
                    said.push(Said::User(parts));
                }
            }
            Role::Assistant => {
                let answer = Answer::new(message, asked.provider, wire);
                if answer.is_empty() {
                    continue;
                }
                let rest = request.messages.get(idx.saturating_add(1)..).unwrap_or_default();
                let results = results(&answer.calls, rest);
                said.push(Said::Assistant(answer));
                if !results.is_empty() {
                    said.push(Said::Results(results));
                }
            }
            // Taken along with their calls.
            Role::Tool => (),
        }
    }
    said
}

impl<'a> Answer<'a> {
    fn new(message: &'a Message, provider: &str, wire: Wire) -> Self {
        let mut seen = HashSet::new();
        let calls = message.tool_calls.iter().filter(|it| seen.insert(it.id.as_str())).collect();
        let items = message.parts.iter().filter_map(|it| match it {
            Part::ProviderData(data) => Item::new(data, provider, wire),
            Part::Text(_) | Part::Reasoning(_) | Part::Media(_) => None,
        });
        let mut items: Vec<Item<'_>> = items.collect();
        // Something may have been complete only after what began later.
        items.sort_by_key(|it| (it.after_chars, it.after_calls));
        let media = message.parts.iter().filter_map(|it| if let Part::Media(media) = it { Some(media) } else { None });
        let media = media.collect();
        let reasoning = joined(message, |it| if let Part::Reasoning(text) = it { Some(text) } else { None });
        Self { text: text_of(message), reasoning, calls, media, items }
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.calls.is_empty() && self.items.is_empty()
    }

    /// What the provider sent to have it back.
    pub(crate) fn items(&self) -> impl Iterator<Item = &'a Value> {
        self.items.iter().map(|it| it.value)
    }

    /// Words, items and calls, in the order in which they came.
    pub(crate) fn pieces(&self) -> Vec<Piece<'_>> {
        let mut pieces = Vec::with_capacity(self.items.len() + self.calls.len() + 1);
        let (mut rest, mut n_chars, mut calls) = (&*self.text, 0, self.calls.iter());
        let mut n_calls = 0;
        for item in &self.items {
            let ahead = item.after_chars.saturating_sub(n_chars);
            if ahead > 0 {
                let at = rest.char_indices().nth(ahead).map_or(rest.len(), |(at, _)| at);
                let (text, after) = rest.split_at(at);
                if !text.is_empty() {
                    pieces.push(Piece::Text(text));
                }
                (rest, n_chars) = (after, item.after_chars);
            }
            while n_calls < item.after_calls
                && let Some(call) = calls.next()
            {
                pieces.push(Piece::Call(call));
                n_calls += 1;
            }
            pieces.push(Piece::Item(item.value));
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest));
        }
        pieces.extend(calls.map(|it| Piece::Call(it)));
        pieces
    }
}

impl<'a> Item<'a> {
    /// What `data` holds for a provider's wire. Data of others is left out: they would refuse it.
    fn new(data: &'a ProviderData, provider: &str, wire: Wire) -> Option<Self> {
        if data.api_format != wire.as_str() {
            return None;
        }
        let count = |key: &str| {
            let number = data.payload.get(key).and_then(Value::as_u64).unwrap_or_default();
            usize::try_from(number).unwrap_or(usize::MAX)
        };
        match data.payload.get("item") {
            Some(value) => {
                let is_ours = data.payload.get("provider").and_then(Value::as_str).is_none_or(|it| it == provider);
                let (after_chars, after_calls) = (count("after_chars"), count("after_calls"));
                is_ours.then_some(Self { value, after_chars, after_calls })
            }
            // The reference writes the provider's own object.
            None => Some(Self { value: &data.payload, after_chars: 0, after_calls: 0 }),
        }
    }
}

/// The results of `calls`, looked for up to the next answer.
fn results<'a>(calls: &[&'a ToolCallRequest], rest: &'a [Message]) -> Vec<CallResult<'a>> {
    if calls.is_empty() {
        return Vec::new();
    }
    let mut found: HashMap<&str, &Message> = HashMap::new();
    for it in rest.iter().take_while(|it| it.role != Role::Assistant).filter(|it| it.role == Role::Tool) {
        if let Some(call) = &it.tool_call {
            found.entry(call.id.as_str()).or_insert(it);
        }
    }
    calls.iter().map(|call| CallResult { call, message: found.get(call.id.as_str()).copied() }).collect()
}

/// The longest name of a tool that services take, in characters.
const MAX_NAME_CHARS: usize = 64;

/// The name of a called tool as services take it: of letters, digits, `_` and `-`. A model may have made
/// up any other, and each later request would be refused for it.
pub(crate) fn tool_name(name: &str) -> Cow<'_, str> {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    let begins_well = name.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_');
    if begins_well && name.len() <= MAX_NAME_CHARS && name.chars().all(is_plain) {
        return name.into();
    }
    let mended = name.chars().map(|it| if is_plain(it) { it } else { '_' });
    let start = if begins_well { "" } else { "_" };
    let mended: String = start.chars().chain(mended).take(MAX_NAME_CHARS).collect();
    if name.is_empty() { "unknown".into() } else { mended.into() }
}

/// Whether a part of a person's message says anything.
fn is_said(part: &Part) -> bool {
    match part {
        Part::Text(text) => !text.is_empty(),
        Part::Media(_) => true,
        Part::Reasoning(_) | Part::ProviderData(_) => false,
    }
}

/// A message's words, borrowed when there is one piece of them.
pub(crate) fn text_of(message: &Message) -> Cow<'_, str> {
    joined(message, |it| if let Part::Text(text) = it { Some(text) } else { None })
}

fn joined<'a>(message: &'a Message, pick: impl Fn(&'a Part) -> Option<&'a String>) -> Cow<'a, str> {
    let mut texts = message.parts.iter().filter_map(&pick);
    match (texts.next(), texts.next()) {
        (None, _) => Cow::Borrowed(""),
        (Some(one), None) => Cow::Borrowed(one),
        _ => message.parts.iter().filter_map(&pick).map(String::as_str).collect::<String>().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tools_are_plain() {
        let long = "x".repeat(300);
        for (name, expected) in [
            ("fs_read", "fs_read"),
            ("fs.read", "fs_read"),
            ("multi_tool_use.parallel", "multi_tool_use_parallel"),
            ("9lives", "_9lives"),
            ("-x", "_-x"),
            ("名 a", "___a"),
            ("", "unknown"),
            (&long, &long[..64]),
        ] {
            assert_eq!(tool_name(name), expected, "{name}");
        }
    }
    use crate::kind::ProviderKind;
    use bub_kernel::{
        model::{ModelOptions, ModelRequest},
        turn::RunId,
    };
    use serde_json::{Map, json};

    fn call(id: &str) -> ToolCallRequest {
        ToolCallRequest { id: id.into(), name: "x".into(), arguments: "{}".into(), metadata: Map::new() }
    }

    fn item(provider: Option<&str>, after_chars: usize, after_calls: usize, name: &str) -> Part {
        let mut payload = json!({"after_chars": after_chars, "after_calls": after_calls, "item": name});
        if let Some(provider) = provider {
            payload["provider"] = provider.into();
        }
        Part::ProviderData(ProviderData { api_format: "chat".into(), payload })
    }

    /// One word per piece: `"text"`, `<item>`, `+call`.
    fn check(parts: Vec<Part>, calls: &[&str], expected: &str) {
        let mut message = Message::parts(Role::Assistant, parts);
        message.tool_calls = calls.iter().map(|it| call(it)).collect();
        let request = ModelRequest {
            run: RunId("run-1".into()),
            model: "m".into(),
            system: None,
            messages: vec![message],
            tools: Vec::new(),
            options: ModelOptions::default(),
        };
        let asked = Asked { request: &request, provider: "ours", kind: ProviderKind::OpenAi, extra_body: Map::new() };
        let said = conversation(&asked, Wire::Chat);
        let Some(Said::Assistant(answer)) = said.first() else { panic!("{said:?}") };
        let words: Vec<String> = answer
            .pieces()
            .into_iter()
            .map(|it| match it {
                Piece::Text(text) => format!("{text:?}"),
                Piece::Item(value) => format!("<{}>", value.as_str().unwrap_or("?")),
                Piece::Call(call) => format!("+{}", call.id),
            })
            .collect();
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn pieces_stand_where_they_came() {
        let text = || Part::Text("añb".into());
        check(vec![text()], &["a", "a", "b"], r#""añb" +a +b"#);
        check(vec![item(None, 0, 0, "t"), text()], &["a"], r#"<t> "añb" +a"#);
        check(vec![text(), item(None, 2, 0, "t"), item(None, 3, 1, "u")], &["a", "b"], r#""añ" <t> "b" +a <u> +b"#);
        // Positions that the tape's text no longer has.
        check(vec![text(), item(None, 99, 7, "t")], &["a"], r#""añb" +a <t>"#);
    }

    #[test]
    fn others_data_stays_where_it_is() {
        check(
            vec![Part::Text("a".into()), item(Some("ours"), 0, 0, "t"), item(Some("theirs"), 0, 0, "u")],
            &[],
            r#"<t> "a""#,
        );
        let foreign = Part::ProviderData(ProviderData { api_format: "gemini".into(), payload: json!({"item": "x"}) });
        check(vec![Part::Text("a".into()), foreign], &[], r#""a""#);
        let raw = Part::ProviderData(ProviderData { api_format: "chat".into(), payload: json!("raw") });
        check(vec![Part::Text("a".into()), raw], &[], r#"<raw> "a""#);
    }
}
