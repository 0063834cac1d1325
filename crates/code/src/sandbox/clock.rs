//! The time of day, in UTC: all of the system that code in the sandbox can see.

use jiff::{Timestamp, civil::DateTime, tz::Offset};
use monty_types::{ExcType, ExtFunctionResult, MontyDate, MontyDateTime, MontyObject, OsFunctionCall};

use super::values::raise;

/// Answers `date.today()` and `datetime.now(tz)`.
pub(super) fn read(call: &OsFunctionCall) -> ExtFunctionResult {
    let now = Timestamp::now();
    let refused =
        |what: &str| ExtFunctionResult::Error(raise(ExcType::PermissionError, format!("{what} is not available")));
    ExtFunctionResult::Return(match call {
        OsFunctionCall::DateToday => {
            let date = Offset::UTC.to_datetime(now).date();
            match (part(date.month()), part(date.day())) {
                (Some(month), Some(day)) => MontyObject::Date(MontyDate { year: i32::from(date.year()), month, day }),
                _ => return refused(call.name()),
            }
        }
        OsFunctionCall::DateTimeNow(zone) => {
            let seconds = zone.as_ref().map(|zone| zone.offset_seconds);
            let Ok(offset) = Offset::from_seconds(seconds.unwrap_or(0)) else { return refused(call.name()) };
            let name = zone.as_ref().and_then(|zone| zone.name.clone());
            match moment(offset.to_datetime(now), seconds, name) {
                Some(moment) => MontyObject::DateTime(moment),
                None => return refused(call.name()),
            }
        }
        other => return refused(other.name()),
    })
}

fn moment(at: DateTime, offset_seconds: Option<i32>, timezone_name: Option<String>) -> Option<MontyDateTime> {
    Some(MontyDateTime {
        year: i32::from(at.year()),
        month: part(at.month())?,
        day: part(at.day())?,
        hour: part(at.hour())?,
        minute: part(at.minute())?,
        second: part(at.second())?,
        microsecond: u32::try_from(at.subsec_nanosecond() / 1_000).ok()?,
        offset_seconds,
        timezone_name,
    })
}

fn part(value: i8) -> Option<u8> {
    u8::try_from(value).ok()
}
