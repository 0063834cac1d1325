//! What two texts have in common, by their letters.

use crate::tape::fuzzy::{MAX_PHRASE_BYTES, symbol};

/// Symbols of words, and the blank between them.
const N_LETTERS: usize = 40;

/// How many bytes a window has in common with a text, in any order.
#[derive(Debug)]
pub(super) struct Overlap {
    /// For each letter, how many more the text has than the window.
    left: [i32; N_LETTERS + 1],
    pub(super) common: usize,
}

impl Overlap {
    pub(super) fn new(text: &Bits) -> Self {
        Self { left: text.counts.map(i32::from), common: 0 }
    }

    pub(super) fn add(&mut self, word: &[u8], letters: &Letters) {
        for byte in word {
            if let Some(left) = self.left.get_mut(letters.of(*byte)) {
                self.common += usize::from(*left > 0);
                *left -= 1;
            }
        }
    }

    pub(super) fn remove(&mut self, word: &[u8], letters: &Letters) {
        for byte in word {
            if let Some(left) = self.left.get_mut(letters.of(*byte)) {
                *left += 1;
                self.common -= usize::from(*left > 0);
            }
        }
    }
}

/// The number of each byte, in either case, among the symbols of words and the blank.
#[derive(Debug)]
pub(super) struct Letters(Box<[u8; 256]>);

impl Letters {
    pub(super) fn new() -> Self {
        let mut letters = Box::new([N_LETTERS as u8; 256]);
        for (byte, letter) in (0_u8..=255).zip(letters.iter_mut()) {
            match symbol(byte.to_ascii_lowercase()) {
                Some(it) => *letter = it as u8,
                None if byte == b' ' => *letter = N_LETTERS as u8 - 1,
                None => {}
            }
        }
        Self(letters)
    }

    pub(super) fn of(&self, byte: u8) -> usize {
        usize::from(self.0.get(usize::from(byte)).copied().unwrap_or_default())
    }
}

/// A text of at most 128 bytes: for each letter, where the text has it.
#[derive(Debug)]
pub(super) struct Bits {
    places: [u128; N_LETTERS + 1],
    counts: [u8; N_LETTERS + 1],
    /// The places that the text has.
    all: u128,
}

impl Bits {
    pub(super) fn new(text: &[u8], letters: &Letters) -> Self {
        let mut bits = Self { places: [0; N_LETTERS + 1], counts: [0; N_LETTERS + 1], all: 0 };
        for (n, byte) in text.iter().enumerate().take(MAX_PHRASE_BYTES) {
            let letter = letters.of(*byte);
            bits.all |= 1 << n;
            if let (Some(places), Some(count)) = (bits.places.get_mut(letter), bits.counts.get_mut(letter)) {
                *places |= 1 << n;
                *count += 1;
            }
        }
        bits
    }

    /// How many bytes another text has in common with this one, in any order.
    pub(super) fn common(&self, letters: &Letters, other: impl Iterator<Item = u8>) -> usize {
        let mut left = self.counts;
        let mut common = 0;
        for byte in other {
            if let Some(left) = left.get_mut(letters.of(byte)) {
                common += usize::from(*left > 0);
                *left = left.saturating_sub(1);
            }
        }
        common
    }

    /// Whether the longest common subsequence with another text is long enough: a bit for each place of
    /// this text, a few operations for each byte of the other (Hyyrö 2004).
    pub(super) fn has_subsequence(&self, letters: &Letters, other: &[u8], is_enough: impl Fn(usize) -> bool) -> bool {
        let mut n_left = other.len();
        let mut n_common = 0;
        let mut row = u128::MAX;
        for bytes in other.chunks(8) {
            for byte in bytes {
                let places = self.places.get(letters.of(*byte)).copied().unwrap_or_default();
                let matched = row & places;
                row = row.wrapping_add(matched) | (row - matched);
            }
            n_left -= bytes.len();
            n_common = (!row & self.all).count_ones() as usize;
            // Each byte that is left adds one at most.
            if !is_enough(n_common + n_left) {
                return false;
            }
        }
        is_enough(n_common)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn common_subsequences_are_those_of_the_library(one in "[a-d ]{1,128}", other in "[a-d ]{0,150}") {
            let letters = Letters::new();
            let expected = rapidfuzz::distance::lcs_seq::similarity(one.bytes(), other.bytes());
            let bits = Bits::new(one.as_bytes(), &letters);
            prop_assert!(bits.has_subsequence(&letters, other.as_bytes(), |it| it >= expected));
            prop_assert!(!bits.has_subsequence(&letters, other.as_bytes(), |it| it > expected));
            prop_assert!(bits.common(&letters, other.bytes()) >= expected);
        }
    }
}
