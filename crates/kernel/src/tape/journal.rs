//! What of a fork outlives its process: a record beside the tape, and what is made of it later.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Entry, EntryKind, NewEntry, TapeName, memory::push_numbered};
use crate::clock::{FixedClock, iso};

/// One fork's record beside its tape. It is written as the fork is, so that what the fork holds can be
/// merged even when the process is killed.
///
/// A journal is a safety net: failing to write it is reported by itself and fails nothing else.
pub trait Journal: Send + Sync {
    /// Notes what the fork has just been told. Returns when a killed process would no longer lose it.
    fn record(&self, record: Record<'_>);
    /// Removes the journal: what it holds was merged, or is not wanted.
    fn close(&self);
    /// Leaves the journal to whoever opens the tape next.
    fn leave(&self);
}

/// What a fork is told.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    /// Entries are appended.
    Append {
        /// To the forked tape or one of its sidecars.
        tape: &'a TapeName,
        /// The entries.
        entries: &'a [Arc<Entry>],
    },
    /// A tape is emptied, and begins anew with some entries or none.
    Replace {
        /// The forked tape or one of its sidecars.
        tape: &'a TapeName,
        /// The entries.
        entries: &'a [Arc<Entry>],
    },
    /// Entries are foreseen, in place of those that were.
    Foresee {
        /// How many of the entries that were foreseen before stay.
        n_kept: usize,
        /// The entries behind them.
        entries: &'a [Arc<Entry>],
    },
    /// One result of the foreseen calls is known.
    Result {
        /// Which, in the order of the calls.
        position: usize,
        /// The result.
        result: &'a Value,
        /// When.
        date: &'a str,
    },
    /// What was foreseen has come: entries are appended, and nothing is foreseen any more.
    Settle {
        /// To which tape.
        tape: &'a TapeName,
        /// How many of the foreseen entries are appended as they are.
        n_kept: usize,
        /// The entries behind them.
        entries: &'a [Arc<Entry>],
    },
}

/// What a fork holds for one tape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PendingTape {
    /// Whether the entries that the tape has are hidden, and go when the fork is merged.
    pub is_reset: bool,
    /// New entries, with ids of their own until the tape numbers them.
    pub entries: Vec<Arc<Entry>>,
}

/// What a fork holds: what it was told by and by. A journal that is read again gives the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pending {
    /// By tape: the forked one and its sidecars.
    pub tapes: BTreeMap<TapeName, PendingTape>,
    /// What is to stand on the forked tape if nothing else comes.
    pub foreseen: Vec<Arc<Entry>>,
}

impl Pending {
    /// Takes in what the fork is told.
    pub fn apply(&mut self, record: Record<'_>) {
        match record {
            Record::Append { tape, entries } => push_numbered(&mut self.tape(tape).entries, entries),
            Record::Replace { tape, entries } => {
                let mut fresh = PendingTape { is_reset: true, entries: Vec::new() };
                push_numbered(&mut fresh.entries, entries);
                self.tapes.insert(tape.clone(), fresh);
            }
            Record::Foresee { n_kept, entries } => {
                self.foreseen.truncate(n_kept);
                self.foreseen.extend_from_slice(entries);
            }
            Record::Result { position, result, date } => {
                let entry = self.foreseen.iter_mut().rfind(|it| it.kind == EntryKind::ToolResult);
                let Some(entry) = entry.map(Arc::make_mut) else { return };
                let results = entry.payload.get_mut("results").and_then(Value::as_array_mut);
                if let Some(known) = results.and_then(|it| it.get_mut(position)) {
                    known.clone_from(result);
                    date.clone_into(&mut entry.date);
                }
            }
            Record::Settle { tape, n_kept, entries } => {
                let mut foreseen = std::mem::take(&mut self.foreseen);
                foreseen.truncate(n_kept);
                let known = &mut self.tape(tape).entries;
                push_numbered(known, &foreseen);
                push_numbered(known, entries);
            }
        }
    }

    /// How many of the foreseen entries `entries` begins with; when they were made does not count.
    #[must_use]
    pub fn n_foreseen(&self, entries: &[Arc<Entry>]) -> usize {
        let is_same =
            |(a, b): &(&Arc<Entry>, &Arc<Entry>)| a.kind == b.kind && a.payload == b.payload && a.meta == b.meta;
        self.foreseen.iter().zip(entries).take_while(is_same).count()
    }

    /// What is missing on the forked tape `main` when the process ended before the fork was merged:
    /// what was foreseen, and the ends of the step and the turn that were running.
    #[must_use]
    pub fn missing(&self, main: &TapeName, now: Timestamp) -> Vec<Arc<Entry>> {
        let held = self.tapes.get(main).map(|it| it.entries.as_slice()).unwrap_or_default();
        let mut missing = self.foreseen.clone();
        let all: Vec<_> = held.iter().chain(&missing).cloned().collect();
        missing.extend(ends(&all, now).into_iter().map(|it| Arc::new(it.dated(&FixedClock(now)))));
        missing
    }

    fn tape(&mut self, name: &TapeName) -> &mut PendingTape {
        self.tapes.entry(name.clone()).or_default()
    }
}

/// The events that end what was running when `entries` broke off.
fn ends(entries: &[Arc<Entry>], now: Timestamp) -> Vec<NewEntry> {
    let last = |entries: &[Arc<Entry>], name: &str| {
        entries.iter().rposition(|it| it.kind == EntryKind::Event && it.name() == Some(name))
    };
    let Some(turn) = last(entries, "loop.start").and_then(|it| entries.get(it..)) else { return Vec::new() };
    if last(turn, "loop.finish").is_some() {
        return Vec::new();
    }
    let mut ends = Vec::new();
    let mut n_steps = 0;
    if let Some(begun) = last(turn, "loop.step.start").and_then(|it| turn.get(it..)) {
        n_steps = begun.first().and_then(|it| it.data()?.get("step")?.as_u64()).unwrap_or_default();
        if last(begun, "loop.step").is_none() {
            let elapsed_ms = elapsed_ms(begun);
            let data = json!({"step": n_steps, "elapsed_ms": elapsed_ms, "status": INTERRUPTED, "date": iso(now)});
            ends.push(NewEntry::event("loop.step", data));
        }
    }
    let data = json!({"status": INTERRUPTED, "steps": n_steps, "elapsed_ms": elapsed_ms(turn), "date": iso(now)});
    ends.push(NewEntry::event("loop.finish", data));
    ends
}

/// The status of what ended with its process.
const INTERRUPTED: &str = "interrupted";

/// How long it is known to have run: from the first entry's date to the newest of all.
fn elapsed_ms(entries: &[Arc<Entry>]) -> u64 {
    let date = |it: &Arc<Entry>| it.date.parse::<Timestamp>().ok();
    let first = entries.first().and_then(date).unwrap_or_default();
    let newest = entries.iter().filter_map(date).max().unwrap_or_default();
    u64::try_from(newest.as_millisecond() - first.as_millisecond()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
