//! The wire of OpenAI's responses: an answer is a list of items, each of which comes in pieces.

mod events;
mod items;
mod request;

use std::collections::HashMap;

use bub_kernel::{
    message::{Media, MediaKind, MediaSource},
    model::{Citation, FinishReason, ModelError},
};
use serde_json::{Map, Value, json};

use crate::{
    calls::CallPiece,
    decode::{self, MAX_REPLY_BYTES},
    draft::{Draft, Place},
    errors, lenient,
    wire::WireReader,
};

use events::{Event, EventKind, Response};
use items::{Item, ItemKind, Items, Key, field};
pub(crate) use request::{Dialect, body};

/// Fields of a provider's own call that are not what it was called with.
const OUTCOMES: [&str; 7] = ["type", "id", "status", "result", "results", "outputs", "output"];

/// The name of a call that comes without one: it is answered, as one of a tool that does not exist.
const NAMELESS: &str = "unnamed";

/// Reads the events of a responses stream.
#[derive(Debug, Default)]
pub(crate) struct ResponsesReader {
    items: Items,
    /// Which message speaks; the words of others wait for its end.
    speaker: Option<usize>,
    /// The part of which item was thought last.
    thought: Option<Thought>,
}

/// A part of a reasoning item: of its summary, or of the thinking itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Thought {
    item: usize,
    is_summary: bool,
    part: u64,
}

impl WireReader for ResponsesReader {
    fn event(&mut self, data: &[u8], draft: &mut Draft) -> Result<bool, ModelError> {
        let event: Event = lenient::parse(data).map_err(|err| decode::not_json(&err, data))?;
        match event.kind {
            // A gateway's own error has no type.
            None => event.error.as_ref().map_or(Ok(false), |it| Err(errors::of_event(it))),
            Some(EventKind::Error) => Err(errors::of_event(&lenient::parse(data).unwrap_or_default())),
            Some(kind) => self.read(kind, event, draft),
        }
    }

    fn whole(&mut self, body: &[u8], draft: &mut Draft) -> Result<bool, ModelError> {
        let response: Response = lenient::parse(body).unwrap_or_default();
        if response.object.as_deref() != Some("response") && response.output.is_none() {
            return Ok(false);
        }
        self.complete(EventKind::Completed, response, draft)
    }

    fn close(&mut self, draft: &mut Draft) -> Result<(), ModelError> {
        self.let_speak(true, draft)?;
        for at in 0..self.items.len() {
            match self.items.get_mut(at).map(|it| it.kind) {
                Some(ItemKind::Message) => self.note_message(at, draft)?,
                Some(ItemKind::Call) => self.tell_call(at, Some(NAMELESS), draft)?,
                Some(ItemKind::Reasoning | ItemKind::Other) | None => (),
            }
        }
        Ok(())
    }
}

impl ResponsesReader {
    fn read(&mut self, kind: EventKind, event: Event, draft: &mut Draft) -> Result<bool, ModelError> {
        let (place, item) = (draft.place(), event.item);
        let id = item.as_ref().and_then(|it| field(it, "id")).or(event.item_id.as_deref());
        let key = Key { index: event.output_index, id: id.filter(|it| !it.is_empty()) };
        let delta = event.delta.unwrap_or_default();
        match kind {
            EventKind::ItemAdded => {
                if let Some(item) = &item {
                    let at = self.items.of_added(item, key, place)?;
                    if ItemKind::of(item) == ItemKind::Call {
                        self.tell_call(at, field(item, "name"), draft)?;
                    }
                }
            }
            EventKind::ItemDone => {
                let at = item.as_ref().map(|it| self.items.of_done(it, key, place)).transpose()?;
                if let (Some(at), Some(item)) = (at, item) {
                    self.done(at, item, draft)?;
                }
            }
            EventKind::TextDelta => {
                let at = self.items.of_delta(ItemKind::Message, key, place)?;
                self.say(at, delta, draft)?;
            }
            EventKind::TextDone => {
                let at = self.items.of_delta(ItemKind::Message, key, place)?;
                if self.items.get_mut(at).is_some_and(|it| !it.has_text) {
                    self.say(at, event.text.unwrap_or_default(), draft)?;
                }
            }
            EventKind::RefusalDelta => {
                let at = self.items.of_delta(ItemKind::Message, key, place)?;
                self.refuse(at, delta, draft)?;
            }
            EventKind::Annotation => {
                let at = self.items.of_delta(ItemKind::Message, key, place)?;
                if let Some(citation) = event.annotation.as_ref().and_then(citation) {
                    self.cite(at, citation, draft)?;
                }
            }
            EventKind::SummaryDelta | EventKind::ReasoningDelta => {
                let item = self.items.of_delta(ItemKind::Reasoning, key, place)?;
                let is_summary = kind == EventKind::SummaryDelta;
                let part = if is_summary { event.summary_index } else { event.content_index };
                self.think(Thought { item, is_summary, part: part.unwrap_or_default() }, delta, draft)?;
            }
            EventKind::ArgumentsDelta => {
                let at = self.items.of_delta(ItemKind::Call, key, place)?;
                self.add_arguments(at, delta, draft)?;
            }
            EventKind::ArgumentsDone => {
                let at = self.items.of_delta(ItemKind::Call, key, place)?;
                self.settle_arguments(at, event.arguments.unwrap_or_default(), draft)?;
            }
            EventKind::Completed | EventKind::Incomplete | EventKind::Failed | EventKind::Cancelled => {
                return self.complete(kind, event.response.unwrap_or_default(), draft);
            }
            EventKind::Error | EventKind::Other => (),
        }
        Ok(false)
    }

    /// Takes in a whole item: what did not come in pieces, and what has to go back.
    fn done(&mut self, at: usize, mut item: Value, draft: &mut Draft) -> Result<(), ModelError> {
        let Some(known) = self.items.get_mut(at) else { return Ok(()) };
        if std::mem::replace(&mut known.is_done, true) {
            return Ok(());
        }
        let (kind, place) = (known.kind, known.place);
        match kind {
            ItemKind::Message => self.done_message(at, &item, draft),
            ItemKind::Call => {
                let arguments = match item.get_mut("arguments").map(Value::take) {
                    Some(Value::String(text)) => text,
                    Some(Value::Object(fields)) => Value::Object(fields).to_string(),
                    _ => String::new(),
                };
                // First, so that what came before the name is not told in its stead.
                self.settle_arguments(at, arguments, draft)?;
                self.tell_call(at, field(&item, "name").or(Some(NAMELESS)), draft)
            }
            ItemKind::Reasoning => self.done_reasoning(at, place, item, draft),
            ItemKind::Other => done_other(place, item, draft),
        }
    }

    fn done_message(&mut self, at: usize, item: &Value, draft: &mut Draft) -> Result<(), ModelError> {
        let Some(Item { has_text, has_refusal, has_citations, .. }) = self.items.get_mut(at) else { return Ok(()) };
        let (has_text, has_refusal, has_citations) = (*has_text, *has_refusal, *has_citations);
        if let (Some(text), false) = (field(item, "content"), has_text) {
            self.say(at, text.to_owned(), draft)?;
        }
        for part in list(item, "content") {
            if let (Some(text), false) = (field(part, "text"), has_text) {
                self.say(at, text.to_owned(), draft)?;
            }
            if let (Some(text), false) = (field(part, "refusal"), has_refusal) {
                self.refuse(at, text.to_owned(), draft)?;
            }
            for found in list(part, "annotations").filter(|_| !has_citations).filter_map(citation) {
                self.cite(at, found, draft)?;
            }
        }
        if self.speaker == Some(at) {
            self.speaker = None;
            self.let_speak(false, draft)?;
        }
        self.note_message(at, draft)
    }

    fn done_reasoning(&mut self, at: usize, place: Place, item: Value, draft: &mut Draft) -> Result<(), ModelError> {
        if self.items.get_mut(at).is_some_and(|it| !it.has_text) {
            for (key, is_summary) in [("summary", true), ("content", false)] {
                for (part, found) in (0..).zip(list(&item, key)) {
                    let text = field(found, "text").unwrap_or_default().to_owned();
                    self.think(Thought { item: at, is_summary, part }, text, draft)?;
                }
            }
        }
        draft.item_at(place, item)
    }

    fn say(&mut self, at: usize, text: String, draft: &mut Draft) -> Result<(), ModelError> {
        if text.is_empty() {
            return Ok(());
        }
        let has_floor = self.speaker.is_none_or(|it| it == at || self.items.get_mut(it).is_none_or(|it| it.is_done));
        let Some(item) = self.items.get_mut(at) else { return Ok(()) };
        let is_first = !std::mem::replace(&mut item.has_text, true);
        if has_floor && item.held.is_empty() {
            if is_first {
                item.place = item.place.speaking(draft.place());
            }
            self.speaker = Some(at);
            return draft.text(text);
        }
        item.held.push_str(&text);
        if item.held.len() > MAX_REPLY_BYTES { Err(decode::too_large()) } else { Ok(()) }
    }

    /// Tells the words that waited: all, or up to those of a message that has more to say.
    fn let_speak(&mut self, all: bool, draft: &mut Draft) -> Result<(), ModelError> {
        for at in 0..self.items.len() {
            let Some(item) = self.items.get_mut(at).filter(|it| !it.held.is_empty()) else { continue };
            item.place = item.place.speaking(draft.place());
            let is_done = item.is_done;
            draft.text(std::mem::take(&mut item.held))?;
            if is_done {
                self.note_message(at, draft)?;
            } else if !all {
                self.speaker = Some(at);
                break;
            }
        }
        Ok(())
    }

    fn refuse(&mut self, at: usize, text: String, draft: &mut Draft) -> Result<(), ModelError> {
        if let Some(item) = self.items.get_mut(at) {
            item.has_refusal |= !text.is_empty();
        }
        draft.refusal(text)
    }

    fn cite(&mut self, at: usize, citation: Citation, draft: &mut Draft) -> Result<(), ModelError> {
        if let Some(item) = self.items.get_mut(at) {
            item.has_citations = true;
        }
        draft.citation(citation)
    }

    /// Tells thinking; a new part begins after a blank line.
    fn think(&mut self, thought: Thought, text: String, draft: &mut Draft) -> Result<(), ModelError> {
        if text.is_empty() {
            return Ok(());
        }
        if let Some(item) = self.items.get_mut(thought.item) {
            item.has_text = true;
        }
        if self.thought.replace(thought).is_some_and(|it| it != thought) {
            draft.reasoning("\n\n".to_owned())?;
        }
        draft.reasoning(text)
    }

    /// Notes how a message is named, before its words: it goes back as it came.
    fn note_message(&mut self, at: usize, draft: &mut Draft) -> Result<(), ModelError> {
        let Some(item) = self.items.get_mut(at).filter(|it| it.has_text && it.held.is_empty()) else { return Ok(()) };
        if std::mem::replace(&mut item.is_told, true) {
            return Ok(());
        }
        let mut note = Map::new();
        note.insert("type".into(), "message".into());
        note.extend(item.id.clone().map(|it| ("id".to_owned(), it.into())));
        note.extend(item.phase.clone().map(|it| ("phase".to_owned(), it)));
        // A message without a name is only told from the one before it.
        let says_something = note.len() > 1 || item.place != Place::default();
        if says_something { draft.item_at(item.place, note.into()) } else { Ok(()) }
    }

    /// Opens a call once its name is known.
    fn tell_call(&mut self, at: usize, name: Option<&str>, draft: &mut Draft) -> Result<(), ModelError> {
        let Some(item) = self.items.get_mut(at) else { return Ok(()) };
        let index = Some(at as u64);
        if !item.is_told {
            let Some(name) = name else { return Ok(()) };
            item.is_told = true;
            draft.call(CallPiece {
                index,
                id: item.call_id.clone().or_else(|| item.id.clone()),
                name: Some(name.to_owned()),
                arguments: std::mem::take(&mut item.waiting),
                metadata: None,
            })?;
        }
        let Some(id) = item.id.clone() else { return Ok(()) };
        let provider = draft.provider().to_owned();
        for named in [("item_id", Value::from(id)), ("provider", provider.into())] {
            draft.call(CallPiece { index, metadata: Some(named), ..CallPiece::default() })?;
        }
        Ok(())
    }

    fn add_arguments(&mut self, at: usize, arguments: String, draft: &mut Draft) -> Result<(), ModelError> {
        let Some(item) = self.items.get_mut(at) else { return Ok(()) };
        if item.is_told {
            return draft.call(CallPiece { index: Some(at as u64), arguments, ..CallPiece::default() });
        }
        item.waiting.push_str(&arguments);
        if item.waiting.len() > MAX_REPLY_BYTES { Err(decode::too_large()) } else { Ok(()) }
    }

    fn settle_arguments(&mut self, at: usize, arguments: String, draft: &mut Draft) -> Result<(), ModelError> {
        let Some(item) = self.items.get_mut(at).filter(|_| !arguments.is_empty()) else { return Ok(()) };
        if item.is_told {
            return draft.settle_call(at as u64, arguments);
        }
        item.waiting = arguments;
        Ok(())
    }

    /// Reads the answer's end; true unless it failed.
    fn complete(&mut self, kind: EventKind, response: Response, draft: &mut Draft) -> Result<bool, ModelError> {
        if let Some(told) = &response.usage {
            draft.usage(|usage| told.update(usage));
        }
        let status = match kind {
            EventKind::Failed => "failed",
            EventKind::Incomplete => "incomplete",
            EventKind::Cancelled => "cancelled",
            _ => response.status.as_deref().unwrap_or("completed"),
        };
        let reason = match status {
            "failed" => {
                let unknown = || json!({"message": "the answer failed, and the provider gave no reason"});
                return Err(errors::of_event(&response.error.filter(|it| !it.is_null()).unwrap_or_else(unknown)));
            }
            "cancelled" | "queued" | "in_progress" => {
                return Err(ModelError::Incomplete(format!("the provider left the answer {status}")));
            }
            "incomplete" => match response.incomplete_reason() {
                Some("max_output_tokens" | "max_tokens") | None => FinishReason::Length,
                Some("content_filter") => FinishReason::ContentFilter,
                Some(other) => FinishReason::Other(other.to_owned()),
            },
            _ => FinishReason::Stop,
        };
        self.add_missed(response.output.unwrap_or_default(), draft)?;
        draft.finish(reason);
        Ok(true)
    }

    /// Takes in the items of the whole answer whose own events did not come.
    fn add_missed(&mut self, output: Vec<Value>, draft: &mut Draft) -> Result<(), ModelError> {
        let mut n_told: HashMap<ItemKind, usize> = HashMap::new();
        for item in &output {
            *n_told.entry(ItemKind::of(item)).or_default() += 1;
        }
        let n_before = self.items.len();
        for (index, item) in (0..).zip(output) {
            let kind = ItemKind::of(&item);
            let id = field(&item, "id").map(str::to_owned);
            let seen = self.items.seen(&item, Key { index: Some(index), id: id.as_deref() });
            let at = match seen.filter(|at| *at < n_before) {
                Some(at) => at,
                // Under other numbers and ids, they have all come.
                None if self.items.count(kind) >= n_told.get(&kind).copied().unwrap_or_default() => continue,
                None => self.items.of_added(&item, Key { index: None, id: id.as_deref() }, draft.place())?,
            };
            self.done(at, item, draft)?;
        }
        Ok(())
    }
}

/// A call of one of the provider's own tools, or another item that only it understands.
fn done_other(place: Place, mut item: Value, draft: &mut Draft) -> Result<(), ModelError> {
    let Some(kind) = field(&item, "type").map(str::to_owned) else { return Ok(()) };
    if let Some(tool) = kind.strip_suffix("_call") {
        let name = if tool == "mcp" { field(&item, "name").unwrap_or(tool) } else { tool };
        draft.provider_tool_call(name.to_owned(), input(&item))?;
    }
    if kind == "image_generation_call"
        && let Some(data) = field(&item, "result").map(str::to_owned)
    {
        let media_type = format!("image/{}", field(&item, "output_format").unwrap_or("png"));
        draft.media(Media { kind: MediaKind::Image, media_type, source: MediaSource::Data(data) })?;
        // Kept once; the request puts the picture back in.
        if let Some(fields) = item.as_object_mut() {
            fields.remove("result");
        }
    }
    draft.item_at(place, item)
}

/// What a provider's own tool was called with.
fn input(item: &Value) -> Value {
    match (item.get("action"), field(item, "arguments")) {
        (Some(action), _) => action.clone(),
        (None, Some(text)) => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
        (None, None) => {
            let mut fields = item.as_object().cloned().unwrap_or_default();
            fields.retain(|key, _| !OUTCOMES.contains(&key.as_str()));
            fields.into()
        }
    }
}

fn citation(note: &Value) -> Option<Citation> {
    let url = field(note, "url")?.to_owned();
    Some(Citation { url, title: field(note, "title").map(str::to_owned) })
}

fn list<'a>(item: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    item.get(key).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Wire;
    use bub_kernel::model::ModelEvent;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// The events of one item, each with its number.
    fn events(index: usize, item: &(bool, Vec<String>)) -> VecDeque<Value> {
        let (is_call, pieces) = item;
        let whole = pieces.concat();
        let (open, delta, done) = if *is_call {
            let call = |arguments: &str| {
                json!({"type": "function_call", "id": format!("fc_{index}"), "call_id": format!("c{index}"),
                    "name": "f", "arguments": arguments})
            };
            (call(""), "response.function_call_arguments.delta", call(&whole))
        } else {
            let message = |text: &str| json!({"type": "message", "id": format!("msg_{index}"), "content": [{"type": "output_text", "text": text}]});
            (message(""), "response.output_text.delta", message(&whole))
        };
        let mut events = VecDeque::from([json!({"type": "response.output_item.added", "item": open})]);
        events.extend(pieces.iter().map(|it| json!({"type": delta, "delta": it})));
        events.push_back(json!({"type": "response.output_item.done", "item": done}));
        for event in &mut events {
            event["output_index"] = index.into();
        }
        events
    }

    proptest! {
        #[test]
        fn items_that_come_interleaved_stay_whole(
            items in prop::collection::vec((any::<bool>(), prop::collection::vec("[a-zé]{1,3}", 1..4)), 1..5),
            order in prop::collection::vec(0..5_usize, 40),
        ) {
            let mut streams: Vec<_> = items.iter().enumerate().map(|(index, it)| events(index, it)).collect();
            let mut reader = ResponsesReader::default();
            let mut draft = Draft::new(Wire::Responses, "p", "run-1");
            // In the order that is asked for as far as it goes, then what is left.
            for at in order.into_iter().chain((0..items.len()).flat_map(|it| [it; 5])) {
                if let Some(event) = streams.get_mut(at).and_then(VecDeque::pop_front) {
                    prop_assert!(!reader.event(event.to_string().as_bytes(), &mut draft).unwrap());
                }
            }
            let end = json!({"type": "response.completed", "response": {"status": "completed"}});
            prop_assert!(reader.event(end.to_string().as_bytes(), &mut draft).unwrap());
            reader.close(&mut draft).unwrap();
            draft.release();
            let mut told = VecDeque::new();
            draft.drain_into(&mut told);
            let (mut text, mut notes, mut calls) = (String::new(), Vec::new(), Vec::new());
            for event in told {
                match event {
                    ModelEvent::Text(more) => text.push_str(&more),
                    ModelEvent::ProviderData(it) => notes.push(it.payload),
                    ModelEvent::ToolCall(it) => calls.push((it.id, it.arguments)),
                    _ => (),
                }
            }
            calls.sort();
            let expected = items.iter().enumerate().filter(|(_, it)| it.0);
            let expected: Vec<_> = expected.map(|(at, it)| (format!("c{at}"), it.1.concat())).collect();
            prop_assert_eq!(calls, expected);
            // Each message is where its note says, in one piece.
            let chars: Vec<char> = text.chars().collect();
            let mut n_chars = 0;
            for (at, (_, pieces)) in items.iter().enumerate().filter(|(_, it)| !it.0) {
                let words = pieces.concat();
                let id = format!("msg_{at}");
                let note = notes.iter().find(|it| it["item"]["id"] == *id).unwrap();
                let start = usize::try_from(note["after_chars"].as_u64().unwrap()).unwrap();
                let found: String = chars[start..].iter().take(words.chars().count()).collect();
                prop_assert_eq!(found, words.clone());
                n_chars += words.chars().count();
            }
            prop_assert_eq!(n_chars, chars.len());
        }

        #[test]
        fn odd_events_do_no_harm(
            events in prop::collection::vec(
                (0..KINDS.len(), prop::option::of(0..3_u64), prop::option::of("[ab]?"), 0..4_usize), 0..30),
        ) {
            let mut reader = ResponsesReader::default();
            let mut draft = Draft::new(Wire::Responses, "p", "run-1");
            for (kind, index, id, item) in events {
                let item = [
                    json!({"type": "message", "id": id, "content": [{"text": "x"}, 5, null]}),
                    json!({"type": "function_call", "id": id, "call_id": id, "name": "f", "arguments": [1]}),
                    json!({"type": "reasoning", "id": id, "summary": ["x", {"text": "y"}]}),
                    json!([id]),
                ][item].clone();
                let event = json!({"type": KINDS[kind], "output_index": index, "item_id": id, "delta": "d",
                    "text": "t", "arguments": {}, "annotation": {"url": "u"}, "item": item});
                prop_assert!(reader.event(event.to_string().as_bytes(), &mut draft).is_ok());
            }
            prop_assert!(reader.close(&mut draft).is_ok());
            draft.release();
        }
    }

    /// How long it takes to read a call whose arguments come in so many pieces; the best of two.
    fn time_of(n_pieces: usize) -> std::time::Duration {
        let piece = "x".repeat(100);
        let arguments = format!("{{\"a\":\"{}\"}}", piece.repeat(n_pieces));
        let call = |arguments: &str| json!({"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": arguments});
        let delta = |delta: &str| json!({"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc", "delta": delta});
        let mut events = vec![
            json!({"type": "response.output_item.added", "output_index": 0, "item": call("")}),
            delta("{\"a\":\""),
        ];
        events.extend((0..n_pieces).map(|_| delta(&piece)));
        events.push(delta("\"}"));
        events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": call(&arguments)}));
        let events: Vec<Vec<u8>> = events.into_iter().map(|it| it.to_string().into_bytes()).collect();
        let time = || {
            let mut reader = ResponsesReader::default();
            let mut draft = Draft::new(Wire::Responses, "p", "run-1");
            let start = bub_testing::cpu_time();
            for event in &events {
                reader.event(event, &mut draft).unwrap();
            }
            draft.release();
            let took = bub_testing::cpu_time() - start;
            let mut told = VecDeque::new();
            draft.drain_into(&mut told);
            assert!(told.iter().any(|it| matches!(it, ModelEvent::ToolCall(call) if call.arguments == arguments)));
            took
        };
        time().min(time())
    }

    #[test]
    fn arguments_in_ten_thousand_pieces_cost_linear_time() {
        // Four times the pieces: four times the work, or sixteen times in a quadratic way.
        let (few, many) = (time_of(2_500), time_of(10_000));
        assert!(many < few * 10, "{few:?} for a quarter, {many:?} for all");
    }

    const KINDS: [&str; 11] = [
        "response.output_item.added",
        "response.output_item.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.output_text.annotation.added",
        "response.refusal.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_text.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.of_tomorrow",
    ];
}
