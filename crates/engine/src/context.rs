//! From tape entries to the messages that the model is sent.

use std::sync::Arc;

use bub_kernel::{
    message::{Message, Part, ProviderData, Role, ToolCallRequest},
    plugin::ContextBuilder,
    tape::{Entry, EntryKind},
    text::json,
};
use serde_json::Value;

/// What a call is answered with when the tape holds no result for it.
const MISSING_RESULT: &str = "interrupted: this call has no recorded result";

/// The default selection: messages, calls and results in their order; anchors as a line of the
/// assistant; everything else, and entries with `meta.context` false, left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultContext;

impl ContextBuilder for DefaultContext {
    fn messages(&self, entries: &[Arc<Entry>]) -> Vec<Message> {
        let mut messages = Vec::with_capacity(entries.len());
        let mut open = OpenCalls::default();
        let in_context = |it: &&Arc<Entry>| it.meta.get("context") != Some(&Value::Bool(false));
        for entry in entries.iter().filter(in_context) {
            match entry.kind {
                EntryKind::ToolResult => open.answer(entry, &mut messages),
                EntryKind::ToolCall => {
                    open.close(&mut messages);
                    if let Some(message) = calls_of(entry) {
                        open.calls.clone_from(&message.tool_calls);
                        messages.push(message);
                    }
                }
                EntryKind::Anchor => {
                    open.close(&mut messages);
                    let state = entry.payload.get("state").map_or_else(|| "null".to_owned(), json);
                    let text = format!("[Anchor created: {}]: {state}", entry.name().unwrap_or_default());
                    messages.push(Message::text(Role::Assistant, text));
                }
                EntryKind::Message => {
                    open.close(&mut messages);
                    match Message::from_payload(&entry.payload) {
                        Ok(message) => messages.push(message),
                        Err(err) => tracing::warn!(id = entry.id, error = %err, "entry left out of the context"),
                    }
                }
                EntryKind::System | EntryKind::Error | EntryKind::Event | EntryKind::Other(_) => {}
            }
        }
        open.close(&mut messages);
        messages
    }
}

/// Calls that wait for their results. Each gets exactly one, whatever the tape holds.
#[derive(Default)]
struct OpenCalls {
    calls: Vec<ToolCallRequest>,
}

impl OpenCalls {
    /// Pairs results with the waiting calls by position; results without a call are dropped.
    fn answer(&mut self, entry: &Entry, messages: &mut Vec<Message>) {
        let results = entry.payload.get("results").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let answered = self.calls.len().min(results.len());
        for (call, result) in self.calls.drain(..answered).zip(results) {
            messages.push(Message::tool_result(call, result));
        }
        self.close(messages);
    }

    /// Answers what is still waiting, since providers refuse calls without results.
    fn close(&mut self, messages: &mut Vec<Message>) {
        for call in self.calls.drain(..) {
            messages.push(Message::tool_result(call, &Value::String(MISSING_RESULT.into())));
        }
    }
}

/// The assistant message of a `tool_call` entry; `None` when it holds no valid call.
fn calls_of(entry: &Entry) -> Option<Message> {
    let calls = entry.payload.get("calls")?.as_array()?;
    let tool_calls: Vec<_> = calls.iter().filter_map(ToolCallRequest::from_value).collect();
    if tool_calls.is_empty() {
        return None;
    }
    let mut parts = Vec::new();
    for block in entry.payload.get("provider_data").and_then(Value::as_array).into_iter().flatten() {
        if let Ok(data) = serde_json::from_value::<ProviderData>(block.clone()) {
            parts.push(Part::ProviderData(data));
        }
    }
    if let Some(text) = entry.payload.get("reasoning").and_then(Value::as_str) {
        parts.push(Part::Reasoning(text.to_owned()));
    }
    match entry.payload.get("content") {
        Some(Value::String(text)) if !text.is_empty() => parts.push(Part::Text(text.clone())),
        Some(Value::Array(blocks)) => parts.extend(blocks.iter().filter_map(|it| Part::from_block(it).ok())),
        _ => {}
    }
    Some(Message { tool_calls, ..Message::parts(Role::Assistant, parts) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// One line per message: role, text, calls.
    fn check(entries: Value, expected: &[&str]) {
        let entries: Vec<_> = entries
            .as_array()
            .unwrap()
            .iter()
            .enumerate()
            .map(|(idx, it)| {
                let line = json!({"id": idx + 1, "kind": it[0], "payload": it[1], "meta": it[2]});
                Arc::new(Entry::from_line(line.to_string().as_bytes()).unwrap())
            })
            .collect();
        let lines: Vec<_> = DefaultContext
            .messages(&entries)
            .iter()
            .map(|it| {
                let calls: String = it.tool_calls.iter().map(|it| format!(" +{}:{}", it.id, it.name)).collect();
                let answers = it.tool_call.as_ref().map(|it| format!(" ={}", it.id)).unwrap_or_default();
                format!("{} {:?}{calls}{answers}", it.role.as_str(), it.joined_text())
            })
            .collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn entries_become_messages_in_order() {
        check(
            json!([
                ["anchor", {"name": "p 1", "state": {"summary": "é"}}, {}],
                ["event", {"name": "handoff"}, {}],
                ["system", {"content": "s"}, {}],
                ["message", {"role": "user", "content": "hi"}, {}],
                ["message", {"role": "user", "content": "hidden"}, {"context": false}],
                ["tool_call", {"calls": [{"id": "a", "name": "x", "arguments": "{}"}], "content": "let me"}, {}],
                ["tool_result", {"results": [{"kind": "tool", "message": "m"}, "extra"]}, {}],
                ["message", {"role": "assistant", "content": "done"}, {}],
                ["note", {"x": 1}, {}],
            ]),
            &[
                r#"assistant "[Anchor created: p 1]: {\"summary\": \"é\"}""#,
                r#"user "hi""#,
                r#"assistant "let me" +a:x"#,
                r#"tool "{\"kind\": \"tool\", \"message\": \"m\"}" =a"#,
                r#"assistant "done""#,
            ],
        );
    }

    #[test]
    fn every_call_gets_exactly_one_result() {
        let call = json!({"calls": [
            {"id": "c1", "name": "x", "arguments": "{}"},
            {"id": "c2", "type": "function", "function": {"name": "y", "arguments": "{}"}},
        ]});
        let missing = format!("{MISSING_RESULT:?}");
        check(
            json!([
                ["tool_result", {"results": ["orphan"]}, {}],
                ["tool_call", call, {}],
                ["tool_result", {"results": ["one"]}, {}],
                ["tool_result", {"results": ["late"]}, {}],
                ["tool_call", call, {}],
                ["message", {"role": "user", "content": "go on"}, {}],
                ["tool_call", {"calls": [{"id": 5}]}, {}],
                ["tool_result", {"results": ["dropped"]}, {}],
            ]),
            &[
                r#"assistant "" +c1:x +c2:y"#,
                r#"tool "one" =c1"#,
                &format!("tool {missing} =c2"),
                r#"assistant "" +c1:x +c2:y"#,
                &format!("tool {missing} =c1"),
                &format!("tool {missing} =c2"),
                r#"user "go on""#,
            ],
        );
    }
}
