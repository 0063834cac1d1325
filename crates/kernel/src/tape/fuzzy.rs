//! Nearly equal words: the WRatio score of the rapidfuzz family, and its use on payloads.

use std::collections::VecDeque;

use rapidfuzz::distance::lcs_seq;
use serde_json::{Map, Value};

/// The least score that counts as a match, of 100.
pub(super) const MATCH_SCORE: f64 = 80.0;
/// Queries below that many characters are not compared fuzzily: they resemble nearly everything.
const MIN_QUERY_CHARS: usize = 3;
/// Queries beyond that many bytes of words are not compared fuzzily. Together with
/// [`MAX_LENGTH_RATIO`] this bounds the work per byte of an entry.
pub(super) const MAX_PHRASE_BYTES: usize = 128;
/// Texts of which one is longer by more than that factor never reach [`MATCH_SCORE`].
pub(super) const MAX_LENGTH_RATIO: usize = 8;
/// A word of fewer letters than this says nothing inside a text at least twice as long: `the` is in
/// `authentication`, and `on` in `connection`.
const MIN_INNER_WORD: usize = 4;
/// Different bytes in words: letters, digits, `_`, `/` and `-`.
const N_SYMBOLS: usize = 39;

/// How many of each symbol a text has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counts([u16; N_SYMBOLS]);

/// The words of a query, ready to be compared with many payloads.
///
/// The work per payload is linear in its size: every word is looked at, most of them are turned down
/// by their length or their letters, and the rest is compared with a text of bounded length.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FuzzyPhrase {
    pub(super) text: String,
    pub(super) n_words: usize,
    pub(super) counts: Counts,
}

impl FuzzyPhrase {
    /// The words of a lower-case query; none when it is too short, too long, or has no words.
    pub(super) fn new(query: &str) -> Option<Self> {
        if query.chars().count() < MIN_QUERY_CHARS {
            return None;
        }
        let mut text = String::new();
        let mut n_words = 0;
        for word in query.split(|it: char| u8::try_from(it).ok().and_then(symbol).is_none()) {
            if word.is_empty() {
                continue;
            }
            if n_words > 0 {
                text.push(' ');
            }
            text.push_str(word);
            n_words += 1;
            if text.len() > MAX_PHRASE_BYTES {
                return None;
            }
        }
        if text.len() < MIN_QUERY_CHARS {
            return None;
        }
        let mut counts = Counts::default();
        text.bytes().filter_map(symbol).for_each(|it| counts.add(it));
        Some(Self { text, n_words, counts })
    }

    /// Whether a word of the payload's texts, or as many words in a row as the query has, is nearly the
    /// query. Keys and roles are not texts.
    pub(super) fn matches(&self, payload: &Map<String, Value>) -> bool {
        let mut text = Vec::new();
        payload.iter().filter(|(key, _)| *key != "role").for_each(|(_, value)| gather(value, &mut text));
        let words = text.split(|it| symbol(*it).is_none()).filter(|it| !it.is_empty());
        let mut window = Window::default();
        for word in words {
            if self.is_near_word(word) {
                return true;
            }
            if self.n_words > 1 {
                window.push(word, &self.counts);
                if window.words.len() > self.n_words {
                    window.pop(&self.counts);
                }
                if window.words.len() == self.n_words && self.is_near_window(&window) {
                    return true;
                }
            }
        }
        false
    }

    /// Whether a word of that many bytes can be nearly the query.
    pub(super) fn is_word_length(&self, len: usize) -> bool {
        let (short, long) = order(self.text.len(), len);
        long <= MAX_LENGTH_RATIO * short && (len >= MIN_INNER_WORD || self.text.len() < 2 * len)
    }

    pub(super) fn is_near_word(&self, word: &[u8]) -> bool {
        let short = order(self.text.len(), word.len()).0;
        if !self.is_word_length(word.len()) {
            return false;
        }
        let mut left = self.counts;
        let common = word.iter().filter_map(|it| symbol(*it)).filter(|it| left.take(*it)).count();
        is_possible(common, short) && str::from_utf8(word).is_ok_and(|word| self.is_near_text(word))
    }

    fn is_near_window(&self, window: &Window<'_>) -> bool {
        let n_spaces = self.n_words - 1;
        let (short, long) = order(self.text.len(), window.n_bytes + n_spaces);
        // Windows of another length match only by a word that they share, and words were looked at.
        if 2 * long >= 3 * short || !is_possible(window.common + n_spaces, short) {
            return false;
        }
        let words: Vec<&[u8]> = window.words.iter().copied().collect();
        str::from_utf8(&words.join(&b' ')).is_ok_and(|it| self.is_near_text(it))
    }

    pub(super) fn is_near_text(&self, text: &str) -> bool {
        wratio(&self.text, text) >= MATCH_SCORE
    }
}

/// Whether texts that have `common` characters in common, in any order, may reach [`MATCH_SCORE`]:
/// each of the scores needs a common subsequence of four fifths of the shorter text.
pub(super) fn is_possible(common: usize, short: usize) -> bool {
    5 * common >= 4 * short
}

/// The newest words of a text.
#[derive(Default)]
struct Window<'a> {
    words: VecDeque<&'a [u8]>,
    n_bytes: usize,
    counts: Counts,
    /// Symbols that the window and the query have in common, in any order.
    common: usize,
}

impl<'a> Window<'a> {
    fn push(&mut self, word: &'a [u8], query: &Counts) {
        for it in word.iter().filter_map(|it| symbol(*it)) {
            self.common += usize::from(self.counts.get(it) < query.get(it));
            self.counts.add(it);
        }
        self.n_bytes += word.len();
        self.words.push_back(word);
    }

    fn pop(&mut self, query: &Counts) {
        let Some(word) = self.words.pop_front() else { return };
        for it in word.iter().filter_map(|it| symbol(*it)) {
            self.counts.take(it);
            self.common -= usize::from(self.counts.get(it) < query.get(it));
        }
        self.n_bytes -= word.len();
    }
}

impl Default for Counts {
    fn default() -> Self {
        Self([0; N_SYMBOLS])
    }
}

impl Counts {
    pub(super) fn get(&self, symbol: usize) -> u16 {
        self.0.get(symbol).copied().unwrap_or_default()
    }

    fn add(&mut self, symbol: usize) {
        if let Some(count) = self.0.get_mut(symbol) {
            *count = count.saturating_add(1);
        }
    }

    /// Takes one of a symbol, if there is one.
    pub(super) fn take(&mut self, symbol: usize) -> bool {
        match self.0.get_mut(symbol) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        }
    }
}

/// The number of a byte that words are made of.
pub(super) fn symbol(byte: u8) -> Option<usize> {
    Some(match byte {
        b'a'..=b'z' => usize::from(byte - b'a'),
        b'0'..=b'9' => 26 + usize::from(byte - b'0'),
        b'_' => 36,
        b'/' => 37,
        b'-' => 38,
        _ => return None,
    })
}

/// Adds all texts inside a value, in lower case, one a line.
fn gather(value: &Value, text: &mut Vec<u8>) {
    match value {
        Value::String(it) => {
            text.extend(it.bytes().map(|it| it.to_ascii_lowercase()));
            text.push(b'\n');
        }
        Value::Number(it) => {
            text.extend(it.to_string().bytes());
            text.push(b'\n');
        }
        Value::Array(items) => items.iter().for_each(|it| gather(it, text)),
        Value::Object(fields) => fields.values().for_each(|it| gather(it, text)),
        Value::Null | Value::Bool(_) => {}
    }
}

pub(super) fn order(one: usize, other: usize) -> (usize, usize) {
    if one <= other { (one, other) } else { (other, one) }
}

/// How alike two texts are, 0 to 100: the best of several ways to compare them.
fn wratio(one: &str, other: &str) -> f64 {
    let (short, long) = order(one.len(), other.len());
    if short == 0 {
        return 0.0;
    }
    let whole = ratio(one, other);
    if 2 * long < 3 * short {
        return whole.max(0.95 * token_sort_ratio(one, other).max(token_set_ratio(one, other)));
    }
    let scale = if long <= MAX_LENGTH_RATIO * short { 0.9 } else { 0.6 };
    whole.max(scale * partial_ratio(one, other)).max(0.95 * scale * partial_token_ratio(one, other))
}

/// Twice the length of the longest common subsequence, of the length of both.
fn ratio(one: &str, other: &str) -> f64 {
    let total = one.len() + other.len();
    if total == 0 {
        return 100.0;
    }
    200.0 * common_subsequence(one.as_bytes(), other.as_bytes()) as f64 / total as f64
}

fn common_subsequence(one: &[u8], other: &[u8]) -> usize {
    lcs_seq::similarity(one.iter().copied(), other.iter().copied())
}

/// The best [`ratio`] of the shorter text with a stretch of the longer one of at most its length.
/// Scores below four fifths, which nothing needs, may come out as 0.
fn partial_ratio(one: &str, other: &str) -> f64 {
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    let (short, long) = (short.as_bytes(), long.as_bytes());
    if short.is_empty() {
        return if long.is_empty() { 100.0 } else { 0.0 };
    }
    if !is_possible(common_subsequence(short, long), short.len()) {
        return 0.0;
    }
    let best_in = |short: &[u8], long: &[u8]| {
        let heads = (1..short.len()).filter_map(|n| long.get(..n));
        let tails = (1..short.len()).filter_map(|n| long.get(long.len().checked_sub(n)?..));
        let score =
            |stretch: &[u8]| 200.0 * common_subsequence(short, stretch) as f64 / (short.len() + stretch.len()) as f64;
        long.windows(short.len()).chain(heads).chain(tails).map(score).fold(0.0, f64::max)
    };
    let best = best_in(short, long);
    if short.len() == long.len() { best.max(best_in(long, short)) } else { best }
}

fn sorted_words(text: &str) -> Vec<&str> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    words.sort_unstable();
    words
}

/// The words of both, those of the first alone, those of the second alone; each sorted.
fn split_words<'a>(one: &'a str, other: &'a str) -> (Vec<&'a str>, Vec<&'a str>, Vec<&'a str>) {
    let (mut first, mut second) = (sorted_words(one), sorted_words(other));
    first.dedup();
    second.dedup();
    let shared: Vec<&str> = first.iter().copied().filter(|it| second.contains(it)).collect();
    first.retain(|it| !shared.contains(it));
    second.retain(|it| !shared.contains(it));
    (shared, first, second)
}

fn token_sort_ratio(one: &str, other: &str) -> f64 {
    ratio(&sorted_words(one).join(" "), &sorted_words(other).join(" "))
}

fn token_set_ratio(one: &str, other: &str) -> f64 {
    let (shared, first, second) = split_words(one, other);
    if !shared.is_empty() && (first.is_empty() || second.is_empty()) {
        return 100.0;
    }
    let with = |rest: &[&str]| shared.iter().chain(rest).copied().collect::<Vec<_>>().join(" ");
    let (one, other) = (with(&first), with(&second));
    let best = ratio(&one, &other);
    if shared.is_empty() {
        return best;
    }
    let shared = shared.join(" ");
    best.max(ratio(&shared, &one)).max(ratio(&shared, &other))
}

fn partial_token_ratio(one: &str, other: &str) -> f64 {
    let (shared, first, second) = split_words(one, other);
    if !shared.is_empty() {
        return 100.0;
    }
    let sorted = partial_ratio(&sorted_words(one).join(" "), &sorted_words(other).join(" "));
    sorted.max(partial_ratio(&first.join(" "), &second.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wratio_gives_the_references_scores() {
        for (one, other, expected) in [
            ("hello", "helo", 88.89),
            ("hello", "help", 66.67),
            ("spill", "spilled", 83.33),
            ("deploy", "deployment", 90.0),
            ("abc", "ab", 90.0),
            ("deploy plan", "plan deploy", 95.0),
            ("timeout", "time-out", 93.33),
            ("redis", "radish", 72.73),
            ("authentication", "auth", 90.0),
            ("cat", "cart", 85.71),
            ("words", "wrods", 80.0),
        ] {
            assert!((wratio(one, other) - expected).abs() < 0.005, "{one}/{other}: {}", wratio(one, other));
            assert!((wratio(other, one) - expected).abs() < 0.005, "{other}/{one}: {}", wratio(other, one));
            let phrase = FuzzyPhrase::new(one).unwrap();
            let is_match = phrase.matches(&Map::from_iter([("content".to_owned(), other.into())]));
            assert_eq!(is_match, expected >= MATCH_SCORE, "{one} in {other}");
        }
    }

    #[test]
    fn what_is_turned_down_early_would_not_have_matched() {
        let words = ["deploy", "deployment", "depl", "yolped", "plan", "a/b-c", "planning", "deploy-plan", "dep1oy"];
        for query in ["deploy", "deployment plan", "plan deploy", "abcplan", "a/b"] {
            let phrase = FuzzyPhrase::new(query).unwrap();
            for word in words {
                let is_inner = word.len() < MIN_INNER_WORD && query.len() >= 2 * word.len();
                let expected = wratio(query, word) >= MATCH_SCORE && !is_inner;
                assert_eq!(phrase.is_near_word(word.as_bytes()), expected, "{query} / {word}");
            }
        }
    }

    #[test]
    fn short_long_and_wordless_queries_are_not_fuzzy() {
        for query in ["", "a", "ab", "你好吗", "--a", "你a好"] {
            assert_eq!(FuzzyPhrase::new(query).is_some(), query == "--a", "{query}");
        }
        assert!(FuzzyPhrase::new(&"word ".repeat(2000)).is_none());
    }
}
