//! Finding text in entries.

use serde_json::{Map, Value};

use super::{Entry, NearWords, fuzzy::FuzzyPhrase};

/// Text to find: case-insensitive, in the JSON of an entry's date, kind, meta and payload (keys
/// sorted), as it stands and with non-ASCII escaped.
///
/// A fuzzy one also finds words in the payload's texts that are nearly the text's words. Queries of
/// fewer than 3 characters or more than 128 bytes of words are found literally only.
#[derive(Clone, Debug, PartialEq)]
pub struct TextMatch {
    needle: String,
    /// The needle as it reads inside a JSON string, when that is not the same.
    escaped: Option<String>,
    is_fuzzy: bool,
    phrase: Option<FuzzyPhrase>,
}

impl TextMatch {
    /// A text to find, trimmed; blank text finds nothing.
    #[must_use]
    pub fn new(text: &str, fuzzy: bool) -> Self {
        let needle = text.trim().to_lowercase();
        let mut quoted = Vec::new();
        write_string(&needle, &mut quoted);
        let quoted = String::from_utf8(quoted).unwrap_or_default();
        let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
        let escaped = (inner != needle).then(|| inner.to_lowercase());
        let phrase = if fuzzy { FuzzyPhrase::new(&needle) } else { None };
        Self { needle, escaped, is_fuzzy: fuzzy, phrase }
    }

    /// Whether nearly equal words count too.
    #[must_use]
    pub fn is_fuzzy(&self) -> bool {
        self.is_fuzzy
    }

    /// The text, trimmed and in lower case; empty when nothing is to be found.
    #[must_use]
    pub fn needle(&self) -> &str {
        &self.needle
    }

    /// Tells of lines whether their entries may match for nearly equal words; none when no entry does.
    #[must_use]
    pub fn near_words(&self) -> Option<NearWords> {
        self.phrase.clone().map(NearWords::new)
    }

    /// Whether the text is in the entry.
    #[must_use]
    pub fn matches(&self, entry: &Entry) -> bool {
        !self.needle.is_empty()
            && (self.is_in(target(entry)) || self.phrase.as_ref().is_some_and(|it| it.matches(&entry.payload)))
    }

    fn is_in(&self, target: String) -> bool {
        let target = if target.is_ascii() {
            let mut target = target;
            target.make_ascii_lowercase();
            target
        } else {
            target.to_lowercase()
        };
        target.contains(&self.needle)
            || self.escaped.as_ref().is_some_and(|it| target.contains(it))
            // Only a needle with an escape in it can be in the escaped text and not in the plain one.
            || (self.needle.contains("\\u") && !target.is_ascii() && escape_non_ascii(&target).contains(&self.needle))
    }
}

/// The text that is searched.
fn target(entry: &Entry) -> String {
    let mut out = Vec::with_capacity(512);
    out.extend(b"{\"date\": ");
    write_string(&entry.date, &mut out);
    out.extend(b", \"kind\": ");
    write_string(entry.kind.as_str(), &mut out);
    out.extend(b", \"meta\": ");
    write_object(&entry.meta, &mut out);
    out.extend(b", \"payload\": ");
    write_object(&entry.payload, &mut out);
    out.push(b'}');
    String::from_utf8(out).unwrap_or_default()
}

fn write_object(fields: &Map<String, Value>, out: &mut Vec<u8>) {
    let mut keys: Vec<&String> = fields.keys().collect();
    keys.sort_unstable();
    out.push(b'{');
    for (idx, key) in keys.into_iter().enumerate() {
        if idx > 0 {
            out.extend(b", ");
        }
        write_string(key, out);
        out.extend(b": ");
        write_value(fields.get(key).unwrap_or(&Value::Null), out);
    }
    out.push(b'}');
}

fn write_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::String(text) => write_string(text, out),
        Value::Object(fields) => write_object(fields, out),
        Value::Array(items) => {
            out.push(b'[');
            for (idx, item) in items.iter().enumerate() {
                if idx > 0 {
                    out.extend(b", ");
                }
                write_value(item, out);
            }
            out.push(b']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => out.extend(value.to_string().bytes()),
    }
}

/// Writes a JSON string. Writing to memory does not fail.
fn write_string(text: &str, out: &mut Vec<u8>) {
    drop(serde_json::to_writer(out, text));
}

fn escape_non_ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for it in text.chars() {
        if it.is_ascii() {
            out.push(it);
        } else {
            it.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tape::EntryKind;

    fn entry(payload: Value) -> Entry {
        let object = |value| match value {
            Value::Object(it) => it,
            _ => Map::new(),
        };
        Entry {
            id: 7,
            kind: EntryKind::Message,
            payload: object(payload),
            meta: object(json!({"run_id": "run-1"})),
            date: "2026-01-02T03:04:05.000000+00:00".into(),
        }
    }

    #[test]
    fn substrings_are_found_in_kind_date_payload_and_meta_in_any_case() {
        let entry = entry(json!({"role": "user", "content": "Größe: 漢字 \"quoted\" C:\\dir\nnext", "n": 42}));
        for (query, expected) in [
            ("MESSAGE", true),
            ("2026-01-02t03", true),
            ("run-1", true),
            ("größe", true),
            ("GRÖSSE", false),
            ("漢字", true),
            ("\\u6f22\\u5b57", true),
            ("\\u6F22", true),
            ("u6f22", false),
            ("\"quoted\"", true),
            ("\\\"quoted\\\"", true),
            ("c:\\dir", true),
            ("dir\nnext", true),
            ("\"n\": 42", true),
            // Keys are sorted, so `content` comes before `n` and `n` before `role`.
            ("42, \"role\": \"user\"}", true),
            ("\"kind\": \"message\", \"meta\": {\"run_id\": \"run-1\"}, \"payload\": {\"content\"", true),
            ("\"id\"", false),
            ("", false),
            (" \n ", false),
            ("zz", false),
        ] {
            assert_eq!(TextMatch::new(query, false).matches(&entry), expected, "{query:?}");
        }
    }

    #[test]
    fn fuzzy_words_are_found_in_values_not_in_keys_or_roles() {
        let entry = entry(json!({"role": "assistant", "content": "we planed teh rollback of kubernetes"}));
        for (query, expected) in [
            ("kubernets", true),
            ("rollbak", true),
            ("planned the", true),
            ("contents", false),
            ("assistent", false),
            ("ku", true),
            ("kz", false),
        ] {
            assert_eq!(TextMatch::new(query, true).matches(&entry), expected, "{query:?}");
            assert!(TextMatch::new(query, false).matches(&entry) <= expected, "{query:?}");
        }
    }

    #[test]
    fn r087_a_typo_late_in_a_long_entry_is_found_and_nonsense_is_not() {
        let filler = "the quick brown fox jumps over a lazy dog at noon ".repeat(100);
        let long = entry(json!({"content": format!("{filler}kubernetes")}));
        let other = entry(json!({"content": filler}));
        for query in ["kubernets", "kubernetes", "kubernetis"] {
            assert!(TextMatch::new(query, true).matches(&long), "{query}");
            assert!(!TextMatch::new(query, true).matches(&other), "{query}");
        }
        for query in ["authentication", "connection", &"lorem ipsum ".repeat(900)] {
            assert!(!TextMatch::new(query, true).matches(&other), "{query}");
        }
    }
}
