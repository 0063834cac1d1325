//! Indexes that are kept: in the process, and those of long tapes beside the tapes.
//!
//! Nothing is lost with them. An index is thrown away when its file was removed, replaced, made
//! shorter or written anew, and made again from the tape.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hasher as _},
    io::{self, Read as _, Write as _},
    ops::Range,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::PathBuf,
    sync::{Arc, PoisonError},
};

use bub_kernel::tape::{TapeError, TapeName, TapeQuery, TapeStats};
use jiff::Timestamp;

use super::{
    Inner, failed,
    index::{Index, Places, Stretch, Whereabouts},
    index_build::extend,
    reader::{Reader, Snapshot, unless_changed},
    writer::make_dir,
};

/// The folder of indexes, in the folder of tapes.
const FOLDER: &str = ".index";
/// Bytes that a tape grows by until its index is written again; reading that much anew takes no time.
const SAVE_BYTES: u64 = 1 << 20;
/// Indexes that a process remembers; beyond that many it forgets all.
const MAX_REMEMBERED: usize = 256;
/// What the files begin with; another number for another layout.
const MAGIC: u64 = u64::from_le_bytes(*b"bubidx\0\x02");
/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Pieces of a tape by which it is recognised, and how long each is.
const N_SAMPLES: u64 = 12;
const SAMPLE_BYTES: u64 = 64;

/// An index and what it was made from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Known {
    pub(super) index: Index,
    print: Print,
    /// Where the index ended when it was written.
    saved_end: u64,
}

/// By what a file is recognised.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Print {
    inode: u64,
    len: u64,
    modified: i64,
    samples: u64,
}

impl Print {
    fn of(file: &File, end: u64) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let modified = metadata.mtime().wrapping_mul(1_000_000_000).wrapping_add(metadata.mtime_nsec());
        Ok(Self { inode: metadata.ino(), len: metadata.len(), modified, samples: samples(file, end)? })
    }

    /// Whether `later` is of the same file, which has at most grown.
    fn has_become(&self, later: &Self) -> bool {
        let is_unchanged = self.len == later.len && self.modified == later.modified;
        self.inode == later.inode && self.samples == later.samples && (is_unchanged || self.len < later.len)
    }
}

/// A hash of some pieces of a file's first part, its last bytes among them.
fn samples(file: &File, end: u64) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    for n in 1..=N_SAMPLES {
        let size = SAMPLE_BYTES.min(end);
        let at = (end / N_SAMPLES).saturating_mul(n).max(size) - size;
        let at = if n == N_SAMPLES { end - size } else { at };
        let mut sample = [0; SAMPLE_BYTES as usize];
        let sample = sample.get_mut(..size as usize).unwrap_or_default();
        match file.read_exact_at(sample, at) {
            Ok(()) => hasher.write(sample),
            // Shorter than it was: recognised as nothing.
            Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => hasher.write_u8(1),
            Err(err) => return Err(err),
        }
    }
    Ok(hasher.finish())
}

impl Inner {
    /// Counts a tape's entries.
    pub(super) fn stats(&self, tape: &TapeName) -> Result<TapeStats, TapeError> {
        let path = self.path(tape);
        let count = || -> io::Result<TapeStats> {
            let Some(Snapshot { file, len }) = Snapshot::open(&path)? else { return Ok(TapeStats::default()) };
            let reader = Reader { store: self, tape, file: &file, len, is_locked: false };
            match self.count(reader)? {
                Some(stats) => Ok(stats),
                None => {
                    self.forget(tape);
                    Ok(self.count(reader)?.unwrap_or_default())
                }
            }
        };
        unless_changed(count).map_err(|err| failed(tape.as_str(), "count", &path, err))
    }

    /// Counts by the index; none when the tape is not the one that was indexed.
    fn count(&self, reader: Reader<'_>) -> io::Result<Option<TapeStats>> {
        let (known, open) = self.index(reader)?;
        let joined = open.map(|open| {
            let mut index = known.index.clone();
            index.join(open);
            index
        });
        let index = joined.as_ref().unwrap_or(&known.index);
        let last_anchor = match index.anchors.kept.last() {
            None => None,
            Some((start, _)) => match reader.entry_at(*start)? {
                Some(entry) if entry.is_anchor(None) => entry.name().map(str::to_owned),
                _ => return Ok(None),
            },
        };
        Ok(Some(TapeStats {
            entries: index.n_entries,
            anchors: index.n_anchors,
            last_anchor,
            entries_since_last_anchor: index.n_since_anchor,
            last_id: index.last_id,
        }))
    }

    /// The index of a tape's whole lines, and what follows them.
    pub(super) fn index(&self, reader: Reader<'_>) -> io::Result<(Arc<Known>, Option<Index>)> {
        let Reader { tape, file, len, .. } = reader;
        let remembered = self.indexes.lock().unwrap_or_else(PoisonError::into_inner).get(tape).cloned();
        let known = match remembered {
            Some(known) if known.is_of(file)? => Some(known),
            _ if len >= SAVE_BYTES => self.load(tape).filter(|it| it.is_of(file).unwrap_or_default()).map(Arc::new),
            _ => None,
        };
        if let Some(known) = known.as_ref().filter(|it| it.index.end >= len) {
            self.remember(tape, known);
            return Ok((known.clone(), None));
        }
        let (index, saved_end) = known.map_or((Index::empty(0), 0), |it| (it.index.clone(), it.saved_end));
        let mut index = Index { damaged: Vec::new(), ..index };
        let open = extend(&mut index, file, len)?;
        for start in &index.damaged {
            reader.report_at(*start, true);
        }
        for start in open.iter().flat_map(|it| &it.damaged) {
            reader.report_at(*start, false);
        }
        let print = Print { len, ..Print::of(file, index.end)? };
        let mut known = Known { index, print, saved_end };
        if known.index.end - known.saved_end >= SAVE_BYTES {
            match self.save(tape, &known) {
                Ok(()) => known.saved_end = known.index.end,
                Err(err) => tracing::debug!(tape = %tape, error = %err, "the index was not kept"),
            }
        }
        let known = Arc::new(known);
        self.remember(tape, &known);
        Ok((known, open))
    }

    fn remember(&self, tape: &TapeName, known: &Arc<Known>) {
        let mut all = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_REMEMBERED && !all.contains_key(tape) {
            all.clear();
        }
        all.insert(tape.clone(), known.clone());
    }

    /// Before which place no entry lies within a query's ids and dates.
    pub(super) fn first_place(&self, reader: Reader<'_>, bounds: &TapeQuery) -> io::Result<u64> {
        let (known, _) = self.index(reader)?;
        let first = match known.index.whereabouts(bounds) {
            Some(Whereabouts::In(ranges)) => ranges.first().map_or(known.index.end, |it| it.start),
            Some(Whereabouts::At { .. }) | None => 0,
        };
        Ok(first.min(reader.len))
    }

    /// Forgets the index of a tape that was replaced or that is not what the index says.
    pub(super) fn forget(&self, tape: &TapeName) {
        self.indexes.lock().unwrap_or_else(PoisonError::into_inner).remove(tape);
        // Where there is none, or it can't be removed, it will not fit the tape.
        drop(fs::remove_file(self.index_path(tape)));
    }

    fn index_path(&self, tape: &TapeName) -> PathBuf {
        self.dir.join(FOLDER).join(format!("{tape}.idx"))
    }

    fn save(&self, tape: &TapeName, known: &Known) -> io::Result<()> {
        let path = self.index_path(tape);
        let folder = self.dir.join(FOLDER);
        make_dir(&folder)?;
        let mut file = tempfile::Builder::new().prefix(".").suffix(".tmp").tempfile_in(&folder)?;
        file.write_all(&known.to_bytes())?;
        // Half an index, as a crash may leave it, is not taken for a whole one, so nothing waits for the disk.
        file.persist(path).map_err(|err| err.error)?;
        Ok(())
    }

    fn load(&self, tape: &TapeName) -> Option<Known> {
        let file = File::open(self.index_path(tape)).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        Known::from_bytes(&bytes)
    }
}

impl Known {
    /// Whether the file still begins with what was indexed.
    fn is_of(&self, file: &File) -> io::Result<bool> {
        Ok(self.print.has_become(&Print::of(file, self.index.end)?))
    }

    fn to_bytes(&self) -> Vec<u8> {
        let (index, print) = (&self.index, &self.print);
        let mut words = vec![MAGIC, print.inode, print.len, print.modified as u64, print.samples];
        words.extend([index.end, index.n_entries, index.n_anchors, index.n_since_anchor, index.last_id]);
        words.extend([index.anchors.floor, index.anchors.kept.len() as u64]);
        words.extend(index.anchors.kept.iter().flat_map(|(start, name)| [*start, *name]));
        words.extend([index.events_floor, index.events.len() as u64]);
        for (name, places) in &index.events {
            words.extend([*name, places.floor, places.kept.len() as u64]);
            words.extend(places.kept.iter().map(|(start, _)| *start));
        }
        words.extend([index.stretch_bytes, index.stretches.len() as u64]);
        for it in &index.stretches {
            words.extend([it.start, it.ids.0, it.ids.1]);
            match it.dates {
                Some((first, last)) => {
                    words.extend([1, first.as_microsecond() as u64, last.as_microsecond() as u64]);
                }
                None => words.extend([0; 3]),
            }
        }
        let mut bytes: Vec<u8> = words.iter().flat_map(|it| it.to_le_bytes()).collect();
        let sum = checksum(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// Reads what [`Known::to_bytes`] wrote; none when it is damaged or of another release.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk::<8>()?;
        if checksum(body) != u64::from_le_bytes(*sum) {
            return None;
        }
        let mut words = Words { rest: body };
        if words.next()? != MAGIC {
            return None;
        }
        let print =
            Print { inode: words.next()?, len: words.next()?, modified: words.next()? as i64, samples: words.next()? };
        let mut index = Index {
            end: words.next()?,
            n_entries: words.next()?,
            n_anchors: words.next()?,
            n_since_anchor: words.next()?,
            last_id: words.next()?,
            ..Index::default()
        };
        index.anchors.floor = words.next()?;
        for _ in words.count(2)? {
            index.anchors.kept.push((words.next()?, words.next()?));
        }
        index.events_floor = words.next()?;
        for _ in words.count(3)? {
            let name = words.next()?;
            let mut places = Places { floor: words.next()?, kept: Vec::new() };
            for _ in words.count(1)? {
                places.kept.push((words.next()?, name));
            }
            index.events.insert(name, places);
        }
        index.stretch_bytes = words.next()?;
        for _ in words.count(6)? {
            let (start, ids) = (words.next()?, (words.next()?, words.next()?));
            let (has_dates, first, last) = (words.next()?, words.next()? as i64, words.next()? as i64);
            let moment = |it| Timestamp::from_microsecond(it).ok();
            let dates = if has_dates == 1 { Some((moment(first)?, moment(last)?)) } else { None };
            index.stretches.push(Stretch { start, ids, dates });
        }
        let saved_end = index.end;
        words.rest.is_empty().then_some(Self { index, print, saved_end })
    }
}

/// Numbers that were written one after the other.
struct Words<'a> {
    rest: &'a [u8],
}

impl Words<'_> {
    fn next(&mut self) -> Option<u64> {
        let (word, rest) = self.rest.split_first_chunk::<8>()?;
        self.rest = rest;
        Some(u64::from_le_bytes(*word))
    }

    /// A number of things of at least `n_words` each, for which there is room.
    fn count(&mut self, n_words: u64) -> Option<Range<u64>> {
        let n = self.next()?;
        (n <= self.rest.len() as u64 / 8 / n_words).then_some(0..n)
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
