//! Times and ids as people write them.

use std::ops::RangeInclusive;

use bub::kernel::tape::EntryKind;
use jiff::{Span, Timestamp, ZonedDateTime, civil, tz::TimeZone};

use crate::{args::FilterArgs, error::UsageError};

use bub::{host::ScanFilter, kernel::tape::TapeQuery};

/// What `--kind`, `--since`, `--until` and `--at` ask for.
pub(crate) fn filter(args: &FilterArgs, at: Option<&str>, zone: &TimeZone) -> Result<ScanFilter, UsageError> {
    let now = Timestamp::now().to_zoned_datetime(zone.clone());
    let bound = |text: &Option<String>, is_end| text.as_deref().map(|it| bound(it, is_end, &now)).transpose();
    let query = TapeQuery {
        kinds: args.kind.iter().map(|it| EntryKind::from(it.trim())).collect(),
        from: bound(&args.since, false)?,
        to: bound(&args.until, true)?,
        ..TapeQuery::default()
    };
    Ok(ScanFilter { query, ids: at.map_or(Ok(0..=u64::MAX), ids)? })
}

/// Reads `12`, `12..20`, `12..` or `..20`; both ends are meant.
fn ids(text: &str) -> Result<RangeInclusive<u64>, UsageError> {
    let number = |it: &str, default: u64| if it.is_empty() { Some(default) } else { it.parse().ok() };
    let ids = match text.trim().split_once("..") {
        Some((first, last)) => number(first, 0).zip(number(last.trim_start_matches('='), u64::MAX)),
        None => text.trim().parse().ok().map(|it| (it, it)),
    };
    match ids {
        Some((first, last)) if first <= last => Ok(first..=last),
        _ => Err(UsageError(format!("--at takes ids as 12, 12..20, 12.. or ..20, got '{text}'"))),
    }
}

/// Reads a time: with a zone or in that of `now`, a day (its beginning or end), or how long ago.
fn bound(text: &str, is_end: bool, now: &ZonedDateTime) -> Result<Timestamp, UsageError> {
    let invalid = || {
        let forms = "2026-01-31, 2026-01-31T12:00, today, yesterday or 2h";
        UsageError(format!("'{text}' is no time; it can be written as {forms}"))
    };
    let trimmed = text.trim();
    if let Ok(moment) = trimmed.parse::<Timestamp>() {
        return Ok(moment);
    }
    let zone = now.time_zone();
    let day = match trimmed {
        "today" => Some(now.date()),
        "yesterday" => now.date().yesterday().ok(),
        // Longer texts have a time of the day.
        it if it.len() == 10 => it.parse::<civil::Date>().ok(),
        _ => None,
    };
    let civil = match day {
        Some(day) if is_end => Some(day.at(23, 59, 59, 999_999_999)),
        Some(day) => Some(day.at(0, 0, 0, 0)),
        None => trimmed.parse::<civil::DateTime>().ok(),
    };
    if let Some(civil) = civil {
        return zone.to_timestamp(civil).map_err(|_| invalid());
    }
    let span = trimmed.strip_suffix(" ago").unwrap_or(trimmed).parse::<Span>().map_err(|_| invalid())?;
    now.checked_sub(span.abs()).map(|it| it.timestamp()).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let zone = TimeZone::posix("XXX-2").unwrap();
        let now = "2026-03-10T01:30:00Z".parse::<Timestamp>().unwrap().to_zoned_datetime(zone);
        for (text, start, end) in [
            ("2026-01-02", "2026-01-01T22:00:00Z", "2026-01-02T21:59:59.999999999Z"),
            ("2026-01-02T03:04", "2026-01-02T01:04:00Z", "2026-01-02T01:04:00Z"),
            ("2026-01-02 03:04:05.5", "2026-01-02T01:04:05.5Z", "2026-01-02T01:04:05.5Z"),
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05.123456+00:00", "2026-01-02T03:04:05.123456Z", "2026-01-02T03:04:05.123456Z"),
            ("today", "2026-03-09T22:00:00Z", "2026-03-10T21:59:59.999999999Z"),
            ("yesterday", "2026-03-08T22:00:00Z", "2026-03-09T21:59:59.999999999Z"),
            ("2h", "2026-03-09T23:30:00Z", "2026-03-09T23:30:00Z"),
            ("3d ago", "2026-03-07T01:30:00Z", "2026-03-07T01:30:00Z"),
            ("1h 30m", "2026-03-10T00:00:00Z", "2026-03-10T00:00:00Z"),
        ] {
            assert_eq!(bound(text, false, &now).unwrap().to_string(), start, "{text}");
            assert_eq!(bound(text, true, &now).unwrap().to_string(), end, "{text}");
        }
        for bad in ["", "soon", "2026-13-01", "01/02/2026", "99999999y"] {
            assert!(bound(bad, false, &now).unwrap_err().to_string().contains("is no time"), "{bad}");
        }
    }

    #[test]
    fn ids_are_one_or_a_range() {
        for (text, expected) in [
            ("7", Some(7..=7)),
            ("7..9", Some(7..=9)),
            ("7..=9", Some(7..=9)),
            ("7..", Some(7..=u64::MAX)),
            ("..9", Some(0..=9)),
            ("9..7", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(ids(text).ok(), expected, "{text}");
        }
    }
}
