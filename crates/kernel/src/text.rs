//! Text that is shared by tapes, tools and models: JSON in the reference's spacing, caps on length.

use std::io;

use serde::Serialize;
use serde_json::{Value, ser::Formatter};

/// Puts `, ` and `: ` between the parts of JSON, as tapes and rendered results have them.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

/// Writes one line of spaced JSON, non-ASCII kept.
///
/// # Errors
/// Those of `writer`, and of values whose keys are not strings.
pub fn write_json(writer: &mut impl io::Write, value: &impl Serialize) -> serde_json::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(writer, Spaced))
}

/// Spaced JSON as a string, non-ASCII kept; what [`write_json`] can't write becomes an empty string.
#[must_use]
pub fn json(value: &impl Serialize) -> String {
    let mut bytes = Vec::with_capacity(128);
    match write_json(&mut bytes, value) {
        Ok(()) => String::from_utf8(bytes).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

/// Spaced JSON with every non-ASCII character as `\uXXXX`.
#[must_use]
pub fn ascii_json(value: &impl Serialize) -> String {
    let plain = json(value);
    if plain.is_ascii() {
        return plain;
    }
    let mut text = String::with_capacity(plain.len() + 16);
    for it in plain.chars() {
        if it.is_ascii() {
            text.push(it);
        } else {
            for unit in it.encode_utf16(&mut [0; 2]) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    text
}

/// How a value reads in the model's context: strings as they are, everything else as JSON.
#[must_use]
pub fn render(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => json(other),
    }
}

/// Applies `change` to every string inside `value`, keys excepted.
pub fn map_strings(value: &mut Value, change: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|it| map_strings(it, change)),
        Value::Object(fields) => fields.values_mut().for_each(|it| map_strings(it, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Cuts `text` to at most `max` characters by leaving out its middle, and says how much that was.
#[must_use]
pub fn elide(text: &str, max: usize) -> std::borrow::Cow<'_, str> {
    if text.len() <= max {
        return text.into();
    }
    let count = text.chars().count();
    if count <= max {
        return text.into();
    }
    let half = max / 2;
    let byte_at = |idx: usize| text.char_indices().nth(idx).map_or(text.len(), |(byte, _)| byte);
    let (head, tail) = (byte_at(half), byte_at(count - half));
    format!(
        "{}\n...[{} chars omitted]...\n{}",
        text.get(..head).unwrap_or_default(),
        thousands((count - 2 * half) as u64),
        text.get(tail..).unwrap_or_default()
    )
    .into()
}

/// Writes a number with a comma between thousands.
#[must_use]
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (idx, it) in digits.chars().enumerate() {
        if idx > 0 && (digits.len() - idx).is_multiple_of(3) {
            text.push(',');
        }
        text.push(it);
    }
    text
}

/// A size as people say it: `5 bytes`, `4.8 MiB`.
#[must_use]
pub fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut tenths = u128::from(bytes) * 10;
    let mut unit = None;
    for it in UNITS {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1_024;
        unit = Some(it);
    }
    match unit {
        None if bytes == 1 => "1 byte".into(),
        None => format!("{} bytes", thousands(bytes)),
        Some(unit) => format!("{}.{} {unit}", tenths / 10, tenths % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_has_the_references_spacing() {
        let value = json!({"a": [1, "é😀"], "b": {}, "c": []});
        assert_eq!(super::json(&value), r#"{"a": [1, "é😀"], "b": {}, "c": []}"#);
        assert_eq!(ascii_json(&value), r#"{"a": [1, "\u00e9\ud83d\ude00"], "b": {}, "c": []}"#);
    }

    #[test]
    fn elide_keeps_both_ends_and_counts_characters() {
        assert_eq!(elide("äöü", 3), "äöü");
        assert_eq!(elide("äöüßé", 4), "äö\n...[1 chars omitted]...\nßé");
        assert_eq!(thousands(1), "1");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }

    #[test]
    fn sizes_are_said_in_the_largest_unit_that_fits() {
        let sizes = [0, 1, 1_023, 1_024, 1_536, 5_000_000, 3_221_225_472, u64::MAX].map(human_size);
        assert_eq!(
            sizes,
            ["0 bytes", "1 byte", "1,023 bytes", "1.0 KiB", "1.5 KiB", "4.7 MiB", "3.0 GiB", "16777215.9 TiB"]
        );
    }
}
