//! Tool calls, put together from their pieces.

use std::collections::VecDeque;

use bub_kernel::{
    message::ToolCallRequest,
    model::{ModelError, ModelEvent},
};
use serde_json::{Map, Value};

/// The most calls that one answer may ask for.
const MAX_CALLS: usize = 1024;

/// A piece of a call, as far as the provider tells.
#[derive(Debug, Default)]
pub(crate) struct CallPiece {
    /// The provider's number of the call.
    pub(crate) index: Option<u64>,
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    /// More of the arguments' JSON text.
    pub(crate) arguments: String,
    /// Something to send back with the call, and its name.
    pub(crate) metadata: Option<(&'static str, Value)>,
}

/// The calls of one answer, in the order in which they were opened.
#[derive(Debug, Default)]
pub(crate) struct Calls(Vec<Call>);

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// The last piece of the arguments, while each piece begins with the one before it: some providers send
    /// all that there is every time.
    whole: Whole,
    metadata: Map<String, Value>,
}

#[derive(Debug, Default)]
enum Whole {
    #[default]
    Nothing,
    Piece(String),
    /// The pieces are just pieces.
    No,
}

impl Call {
    /// Takes in more of the arguments; false when they only repeat what has come.
    fn add_arguments(&mut self, more: &str) -> bool {
        if more.is_empty() || same_object(more, &self.arguments) {
            return false;
        }
        self.whole = match std::mem::take(&mut self.whole) {
            Whole::Nothing => Whole::Piece(more.to_owned()),
            Whole::Piece(last) if more.starts_with(&last) => Whole::Piece(more.to_owned()),
            Whole::Piece(_) | Whole::No => Whole::No,
        };
        self.arguments.push_str(more);
        true
    }

    /// The arguments, taken for pieces unless only the last piece makes sense.
    fn take_arguments(&mut self) -> String {
        let arguments = std::mem::take(&mut self.arguments);
        match std::mem::take(&mut self.whole) {
            Whole::Piece(last) if !is_object(&arguments) && is_object(&last) => last,
            _ => arguments,
        }
    }

    /// Takes in a name, or more of it: some providers send it in pieces, some with every piece, some as far
    /// as it has come.
    fn add_name(&mut self, name: String) {
        let is_more = self.arguments.is_empty() && !name.starts_with(&self.name) && !self.name.is_empty();
        if is_more { self.name.push_str(&name) } else { self.name = name }
    }

    /// Whether the arguments are a whole object.
    fn is_complete(&self) -> bool {
        is_object(&self.arguments)
    }
}

/// Whether a text is one JSON object.
fn is_object(text: &str) -> bool {
    let text = text.trim();
    text.starts_with('{') && text.ends_with('}') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Whether a piece is the same JSON object as all that came, however it is written. A piece is only read when
/// it may be: reading everything for each piece would cost quadratic time.
fn same_object(piece: &str, all: &str) -> bool {
    let object = |text: &str| serde_json::from_str::<Map<String, Value>>(text).ok();
    let may_be = piece.len() > all.len() / 4 && all.trim_end().ends_with('}') && is_object(piece);
    may_be && object(all).is_some_and(|all| object(piece) == Some(all))
}

impl Calls {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many calls there are so far.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a piece to its call, and tells watchers.
    ///
    /// # Errors
    /// When there are more than [`MAX_CALLS`].
    pub(crate) fn add(&mut self, piece: CallPiece, out: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        let CallPiece { index, id, name, arguments, metadata } = piece;
        let id = id.filter(|it| !it.is_empty());
        let name = name.filter(|it| !it.is_empty());
        let found = self.position(index, id.as_deref(), name.as_deref(), &arguments);
        let is_new = found.is_none();
        if is_new {
            if self.0.len() >= MAX_CALLS {
                return Err(ModelError::Protocol(format!("more than {MAX_CALLS} tool calls in one answer")));
            }
            self.0.push(Call::default());
        }
        let at = found.unwrap_or_else(|| self.0.len().saturating_sub(1));
        let Some(call) = self.0.get_mut(at) else { return Ok(()) };
        call.index = call.index.or(index);
        if let Some(id) = id {
            call.id = id;
        }
        if let Some(name) = name {
            call.add_name(name);
        }
        let is_more = call.add_arguments(&arguments);
        if let Some((key, value)) = metadata {
            call.metadata.insert(key.to_owned(), value);
        }
        if is_new || is_more {
            out.push_back(ModelEvent::ToolCallDelta { id: call.id.clone(), name: call.name.clone(), delta: arguments });
        }
        Ok(())
    }

    /// Replaces what came of a numbered call's arguments by all of them; watchers are told the rest.
    /// Tells how many bytes are new.
    pub(crate) fn settle(&mut self, index: u64, arguments: String, out: &mut VecDeque<ModelEvent>) -> usize {
        let Some(call) = self.0.iter_mut().rev().find(|it| it.index == Some(index)) else { return 0 };
        let rest = arguments.strip_prefix(call.arguments.as_str()).unwrap_or_default().to_owned();
        let n_new = arguments.len().saturating_sub(call.arguments.len());
        if !rest.is_empty() {
            out.push_back(ModelEvent::ToolCallDelta { id: call.id.clone(), name: call.name.clone(), delta: rest });
        }
        call.arguments = arguments;
        n_new
    }

    /// Which call a piece belongs to; none when it opens a new one.
    ///
    /// Providers disagree: some number the calls, some only name or identify them, some give every
    /// call the number 0, some mix all that.
    fn position(&self, index: Option<u64>, id: Option<&str>, name: Option<&str>, arguments: &str) -> Option<usize> {
        let last = self.0.len().checked_sub(1);
        let by_id = |id: &str| self.0.iter().rposition(|it| it.id == id);
        if let Some(index) = index {
            if let Some(at) = self.0.iter().rposition(|it| it.index == Some(index)) {
                let same = self.0.get(at).is_some_and(|it| {
                    // Another id and a name under the same number, or a name and arguments once the arguments
                    // are complete: the provider numbers nothing.
                    let is_next = id.is_none() && it.id.is_empty() && !arguments.is_empty() && it.is_complete();
                    name.is_none()
                        || (it.id.is_empty() && !is_next)
                        || id.is_some_and(|id| id == it.id)
                        || (id.is_none() && !it.id.is_empty())
                });
                return if same { Some(at) } else { id.and_then(by_id) };
            }
            let unnumbered = |at: &usize| self.0.get(*at).is_some_and(|it| it.index.is_none());
            return match (id, name) {
                (Some(id), _) => by_id(id).filter(unnumbered),
                (None, Some(_)) => None,
                (None, None) => usize::try_from(index).ok().filter(unnumbered).or(last),
            };
        }
        match (id, name) {
            (Some(id), _) if by_id(id).is_some() => by_id(id),
            // Some gateways give every piece an id of its own.
            (Some(_), None) if !arguments.is_empty() => last,
            (Some(_), _) => None,
            (None, Some(_)) => last.filter(|at| self.0.get(*at).is_some_and(|it| it.name.is_empty())),
            (None, None) => last,
        }
    }

    /// The finished calls. One without an id, or with another one's, gets an id that no other call
    /// of this session has: `unique` names the model call.
    pub(crate) fn release(&mut self, unique: &str) -> Vec<ToolCallRequest> {
        let mut done: Vec<ToolCallRequest> = Vec::with_capacity(self.0.len());
        for (n, call) in std::mem::take(&mut self.0).into_iter().enumerate() {
            let mut call = call;
            let mut arguments = call.take_arguments();
            let Call { mut id, name, metadata, .. } = call;
            if id.is_empty() || done.iter().any(|it| it.id == id) {
                id = format!("call_{}_{n}", unique.trim_start_matches("run-"));
            }
            if arguments.trim().is_empty() {
                arguments = "{}".into();
            }
            done.push(ToolCallRequest { id, name, arguments, metadata });
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(deltas: Value, expected: &[(&str, &str, &str)]) {
        let mut calls = Calls::default();
        let mut events = VecDeque::new();
        for delta in deltas.as_array().unwrap() {
            let field = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
            let function = delta.get("function").cloned().unwrap_or_default();
            let piece = CallPiece {
                index: delta.get("index").and_then(Value::as_u64),
                id: field(delta, "id"),
                name: field(&function, "name"),
                arguments: field(&function, "arguments").unwrap_or_default(),
                metadata: None,
            };
            calls.add(piece, &mut events).unwrap();
        }
        let done = calls.release("run-7");
        let found: Vec<_> = done.iter().map(|it| (it.id.as_str(), it.name.as_str(), it.arguments.as_str())).collect();
        assert_eq!(found, expected, "{deltas}");
    }

    #[test]
    fn r172_pieces_without_id_or_index_belong_to_the_open_call() {
        check(
            json!([
                {"index": 0, "id": "a", "function": {"name": "fs_read", "arguments": ""}},
                {"function": {"arguments": "{\"path\":"}},
                {"function": {"arguments": "\"x\"}"}},
            ]),
            &[("a", "fs_read", r#"{"path":"x"}"#)],
        );
    }

    #[test]
    fn r175_interleaved_pieces_go_to_their_calls() {
        check(
            json!([
                {"index": 0, "id": "a", "function": {"name": "fs_read", "arguments": "{\"path\":"}},
                {"index": 1, "id": "b", "function": {"name": "fs_read", "arguments": "{\"path\":"}},
                {"index": 0, "function": {"arguments": "\"1\"}"}},
                {"index": 1, "function": {"arguments": "\"2\"}"}},
            ]),
            &[("a", "fs_read", r#"{"path":"1"}"#), ("b", "fs_read", r#"{"path":"2"}"#)],
        );
    }

    #[test]
    fn r177_calls_without_index_are_told_apart() {
        check(
            json!([
                {"id": "a", "function": {"name": "fs_read", "arguments": "{\"path\":\"a\"}"}},
                {"id": "b", "function": {"name": "tape_info", "arguments": ""}},
                {"function": {"arguments": "{}"}},
            ]),
            &[("a", "fs_read", r#"{"path":"a"}"#), ("b", "tape_info", "{}")],
        );
        check(
            json!([
                {"index": 0, "id": "a", "function": {"name": "x", "arguments": "{"}},
                {"function": {"arguments": "}"}},
                {"id": "b", "function": {"name": "y", "arguments": "{"}},
                {"index": 1, "function": {"arguments": "}"}},
            ]),
            &[("a", "x", "{}"), ("b", "y", "{}")],
        );
        check(
            json!([
                {"function": {"name": "x", "arguments": "{\"n\":1}"}},
                {"function": {"name": "y", "arguments": "{\"n\":2}"}},
            ]),
            &[("call_7_0", "x", r#"{"n":1}"#), ("call_7_1", "y", r#"{"n":2}"#)],
        );
    }

    #[test]
    fn calls_that_share_an_index_are_told_apart_by_id() {
        check(
            json!([
                {"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}},
                {"index": 0, "id": "b", "function": {"name": "y", "arguments": ""}},
                {"index": 0, "function": {"arguments": "{}"}},
            ]),
            &[("a", "x", "{}"), ("b", "y", "{}")],
        );
    }

    #[test]
    fn calls_of_one_number_and_no_ids_are_told_apart_by_their_arguments() {
        check(
            json!([
                {"index": 0, "function": {"name": "x", "arguments": "{\"n\":"}},
                {"index": 0, "function": {"arguments": "1}"}},
                {"index": 0, "function": {"name": "x", "arguments": ""}},
                {"index": 0, "id": "", "function": {"name": "x", "arguments": "{\"n\":2}"}},
            ]),
            &[("call_7_0", "x", r#"{"n":1}"#), ("call_7_1", "x", r#"{"n":2}"#)],
        );
    }

    #[test]
    fn arguments_that_come_again_are_not_doubled() {
        let whole = r#"{"a": 1}"#;
        for pieces in [
            &[whole, whole, whole][..],
            &["{", r#"{"a""#, whole],
            &[r#"{"a""#, ": 1}", whole],
            &[r#"{"a""#, ": 1}", r#"{"a":1}"#],
            &["", whole, ""],
        ] {
            let first = json!({"index": 0, "id": "c", "function": {"name": "x", "arguments": ""}});
            let more = pieces.iter().map(|it| json!({"index": 0, "function": {"arguments": it}}));
            check(std::iter::once(first).chain(more).collect(), &[("c", "x", whole)]);
        }
        // What only looks like it.
        for (pieces, expected) in
            [([r#"{"a":"#, r#"{"a":1}}"#], r#"{"a":{"a":1}}"#), ([r#"{"a":1}"#, r#"{"a":2}"#], r#"{"a":1}{"a":2}"#)]
        {
            let pieces = pieces.map(|it| json!({"index": 0, "id": "c", "function": {"name": "x", "arguments": it}}));
            check(pieces.into_iter().collect(), &[("c", "x", expected)]);
        }
    }

    #[test]
    fn names_in_pieces_are_joined() {
        for second in ["read", "fs_read"] {
            check(
                json!([
                    {"index": 0, "id": "a", "function": {"name": "fs_", "arguments": ""}},
                    {"index": 0, "function": {"name": second, "arguments": "{"}},
                    {"index": 0, "function": {"name": "fs_read", "arguments": "}"}},
                ]),
                &[("a", "fs_read", "{}")],
            );
        }
    }

    #[test]
    fn odd_ids_and_names_do_no_harm() {
        // The id and the name again in every piece.
        check(
            json!([
                {"index": 0, "id": "a", "function": {"name": "x", "arguments": "{\"a\""}},
                {"index": 0, "id": "a", "function": {"name": "x", "arguments": ":1}"}},
            ]),
            &[("a", "x", r#"{"a":1}"#)],
        );
        // Another id in every piece.
        check(
            json!([
                {"id": "a", "function": {"name": "x", "arguments": "{"}},
                {"id": "b", "function": {"arguments": "}"}},
            ]),
            &[("b", "x", "{}")],
        );
        // The same id for two calls, nulls, an id that comes late, indices with gaps.
        check(
            json!([
                {"index": 3, "id": null, "function": {"name": "x", "arguments": null}},
                {"index": 3, "id": "a", "function": {"name": null, "arguments": "{}"}},
                {"index": 9, "id": "a", "function": {"name": "y"}},
            ]),
            &[("a", "x", "{}"), ("call_7_1", "y", "{}")],
        );
        // Nothing but arguments.
        check(json!([{"function": {"arguments": "{}"}}]), &[("call_7_0", "", "{}")]);
        check(json!([{}]), &[("call_7_0", "", "{}")]);
    }
}
