//! Which lines of a block may hold a text, without parsing them.
//!
//! Nothing is passed over that [`TextMatch`] would find; what is let through is parsed and matched.
//! The text is searched in the entry as it would be written again: with sorted keys, its numbers,
//! escapes and letters in their usual form. So what is looked for in a line is a piece of the text that
//! stands inside one string or number, and lines that may write that piece in an unusual way are let
//! through.

use std::ops::Range;

use bub_kernel::tape::{EntryKind, NearWords, TextMatch};
use memchr::{memchr, memchr_iter, memmem, memrchr};
use regex::bytes::{Regex, RegexBuilder};

use super::shape::{shape, stated_kind};

/// Keys that an entry is written with though its line may lack them.
const ADDED_KEYS: [&str; 2] = ["date", "meta"];
/// The longest piece of a text that is looked for, in characters.
const MAX_CORE: usize = 64;

/// A text and the kinds of entries that it is wanted of.
#[derive(Debug)]
pub(super) struct TextFilter {
    kinds: Vec<EntryKind>,
    is_blank: bool,
    literal: Option<Literal>,
    near: Option<NearWords>,
    hits: Vec<Range<usize>>,
}

impl TextFilter {
    pub(super) fn new(text: &TextMatch, kinds: &[EntryKind]) -> Self {
        Self {
            kinds: kinds.to_vec(),
            is_blank: text.needle().is_empty(),
            literal: Literal::new(text.needle()),
            near: text.near_words(),
            hits: Vec::new(),
        }
    }

    /// Adds the lines of a block that may match, without their newlines, first to last.
    pub(super) fn lines(&mut self, block: &[u8], found: &mut Vec<Range<usize>>) {
        if self.is_blank {
            return;
        }
        self.hits.clear();
        if let Some(literal) = &self.literal {
            literal.lines(block, &mut self.hits);
            if self.near.is_none() && !literal.may_be_added {
                found.extend(self.hits.iter().filter(|it| self.is_wanted(block.get(Range::clone(it)))).cloned());
                return;
            }
        }
        let mut hits = self.hits.iter().peekable();
        let mut start = 0;
        for end in memchr_iter(b'\n', block).chain([block.len()]) {
            let range = start..end;
            start = end + 1;
            let is_hit = hits.next_if(|it| it.start == range.start).is_some();
            let Some(line) = block.get(range.clone()) else { break };
            if line.is_empty() || !is_wanted(&self.kinds, line) {
                continue;
            }
            let is_possible = is_hit
                || match &self.literal {
                    Some(literal) => literal.may_be_added && !is_usual(line),
                    None => true,
                }
                || self.near.as_mut().is_some_and(|it| it.may_be_in(line));
            if is_possible {
                found.push(range);
            }
        }
    }

    fn is_wanted(&self, line: Option<&[u8]>) -> bool {
        line.is_some_and(|it| is_wanted(&self.kinds, it))
    }
}

/// Whether a line may be of one of these kinds; all, when there are none.
pub(super) fn is_wanted(kinds: &[EntryKind], line: &[u8]) -> bool {
    kinds.is_empty() || stated_kind(line).is_none_or(|kind| kinds.iter().any(|it| it.as_str().as_bytes() == kind))
}

/// Whether a line has its date and its numbers as they would be written again.
fn is_usual(line: &[u8]) -> bool {
    shape(line).is_some_and(|it| !it.has_odd_numbers)
}

/// A piece of a text, in any case.
#[derive(Debug)]
struct Literal {
    pattern: Regex,
    /// Whether the piece may be a part of a number that is written otherwise, or of a date or key that is
    /// missing.
    may_be_added: bool,
    is_ascii: bool,
    /// Whether `İ` has a letter of it, which is no case of any letter.
    has_dotted_i: bool,
}

impl Literal {
    /// The piece of a text, in lower case, to look for; none when there is no fit one.
    fn new(text: &str) -> Option<Self> {
        // Such a text may be the escape of a letter that the line has as it is.
        if text.contains("\\u") {
            return None;
        }
        let is_plain =
            |it: char| !it.is_control() && !matches!(it, '"' | '\\' | '/' | '{' | '}' | '[' | ']' | ':' | ',');
        let pieces = text.split(|it| !is_plain(it)).map(|it| it.trim_matches(' '));
        let may_be_added = |it: &str| {
            let is_of_number = |it| matches!(it, b'0'..=b'9' | b'.' | b'+' | b'-' | b'e' | b't');
            it.bytes().all(is_of_number) || ADDED_KEYS.iter().any(|key| key.contains(it))
        };
        let piece = pieces.filter(|it| !it.is_empty()).max_by_key(|it| (!may_be_added(it), it.len()))?;
        let piece: String = piece.chars().take(MAX_CORE).collect();
        let piece = piece.trim_matches(' ');
        let pattern = RegexBuilder::new(&pattern_of(piece)).case_insensitive(true).build().ok()?;
        Some(Self {
            pattern,
            may_be_added: may_be_added(piece),
            is_ascii: piece.is_ascii(),
            has_dotted_i: piece.contains(['i', '\u{307}']),
        })
    }

    /// Adds the lines that may have the piece.
    fn lines(&self, block: &[u8], found: &mut Vec<Range<usize>>) {
        let mut at = 0;
        while let Some(hit) = self.pattern.find_at(block, at) {
            let line = line_around(block, hit.start());
            at = (line.end + 1).min(block.len());
            found.push(line);
        }
        let n_hits = found.len();
        let odd =
            memmem::find_iter(block, b"\\u").filter(|it| self.is_odd_escape(block.get(it + 2..).unwrap_or_default()));
        found.extend(odd.map(|it| line_around(block, it)));
        if self.has_dotted_i {
            found.extend(memmem::find_iter(block, "İ".as_bytes()).map(|it| line_around(block, it)));
        }
        if found.len() > n_hits {
            found.sort_unstable_by_key(|it| it.start);
            found.dedup();
        }
    }

    /// Whether what follows `\u` may stand for something that the piece has, or for something that is
    /// usually written otherwise.
    fn is_odd_escape(&self, digits: &[u8]) -> bool {
        match digits {
            // These controls are written by a letter.
            [b'0', b'0', b'0', b'8' | b'9' | b'a' | b'A' | b'c' | b'C' | b'd' | b'D', ..] => true,
            [b'0', b'0', b'0' | b'1', ..] => false,
            [b'0', b'0', b'2'..=b'7', ..] => true,
            _ if !self.is_ascii => true,
            // The signs for kelvin and for a dotted capital I become ASCII letters in lower case.
            [b'2', b'1', b'2', b'a' | b'A', ..] | [b'0', b'1', b'3', b'0', ..] => true,
            _ => false,
        }
    }
}

/// The pattern of a piece. The standard library may know newer letters than the library of patterns.
fn pattern_of(piece: &str) -> String {
    let mut pattern = String::new();
    for it in piece.chars() {
        let letter = regex::escape(it.encode_utf8(&mut [0; 4]));
        let mut upper = it.to_uppercase();
        match (upper.next(), upper.next()) {
            (Some(upper), None) if upper != it && !it.is_ascii() => pattern.push_str(&format!("(?:{letter}|{upper})")),
            _ => pattern.push_str(&letter),
        }
    }
    pattern
}

/// The line around a place, without its newline.
fn line_around(block: &[u8], at: usize) -> Range<usize> {
    let start = block.get(..at).and_then(|it| memrchr(b'\n', it)).map_or(0, |it| it + 1);
    let end = block.get(at..).and_then(|it| memchr(b'\n', it)).map_or(block.len(), |it| at + it);
    start..end
}

#[cfg(test)]
mod tests {
    use bub_kernel::tape::Entry;
    use proptest::{prelude::*, sample::select};

    use super::*;

    #[test]
    fn every_letter_is_found_by_its_lower_case() {
        let mut pattern = String::new();
        for it in '\0'..=char::MAX {
            let mut lower = it.to_lowercase();
            let (Some(first), None) = (lower.next(), lower.next()) else {
                assert_eq!(it, 'İ', "{it:?} becomes several letters");
                continue;
            };
            if first != it {
                pattern.clear();
                pattern.push(first);
                let literal = Literal::new(&pattern).unwrap();
                assert!(literal.pattern.is_match(it.to_string().as_bytes()), "{it:?} {first:?}");
            }
        }
        // The only letter whose lower case depends on its neighbours.
        for piece in ["σ", "ς"] {
            assert!(Literal::new(piece).unwrap().pattern.is_match("Σ".as_bytes()));
        }
    }

    fn found(filter: &mut TextFilter, block: &[u8]) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        filter.lines(block, &mut found);
        found
    }

    #[test]
    fn lines_of_the_usual_layout_are_passed_over_without_being_parsed() {
        let line = |id: u64, kind: &str, text: &str| {
            format!(
                r#"{{"id": {id}, "kind": "{kind}", "payload": {{"content": "{text}", "n": 1}}, "meta": {{}}, "date": "2026-01-02T03:04:05.000000+00:00"}}"#
            )
        };
        let lines = [
            line(1, "message", "hay"),
            line(2, "message", "a Needle"),
            line(3, "event", "needle"),
            line(4, "message", "\\u001b[0m\\n"),
            line(5, "message", "größe"),
            line(6, "message", "漢字 17"),
            line(7, "message", "\\u0061"),
            line(8, "message", "\\u212a"),
            line(9, "message", "\\u6f22"),
        ];
        let block = lines.join("\n");
        for (text, fuzzy, expected) in [
            ("needle", false, &[2, 7, 8][..]),
            ("neadle", true, &[2, 7, 8]),
            ("NEEDLE", true, &[2, 7, 8]),
            ("Größe", false, &[5, 7, 8, 9]),
            ("漢字", false, &[6, 7, 8, 9]),
            ("17", false, &[6, 7, 8]),
            ("2027", false, &[7, 8]),
            ("\"content\": \"hay", false, &[1, 2, 4, 5, 6, 7, 8, 9]),
            ("zq", false, &[7, 8]),
            ("  ", false, &[]),
        ] {
            let mut filter = TextFilter::new(&TextMatch::new(text, fuzzy), &[EntryKind::Message]);
            let ranges = found(&mut filter, block.as_bytes());
            let ids: Vec<u64> =
                ranges.into_iter().map(|it| Entry::from_line(&block.as_bytes()[it]).unwrap().id).collect();
            assert_eq!(ids, expected, "{text}");
        }
    }

    fn any_text() -> impl Strategy<Value = String> {
        let pieces = select(vec![
            "a", "B", "k", "K", "İ", "i", "ß", "é", "É", "漢", "Σ", "σ", " ", "-", "1", ".5", "e", "5", "t", "\\n",
            "\\u000a", "\\u001b", "\\u0041", "\\u00e9", "\\u6f22", "\\u212a", "\\/", "\\\\", "\\\"", "u6f22", "2026",
            ":", ",",
        ]);
        proptest::collection::vec(pieces, 0..8).prop_map(|it| it.concat())
    }

    fn any_line() -> impl Strategy<Value = String> {
        let number = select(vec!["1", "15", "1.50", "1e5", "-0", "0.10", "10000000000000000000000"]);
        let tail = select(vec![
            r#", "meta": {}, "date": "2026-01-02T03:04:05.000000+00:00"}"#,
            r#","meta":{"a":1},"timestamp":1767323045.5}"#,
            "}",
            "",
        ]);
        (any_text(), number, tail, any::<bool>()).prop_map(|(text, number, tail, is_usual)| {
            let head = if is_usual { "{\"id\": 7, \"kind\": \"message\", " } else { "{\"kind\":\"message\",\"id\":7," };
            format!("{head}\"payload\": {{\"z\": \"{text}\", \"b\": {number}}}{tail}")
        })
    }

    fn any_query() -> impl Strategy<Value = String> {
        let pieces = select(vec![
            "a", "b", "k", "i", "i\u{307}", "é", "漢", "σ", "ς", " ", "-", "1", "1.5", "e", "e+", "00", "t", "t03",
            "\\", "\\n", "n", "\n", "\\u", "u6f22", "\\u6f22", "001b", "2026", "\"", ": ", ", ", "\"b\"", "z", "mes",
            "meta", "ta", "da",
        ]);
        proptest::collection::vec(pieces, 0..4).prop_map(|it| it.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn nothing_that_matches_is_passed_over(
            lines in proptest::collection::vec(any_line(), 1..6), query in any_query(), fuzzy in any::<bool>()
        ) {
            let text = TextMatch::new(&query, fuzzy);
            let block = lines.join("\n");
            let ranges = found(&mut TextFilter::new(&text, &[]), block.as_bytes());
            let candidates: Vec<&str> = ranges.iter().map(|it| &block[it.clone()]).collect();
            for line in &lines {
                let matches = Entry::from_line(line.as_bytes()).is_some_and(|it| text.matches(&it));
                prop_assert!(!matches || candidates.contains(&line.as_str()), "{query:?} is in {line}");
            }
        }
    }
}
