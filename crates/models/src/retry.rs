//! How often and how long to wait before another try.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use jiff::{Timestamp, fmt::rfc2822};
use reqwest::header::{HeaderMap, RETRY_AFTER};

/// When to try again. Only requests that brought no output yet are repeated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retries {
    /// How many tries may follow the first one. 2 unless set.
    pub max: u32,
    /// The wait before the first repetition; it doubles each time. Half a second unless set.
    pub delay: Duration,
    /// The longest wait, also when the provider asks for more. 60 seconds unless set.
    pub max_delay: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { max: 2, delay: Duration::from_millis(500), max_delay: Duration::from_secs(60) }
    }
}

impl Retries {
    /// The wait before repetition number `nth`, counted from 0: what the provider asked for, else
    /// a doubling delay, shortened by up to a quarter so that many clients do not return at once.
    pub(crate) fn wait(&self, nth: u32, asked: Option<Duration>) -> Duration {
        match asked {
            Some(asked) => asked.min(self.max_delay),
            None => {
                let doubled = self.delay.saturating_mul(1_u32.checked_shl(nth).unwrap_or(u32::MAX));
                let longest = doubled.min(self.max_delay);
                let part = longest.as_secs_f64() * (0.75 + 0.25 * chance());
                Duration::try_from_secs_f64(part).unwrap_or(longest)
            }
        }
    }
}

/// A number from 0 to 1. The hasher's random keys are enough for spreading waits.
fn chance() -> f64 {
    f64::from(u32::try_from(RandomState::new().hash_one(0) >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

/// How long the provider asks to wait: milliseconds, seconds, or until a date.
pub(crate) fn asked_wait(headers: &HeaderMap) -> Option<Duration> {
    asked_wait_at(headers, Timestamp::now())
}

fn asked_wait_at(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|it| it.is_finite());
    let seconds = |it: f64| Duration::try_from_secs_f64(it.max(0.0)).ok();
    let text = |name: &str| headers.get(name).and_then(|it| it.to_str().ok());
    if let Some(millis) = text("retry-after-ms").and_then(number) {
        return seconds(millis / 1000.0);
    }
    let text = text(RETRY_AFTER.as_str())?;
    if let Some(count) = number(text) {
        return seconds(count);
    }
    let at = rfc2822::DateTimeParser::new().parse_timestamp(text.trim()).ok()?;
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &'static str, value: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        asked_wait_at(&headers, "2026-01-01T00:00:00Z".parse().unwrap())
    }

    #[test]
    fn asked_waits_are_read_in_every_form() {
        let secs = |it| Some(Duration::from_secs_f64(it));
        assert_eq!(asked("retry-after", "3"), secs(3.0));
        assert_eq!(asked("retry-after", " 0.5 "), secs(0.5));
        assert_eq!(asked("retry-after-ms", "250"), secs(0.25));
        assert_eq!(asked("retry-after", "Thu, 01 Jan 2026 00:00:20 GMT"), secs(20.0));
        assert_eq!(asked("retry-after", "Wed, 31 Dec 2025 00:00:00 GMT"), secs(0.0));
        assert_eq!(asked("retry-after", "-4"), secs(0.0));
        for bad in ["", "soon", "NaN", "inf", "1e400", "2026-01-01"] {
            assert_eq!(asked("retry-after", bad), None, "{bad}");
        }
        assert_eq!(asked_wait(&HeaderMap::new()), None);
    }

    #[test]
    fn waits_double_with_jitter_and_never_pass_the_cap() {
        let retries =
            Retries { delay: Duration::from_secs(1), max_delay: Duration::from_secs(10), ..Retries::default() };
        for (nth, full) in [(0, 1.0), (1, 2.0), (3, 8.0), (4, 10.0), (40, 10.0), (u32::MAX, 10.0)] {
            let wait = retries.wait(nth, None).as_secs_f64();
            assert!(wait >= full * 0.75 && wait <= full, "{nth}: {wait}");
        }
        assert_eq!(retries.wait(0, Some(Duration::from_secs(3))), Duration::from_secs(3));
        assert_eq!(retries.wait(0, Some(Duration::from_secs(3600))), retries.max_delay);
    }
}
