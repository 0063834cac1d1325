//! Which entries to read.

use std::{collections::HashSet, ops::RangeInclusive, sync::Arc};

use jiff::{Timestamp, civil, tz::TimeZone};
use md5::{Digest as _, Md5};

use super::{Entry, EntryKind, TapeError, TextMatch};

/// Which stretch of the tape.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Slice {
    /// All of it.
    #[default]
    All,
    /// What follows the newest anchor.
    AfterLastAnchor,
    /// What follows the newest anchor of that name.
    AfterAnchor(String),
    /// What lies between the newest anchor of the first name and the next one of the second.
    Between(String, String),
}

/// Payloads that are remembered to tell equal ones; beyond that many the search for equals starts anew.
const MAX_SEEN: usize = 1 << 19;

/// Which entries: plain data, evaluated in the order slice, ids, dates, kinds, names, text, limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TapeQuery {
    /// Which stretch of the tape.
    pub slice: Slice,
    /// Numbers to keep; all, when none are given.
    pub ids: Option<RangeInclusive<u64>>,
    /// The earliest date, inclusive.
    pub from: Option<Timestamp>,
    /// The latest date, inclusive.
    pub to: Option<Timestamp>,
    /// Kinds to keep; all, when empty.
    pub kinds: Vec<EntryKind>,
    /// Names of events or anchors to keep; all, when empty.
    pub names: Vec<String>,
    /// Text to find.
    pub text: Option<TextMatch>,
    /// The most entries to return.
    pub limit: Option<usize>,
    /// Newest first, and the limit counts from the newest.
    pub newest_first: bool,
    /// Only the first of entries with the same payload.
    pub distinct: bool,
}

impl TapeQuery {
    /// Only what follows the newest anchor.
    #[must_use]
    pub fn after_last_anchor(self) -> Self {
        Self { slice: Slice::AfterLastAnchor, ..self }
    }

    /// Only what follows the newest anchor of that name; an empty name lifts the restriction.
    #[must_use]
    pub fn after_anchor(self, name: impl Into<String>) -> Self {
        let name = name.into();
        Self { slice: if name.is_empty() { Slice::All } else { Slice::AfterAnchor(name) }, ..self }
    }

    /// Only what lies between two anchors.
    #[must_use]
    pub fn between_anchors(self, start: impl Into<String>, end: impl Into<String>) -> Self {
        Self { slice: Slice::Between(start.into(), end.into()), ..self }
    }

    /// Adds a kind to keep.
    #[must_use]
    pub fn kind(mut self, kind: EntryKind) -> Self {
        self.kinds.push(kind);
        self
    }

    /// Only events, and adds a name to keep.
    #[must_use]
    pub fn event(mut self, name: impl Into<String>) -> Self {
        self.kinds = vec![EntryKind::Event];
        self.names.push(name.into());
        self
    }

    /// Only entries with these numbers.
    #[must_use]
    pub fn ids(self, ids: RangeInclusive<u64>) -> Self {
        Self { ids: Some(ids), ..self }
    }

    /// At most that many.
    #[must_use]
    pub fn limit(self, limit: usize) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Newest first.
    #[must_use]
    pub fn newest_first(self) -> Self {
        Self { newest_first: true, ..self }
    }

    /// Whether an entry passes ids, dates, kinds, names and text.
    #[must_use]
    pub fn keeps(&self, entry: &Entry) -> bool {
        self.ids.as_ref().is_none_or(|it| it.contains(&entry.id))
            && (self.kinds.is_empty() || self.kinds.contains(&entry.kind))
            && (self.names.is_empty() || entry.name().is_some_and(|name| self.names.iter().any(|it| it == name)))
            && self.keeps_date(&entry.date)
            && self.text.as_ref().is_none_or(|it| it.matches(entry))
    }

    fn keeps_date(&self, date: &str) -> bool {
        if self.from.is_none() && self.to.is_none() {
            return true;
        }
        let Ok(moment) = date.parse::<Timestamp>() else { return false };
        self.from.is_none_or(|from| moment >= from) && self.to.is_none_or(|to| moment <= to)
    }

    /// Evaluates the query over entries in memory, given oldest first.
    ///
    /// # Errors
    /// [`TapeError::NoAnchors`] or [`TapeError::NoAnchor`] when the slice's anchor is missing.
    pub fn select(&self, entries: &[Arc<Entry>]) -> Result<Vec<Arc<Entry>>, TapeError> {
        let slice = self.slice(entries)?;
        let mut selector = self.selector();
        let forward: &mut dyn Iterator<Item = &Arc<Entry>> = &mut slice.iter();
        let backward: &mut dyn Iterator<Item = &Arc<Entry>> = &mut slice.iter().rev();
        for entry in if self.newest_first { backward } else { forward } {
            if selector.is_full() {
                break;
            }
            selector.offer(entry);
        }
        Ok(selector.into_entries())
    }

    /// Evaluates the query over entries that come one by one, in the order of the result; the slice is
    /// the caller's business.
    #[must_use]
    pub fn selector(&self) -> Selector<'_> {
        Selector { query: self, left: self.limit.unwrap_or(usize::MAX), seen: HashSet::new(), chosen: Vec::new() }
    }

    fn slice<'a>(&self, entries: &'a [Arc<Entry>]) -> Result<&'a [Arc<Entry>], TapeError> {
        let after = |name: Option<&str>| {
            let at = entries.iter().rposition(|it| it.is_anchor(name));
            at.and_then(|idx| entries.get(idx + 1..))
        };
        let missing = |name: &String| TapeError::NoAnchor(name.clone());
        match &self.slice {
            Slice::All => Ok(entries),
            Slice::AfterLastAnchor => after(None).ok_or(TapeError::NoAnchors),
            Slice::AfterAnchor(name) => after(Some(name)).ok_or_else(|| missing(name)),
            Slice::Between(start, end) => {
                let rest = after(Some(start)).ok_or_else(|| missing(start))?;
                let stop = rest.iter().position(|it| it.is_anchor(Some(end))).ok_or_else(|| missing(end))?;
                Ok(rest.get(..stop).unwrap_or_default())
            }
        }
    }
}

/// A query being evaluated: see [`TapeQuery::selector`].
#[derive(Debug)]
pub struct Selector<'a> {
    query: &'a TapeQuery,
    left: usize,
    /// Hashes of the payloads that were chosen.
    seen: HashSet<[u8; 16]>,
    chosen: Vec<Arc<Entry>>,
}

impl Selector<'_> {
    /// Whether the limit is reached, so that no further entry can be chosen.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Chooses the next entry if the query keeps it.
    pub fn offer(&mut self, entry: &Arc<Entry>) {
        if self.accepts(entry) {
            self.chosen.push(entry.clone());
        }
    }

    /// Counts the next entry as chosen if the query keeps it, and says so; for who takes them himself.
    pub fn accepts(&mut self, entry: &Entry) -> bool {
        let is_chosen = self.left > 0 && self.query.keeps(entry) && (!self.query.distinct || self.is_new(entry));
        self.left -= usize::from(is_chosen);
        is_chosen
    }

    fn is_new(&mut self, entry: &Entry) -> bool {
        if self.seen.len() >= MAX_SEEN {
            self.seen.clear();
        }
        self.seen.insert(Md5::digest(crate::text::json(&entry.payload)).into())
    }

    /// The chosen entries.
    #[must_use]
    pub fn into_entries(self) -> Vec<Arc<Entry>> {
        self.chosen
    }
}

/// Reads a date bound: a date (its first or last microsecond), or a date and time, in UTC unless it
/// says otherwise.
///
/// # Errors
/// [`TapeError::InvalidDate`] with the text as given.
pub fn parse_bound(text: &str, is_end: bool) -> Result<Timestamp, TapeError> {
    let invalid = || TapeError::InvalidDate(text.to_owned());
    let trimmed = text.trim();
    if let Ok(moment) = trimmed.parse::<Timestamp>() {
        return Ok(moment);
    }
    let civil = if trimmed.len() == 10
        && let Ok(date) = trimmed.parse::<civil::Date>()
    {
        if is_end { date.at(23, 59, 59, 999_999_999) } else { date.at(0, 0, 0, 0) }
    } else {
        trimmed.parse::<civil::DateTime>().map_err(|_| invalid())?
    };
    TimeZone::UTC.to_timestamp(civil).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_take_dates_times_and_zones() {
        let check = |text: &str, is_end: bool, expected: &str| {
            assert_eq!(parse_bound(text, is_end).unwrap().to_string(), expected, "{text}");
        };
        check("2026-01-02", false, "2026-01-02T00:00:00Z");
        check("2026-01-02", true, "2026-01-02T23:59:59.999999999Z");
        check("2026-01-02T03:04", true, "2026-01-02T03:04:00Z");
        check("2026-01-02 03:04:05.5", true, "2026-01-02T03:04:05.5Z");
        check("2026-01-02T03:04:05+02:00", false, "2026-01-02T01:04:05Z");
        for bad in ["", "yesterday", "2026-13-01", "01/02/2026"] {
            assert_eq!(
                parse_bound(bad, false).unwrap_err().to_string(),
                format!("Invalid ISO date or datetime: '{bad}'.")
            );
        }
    }
}
