//! Counting entries: once over the whole file, then only over what is new.

use std::{
    fs::Metadata,
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    sync::PoisonError,
};

use bub_kernel::tape::{Entry, TapeError, TapeName, TapeStats};

use super::{
    Inner, failed,
    reader::{Reader, Snapshot},
};

/// Bytes before the counted part's end by which it is recognised.
const N_MARK_BYTES: u64 = 64;
/// Tapes whose counts are remembered; beyond that many they are forgotten and counted anew.
const MAX_REMEMBERED: usize = 1024;

/// The counts of a file's first part.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    file: (u64, u64),
    /// Where the counted part ends: behind a newline.
    end: u64,
    /// The last bytes of the counted part.
    mark: Vec<u8>,
    stats: TapeStats,
}

impl Inner {
    /// Counts a tape's entries.
    pub(super) fn stats(&self, tape: &TapeName) -> Result<TapeStats, TapeError> {
        let path = self.path(tape);
        let count = || -> io::Result<TapeStats> {
            let Some(Snapshot { file, len }) = Snapshot::open(&path)? else { return Ok(TapeStats::default()) };
            let reader = Reader { store: self, tape, file: &file, len, is_locked: false };
            let identity = identity(&file.metadata()?);
            let remembered = self.counts.lock().unwrap_or_else(PoisonError::into_inner).get(tape).cloned();
            let mut counted = match remembered {
                Some(it) if it.file == identity && it.end <= len && mark(reader, it.end)? == it.mark => it,
                _ => Counted { file: identity, end: 0, mark: Vec::new(), stats: TapeStats::default() },
            };
            // A last line without a newline may still grow, so it counts but is not remembered.
            let mut open = None;
            let mut lines = reader.forward(counted.end..len, None);
            while let Some(line) = lines.next()? {
                let mut stats = counted.stats.clone();
                if let Some(peek) = reader.peek(&line) {
                    let name = || Entry::from_line(line.bytes).and_then(|it| it.name().map(str::to_owned));
                    add(&mut stats, peek.id, peek.is_anchor.then(name));
                }
                if line.is_ended {
                    (counted.stats, counted.end) = (stats, line.next);
                } else {
                    open = Some(stats);
                }
            }
            counted.mark = mark(reader, counted.end)?;
            let stats = open.unwrap_or_else(|| counted.stats.clone());
            let mut all = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() >= MAX_REMEMBERED && !all.contains_key(tape) {
                all.clear();
            }
            all.insert(tape.clone(), counted);
            Ok(stats)
        };
        count().map_err(|err| failed(tape.as_str(), "count", &path, err))
    }
}

/// Counts one entry; `anchor` is the name of an anchor, if it is one and has one.
fn add(stats: &mut TapeStats, id: u64, anchor: Option<Option<String>>) {
    stats.entries += 1;
    stats.last_id = id;
    match anchor {
        Some(name) => {
            stats.anchors += 1;
            stats.last_anchor = name;
            stats.entries_since_last_anchor = 0;
        }
        None => stats.entries_since_last_anchor += 1,
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

fn mark(reader: Reader<'_>, end: u64) -> io::Result<Vec<u8>> {
    let size = end.min(N_MARK_BYTES);
    let mut bytes = vec![0; size as usize];
    match reader.file.read_exact_at(&mut bytes, end - size) {
        Ok(()) => Ok(bytes),
        // Shorter than it was: nothing that could be recognised.
        Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => Ok(Vec::new()),
        Err(err) => Err(err),
    }
}
