//! Instants as the tables hold them: `YYYY-MM-DD HH:MM:SS`, UTC. As text they are in order of time.

use quotalog_domain::Timestamp;
use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time};

/// 9999-12-31 23:59:59, the last instant that can be written. It lies beyond [`Timestamp::MAX`], so that
/// the end of every window has a text of its own.
const LAST: Timestamp = Timestamp::from_unix_s(253_402_300_799);

/// The text of an instant, without its part of a second.
pub(crate) fn to_text(instant: Timestamp) -> String {
    let instant = instant.clamp(Timestamp::MIN, LAST);
    let at =
        OffsetDateTime::from_unix_timestamp(instant.unix_s()).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second()
    )
}

/// The instant of a text in exactly this form.
pub(crate) fn from_text(text: &str) -> Option<Timestamp> {
    let bytes: &[u8; 19] = text.as_bytes().try_into().ok()?;
    let separators = [bytes[4], bytes[7], bytes[10], bytes[13], bytes[16]];
    if separators != *b"-- ::" {
        return None;
    }
    let century = i32::from(two_digits(bytes[0], bytes[1])?);
    let year = century * 100 + i32::from(two_digits(bytes[2], bytes[3])?);
    let month = Month::try_from(two_digits(bytes[5], bytes[6])?).ok()?;
    let date = Date::from_calendar_date(year, month, two_digits(bytes[8], bytes[9])?).ok()?;
    let time = Time::from_hms(
        two_digits(bytes[11], bytes[12])?,
        two_digits(bytes[14], bytes[15])?,
        two_digits(bytes[17], bytes[18])?,
    )
    .ok()?;
    let unix_s = PrimitiveDateTime::new(date, time)
        .assume_utc()
        .unix_timestamp();
    let instant = Timestamp::from_unix_s(unix_s);
    (Timestamp::MIN..=Timestamp::MAX)
        .contains(&instant)
        .then_some(instant)
}

fn two_digits(tens: u8, ones: u8) -> Option<u8> {
    (tens.is_ascii_digit() && ones.is_ascii_digit()).then(|| (tens - b'0') * 10 + (ones - b'0'))
}

#[cfg(test)]
mod tests {
    use quotalog_domain::Window;

    use super::*;

    #[test]
    fn an_instant_is_written_and_read_alike() {
        let check = |unix_s: i64, text: &str| {
            let instant = Timestamp::from_unix_s(unix_s);
            assert_eq!(to_text(instant), text);
            assert_eq!(from_text(text), Some(instant));
        };
        check(0, "1970-01-01 00:00:00");
        check(-1, "1969-12-31 23:59:59");
        check(1_796_061_600, "2026-11-30 18:00:00");
        check(1_835_395_200, "2028-02-29 00:00:00");
        check(Timestamp::MIN.unix_s(), "0001-01-01 00:00:00");
        check(Timestamp::MAX.unix_s(), "9999-12-30 23:59:59");
    }

    #[test]
    fn parts_of_a_second_are_dropped_and_the_ends_hold() {
        assert_eq!(
            to_text(Timestamp::from_unix_us(999_999)),
            "1970-01-01 00:00:00"
        );
        assert_eq!(to_text(Timestamp::from_unix_us(-1)), "1969-12-31 23:59:59");
        assert_eq!(
            to_text(Timestamp::from_unix_s(i64::MIN)),
            "0001-01-01 00:00:00"
        );
        assert_eq!(
            to_text(Timestamp::from_unix_s(i64::MAX)),
            "9999-12-31 23:59:59"
        );
        let last_day = Window::Daily.span_at(Timestamp::MAX);
        assert_eq!(to_text(last_day.reset_at), "9999-12-31 00:00:00");
    }

    #[test]
    fn any_other_text_is_no_instant() {
        for text in [
            "",
            "2026-11-30",
            "2026-11-30T18:00:00",
            "2026-11-30 18:00:00Z",
            "2026-11-30 18:00:60",
            "2026-11-30 24:00:00",
            "2026-02-29 00:00:00",
            "2026-13-01 00:00:00",
            "2026-1-01 00:00:000",
            "+026-11-30 18:00:00",
            "0000-01-01 00:00:00",
            "9999-12-31 00:00:00",
            "２６-11-30 18:00:00",
        ] {
            assert_eq!(from_text(text), None, "{text:?}");
        }
    }
}
