//! A tape as text, for assertions.

use std::sync::Arc;

use bub_kernel::tape::Entry;
use serde_json::Value;

/// One line per entry: id, kind, payload, and `@run` for entries of a model call. Times are left out.
#[must_use]
pub fn tape_lines(entries: &[Arc<Entry>]) -> String {
    let mut lines = String::new();
    for entry in entries {
        let mut payload = Value::Object(entry.payload.clone());
        without_times(&mut payload);
        let mut meta = entry.meta.clone();
        let run = meta.remove("run_id").map(|_| " @run").unwrap_or_default();
        let meta = if meta.is_empty() { String::new() } else { format!(" {}", bub_kernel::text::json(&meta)) };
        lines.push_str(&format!("{} {} {}{run}{meta}\n", entry.id, entry.kind, bub_kernel::text::json(&payload)));
    }
    lines
}

fn without_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| !matches!(key.as_str(), "date" | "elapsed_ms"));
            fields.values_mut().for_each(without_times);
        }
        Value::Array(items) => items.iter_mut().for_each(without_times),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
