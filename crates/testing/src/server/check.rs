//! What every chat request must fulfil.

use std::collections::BTreeSet;

use serde_json::Value;

/// Names what is wrong with a chat request: each assistant call must have exactly one result, in
/// the tool messages right after it, and there must be no result without a call.
pub(super) fn violations(body: &Value) -> Vec<String> {
    let Some(messages) = body.get("messages").and_then(Value::as_array) else {
        return vec!["it has no messages".into()];
    };
    let mut found = Vec::new();
    let mut open: BTreeSet<String> = BTreeSet::new();
    for (idx, message) in messages.iter().enumerate() {
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
        if role == "tool" {
            let id = message.get("tool_call_id").and_then(Value::as_str).unwrap_or_default();
            if !open.remove(id) {
                found.push(format!("message {idx}: a result for '{id}', which is no open call"));
            }
            continue;
        }
        close(&mut open, idx, &mut found);
        if !["system", "developer", "user", "assistant"].contains(&role) {
            found.push(format!("message {idx}: unknown role '{role}'"));
        }
        if role != "assistant" {
            continue;
        }
        let calls = message.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let content = message.get("content");
        if calls.is_empty() && content.is_none_or(|it| it.is_null() || *it == "" || *it == Value::Array(Vec::new())) {
            found.push(format!("message {idx}: an assistant message that says nothing"));
        }
        for call in calls {
            let id = call.get("id").and_then(Value::as_str).unwrap_or_default();
            if id.is_empty() || !open.insert(id.to_owned()) {
                found.push(format!("message {idx}: a call with an empty or repeated id '{id}'"));
            }
            let arguments = call.pointer("/function/arguments").and_then(Value::as_str);
            if arguments.is_none() {
                found.push(format!("message {idx}: the arguments of call '{id}' are no text"));
            }
        }
    }
    close(&mut open, messages.len(), &mut found);
    found
}

fn close(open: &mut BTreeSet<String>, idx: usize, found: &mut Vec<String>) {
    found.extend(std::mem::take(open).iter().map(|id| format!("message {idx}: call '{id}' has no result before it")));
}
