//! Making an index, with all processors when there is much to read.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    ops::Range,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
};

use bub_kernel::tape::{Entry, trim_line};
use memchr::{memchr, memrchr};

use super::{
    index::{Index, PartBuilder},
    lines::{Forward, Limits, Line, read_some},
    shape::shape,
};

/// Bytes of a part that one thread indexes at a time.
const PART_BYTES: u64 = 1 << 20;
/// The most threads that index one tape.
const MAX_THREADS: usize = 8;
/// Bytes that are read at once when a newline is looked for.
const PIECE: u64 = 16 * 1024;

/// Adds the lines from the index's end to `len`. What follows the last newline may still grow, so it gets
/// an index of its own, as if it were ended.
pub(super) fn extend(index: &mut Index, file: &File, len: u64) -> io::Result<Option<Index>> {
    let start = index.end;
    let end = last_line_start(file, start..len)?;
    let n_parts = (end - start).div_ceil(PART_BYTES);
    let part = |n: u64| {
        let start = start + n * PART_BYTES;
        index_part(file, start..(start + PART_BYTES).min(end), n == 0, end)
    };
    let n_threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS).min(n_parts as usize);
    if n_threads <= 1 {
        for n in 0..n_parts {
            index.join(part(n)?);
        }
    } else {
        join_in_parallel(index, n_parts, n_threads, &part)?;
    }
    index.end = end;
    if end == len {
        return Ok(None);
    }
    let mut builder = PartBuilder::new(end);
    if let Some(line) = Forward::new(file, end..len, None, Limits::default()).next()? {
        add_line(&mut builder, &line);
    }
    Ok(Some(builder.finish(len)))
}

/// Joins parts in their order, made in any order.
fn join_in_parallel(
    index: &mut Index,
    n_parts: u64,
    n_threads: usize,
    part: &(impl Fn(u64) -> io::Result<Index> + Sync),
) -> io::Result<()> {
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        let (tx, rx) = mpsc::sync_channel(n_threads);
        for _ in 0..n_threads {
            let (tx, next) = (tx.clone(), &next);
            scope.spawn(move || {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    // Nobody listens after a failure.
                    if n >= n_parts || tx.send((n, part(n))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(tx);
        let mut waiting = BTreeMap::new();
        let mut n_joined = 0;
        for (n, done) in rx {
            waiting.insert(n, done?);
            while let Some(ready) = waiting.remove(&n_joined) {
                index.join(ready);
                n_joined += 1;
            }
        }
        // A thread that ended early, by a panic, would leave a hole.
        if n_joined == n_parts { Ok(()) } else { Err(io::Error::other("indexing was not finished")) }
    })
}

/// Indexes the lines that start in a part; the last of them may end behind it.
fn index_part(file: &File, part: Range<u64>, is_first: bool, end: u64) -> io::Result<Index> {
    let mut builder = PartBuilder::new(part.start);
    let start = if is_first { Some(part.start) } else { next_line(file, part.clone())? };
    if let Some(start) = start {
        let mut lines = Forward::new(file, start..end, None, Limits::default());
        while let Some(line) = lines.next()?.filter(|it| it.start < part.end) {
            add_line(&mut builder, &line);
        }
    }
    Ok(builder.finish(part.end))
}

fn add_line(builder: &mut PartBuilder, line: &Line<'_>) {
    if let Some(shape) = shape(line.bytes) {
        builder.add_shape(line.start, &shape);
    } else if let Some(entry) = Entry::from_line(line.bytes) {
        builder.add_entry(line.start, &entry);
    } else if line.is_too_long || !trim_line(line.bytes).is_empty() {
        builder.add_damaged(line.start);
    }
}

/// Where the first line in a part starts, if one does.
pub(super) fn next_line(file: &File, part: Range<u64>) -> io::Result<Option<u64>> {
    let mut piece = [0; PIECE as usize];
    let mut at = part.start.saturating_sub(1);
    if part.start == 0 {
        return Ok(Some(0));
    }
    // A newline that is the part's last byte begins a line of the next part.
    while at + 1 < part.end {
        let size = PIECE.min(part.end - 1 - at) as usize;
        let n = read_some(file, piece.get_mut(..size).unwrap_or_default(), at)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(found) = memchr(b'\n', piece.get(..n).unwrap_or_default()) {
            return Ok(Some(at + found as u64 + 1));
        }
        at += n as u64;
    }
    Ok(None)
}

/// Where the last line in a stretch starts: behind the last newline, or at the stretch's start.
fn last_line_start(file: &File, range: Range<u64>) -> io::Result<u64> {
    let mut piece = [0; PIECE as usize];
    let mut end = range.end;
    while end > range.start {
        let size = PIECE.min(end - range.start);
        let start = end - size;
        let room = piece.get_mut(..size as usize).unwrap_or_default();
        if read_some(file, room, start)? < room.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(found) = memrchr(b'\n', room) {
            return Ok(start + found as u64 + 1);
        }
        end = start;
    }
    Ok(range.start)
}
