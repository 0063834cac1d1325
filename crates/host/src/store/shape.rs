//! What a line says, read at the speed of looking for newlines.
//!
//! Nearly all lines of nearly all tapes are laid out alike, by this store and by the reference:
//! `{"id": 7, "kind": "event", "payload": {…}, "meta": {…}, "date": "…"}`. Such a line is checked here
//! as strictly as by a JSON parser, but nothing is built from it. Every other line, though it may be an
//! entry too, is left to the parser.

use memchr::memchr2;

/// Bytes of a string that are looked at one by one before the search for its end is worth its start.
const SHORT_STRING: usize = 16;
/// Values that may be nested in each other; a parser takes more, but not fewer.
const MAX_DEPTH: usize = 48;
/// Digits of a number that is certainly not rounded.
const MAX_DIGITS: usize = 17;

/// A line of the usual layout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape<'a> {
    pub(super) id: u64,
    pub(super) kind: &'a [u8],
    /// The payload's `name`, of anchors and events only.
    pub(super) name: Option<&'a [u8]>,
    pub(super) date: &'a [u8],
    /// Whether some number may be written otherwise when the entry is written again.
    pub(super) has_odd_numbers: bool,
}

/// Reads a line of the usual layout; none when it is laid out otherwise or is no entry.
pub(super) fn shape(line: &[u8]) -> Option<Shape<'_>> {
    // Blanks are only between the parts, so a byte below them has no place anywhere.
    let (least, most) = line.iter().fold((u8::MAX, 0), |(least, most), it| (least.min(*it), most.max(*it)));
    if least < b' ' || (!most.is_ascii() && str::from_utf8(line).is_err()) {
        return None;
    }
    let mut cursor = Cursor { bytes: line, at: 0, has_odd_numbers: false };
    cursor.expect(b"{\"id\": ")?;
    let id = cursor.id()?;
    cursor.expect(b", \"kind\": \"")?;
    let kind = cursor.plain_string()?;
    cursor.expect(b", \"payload\": {")?;
    let name =
        if matches!(kind, b"anchor" | b"event") { cursor.named_object()? } else { cursor.object(1).map(|()| None)? };
    cursor.expect(b", \"meta\": {")?;
    cursor.object(1)?;
    cursor.expect(b", \"date\": \"")?;
    let date = cursor.plain_string()?;
    cursor.expect(b"}")?;
    let has_odd_numbers = cursor.has_odd_numbers;
    (cursor.at == line.len()).then_some(Shape { id, kind, name, date, has_odd_numbers })
}

/// The kind that a line of the usual layout states in its first part, whatever comes behind.
pub(super) fn stated_kind(line: &[u8]) -> Option<&[u8]> {
    let mut cursor = Cursor { bytes: line, at: 0, has_odd_numbers: false };
    cursor.expect(b"{\"id\": ")?;
    cursor.id()?;
    cursor.expect(b", \"kind\": \"")?;
    let kind = cursor.plain_string()?;
    cursor.expect(b", \"payload\": {")?;
    Some(kind)
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    has_odd_numbers: bool,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn expect(&mut self, text: &[u8]) -> Option<()> {
        let is_there = self.rest().starts_with(text);
        self.at += text.len();
        is_there.then_some(())
    }

    /// Passes over a byte if it comes next.
    fn accept(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn digits(&mut self) -> usize {
        let n = self.rest().iter().take_while(|it| it.is_ascii_digit()).count();
        self.at += n;
        n
    }

    fn id(&mut self) -> Option<u64> {
        let start = self.at;
        let n = self.digits();
        let digits = self.bytes.get(start..self.at)?;
        if n == 0 || n > MAX_DIGITS || (n > 1 && digits.first() == Some(&b'0')) {
            return None;
        }
        Some(digits.iter().fold(0, |id, it| id * 10 + u64::from(it - b'0')))
    }

    /// The rest of a string without escapes, and its end.
    fn plain_string(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        let found = self.quote_or_escape()?;
        (found == b'"').then(|| self.bytes.get(start..self.at - 1)).flatten()
    }

    /// Goes behind the next quote or backslash, and says which it was.
    fn quote_or_escape(&mut self) -> Option<u8> {
        let rest = self.rest();
        let near = rest.get(..SHORT_STRING).unwrap_or(rest);
        let is_mark = |it: &u8| matches!(it, b'"' | b'\\');
        let n = match near.iter().position(is_mark) {
            Some(n) => n,
            None => near.len() + memchr2(b'"', b'\\', rest.get(near.len()..)?)?,
        };
        self.at += n + 1;
        rest.get(n).copied()
    }

    /// The rest of a string.
    fn string(&mut self) -> Option<()> {
        while self.quote_or_escape()? == b'\\' {
            let escape = self.peek()?;
            self.at += 1;
            match escape {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                b'u' => {
                    let digits = self.rest().get(..4)?;
                    // Halves of characters must come in pairs, which the parser looks after.
                    let is_half = matches!(digits, [b'd' | b'D', b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F', ..]);
                    if is_half || !digits.iter().all(u8::is_ascii_hexdigit) {
                        return None;
                    }
                    self.at += 4;
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// The rest of an object.
    fn object(&mut self, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        if self.accept(b'}') {
            return Some(());
        }
        loop {
            self.expect(b"\"")?;
            self.string()?;
            self.expect(b": ")?;
            self.value(depth)?;
            if self.accept(b'}') {
                return Some(());
            }
            self.expect(b", ")?;
        }
    }

    /// The rest of an object, and its `name` if that is a string and comes first.
    fn named_object(&mut self) -> Option<Option<&'a [u8]>> {
        let mut name = None;
        let mut is_first = true;
        if self.accept(b'}') {
            return Some(None);
        }
        loop {
            self.expect(b"\"")?;
            let key = self.plain_string()?;
            self.expect(b": ")?;
            if key == b"name" {
                if !is_first {
                    return None;
                }
                self.expect(b"\"")?;
                name = Some(self.plain_string()?);
            } else {
                self.value(1)?;
            }
            is_first = false;
            if self.accept(b'}') {
                return Some(name);
            }
            self.expect(b", ")?;
        }
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        let first = self.peek()?;
        self.at += 1;
        match first {
            b'"' => self.string(),
            b'{' => self.object(depth + 1),
            b'[' => self.array(depth + 1),
            b't' => self.expect(b"rue"),
            b'f' => self.expect(b"alse"),
            b'n' => self.expect(b"ull"),
            b'-' | b'0'..=b'9' => {
                self.at -= 1;
                self.number()
            }
            _ => None,
        }
    }

    /// The rest of a list.
    fn array(&mut self, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        if self.accept(b']') {
            return Some(());
        }
        loop {
            self.value(depth)?;
            if self.accept(b']') {
                return Some(());
            }
            self.expect(b", ")?;
        }
    }

    /// A number that is not very long and has no exponent.
    fn number(&mut self) -> Option<()> {
        let is_negative = self.accept(b'-');
        let is_zero = self.peek() == Some(b'0');
        let mut n = self.digits();
        if n == 0 || (is_zero && n > 1) {
            return None;
        }
        self.has_odd_numbers |= is_negative && is_zero;
        if self.accept(b'.') {
            self.has_odd_numbers = true;
            let n_decimals = self.digits();
            if n_decimals == 0 {
                return None;
            }
            n += n_decimals;
        }
        // Whatever is no part of a number is looked at by the caller.
        (n <= MAX_DIGITS && !matches!(self.peek(), Some(b'e' | b'E'))).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use bub_kernel::tape::{Entry, EntryKind};
    use proptest::prelude::*;

    use super::*;

    /// Whatever is told of a line is what its entry says.
    fn check(line: &[u8]) -> bool {
        let Some(shape) = shape(line) else { return false };
        let entry = Entry::from_line(line);
        let text = String::from_utf8_lossy(line);
        let entry = entry.unwrap_or_else(|| panic!("no entry: {text}"));
        let is_named = matches!(entry.kind, EntryKind::Anchor | EntryKind::Event);
        assert_eq!(shape.id, entry.id, "{text}");
        assert_eq!(shape.kind, entry.kind.as_str().as_bytes(), "{text}");
        assert_eq!(stated_kind(line), Some(shape.kind));
        assert_eq!(shape.name, entry.name().filter(|_| is_named).map(str::as_bytes), "{text}");
        assert_eq!(shape.date, entry.date.as_bytes(), "{text}");
        if !shape.has_odd_numbers {
            assert_eq!(bub_kernel::text::json(&entry).contains("e+"), text.contains("e+"), "{text}");
        }
        true
    }

    #[test]
    fn usual_lines_are_read_and_all_others_are_left_to_the_parser() {
        let line =
            |payload: &str| format!(r#"{{"id": 7, "kind": "event", "payload": {payload}, "meta": {{}}, "date": "d"}}"#);
        for (payload, expected) in [
            (r"{}", true),
            (r#"{"name": "a/b", "data": {"x": [1, -2, true, null, "\"\\\n\u00e9"], "y": {}}}"#, true),
            (r#"{"x": {"name": 1}}"#, true),
            (r#"{"x": 1.5}"#, true),
            (r#"{"x": -0}"#, true),
            // All of these are entries or not, but none is of the usual layout.
            (r#"{"data": 1, "name": "b"}"#, false),
            (r#"{"name": "a", "name": "b"}"#, false),
            (r#"{"name": 1}"#, false),
            (r#"{"n\u0061me": "a"}"#, false),
            (r#"{"name": "\u0061"}"#, false),
            (r#"{"x": 1e5}"#, false),
            (r#"{"x": 01}"#, false),
            (r#"{"x": 1.}"#, false),
            (r#"{"x": 123456789012345678}"#, false),
            (r#"{"x": "\ud83d\ude00"}"#, false),
            (r#"{"x": "\ud800"}"#, false),
            (r#"{"x": "\x"}"#, false),
            (r#"{"x": [1,2]}"#, false),
            (r#"{"x": [1, ]}"#, false),
            (r#"{"x": tru}"#, false),
            ("{\"x\": \"a\tb\"}", false),
            ("{\"x\": \"\0\"}", false),
        ] {
            assert_eq!(check(line(payload).as_bytes()), expected, "{payload}");
        }
        let deep = |n: usize| line(&format!("{{\"x\": {}{}}}", "[".repeat(n), "]".repeat(n)));
        assert!(check(deep(40).as_bytes()) && !check(deep(60).as_bytes()));
        assert!(!check(&[line("{}").as_bytes(), b" "].concat()));
        assert!(!check(line("{}").replace("\"d\"", "\"\u{e9}\"").as_bytes().strip_suffix(b"}").unwrap()));
        assert!(!check(b"{\"id\": 1, \"kind\": \"a\", \"payload\": {\"x\": \"\xff\"}, \"meta\": {}, \"date\": \"d\"}"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn damaged_lines_are_never_taken_for_others(
            mut line in r#"\{"id": [0-9]{1,3}, "kind": "(anchor|event|message)", "payload": \{("name": "[a-c/]{0,3}"(, "b": (1|-0|1\.50|\[true, "\\n"\]))?)?\}, "meta": \{\}, "date": "[0-9]{3}"\}"#
                .prop_map(String::into_bytes),
            damage in proptest::collection::vec((any::<prop::sample::Index>(), prop_oneof![any::<u8>(), proptest::sample::select(b"\"\\{}[],: 0e-.".to_vec())]), 0..3),
        ) {
            if damage.is_empty() {
                let is_usual = shape(&line).is_some();
                let has_zero = line.starts_with(b"{\"id\": 0");
                prop_assert!(is_usual || has_zero);
            }
            for (at, byte) in damage {
                let at = at.index(line.len());
                line[at] = byte;
            }
            check(&line);
        }
    }
}
