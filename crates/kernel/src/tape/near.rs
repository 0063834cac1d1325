//! Nearly equal words in the lines of a tape, without parsing them.

mod letters;

use self::letters::{Bits, Letters, Overlap};
use super::fuzzy::{FuzzyPhrase, MATCH_SCORE, MAX_LENGTH_RATIO, MAX_PHRASE_BYTES, is_possible, order, symbol};

/// The longest word that is nearly a query, in bytes.
const MAX_WORD_BYTES: usize = MAX_LENGTH_RATIO * MAX_PHRASE_BYTES;
/// Words up to that many bytes are remembered with what came of them; most words of a tape come again.
const KNOWN_BYTES: usize = 16;
/// Places for words that are remembered, as a power of two; a word takes the place of another.
const KNOWN_BITS: u32 = 11;
/// Spreads numbers over the places: 2^64 by the golden ratio.
const HASH_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
/// Queries of so many words have most letters, so that letters alone turn down few windows.
const MANY_WORDS: usize = 4;
/// Values that may be nested in each other in a line that is read here.
const MAX_DEPTH: u32 = 60;

/// What a byte of a text is to a query.
///
/// The lowest bit counts, and the next one ends a word, so that most bytes take no decision.
const FOREIGN: u8 = 0;
const OWN: u8 = 1;
const NO_SYMBOL: u8 = 2;
const END: u8 = 6;

/// Tells of lines whether their entries may hold words that are nearly those of a query: see
/// [`TextMatch::near_words`](super::TextMatch::near_words).
///
/// What it turns down would not have matched; what it lets pass has to be matched as an entry. Each
/// byte is looked at once and most words are turned down by their length and by how many of their
/// letters the query has, so that reading on costs little more than reading.
#[derive(Debug)]
pub struct NearWords {
    phrase: FuzzyPhrase,
    /// What each byte is to the query.
    classes: Box<[u8; 256]>,
    /// For each length of a word, the least number of its letters that the query must have.
    least_own: Box<[u16]>,
    /// Words as numbers, and whether they are near.
    known: Box<[(u128, bool)]>,
    word: Vec<u8>,
    windows: Option<Windows>,
}

/// A line that has to be parsed to be judged, or that holds a match.
struct Passes;

impl NearWords {
    pub(super) fn new(phrase: FuzzyPhrase) -> Self {
        let mut classes = Box::new([NO_SYMBOL; 256]);
        for (byte, class) in (0_u8..=255).zip(classes.iter_mut()) {
            *class = match symbol(byte.to_ascii_lowercase()) {
                _ if matches!(byte, b'"' | b'\\') => END,
                Some(it) if phrase.counts.get(it) > 0 => OWN,
                Some(_) => FOREIGN,
                None => NO_SYMBOL,
            };
        }
        let least = |len: usize| {
            let short = order(phrase.text.len(), len).0;
            if phrase.is_word_length(len) { (4 * short).div_ceil(5) as u16 } else { u16::MAX }
        };
        let least_own = (0..=MAX_WORD_BYTES).map(least).collect();
        let windows = (phrase.n_words > 1).then(|| Windows::new(&phrase));
        Self { phrase, classes, least_own, known: vec![(0, false); 1 << KNOWN_BITS].into(), word: Vec::new(), windows }
    }

    /// Whether the entry of a line may match. Lines that are laid out in an unusual way may.
    pub fn may_be_in(&mut self, line: &[u8]) -> bool {
        if let Some(windows) = &mut self.windows {
            windows.clear();
        }
        match payload_of(line) {
            Some(payload) => self.read(payload).is_err(),
            None => true,
        }
    }

    /// Looks at the texts and numbers of an object that has been opened.
    fn read(&mut self, bytes: &[u8]) -> Result<(), Passes> {
        let mut at = 0;
        // A bit for each value that is open: whether it is an object.
        let mut open: u64 = 1;
        let mut depth = 1_u32;
        let mut is_key = true;
        let mut is_role = false;
        loop {
            let byte = *bytes.get(at).ok_or(Passes)?;
            at += 1;
            match byte {
                b'"' if is_key => {
                    let start = at;
                    at = skip_string(bytes, at)?;
                    is_key = false;
                    let key = bytes.get(start..at - 1).unwrap_or_default();
                    if depth == 1 {
                        if key.contains(&b'\\') {
                            return Err(Passes);
                        }
                        is_role = key == b"role";
                    }
                }
                b'"' if is_role => {
                    at = skip_string(bytes, at)?;
                    is_role = false;
                }
                b'"' => at = self.read_string(bytes, at)?,
                b'{' | b'[' => {
                    if is_role || depth >= MAX_DEPTH {
                        return Err(Passes);
                    }
                    is_key = byte == b'{';
                    open = open << 1 | u64::from(is_key);
                    depth += 1;
                }
                b'}' | b']' => {
                    depth -= 1;
                    open >>= 1;
                    is_key = false;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                b',' => is_key = open & 1 == 1,
                b'-' | b'0'..=b'9' => {
                    if is_role {
                        return Err(Passes);
                    }
                    at = self.read_number(bytes, at - 1)?;
                }
                b't' | b'f' | b'n' => is_role = false,
                _ => {}
            }
        }
    }

    /// Looks at the words of a string; returns where it ends.
    fn read_string(&mut self, bytes: &[u8], mut at: usize) -> Result<usize, Passes> {
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let mut n_own = 0;
            let mut end = None;
            for (n, byte) in rest.iter().enumerate() {
                let class = self.classes.get(usize::from(*byte)).copied().unwrap_or_default();
                if class >= NO_SYMBOL {
                    end = Some((n, class));
                    break;
                }
                n_own += usize::from(class);
            }
            let (n, class) = end.ok_or(Passes)?;
            if n > 0 {
                self.look_at(bytes, Word { start: at, len: n, n_own })?;
            }
            at += n + 1;
            if class == END {
                match rest.get(n) {
                    Some(b'"') => return Ok(at),
                    _ => at = skip_escape(bytes, at)?,
                }
            }
        }
    }

    /// Looks at a number that is written again as it is; returns where it ends.
    fn read_number(&mut self, bytes: &[u8], start: usize) -> Result<usize, Passes> {
        let rest = bytes.get(start..).unwrap_or_default();
        let len = rest.iter().position(|it| !matches!(it, b'-' | b'0'..=b'9')).ok_or(Passes)?;
        let number = rest.get(..len).unwrap_or_default();
        let is_odd = matches!(rest.get(len), Some(b'.' | b'e' | b'E' | b'+')) || len > 17 || number.starts_with(b"-0");
        if is_odd {
            return Err(Passes);
        }
        let is_own = |it: &&u8| self.classes.get(usize::from(**it)) == Some(&OWN);
        self.look_at(bytes, Word { start, len, n_own: number.iter().filter(is_own).count() })?;
        Ok(start + len)
    }

    /// Looks at a word.
    fn look_at(&mut self, line: &[u8], word: Word) -> Result<(), Passes> {
        let least = self.least_own.get(word.len).copied().unwrap_or(u16::MAX);
        if word.n_own >= usize::from(least) && self.is_near(word.of(line)) {
            return Err(Passes);
        }
        match &mut self.windows {
            Some(windows) => windows.push(line, word),
            None => Ok(()),
        }
    }

    fn is_near(&mut self, word: &[u8]) -> bool {
        let mut letters = [0; KNOWN_BYTES];
        if let Some(letters) = letters.get_mut(..word.len()) {
            letters.copy_from_slice(word);
        }
        letters.make_ascii_lowercase();
        // No word is all zeros, so nothing is known of those that do not fit.
        let key = u128::from_le_bytes(letters);
        let place = ((key as u64 ^ (key >> 64) as u64).wrapping_mul(HASH_FACTOR) >> (64 - KNOWN_BITS)) as usize;
        if let Some((known, is_near)) = self.known.get(place)
            && *known == key
            && key != 0
        {
            return *is_near;
        }
        self.word.clear();
        self.word.extend(word.iter().map(u8::to_ascii_lowercase));
        let is_near = self.phrase.is_near_word(&self.word);
        if let Some(known) = self.known.get_mut(place)
            && key != 0
        {
            *known = (key, is_near);
        }
        is_near
    }
}

/// As many words in a row as the query has, in a line that is being read.
#[derive(Debug)]
struct Windows {
    words: Vec<Word>,
    /// Where the oldest word is.
    first: usize,
    n_filled: usize,
    n_bytes: usize,
    n_own: usize,
    /// What the query and the window have in common, kept up to date when that is asked at most words.
    overlap: Option<Overlap>,
    phrase: FuzzyPhrase,
    letters: Letters,
    query: Bits,
    sorted_query: Bits,
    has_equal_words: bool,
    text: Vec<u8>,
}

/// Where a word of a window is in its line.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    start: usize,
    len: usize,
    /// Letters of it that the query has.
    n_own: usize,
}

impl Word {
    fn of(self, line: &[u8]) -> &[u8] {
        line.get(self.start..self.start + self.len).unwrap_or_default()
    }
}

impl Windows {
    fn new(phrase: &FuzzyPhrase) -> Self {
        let letters = Letters::new();
        let mut sorted = words_of(phrase).collect::<Vec<_>>();
        sorted.sort_unstable();
        let query = Bits::new(phrase.text.as_bytes(), &letters);
        let overlap = (phrase.n_words >= MANY_WORDS).then(|| Overlap::new(&query));
        Self {
            words: vec![Word::default(); phrase.n_words],
            first: 0,
            n_filled: 0,
            n_bytes: 0,
            n_own: 0,
            overlap,
            query,
            sorted_query: Bits::new(&sorted.join(&b' '), &letters),
            has_equal_words: sorted.windows(2).any(|it| matches!(it, [one, other] if one == other)),
            phrase: phrase.clone(),
            letters,
            text: Vec::new(),
        }
    }

    fn clear(&mut self) {
        (self.first, self.n_filled, self.n_bytes, self.n_own) = (0, 0, 0, 0);
        if let Some(overlap) = &mut self.overlap {
            *overlap = Overlap::new(&self.query);
        }
    }

    fn push(&mut self, line: &[u8], word: Word) -> Result<(), Passes> {
        let n_words = self.words.len();
        let is_full = self.n_filled == n_words;
        let place = self.words.get_mut(if is_full { self.first } else { self.n_filled }).ok_or(Passes)?;
        if is_full {
            if let Some(overlap) = &mut self.overlap {
                overlap.remove(place.of(line), &self.letters);
            }
            self.n_bytes -= place.len;
            self.n_own -= place.n_own;
            self.first = if self.first + 1 == n_words { 0 } else { self.first + 1 };
        } else {
            self.n_filled += 1;
        }
        if let Some(overlap) = &mut self.overlap {
            overlap.add(word.of(line), &self.letters);
        }
        *place = word;
        self.n_bytes += word.len;
        self.n_own += word.n_own;
        if self.n_filled < n_words {
            return Ok(());
        }
        let n_spaces = n_words - 1;
        let (short, long) = order(self.phrase.text.len(), self.n_bytes + n_spaces);
        if 2 * long >= 3 * short || !is_possible(self.n_own + n_spaces, short) {
            return Ok(());
        }
        if self.is_near(line) { Err(Passes) } else { Ok(()) }
    }

    /// Whether the words in the window, of about the query's length, are nearly the query.
    fn is_near(&mut self, line: &[u8]) -> bool {
        let (newer, older) = self.words.split_at(self.first);
        let words = || older.iter().chain(newer);
        let n_spaces = self.words.len() - 1;
        let n_bytes = self.n_bytes + n_spaces;
        let total = self.phrase.text.len() + n_bytes;
        let common = n_spaces
            + match &self.overlap {
                Some(overlap) => overlap.common,
                None => self.query.common(&self.letters, words().flat_map(|it| it.of(line)).copied()),
            };
        if !is_possible(common, order(self.phrase.text.len(), n_bytes).0) {
            return false;
        }
        let score = |common: usize| 200.0 * common as f64 / total as f64;
        // Equal words make scores of other texts than the window and the query.
        let has_equal = self.has_equal_words
            || words().any(|it| {
                it.n_own == it.len && words_of(&self.phrase).any(|own| own.eq_ignore_ascii_case(it.of(line)))
            })
            || has_equal(&self.words, line);
        if !has_equal && score(common) < MATCH_SCORE {
            return false;
        }
        join(words().map(|it| it.of(line)), &mut self.text);
        if self.query.has_subsequence(&self.letters, &self.text, |it| score(it) >= MATCH_SCORE) {
            return true;
        }
        if has_equal {
            return str::from_utf8(&self.text).is_ok_and(|it| self.phrase.is_near_text(it));
        }
        // With no word in common, what is left to compare is the sorted words.
        let is_enough = |it| 0.95 * score(it) >= MATCH_SCORE;
        if !is_enough(common) {
            return false;
        }
        let window = std::mem::take(&mut self.text);
        let mut sorted: Vec<&[u8]> = window.split(|it| *it == b' ').collect();
        sorted.sort_unstable();
        join(sorted.into_iter(), &mut self.text);
        self.sorted_query.has_subsequence(&self.letters, &self.text, is_enough)
    }
}

fn words_of(phrase: &FuzzyPhrase) -> impl Iterator<Item = &[u8]> {
    phrase.text.as_bytes().split(|it| *it == b' ')
}

/// Whether some words are the same.
fn has_equal(words: &[Word], line: &[u8]) -> bool {
    let mut rest = words;
    while let Some((word, others)) = rest.split_first() {
        let is_same =
            |it: &Word| it.len == word.len && it.n_own == word.n_own && it.of(line).eq_ignore_ascii_case(word.of(line));
        if others.iter().any(is_same) {
            return true;
        }
        rest = others;
    }
    false
}

/// Writes words in lower case, with blanks between them.
fn join<'a>(words: impl Iterator<Item = &'a [u8]>, text: &mut Vec<u8>) {
    text.clear();
    for word in words {
        if !text.is_empty() {
            text.push(b' ');
        }
        text.extend(word.iter().map(u8::to_ascii_lowercase));
    }
}

/// The inside of the payload of a line of the usual layout, and what follows it.
fn payload_of(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"{\"id\": ")?;
    let n_digits = rest.iter().take_while(|it| it.is_ascii_digit()).count();
    let rest = rest.get(n_digits..)?.strip_prefix(b", \"kind\": \"")?;
    let end = rest.iter().position(|it| matches!(it, b'"' | b'\\'))?;
    rest.get(end..)?.strip_prefix(b"\", \"payload\": {")
}

/// Where a string that has been opened ends.
fn skip_string(bytes: &[u8], mut at: usize) -> Result<usize, Passes> {
    loop {
        let byte = *bytes.get(at).ok_or(Passes)?;
        at += 1;
        match byte {
            b'"' => return Ok(at),
            b'\\' => at += 1,
            _ => {}
        }
    }
}

/// Where an escape whose backslash has been read ends; it must not stand for part of a word.
fn skip_escape(bytes: &[u8], at: usize) -> Result<usize, Passes> {
    match bytes.get(at) {
        Some(b'n' | b'"' | b'\\' | b't' | b'r' | b'b' | b'f') => Ok(at + 1),
        Some(b'u') => {
            let digits = bytes.get(at + 1..at + 5).and_then(|it| str::from_utf8(it).ok()).ok_or(Passes)?;
            let code = u32::from_str_radix(digits, 16).map_err(|_| Passes)?;
            let is_in_words = u8::try_from(code).is_ok_and(|it| symbol(it.to_ascii_lowercase()).is_some());
            if is_in_words { Err(Passes) } else { Ok(at + 5) }
        }
        _ => Err(Passes),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tape::{Entry, TextMatch};

    fn line(payload: &str) -> String {
        format!(
            "{{\"id\": 7, \"kind\": \"message\", \"payload\": {payload}, \"meta\": {{\"run_id\": \"kubernetes\"}}, \"date\": \"2026-01-02\"}}"
        )
    }

    /// Nothing that matches is turned down; says whether the line passes.
    fn check(query: &str, line: &str) -> bool {
        let text = TextMatch::new(query, true);
        let Some(mut near) = text.near_words() else { return true };
        let passes = near.may_be_in(line.as_bytes());
        let entry = Entry::from_line(line.as_bytes());
        let matches =
            entry.is_some_and(|it| FuzzyPhrase::new(&query.trim().to_lowercase()).unwrap().matches(&it.payload));
        assert!(passes || !matches, "{query:?} is in {line}");
        // Asked again, what was learned meanwhile makes no difference.
        assert_eq!(near.may_be_in(line.as_bytes()), passes, "{query:?} {line}");
        passes
    }

    #[test]
    fn keys_roles_and_what_is_beside_the_payload_are_no_texts() {
        for (query, payload, expected) in [
            ("kubernets", r#"{"content": "on kubernetes"}"#, true),
            ("kubernets", r#"{"content": "ON KUBERNETES"}"#, true),
            ("kubernets", r#"{"content": "on docker"}"#, false),
            ("kubernets", r#"{"kubernetes": 1, "role": "kubernetes"}"#, false),
            ("kubernets", r#"{"role": "user", "a": [{"kubernetes": true, "role": "kubernetes"}]}"#, true),
            ("contents", r#"{"content": "x"}"#, false),
            ("2026", r#"{"content": "x"}"#, false),
            ("1234", r#"{"n": 1234}"#, true),
            ("1234", r#"{"n": 987}"#, false),
            ("word", r#"{"content": "a\nword"}"#, true),
            ("nword", r#"{"content": "a\nzzzz"}"#, false),
            ("plan deploy", r#"{"content": "the deploy plan"}"#, true),
            ("plan deploy", r#"{"a": "deploy", "b": ["plan"]}"#, true),
            ("plam deplay", r#"{"content": "deploy it as the new plan"}"#, false),
            ("the quick brown fox", r#"{"content": "A QIUCK brown fix is a"}"#, true),
            // Not read here, so parsed.
            ("zzzz", r#"{"n": 1.5}"#, true),
            ("zzzz", r#"{"n": "\u0061"}"#, true),
            ("zzzz", r#"{"n": "\u00e9 \ud83d\ude00"}"#, false),
            ("zzzz", r#"{"n": "a\/b"}"#, true),
        ] {
            assert_eq!(check(query, &line(payload)), expected, "{query} {payload}");
        }
        assert!(
            check("zzzz", "{\"kind\": \"message\", \"id\": 7}")
                && check("zzzz", "")
                && check("zzzz", r#"{"id": 7, "kind": "a", "payload": {"a"#)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn what_is_turned_down_would_not_have_matched(
            query in "[a-c]{1,4}([ -][a-c]{1,5}){0,3}",
            texts in proptest::collection::vec(r#"([A-Ca-c]{1,6}|[ /_-]|\\n|\\u00e9|é|\\"){0,12}"#, 1..4),
            number in -200_i64..200,
        ) {
            let texts: Vec<String> = texts.iter().map(|it| format!("\"{it}\"")).collect();
            let payload = format!(
                "{{\"role\": {}, \"content\": [{}], \"x\": {{\"abc\": {number}}}}}", texts[0], texts.join(", ")
            );
            check(&query, &line(&payload));
        }
    }
}
