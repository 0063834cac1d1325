//! Finding text in entries.

use super::Entry;
use crate::text::{ascii_json, json};

/// Text to find: case-insensitive, in the JSON of an entry's kind, date, payload and meta, as it
/// stands and with non-ASCII escaped.
#[derive(Clone, Debug, PartialEq)]
pub struct TextMatch {
    needle: String,
    fuzzy: bool,
}

impl TextMatch {
    /// A text to find, trimmed; blank text finds nothing.
    #[must_use]
    pub fn new(text: &str, fuzzy: bool) -> Self {
        Self { needle: text.trim().to_lowercase(), fuzzy }
    }

    /// Whether nearly equal words count too.
    #[must_use]
    pub fn is_fuzzy(&self) -> bool {
        self.fuzzy
    }

    /// Whether the text is in the entry.
    #[must_use]
    pub fn matches(&self, entry: &Entry) -> bool {
        if self.needle.is_empty() {
            return false;
        }
        let target = serde_json::json!({
            "date": entry.date, "kind": entry.kind.as_str(), "meta": entry.meta, "payload": entry.payload,
        });
        let plain = json(&target).to_lowercase();
        plain.contains(&self.needle) || (!plain.is_ascii() && ascii_json(&target).to_lowercase().contains(&self.needle))
    }
}
