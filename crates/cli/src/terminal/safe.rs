//! Text of others, made safe for a terminal.

use std::borrow::Cow;

/// Makes text of tools, models and strangers fit to be shown: line ends become `\n`, tabs stay, every
/// other control character becomes a picture of itself (`␛` for an escape), and characters that turn
/// the direction of writing become `�`.
pub(crate) fn safe(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|it| is_unsafe(it) && !matches!(it, '\n' | '\t')) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut rest = text.chars().peekable();
    while let Some(it) = rest.next() {
        match it {
            '\n' | '\t' => shown.push(it),
            '\r' if rest.peek() == Some(&'\n') => {}
            it if is_unsafe(it) => shown.push(picture(it)),
            it => shown.push(it),
        }
    }
    shown.into()
}

/// As [`safe`], in one line: white space of any kind becomes one blank.
pub(crate) fn safe_line(text: &str) -> String {
    safe(&text.split_whitespace().collect::<Vec<_>>().join(" ")).into_owned()
}

/// JSON for a terminal: what could drive it and JSON leaves as it is gets escaped. It stays the same
/// JSON, since such characters can only be in strings.
pub(crate) fn safe_json(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return text.into();
    }
    let escaped = |it: char| match it {
        '\n' | '\t' => it.to_string(),
        it if is_unsafe(it) => format!("\\u{:04x}", u32::from(it)),
        it => it.to_string(),
    };
    text.chars().map(escaped).collect::<String>().into()
}

fn is_unsafe(it: char) -> bool {
    it.is_control() || matches!(it, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

fn picture(it: char) -> char {
    match u32::from(it) {
        code @ 0..0x20 => char::from_u32(0x2400 + code).unwrap_or('\u{fffd}'),
        0x7f => '\u{2421}',
        _ => '\u{fffd}',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_can_drive_a_terminal() {
        for (input, expected) in [
            ("plain é 漢字\n\ttab", "plain é 漢字\n\ttab"),
            ("\x1b[2J\x07", "␛[2J␇"),
            ("a\r\nb\rc", "a\nb␍c"),
            ("\u{9b}31m\x7f\0", "\u{fffd}31m␡␀"),
            ("abc\u{202e}txt.exe", "abc\u{fffd}txt.exe"),
        ] {
            assert_eq!(safe(input), expected, "{input:?}");
        }
        assert_eq!(safe_line(" a\n\tb\x1b "), "a b␛");
    }

    #[test]
    fn json_stays_the_same_json() {
        let text = serde_json::to_string("a\x7f\u{9b}\u{202e}b\x1b").unwrap();
        let shown = safe_json(&text);
        assert!(!shown.chars().any(is_unsafe), "{shown:?}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), "a\x7f\u{9b}\u{202e}b\x1b");
    }
}
