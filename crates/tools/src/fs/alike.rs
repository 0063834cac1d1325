//! Texts that look alike, for hints when one is not found.

/// Bytes of a text that is searched at most; beyond it there is no hint.
const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;

/// Where `text` has `wanted` but for white space or signs that models mix up: the zero-based line, and
/// what differs.
pub(super) fn find(text: &str, wanted: &str) -> Option<(usize, &'static str)> {
    if text.len() > MAX_TEXT_BYTES || wanted.len() > text.len().saturating_mul(2) {
        return None;
    }
    for (fold, what) in [(same as fn(char) -> char, "white space"), (plain, "quotation marks, dashes or white space")] {
        let wanted = Folded::new(wanted.trim(), fold).text;
        let folded = Folded::new(text, fold);
        if !wanted.is_empty()
            && let Some(at) = folded.text.find(&wanted)
        {
            return Some((folded.line_of(at), what));
        }
    }
    None
}

/// A text with one blank for each run of white space.
struct Folded {
    text: String,
    /// Where in it lines begin, but for the first.
    starts: Vec<usize>,
}

impl Folded {
    fn new(text: &str, fold: fn(char) -> char) -> Self {
        let mut folded = Self { text: String::with_capacity(text.len()), starts: Vec::new() };
        let mut n_lines = 0;
        for it in text.chars() {
            if it == '\n' {
                n_lines += 1;
            }
            if !it.is_whitespace() {
                folded.starts.extend((0..n_lines).map(|_| folded.text.len()));
                n_lines = 0;
                folded.text.push(fold(it));
            } else if !folded.text.ends_with(' ') {
                folded.text.push(' ');
            }
        }
        folded
    }

    /// The line of what stands at a byte.
    fn line_of(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at)
    }
}

fn same(it: char) -> char {
    it
}

/// The sign of the keyboard for signs of typesetting.
fn plain(it: char) -> char {
    match it {
        '\u{2018}'..='\u{201b}' | '\u{2032}' => '\'',
        '\u{201c}'..='\u{201f}' | '\u{2033}' | '\u{ab}' | '\u{bb}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        it => it,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_look_alike_are_found_with_their_line() {
        let (white, signs) = ("white space", "quotation marks, dashes or white space");
        for (text, wanted, expected) in [
            ("a\nif x:  \n\ty\n", "if x:\n    y", Some((1, white))),
            ("\n\n\tfoo\n", "    foo", Some((2, white))),
            ("\n  a\u{a0}b", "a b", Some((1, white))),
            ("x\n say \u{201c}hi\u{201d} \u{2014} it\u{2019}s\n", "say \"hi\" - it's", Some((1, signs))),
            ("abc\n", "abd", None),
            ("a b\n", " \n ", None),
            ("", "x", None),
        ] {
            assert_eq!(find(text, wanted), expected, "{text:?} {wanted:?}");
        }
    }
}
