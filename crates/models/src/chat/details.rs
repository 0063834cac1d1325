//! Thinking that comes in typed pieces, put together to be sent back.

use bub_kernel::model::ModelError;
use serde_json::{Map, Value};

/// The most pieces of thinking in one answer.
const MAX_DETAILS: usize = 10_000;

/// The fields whose text comes in pieces.
const GROWING: [&str; 3] = ["text", "summary", "data"];

/// The pieces so far; those of one number and type are one.
#[derive(Debug, Default)]
pub(super) struct Details(Vec<Map<String, Value>>);

impl Details {
    /// Adds a piece.
    ///
    /// # Errors
    /// When there are more than [`MAX_DETAILS`].
    pub(super) fn add(&mut self, detail: Value) -> Result<(), ModelError> {
        let Value::Object(detail) = detail else { return Ok(()) };
        let same = |old: &Map<String, Value>| {
            ["index", "type"].iter().all(|key| old.get(*key) == detail.get(*key))
                && match (old.get("id"), detail.get("id")) {
                    (Some(old), Some(new)) => old == new || old.is_null() || new.is_null(),
                    _ => true,
                }
        };
        // A piece without a number continues the last one, if that is of its type.
        if let Some(old) = self.0.last_mut().filter(|it| same(it)) {
            for (key, value) in detail {
                match (old.get_mut(&key), value) {
                    (Some(Value::String(text)), Value::String(more)) if GROWING.contains(&key.as_str()) => {
                        text.push_str(&more);
                    }
                    (_, Value::Null) => (),
                    (_, value) => {
                        old.insert(key, value);
                    }
                }
            }
            return Ok(());
        }
        if self.0.len() >= MAX_DETAILS {
            return Err(ModelError::Protocol(format!("more than {MAX_DETAILS} pieces of thinking in one answer")));
        }
        self.0.push(detail);
        Ok(())
    }

    /// All of them; none when there were none.
    pub(super) fn take(&mut self) -> Option<Vec<Value>> {
        let pieces = std::mem::take(&mut self.0);
        (!pieces.is_empty()).then(|| pieces.into_iter().map(Value::Object).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pieces_of_one_number_become_one() {
        let mut details = Details::default();
        for piece in [
            json!({"type": "reasoning.text", "text": "a", "index": 0, "signature": null}),
            json!({"type": "reasoning.text", "text": "b", "index": 0}),
            json!({"type": "reasoning.text", "signature": "sig", "index": 0}),
            json!({"type": "reasoning.encrypted", "data": "xx", "index": 1, "id": "r1"}),
            json!({"type": "reasoning.encrypted", "data": "yy", "index": 1, "id": "r2"}),
            json!("odd"),
        ] {
            details.add(piece).unwrap();
        }
        let expected = json!([
            {"type": "reasoning.text", "text": "ab", "index": 0, "signature": "sig"},
            {"type": "reasoning.encrypted", "data": "xx", "index": 1, "id": "r1"},
            {"type": "reasoning.encrypted", "data": "yy", "index": 1, "id": "r2"},
        ]);
        assert_eq!(Value::from(details.take().unwrap()), expected);
        assert_eq!(details.take(), None);
    }
}
