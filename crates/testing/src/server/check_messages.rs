//! What every request to the Messages API must fulfil: it is refused whole otherwise.

use std::collections::BTreeSet;

use serde_json::Value;

/// Names what is wrong with a request to the Messages API.
pub(super) fn violations(body: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if !body.get("max_tokens").is_some_and(Value::is_u64) {
        found.push("it has no max_tokens".into());
    }
    let messages = list(body, "messages");
    let mut ids = BTreeSet::new();
    let mut open: Vec<&str> = Vec::new();
    for (idx, message) in messages.iter().enumerate() {
        let mut wrong = |what: String| found.push(format!("message {idx}: {what}"));
        let role = text(message, "role");
        let blocks = list(message, "content");
        let last = messages.get(idx + 1).is_none();
        if role != if idx % 2 == 0 { "user" } else { "assistant" } {
            wrong(format!("its role is '{role}'"));
        }
        if blocks.is_empty() {
            wrong("it has no blocks".into());
        }
        if blocks.iter().any(|it| text(it, "type") == "text" && text(it, "text").trim().is_empty()) {
            wrong("a text block is blank".into());
        }
        // The results of all calls stand first in the message after them.
        let results = blocks.iter().take_while(|it| text(it, "type") == "tool_result");
        let results: Vec<_> = results.map(|it| text(it, "tool_use_id")).collect();
        if results != open {
            wrong(format!("the calls {open:?} have the results {results:?}"));
        }
        if blocks.iter().filter(|it| text(it, "type") == "tool_result").count() != results.len() {
            wrong("a result stands behind something else".into());
        }
        for result in blocks.iter().filter(|it| it.get("is_error").is_some_and(|it| *it == true)) {
            if list(result, "content").iter().any(|it| text(it, "type") != "text") {
                wrong("an error has more than words".into());
            }
        }
        let calls = blocks.iter().filter(|it| text(it, "type") == "tool_use");
        open = calls.clone().map(|it| text(it, "id")).collect();
        for call in calls {
            let (id, name) = (text(call, "id"), text(call, "name"));
            if !is_plain(id) || !is_plain(name) || !ids.insert(id.to_owned()) {
                wrong(format!("a call with a bad or repeated id '{id}' or a bad name '{name}'"));
            }
            if !call.get("input").is_some_and(Value::is_object) {
                wrong(format!("the input of call '{id}' is no object"));
            }
        }
        if role == "assistant" {
            let end = blocks.last().map(|it| text(it, "type")).unwrap_or_default();
            if end.ends_with("thinking") {
                wrong("it ends with thinking".into());
            }
            if last && blocks.last().is_some_and(|it| text(it, "text").ends_with(char::is_whitespace)) {
                wrong("the last one ends with a blank".into());
            }
            let unanswered = |id: &str| !blocks.iter().any(|it| text(it, "tool_use_id") == id);
            for own in blocks.iter().filter(|it| text(it, "type") == "server_tool_use") {
                if !last && open.is_empty() && unanswered(text(own, "id")) {
                    wrong(format!("the provider's call '{}' has no result", text(own, "id")));
                }
            }
        }
    }
    if !open.is_empty() {
        found.push(format!("the calls {open:?} have no results"));
    }
    found
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_' || it == '-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(messages: Value, expected: &str) {
        let found = violations(&json!({"max_tokens": 1, "messages": messages})).join("; ");
        assert!(if expected.is_empty() { found.is_empty() } else { found.contains(expected) }, "{found}");
    }

    #[test]
    fn what_the_api_refuses_is_found() {
        let user = |blocks: Value| json!({"role": "user", "content": blocks});
        let model = |blocks: Value| json!({"role": "assistant", "content": blocks});
        let said = |text: &str| json!({"type": "text", "text": text});
        let call = json!({"type": "tool_use", "id": "c", "name": "f", "input": {}});
        let result = json!({"type": "tool_result", "tool_use_id": "c"});
        check(json!([user(json!([said("a")])), model(json!([call])), user(json!([result, said("b")]))]), "");
        check(json!([user(json!([said("a")])), model(json!([call])), user(json!([said("b"), result]))]), "behind");
        check(json!([user(json!([said("a")])), model(json!([call]))]), "have no results");
        check(json!([user(json!([said("a")])), model(json!([call])), user(json!([said("b")]))]), "have the results []");
        check(json!([user(json!([said(" ")]))]), "blank");
        check(json!([model(json!([said("a")]))]), "its role is 'assistant'");
        check(json!([user(json!([]))]), "no blocks");
        let thinking = json!({"type": "thinking", "thinking": "t", "signature": "s"});
        check(json!([user(json!([said("a")])), model(json!([thinking]))]), "ends with thinking");
        check(json!([user(json!([said("a")])), model(json!([said("b ")]))]), "ends with a blank");
        let own = json!({"type": "server_tool_use", "id": "s", "name": "f", "input": {}});
        check(json!([user(json!([said("a")])), model(json!([own]))]), "");
        check(json!([user(json!([said("a")])), model(json!([own])), user(json!([said("b")]))]), "'s' has no result");
    }
}
