//! Python's own rules: identifiers, literals, texts inside quotes.

use std::{borrow::Borrow, collections::HashSet};

use bub_kernel::tool::ToolSpec;
use serde_json::Value;
use unicode_normalization::is_nfkc;

const KEYWORDS: &[&str] = &[
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// Deeper values are not written out as literals.
const MAX_LITERAL_DEPTH: usize = 16;

/// Whether Python takes `name` for an identifier, and keeps it as it is.
pub(super) fn is_identifier(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|it| it == '_' || unicode_ident::is_xid_start(it))
        && name.chars().all(is_word)
        && !KEYWORDS.contains(&name)
        // Python folds look-alikes, and would call another name.
        && is_nfkc(name)
}

/// Whether a letter may stand in an identifier of every Python: newer letters are unknown to older
/// interpreters, so that outside of ASCII only long settled scripts count.
fn is_word(letter: char) -> bool {
    let is_settled = matches!(letter,
        '\u{c0}'..='\u{24f}' // Latin
        | '\u{386}'..='\u{52f}' // Greek, Cyrillic
        | '\u{5d0}'..='\u{5ea}' // Hebrew
        | '\u{620}'..='\u{669}' // Arabic
        | '\u{904}'..='\u{939}' // Devanagari
        | '\u{e01}'..='\u{e4e}' // Thai
        | '\u{3041}'..='\u{30ff}' // Hiragana, Katakana
        | '\u{4e00}'..='\u{9fef}' // Han
        | '\u{ac00}'..='\u{d7a3}' // Hangul
    );
    unicode_ident::is_xid_continue(letter) && (letter.is_ascii() || is_settled)
}

/// The name as an identifier: other characters become `_`, and a `_` goes in front where that is not enough.
pub(super) fn identifier(name: &str) -> String {
    let fits = |it: char| is_word(it) && (it.is_ascii() || is_nfkc(it.encode_utf8(&mut [0; 4])));
    let mut ident: String = name.chars().map(|it| if fits(it) { it } else { '_' }).collect();
    if !is_identifier(&ident) {
        ident.insert(0, '_');
    }
    if is_identifier(&ident) { ident } else { ident.chars().map(|it| if it.is_ascii() { it } else { '_' }).collect() }
}

/// The names that code calls the tools by, in their order. A name that comes twice gets a number.
#[must_use]
pub fn identifiers<T: Borrow<ToolSpec>>(tools: &[T]) -> Vec<String> {
    let mut seen = HashSet::new();
    let unique = |tool: &T| {
        let first = identifier(&tool.borrow().alias());
        let mut ident = first.clone();
        let mut n = 2;
        while !seen.insert(ident.clone()) {
            ident = format!("{first}_{n}");
            n += 1;
        }
        ident
    };
    tools.iter().map(unique).collect()
}

/// Words with a capital letter each, joined: `tape.search` becomes `TapeSearch`.
pub(super) fn pascal(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for word in name.split(|it: char| !it.is_alphanumeric()).filter(|it| !it.is_empty()) {
        let mut letters = word.chars();
        text.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        text.push_str(letters.as_str());
    }
    if text.is_empty() { "Result".to_owned() } else { identifier(&text) }
}

/// A JSON value as Python writes it.
pub(super) fn literal(value: &Value) -> String {
    let mut text = String::new();
    push_literal(value, 0, &mut text);
    text
}

fn push_literal(value: &Value, depth: usize, text: &mut String) {
    if depth > MAX_LITERAL_DEPTH {
        text.push_str("...");
        return;
    }
    match value {
        Value::Null => text.push_str("None"),
        Value::Bool(true) => text.push_str("True"),
        Value::Bool(false) => text.push_str("False"),
        Value::Number(number) => text.push_str(&number.to_string()),
        Value::String(it) => push_quoted(it, text),
        Value::Array(items) => {
            text.push('[');
            for (idx, item) in items.iter().enumerate() {
                text.push_str(if idx == 0 { "" } else { ", " });
                push_literal(item, depth + 1, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            text.push('{');
            for (idx, (key, item)) in fields.iter().enumerate() {
                text.push_str(if idx == 0 { "" } else { ", " });
                push_quoted(key, text);
                text.push_str(": ");
                push_literal(item, depth + 1, text);
            }
            text.push('}');
        }
    }
}

/// A text in quotes: single ones, unless it has some and no double ones.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    push_quoted(text, &mut quoted);
    quoted
}

fn push_quoted(text: &str, to: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    to.push(quote);
    for it in text.chars() {
        match it {
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            it if it == quote => to.extend(['\\', it]),
            ' '..='~' => to.push(it),
            it if it.is_alphanumeric() => to.push(it),
            it if u32::from(it) <= 0xff => to.push_str(&format!("\\x{:02x}", u32::from(it))),
            // What is neither letter nor digit is mostly printable too, but not all of it.
            it if it.escape_debug().len() == 1 => to.push(it),
            it if u32::from(it) <= 0xffff => to.push_str(&format!("\\u{:04x}", u32::from(it))),
            it => to.push_str(&format!("\\U{:08x}", u32::from(it))),
        }
    }
    to.push(quote);
}

/// A text on one line, for comments.
pub(super) fn one_line(text: &str) -> String {
    text.split(|it: char| it.is_whitespace() || it.is_control())
        .filter(|it| !it.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The lines of a docstring, indented by four.
pub(super) fn docstring(text: &str) -> Vec<String> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let is_fit = |it: &char| *it == '\n' || *it == '\t' || !it.is_control();
    let text: String = text.trim().chars().filter(is_fit).collect();
    let mut text = text.replace('\\', "\\\\").replace("\"\"\"", "\\\"\\\"\\\"");
    let mut lines: Vec<&str> = text.split('\n').collect();
    if lines.len() == 1 {
        // A quote before the closing ones would close too early, unless it is escaped already.
        let before = text.strip_suffix('"').map(|it| it.len() - it.trim_end_matches('\\').len());
        if before.is_some_and(|it| it % 2 == 0) {
            text.pop();
            text.push_str("\\\"");
        }
        return vec![format!("    \"\"\"{text}\"\"\"")];
    }
    let first = format!("    \"\"\"{}", lines.remove(0).trim_end());
    let rest = lines.into_iter().map(|it| format!("    {it}").trim_end().to_owned());
    std::iter::once(first).chain(rest).chain(["    \"\"\"".to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_become_identifiers() {
        for (name, expected) in [
            ("fs_read", "fs_read"),
            ("my-tool", "my_tool"),
            ("", "_"),
            ("1st", "_1st"),
            ("class", "_class"),
            ("None", "_None"),
            ("a b/c", "a_b_c"),
            ("größe", "größe"),
            ("ﬁnd", "_nd"),
            ("x²", "x_"),
            ("😀", "_"),
        ] {
            let ident = identifier(name);
            assert_eq!(ident, expected, "{name}");
            assert!(is_identifier(&ident), "{name}");
        }
    }

    #[test]
    fn words_are_joined_in_pascal_case() {
        for (name, expected) in [
            ("tape_search", "TapeSearch"),
            ("web.fetch-url", "WebFetchUrl"),
            ("HTTPError", "HTTPError"),
            ("", "Result"),
            ("--", "Result"),
            ("2d point", "_2dPoint"),
            ("none", "_None"),
        ] {
            assert_eq!(pascal(name), expected, "{name}");
        }
    }

    #[test]
    fn literals_are_pythons() {
        for (value, expected) in [
            (json!(null), "None"),
            (json!([true, false, 1, -2.5]), "[True, False, 1, -2.5]"),
            (json!({"a": [], "b": {}}), "{'a': [], 'b': {}}"),
            (json!("it's"), "\"it's\""),
            (json!("it's \"x\""), "'it\\'s \"x\"'"),
            (json!("a\\b\n\t\u{0}\u{7f}"), "'a\\\\b\\n\\t\\x00\\x7f'"),
            (json!("é—\u{2028}\u{202e}"), "'é—\\u2028\\u202e'"),
        ] {
            assert_eq!(literal(&value), expected);
        }
    }

    #[test]
    fn docstrings_close_where_they_should() {
        for (text, expected) in [
            ("One.", r#"    """One.""""#),
            (r#"say "hi""#, r#"    """say "hi\"""""#),
            (r"a\b", r#"    """a\\b""""#),
            ("a\n\n b  \nc", "    \"\"\"a\n\n     b\n    c\n    \"\"\""),
            (r#"x """ y"#, r#"    """x \"\"\" y""""#),
            (r#"x """"#, r#"    """x \"\"\"""""#),
            (r#"x \""#, r#"    """x \\\"""""#),
            ("a\r\nb\u{0}\u{c}", "    \"\"\"a\n    b\n    \"\"\""),
        ] {
            assert_eq!(docstring(text).join("\n"), expected);
        }
    }
}
