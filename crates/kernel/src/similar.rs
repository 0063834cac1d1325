//! Names that are nearly right.

use std::collections::HashMap;

/// The most suggestions to make.
const MAX_MATCHES: usize = 3;
/// The least similarity, from 0 to 1.
const CUTOFF: f64 = 0.6;
/// From this length on, letters that make up more than 1 % of a text do not start a match.
const POPULAR_FROM: usize = 200;

/// The candidates most like `word`, best first, at most three.
#[must_use]
pub fn close_matches<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let word: Vec<char> = word.chars().collect();
    let mut scored: Vec<(f64, &str)> = candidates
        .into_iter()
        .map(|it| (ratio(&it.chars().collect::<Vec<_>>(), &word), it))
        .filter(|(score, _)| *score >= CUTOFF)
        .collect();
    scored.sort_by(|(a, left), (b, right)| b.total_cmp(a).then_with(|| right.cmp(left)));
    scored.dedup_by(|a, b| a.1 == b.1);
    scored.into_iter().take(MAX_MATCHES).map(|(_, it)| it).collect()
}

/// Ratcliff and Obershelp's similarity of two texts: twice the matching letters over all letters,
/// where matches are the longest common block and, recursively, those to its left and right.
fn ratio(a: &[char], b: &[char]) -> f64 {
    let total = a.len() + b.len();
    if total == 0 {
        return 1.0;
    }
    let mut places: HashMap<char, Vec<usize>> = HashMap::new();
    for (idx, it) in b.iter().enumerate() {
        places.entry(*it).or_default().push(idx);
    }
    if b.len() >= POPULAR_FROM {
        let most = b.len() / 100 + 1;
        places.retain(|_, it| it.len() <= most);
    }
    let mut matched = 0;
    let mut queue = vec![(0, a.len(), 0, b.len())];
    while let Some((a_from, a_to, b_from, b_to)) = queue.pop() {
        let (a_at, b_at, size) = longest_match(a, b, &places, (a_from, a_to), (b_from, b_to));
        if size > 0 {
            matched += size;
            queue.push((a_from, a_at, b_from, b_at));
            queue.push((a_at + size, a_to, b_at + size, b_to));
        }
    }
    2.0 * matched as f64 / total as f64
}

/// The longest common block of two ranges, the leftmost of equal ones: start in `a`, start in `b`, length.
fn longest_match(
    a: &[char],
    b: &[char],
    places: &HashMap<char, Vec<usize>>,
    (a_from, a_to): (usize, usize),
    (b_from, b_to): (usize, usize),
) -> (usize, usize, usize) {
    let (mut a_at, mut b_at, mut size) = (a_from, b_from, 0);
    // For each place in `b`, the length of the common block that ends there.
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for (idx, letter) in a.iter().enumerate().take(a_to).skip(a_from) {
        let mut next = HashMap::new();
        for place in places.get(letter).into_iter().flatten().filter(|it| (b_from..b_to).contains(*it)) {
            let length = place.checked_sub(1).and_then(|it| lengths.get(&it)).copied().unwrap_or_default() + 1;
            next.insert(*place, length);
            if length > size {
                (a_at, b_at, size) = (idx + 1 - length, place + 1 - length, length);
            }
        }
        lengths = next;
    }
    // Popular letters start no block, but may extend one.
    while a_at > a_from && b_at > b_from && a.get(a_at - 1) == b.get(b_at - 1) {
        (a_at, b_at, size) = (a_at - 1, b_at - 1, size + 1);
    }
    while a_at + size < a_to && b_at + size < b_to && a.get(a_at + size) == b.get(b_at + size) {
        size += 1;
    }
    (a_at, b_at, size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["bash", "bash_output", "fs_read", "fs_write", "fs_edit", "tape_info", "tape_search", "web_fetch"]
            .map(str::to_owned)
            .to_vec()
    }

    #[test]
    fn similar_names_are_found_best_first() {
        let check = |word: &str, expected: &[&str]| {
            assert_eq!(close_matches(word, names().iter().map(String::as_str)), expected, "{word}");
        };
        check("fsread", &["fs_read", "fs_edit"]);
        check("fs_raed", &["fs_read", "fs_edit", "fs_write"]);
        check("read_file", &[]);
        check("", &[]);
        check("tape_inof", &["tape_info"]);
    }

    #[test]
    fn ratio_is_the_references() {
        let ratio = |a: &str, b: &str| ratio(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>());
        assert_eq!(ratio("abcd", "bcde"), 0.75);
        assert_eq!(ratio("", ""), 1.0);
        assert_eq!(ratio("a", ""), 0.0);
        assert!((ratio("fs_read", "fsread") - 12.0 / 13.0).abs() < 1e-9);
        let long = "x".repeat(300);
        assert_eq!(ratio(&long, &long), 1.0, "popular letters start no block, but extend the empty one");
    }
}
