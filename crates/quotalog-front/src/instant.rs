//! Instants as texts: RFC 3339, written in UTC with whole seconds and `Z`, read in any offset.
//!
//! What the present instant is, nothing here knows.

use quotalog_domain::Timestamp;
use serde::ser::{Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Writes an instant, as `2026-11-30T18:00:00Z`.
#[must_use]
pub fn format(instant: Timestamp) -> String {
    Text::of(instant).as_str().to_owned()
}

/// Reads an instant, and drops its part of a second; `None` if the text is no RFC 3339.
#[must_use]
pub fn parse(text: &str) -> Option<Timestamp> {
    let instant = read(text)?;
    let unix_us = instant.unix_timestamp().saturating_mul(1_000_000);
    Some(Timestamp::from_unix_us(unix_us))
}

/// Reads an instant to the microsecond, rounded up: what lies before the one lies before the other.
#[must_use]
pub fn parse_bound(text: &str) -> Option<Timestamp> {
    let unix_ns = read(text)?.unix_timestamp_nanos();
    let unix_us = -(-unix_ns).div_euclid(1_000);
    i64::try_from(unix_us).ok().map(Timestamp::from_unix_us)
}

fn read(text: &str) -> Option<OffsetDateTime> {
    // The parser would take any character between date and time, and a leap second for the second before it.
    let sound = matches!(text.as_bytes().get(10), Some(b'T' | b't'));
    let leaps = text.as_bytes().get(17..19) == Some(b"60");
    let instant = OffsetDateTime::parse(text, &Rfc3339).ok();
    instant.filter(|_| sound && !leaps)
}

/// An instant in a JSON answer.
#[derive(Debug, Clone, Copy)]
pub struct Instant(pub Timestamp);

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(Text::of(self.0).as_str())
    }
}

/// The text of an instant, written by hand and on the stack since several stand in every answer.
pub(crate) struct Text([u8; 20]);

impl Text {
    pub(crate) fn of(instant: Timestamp) -> Self {
        let last_s = Timestamp::MAX.unix_s() + 86_400;
        let unix_s = instant.unix_s().clamp(Timestamp::MIN.unix_s(), last_s);
        let utc = OffsetDateTime::from_unix_timestamp(unix_s).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let (year, month, day) = utc.to_calendar_date();
        let (hour, minute, second) = utc.to_hms();
        let year = year.unsigned_abs();
        let mut text = *b"0000-00-00T00:00:00Z";
        text[0..2].copy_from_slice(&two_digits(year / 100));
        text[2..4].copy_from_slice(&two_digits(year));
        text[5..7].copy_from_slice(&two_digits(u8::from(month).into()));
        text[8..10].copy_from_slice(&two_digits(day.into()));
        text[11..13].copy_from_slice(&two_digits(hour.into()));
        text[14..16].copy_from_slice(&two_digits(minute.into()));
        text[17..19].copy_from_slice(&two_digits(second.into()));
        Self(text)
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits and punctuation are ASCII")
    }
}

/// The last two decimal digits of `number`.
fn two_digits(number: u32) -> [u8; 2] {
    let number = u8::try_from(number % 100).unwrap_or_default();
    [b'0' + number / 10, b'0' + number % 10]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_written_in_whole_seconds() {
        let check = |unix_us: i64, text: &str| {
            assert_eq!(format(Timestamp::from_unix_us(unix_us)), text);
        };
        check(0, "1970-01-01T00:00:00Z");
        check(1_796_065_199_999_999, "2026-11-30T18:59:59Z");
        check(-1, "1969-12-31T23:59:59Z");
        check(1_835_395_199_000_000, "2028-02-28T23:59:59Z");
        check(1_835_395_200_000_000, "2028-02-29T00:00:00Z");
        check(i64::MIN, "0001-01-01T00:00:00Z");
        check(i64::MAX, "9999-12-30T23:59:59Z");
        let beyond = Timestamp::from_unix_s(i64::MAX);
        assert_eq!(format(beyond), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn an_instant_is_read_in_any_offset() {
        let check = |text: &str, unix_s: i64| {
            assert_eq!(parse(text), Some(Timestamp::from_unix_s(unix_s)), "{text}");
        };
        check("2026-11-30T18:00:00Z", 1_796_061_600);
        check("2026-11-30t18:00:00.999z", 1_796_061_600);
        check("2026-11-30T23:45:00+05:45", 1_796_061_600);
        check("9999-12-31T23:59:59Z", Timestamp::MAX.unix_s());
        for text in [
            "",
            "2026-11-30",
            "2026-11-30T18:00:00",
            "2026-11-30 18:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-11-30T24:00:00Z",
            "1796061600",
            " 2026-11-30T18:00:00Z",
            "2026-11-30T18:00:00Z ",
            "2026-11-3\u{e9}T18:00:00Z",
            "20261-11-30T18:00:00Z",
            "2016-12-31T23:59:60Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_bound_keeps_its_part_of_a_second() {
        let check = |text: &str, unix_us: i64| {
            let bound = Some(Timestamp::from_unix_us(unix_us));
            assert_eq!(parse_bound(text), bound, "{text}");
        };
        check("2026-11-30T18:00:00Z", 1_796_061_600_000_000);
        check("2026-11-30T18:00:00.000001Z", 1_796_061_600_000_001);
        check("2026-11-30T18:00:00.000000001Z", 1_796_061_600_000_001);
        check("1969-12-31T23:59:59.9999999Z", 0);
        check("1969-12-31T23:59:59.5Z", -500_000);
        check("0000-01-01T00:00:00Z", i64::MIN);
        check("9999-12-31T23:59:59Z", i64::MAX);
        assert_eq!(parse_bound("2026-11-30"), None);
    }
}
