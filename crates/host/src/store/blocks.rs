//! Whole lines by the block, from either end, for filters that look at many lines at once.

use std::{io, ops::Range};

use memchr::{memchr, memrchr};

use super::lines::{Limits, Source, read_some};

/// Bytes that are read at once: so few that they are still near when they are looked at.
pub(super) const BLOCK: usize = 256 * 1024;

/// Some lines in a row.
#[derive(Debug)]
pub(super) struct Block<'a> {
    /// Where it starts in the file.
    pub(super) start: u64,
    /// Whole lines; the last of the file may lack its newline.
    pub(super) bytes: &'a [u8],
}

/// The lines of a stretch that begins at the start of a line, block by block. Lines that are too long
/// are passed over.
#[derive(Debug)]
pub(super) struct Blocks<'a, S: ?Sized> {
    source: &'a S,
    limits: Limits,
    /// What was not returned.
    range: Range<u64>,
    is_backward: bool,
    buffer: Vec<u8>,
}

impl<'a, S: Source + ?Sized> Blocks<'a, S> {
    pub(super) fn new(source: &'a S, range: Range<u64>, is_backward: bool, limits: Limits) -> Self {
        Self { source, limits, range, is_backward, buffer: Vec::new() }
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Block<'_>>> {
        let mut wanted = self.limits.block;
        loop {
            let left = self.range.end.saturating_sub(self.range.start);
            if left == 0 {
                return Ok(None);
            }
            let size = (wanted as u64).min(left) as usize;
            let start = if self.is_backward { self.range.end - size as u64 } else { self.range.start };
            self.read(start, size)?;
            let bytes = self.buffer.get(..size).unwrap_or_default();
            let whole = if self.is_backward {
                match memchr(b'\n', bytes.get(..size - 1).unwrap_or_default()) {
                    _ if size as u64 == left => Some(0..size),
                    Some(at) => Some(at + 1..size),
                    None => None,
                }
            } else {
                match memrchr(b'\n', bytes) {
                    _ if size as u64 == left => Some(0..size),
                    Some(at) => Some(0..at + 1),
                    None => None,
                }
            };
            match whole {
                Some(whole) => {
                    let start = start + whole.start as u64;
                    if self.is_backward {
                        self.range.end = start;
                    } else {
                        self.range.start = start + whole.len() as u64;
                    }
                    return Ok(Some(Block { start, bytes: self.buffer.get(whole).unwrap_or_default() }));
                }
                None if size > self.limits.max_line => self.skip_line()?,
                // Long lines are read in growing pieces, so that reading them again stays cheap.
                None => wanted = size * 2,
            }
        }
    }

    fn read(&mut self, start: u64, size: usize) -> io::Result<()> {
        if self.buffer.len() < size {
            self.buffer.resize(size, 0);
        }
        let room = self.buffer.get_mut(..size).unwrap_or_default();
        if read_some(self.source, room, start)? < size {
            // Another program made the file shorter.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Passes over a line that is too long.
    fn skip_line(&mut self) -> io::Result<()> {
        // The newline that ends it is no place to stop at.
        let mut end = self.range.end.saturating_sub(1);
        while !self.range.is_empty() {
            if self.is_backward {
                let size = (self.limits.block as u64).min(end - self.range.start) as usize;
                let start = end - size as u64;
                self.read(start, size)?;
                let found = memrchr(b'\n', self.buffer.get(..size).unwrap_or_default());
                self.range.end = found.map_or(start, |it| start + it as u64 + 1);
                end = start;
                if found.is_some() {
                    break;
                }
            } else {
                let start = self.range.start;
                let size = (self.limits.block as u64).min(self.range.end - start) as usize;
                self.read(start, size)?;
                let found = memchr(b'\n', self.buffer.get(..size).unwrap_or_default());
                self.range.start = found.map_or(start + size as u64, |it| start + it as u64 + 1);
                if found.is_some() {
                    break;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &[u8], is_backward: bool, limits: Limits) -> Vec<(u64, Vec<u8>)> {
        let mut blocks = Blocks::new(text, 0..text.len() as u64, is_backward, limits);
        let mut all = Vec::new();
        while let Some(block) = blocks.next().unwrap() {
            all.push((block.start, block.bytes.to_vec()));
        }
        if is_backward {
            all.reverse();
        }
        all
    }

    proptest! {
        #[test]
        fn blocks_hold_whole_lines_from_either_end(text in "[ab\n]{0,80}", block in 1_usize..20, is_backward in any::<bool>()) {
            let limits = Limits { block, max_line: 1000 };
            let mut pos = 0;
            for (start, bytes) in all(text.as_bytes(), is_backward, limits) {
                prop_assert_eq!(start, pos);
                pos += bytes.len() as u64;
                prop_assert!(bytes.ends_with(b"\n") || pos == text.len() as u64);
            }
            prop_assert_eq!(pos, text.len() as u64);
        }

        #[test]
        fn lines_that_are_too_long_hide_no_others(text in "[ab\n]{0,200}", block in 1_usize..8, is_backward in any::<bool>()) {
            let limits = Limits { block, max_line: 8 };
            let short = |text: &[u8]| -> Vec<Vec<u8>> {
                text.split_inclusive(|it| *it == b'\n').filter(|it| it.len() <= 8).map(<[u8]>::to_vec).collect()
            };
            let found: Vec<_> = all(text.as_bytes(), is_backward, limits).iter().flat_map(|it| short(&it.1)).collect();
            prop_assert_eq!(found, short(text.as_bytes()));
        }
    }
}
