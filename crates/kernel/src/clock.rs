//! Time, as a value that is passed in, so that tests and replays can fix it.

use std::{fmt, sync::Arc};

use jiff::{Timestamp, tz::TimeZone};

/// Tells the time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present moment.
    fn now(&self) -> Timestamp;
    /// The zone that people read dates in.
    fn zone(&self) -> TimeZone {
        TimeZone::UTC
    }
}

/// The machine's clock and time zone.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn zone(&self) -> TimeZone {
        TimeZone::system()
    }
}

/// A clock that stands still, for tests.
#[derive(Clone, Copy, Debug)]
pub struct FixedClock(pub Timestamp);

impl Default for FixedClock {
    /// 2026-01-02 03:04:05 UTC.
    fn default() -> Self {
        Self(Timestamp::from_second(1_767_323_045).unwrap_or_default())
    }
}

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// The clock that most callers want.
#[must_use]
pub fn system() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// Writes a moment as tapes do: ISO 8601, UTC, microseconds, `+00:00`.
#[must_use]
pub fn iso(moment: Timestamp) -> String {
    let civil = TimeZone::UTC.to_datetime(moment);
    let (date, time) = (civil.date(), civil.time());
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}+00:00",
        date.year(),
        date.month(),
        date.day(),
        time.hour(),
        time.minute(),
        time.second(),
        time.subsec_nanosecond() / 1000,
    )
}

/// Writes a moment, given in microseconds since 1970, as tapes do.
#[must_use]
pub fn iso_of_micros(micros: i64) -> String {
    iso(Timestamp::from_microsecond(micros).unwrap_or_default())
}

/// Writes a moment as archive files are stamped: `YYYYMMDDTHHMMSSZ`.
#[must_use]
pub fn stamp(moment: Timestamp) -> String {
    iso(moment)
        .split('.')
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|it| !matches!(it, '-' | ':'))
        .chain(['Z'])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_the_shape_of_tapes() {
        let moment = Timestamp::from_microsecond(1_767_323_045_000_042).unwrap();
        assert_eq!(iso(moment), "2026-01-02T03:04:05.000042+00:00");
        assert_eq!(stamp(moment), "20260102T030405Z");
        assert_eq!(iso(FixedClock::default().now()), "2026-01-02T03:04:05.000000+00:00");
    }
}
