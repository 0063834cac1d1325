//! What is known of a tape without reading it again: counts, where its anchors and events are, and
//! what each of its stretches holds.
//!
//! An index is a cache of the file and bounded in size, however long the tape is. Places that it gives
//! are looked at before they are believed.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::Range,
};

use bub_kernel::tape::{self, EntryKind, TapeQuery};
use jiff::Timestamp;

use super::shape::Shape;

/// Anchors whose places are kept: the newest.
const MAX_ANCHORS: usize = 4096;
/// Names of events that are kept apart.
const MAX_EVENT_NAMES: usize = 256;
/// Events of one name whose places are kept: the newest.
const MAX_EVENTS: usize = 64;
/// Stretches of a tape; when there are more, each two become one.
const MAX_STRETCHES: usize = 512;
/// Bytes of a stretch of a tape that has few.
const STRETCH_BYTES: u64 = 256 * 1024;
/// Damaged lines that are told of.
pub(super) const MAX_DAMAGED: usize = 32;
/// Bytes of a date as tapes have it: `2026-01-02T03:04:05.123456+00:00`.
const N_DATE_BYTES: usize = 32;

/// A name, as an index keeps it.
pub(super) type NameHash = u64;

/// The hash of an entry's name, or of its absence.
pub(super) fn hash_name(name: Option<&[u8]>) -> NameHash {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// What an index says about a stretch that begins and ends with a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Index {
    /// Where it ends.
    pub(super) end: u64,
    pub(super) n_entries: u64,
    pub(super) n_anchors: u64,
    /// Entries behind the last anchor; all, when there is none.
    pub(super) n_since_anchor: u64,
    pub(super) last_id: u64,
    pub(super) anchors: Places,
    pub(super) events: BTreeMap<NameHash, Places>,
    /// Below this, events whose name is not among the kept ones may be anywhere.
    pub(super) events_floor: u64,
    pub(super) stretches: Vec<Stretch>,
    pub(super) stretch_bytes: u64,
    /// Where damaged lines start; not kept beyond the process.
    pub(super) damaged: Vec<u64>,
}

/// Where lines of one sort start.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Places {
    /// Below this there may be more.
    pub(super) floor: u64,
    /// Where they start, and their names; first to last.
    pub(super) kept: Vec<(u64, NameHash)>,
}

/// What lies in a stretch of the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stretch {
    /// Where its first entry starts; it ends where the next one starts.
    pub(super) start: u64,
    pub(super) ids: (u64, u64),
    /// The earliest and the latest date; none when some date is not of the usual form.
    pub(super) dates: Option<(Timestamp, Timestamp)>,
}

/// Where the entries of a query can be.
#[derive(Debug, PartialEq)]
pub(super) enum Whereabouts {
    /// At these places, and anywhere before `floor`.
    At { floor: u64, starts: Vec<u64> },
    /// In these stretches.
    In(Vec<Range<u64>>),
}

impl Places {
    fn push(&mut self, start: u64, name: NameHash) {
        self.kept.push((start, name));
    }

    /// Takes in what comes behind, and keeps the newest.
    fn join(&mut self, next: Self, max: usize) {
        if next.floor > self.floor {
            self.floor = next.floor;
        }
        self.kept.extend(next.kept);
        if self.kept.len() > max {
            let n_gone = self.kept.len() - max;
            if let Some((last, _)) = self.kept.drain(..n_gone).next_back() {
                self.floor = last + 1;
            }
        }
    }
}

impl Index {
    /// An index of nothing, from which one of the stretch that starts there is made.
    pub(super) fn empty(start: u64) -> Self {
        Self { end: start, stretch_bytes: STRETCH_BYTES, ..Self::default() }
    }

    /// The index of a part, made by [`PartBuilder`], comes behind.
    pub(super) fn join(&mut self, next: Self) {
        if next.n_anchors > 0 {
            self.n_since_anchor = next.n_since_anchor;
        } else {
            self.n_since_anchor += next.n_since_anchor;
        }
        if next.n_entries > 0 {
            self.last_id = next.last_id;
        }
        self.n_entries += next.n_entries;
        self.n_anchors += next.n_anchors;
        self.anchors.join(next.anchors, MAX_ANCHORS);
        for (name, places) in next.events {
            let n_names = self.events.len();
            match self.events.entry(name) {
                Entry::Occupied(mut known) => known.get_mut().join(places, MAX_EVENTS),
                Entry::Vacant(free) if n_names < MAX_EVENT_NAMES => {
                    // Of a new name there were none before, unless names had to be left out.
                    let known = free.insert(Places { floor: self.events_floor, kept: Vec::new() });
                    known.join(places, MAX_EVENTS);
                }
                Entry::Vacant(_) => self.events_floor = next.end,
            }
        }
        for stretch in next.stretches {
            self.push_stretch(stretch);
        }
        self.end = self.end.max(next.end);
        self.damaged.extend(next.damaged);
        self.damaged.truncate(MAX_DAMAGED);
    }

    fn push_stretch(&mut self, next: Stretch) {
        match self.stretches.last_mut() {
            Some(last) if next.start - last.start < self.stretch_bytes => *last = last.with(&next),
            _ => self.stretches.push(next),
        }
        if self.stretches.len() > MAX_STRETCHES {
            self.stretch_bytes *= 2;
            let halved = self.stretches.chunks(2).filter_map(|it| match it {
                [one, other] => Some(one.with(other)),
                [one] => Some(*one),
                _ => None,
            });
            self.stretches = halved.collect();
        }
    }

    /// Where the entries of a query can be in the indexed part; none when the index can't tell.
    pub(super) fn whereabouts(&self, query: &TapeQuery) -> Option<Whereabouts> {
        let hashes: Vec<_> = query.names.iter().map(|it| hash_name(Some(it.as_bytes()))).collect();
        match query.kinds.as_slice() {
            [EntryKind::Anchor] => Some(self.anchors(|it| hashes.is_empty() || hashes.contains(&it))),
            [EntryKind::Event] if !hashes.is_empty() => Some(self.events(&hashes)),
            _ if query.from.is_some() || query.to.is_some() || query.ids.is_some() => Some(self.stretches_of(query)),
            _ => None,
        }
    }

    /// Where the anchors of some names are.
    pub(super) fn anchors(&self, is_wanted: impl Fn(NameHash) -> bool) -> Whereabouts {
        let starts = self.anchors.kept.iter().filter(|(_, name)| is_wanted(*name)).map(|(start, _)| *start).collect();
        Whereabouts::At { floor: self.anchors.floor, starts }
    }

    fn events(&self, names: &[NameHash]) -> Whereabouts {
        let mut floor = 0;
        let mut starts = Vec::new();
        for name in names {
            match self.events.get(name) {
                Some(places) => {
                    floor = floor.max(places.floor);
                    starts.extend(places.kept.iter().map(|(start, _)| *start));
                }
                None => floor = floor.max(self.events_floor),
            }
        }
        starts.sort_unstable();
        starts.dedup();
        starts.retain(|it| *it >= floor);
        Whereabouts::At { floor, starts }
    }

    fn stretches_of(&self, query: &TapeQuery) -> Whereabouts {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let ends = self.stretches.iter().skip(1).map(|it| it.start).chain([self.end]);
        for (stretch, end) in self.stretches.iter().zip(ends) {
            if !stretch.may_hold(query) {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if last.end == stretch.start => last.end = end,
                _ => ranges.push(stretch.start..end),
            }
        }
        Whereabouts::In(ranges)
    }
}

impl Stretch {
    /// Both in one.
    fn with(&self, next: &Self) -> Self {
        let dates = self.dates.zip(next.dates).map(|(one, other)| (one.0.min(other.0), one.1.max(other.1)));
        Self { start: self.start.min(next.start), ids: (self.ids.0.min(next.ids.0), self.ids.1.max(next.ids.1)), dates }
    }

    fn may_hold(&self, query: &TapeQuery) -> bool {
        let ids = query.ids.as_ref().is_none_or(|it| *it.start() <= self.ids.1 && *it.end() >= self.ids.0);
        let dates = self.dates.is_none_or(|(first, last)| {
            query.from.is_none_or(|it| it <= last) && query.to.is_none_or(|it| it >= first)
        });
        ids && dates
    }
}

/// Makes the index of a part, line by line.
#[derive(Debug)]
pub(super) struct PartBuilder {
    index: Index,
    ids: (u64, u64),
    dates: Dates,
    /// Where the first entry starts.
    start: u64,
}

impl PartBuilder {
    pub(super) fn new(start: u64) -> Self {
        Self { index: Index::empty(start), ids: (u64::MAX, 0), dates: Dates::default(), start }
    }

    /// A line of the usual layout.
    pub(super) fn add_shape(&mut self, start: u64, shape: &Shape<'_>) {
        let kind = match shape.kind {
            b"anchor" => Some(EntryKind::Anchor),
            b"event" => Some(EntryKind::Event),
            _ => None,
        };
        self.add(start, shape.id, kind.as_ref(), shape.name, shape.date);
    }

    /// A line that was parsed.
    pub(super) fn add_entry(&mut self, start: u64, entry: &tape::Entry) {
        self.add(start, entry.id, Some(&entry.kind), entry.name().map(str::as_bytes), entry.date.as_bytes());
    }

    /// A line that is no entry.
    pub(super) fn add_damaged(&mut self, start: u64) {
        if self.index.damaged.len() < MAX_DAMAGED {
            self.index.damaged.push(start);
        }
    }

    fn add(&mut self, start: u64, id: u64, kind: Option<&EntryKind>, name: Option<&[u8]>, date: &[u8]) {
        let index = &mut self.index;
        if index.n_entries == 0 {
            // A part may begin within a line; what lies in a stretch is read from the start of one.
            self.start = start;
        }
        index.n_entries += 1;
        index.n_since_anchor += 1;
        index.last_id = id;
        match kind {
            Some(EntryKind::Anchor) => {
                index.n_anchors += 1;
                index.n_since_anchor = 0;
                index.anchors.push(start, hash_name(name));
            }
            // Only events with a name are asked for by name.
            Some(EntryKind::Event) if name.is_some() => {
                let name = hash_name(name);
                let places = index.events.entry(name).or_default();
                places.push(start, name);
                if places.kept.len() > 4 * MAX_EVENTS {
                    places.join(Places::default(), MAX_EVENTS);
                }
            }
            _ => {}
        }
        self.ids = (self.ids.0.min(id), self.ids.1.max(id));
        self.dates.add(date);
    }

    /// The index of the part, which ends there.
    pub(super) fn finish(mut self, end: u64) -> Index {
        if self.index.n_entries > 0 {
            self.index.stretches.push(Stretch { start: self.start, ids: self.ids, dates: self.dates.range() });
        }
        self.index.end = end;
        self.index
    }
}

/// The earliest and the latest of some dates, compared as they are written.
#[derive(Debug, Default)]
struct Dates {
    range: Option<([u8; N_DATE_BYTES], [u8; N_DATE_BYTES])>,
    has_odd: bool,
}

impl Dates {
    fn add(&mut self, date: &[u8]) {
        let Ok(date) = <[u8; N_DATE_BYTES]>::try_from(date) else {
            self.has_odd = true;
            return;
        };
        let [
            _,
            _,
            _,
            _,
            b'-',
            _,
            _,
            b'-',
            _,
            _,
            b'T',
            _,
            _,
            b':',
            _,
            _,
            b':',
            b'0'..=b'5',
            _,
            b'.',
            ..,
            b'+',
            b'0',
            b'0',
            b':',
            b'0',
            b'0',
        ] = date
        else {
            self.has_odd = true;
            return;
        };
        match &mut self.range {
            Some((first, last)) => {
                if date < *first {
                    *first = date;
                }
                if date > *last {
                    *last = date;
                }
            }
            None => self.range = Some((date, date)),
        }
    }

    fn range(&self) -> Option<(Timestamp, Timestamp)> {
        let (first, last) = self.range.as_ref().filter(|_| !self.has_odd)?;
        let parse = |date: &[u8]| str::from_utf8(date).ok()?.parse::<Timestamp>().ok();
        // Dates that are none never fit a query; others lie between the first and the last one.
        Some((parse(first)?, parse(last)?))
    }
}
