//! The date of an answer as HTTP writes it (RFC 9110 section 5.6.7), whatever the clock says.
//!
//! hyper writes the time of day with the crate `httpdate`, before it looks at a connection and whether
//! or not a `Date` is wanted, and that crate panics before 1970 and from the year 10000 on. This one
//! has as much of its interface as hyper uses, and must never panic.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// 0000-01-01T00:00:00Z: the form has four digits for the year.
const MIN_UNIX_S: i64 = -62_167_219_200;

/// 9999-12-31T23:59:59Z.
const MAX_UNIX_S: i64 = 253_402_300_799;

const DAY_S: i64 = 86_400;

const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// From March on, so that the leap day is a year's last.
const MONTHS: [&str; 12] = [
    "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb",
];

/// An instant, to be displayed; the nearest that can be written where it lies outside.
#[derive(Debug, Clone, Copy)]
pub struct HttpDate {
    unix_s: i64,
}

impl From<SystemTime> for HttpDate {
    fn from(instant: SystemTime) -> Self {
        let unix_s = match instant.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_secs()).unwrap_or(MAX_UNIX_S),
            Err(before) => {
                let before = before.duration();
                let whole_s = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                -whole_s.saturating_add(i64::from(before.subsec_nanos() > 0))
            }
        };
        Self {
            unix_s: unix_s.clamp(MIN_UNIX_S, MAX_UNIX_S),
        }
    }
}

impl fmt::Display for HttpDate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let day = self.unix_s.div_euclid(DAY_S);
        let second = self.unix_s.rem_euclid(DAY_S);
        let (year, month, day_of_month) = date(day);
        write!(
            formatter,
            "{}, {day_of_month:02} {month} {year:04} {:02}:{:02}:{:02} GMT",
            name(&WEEKDAYS, day.rem_euclid(7)),
            second / 3600,
            second / 60 % 60,
            second % 60,
        )
    }
}

/// The year, month and day of the month of a day since 1970-01-01, by eras of 400 years that begin on
/// the first of March (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn date(unix_day: i64) -> (i64, &'static str, i64) {
    let day = unix_day + 719_468;
    let era = day.div_euclid(146_097);
    let day_of_era = day.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let year = year_of_era + era * 400 + i64::from(month >= 10);
    (year, name(&MONTHS, month), day_of_month)
}

fn name(names: &[&'static str], position: i64) -> &'static str {
    let position = usize::try_from(position).unwrap_or(0);
    names.get(position).copied().unwrap_or("???")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(unix_s: i64) -> String {
        let distance = Duration::from_secs(unix_s.unsigned_abs());
        let instant = if unix_s < 0 {
            UNIX_EPOCH - distance
        } else {
            UNIX_EPOCH + distance
        };
        HttpDate::from(instant).to_string()
    }

    #[test]
    fn every_instant_is_written_in_29_characters() {
        let check = |unix_s: i64, text: &str| assert_eq!(at(unix_s), text, "{unix_s}");
        check(784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT");
        check(0, "Thu, 01 Jan 1970 00:00:00 GMT");
        check(-1, "Wed, 31 Dec 1969 23:59:59 GMT");
        check(951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT");
        check(4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT");
        check(MIN_UNIX_S, "Sat, 01 Jan 0000 00:00:00 GMT");
        check(MAX_UNIX_S, "Fri, 31 Dec 9999 23:59:59 GMT");
        check(MIN_UNIX_S - 1, "Sat, 01 Jan 0000 00:00:00 GMT");
        check(MAX_UNIX_S + 1, "Fri, 31 Dec 9999 23:59:59 GMT");
        for day in -719_528..=2_932_896 {
            assert_eq!(at(day * DAY_S).len(), 29, "{day}");
        }
    }

    #[test]
    fn a_part_of_a_second_before_1970_is_still_1969() {
        let instant = UNIX_EPOCH - Duration::from_millis(1);
        assert_eq!(
            HttpDate::from(instant).to_string(),
            "Wed, 31 Dec 1969 23:59:59 GMT"
        );
    }
}
