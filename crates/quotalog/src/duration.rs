//! Durations as people write them: `90d`, `36h`, `15m`, `30s`.

use std::fmt;

/// A whole number of seconds, minutes, hours or days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seconds(pub(crate) u32);

/// The text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write a whole number and a unit, such as 90d, 36h, 15m or 30s")]
pub(crate) struct DurationError;

impl Seconds {
    pub(crate) const DAY: Self = Self(86_400);

    pub(crate) fn get(self) -> i64 {
        i64::from(self.0)
    }
}

impl From<Seconds> for std::time::Duration {
    fn from(seconds: Seconds) -> Self {
        Self::from_secs(u64::from(seconds.0))
    }
}

impl std::str::FromStr for Seconds {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let unit = text.chars().next_back().ok_or(DurationError)?;
        let unit_s = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            _ => return Err(DurationError),
        };
        let number = text.strip_suffix(unit).ok_or(DurationError)?;
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(DurationError);
        }
        let number: u32 = number.parse().map_err(|_| DurationError)?;
        number.checked_mul(unit_s).map(Self).ok_or(DurationError)
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit_s, unit) = [(86_400, 'd'), (3_600, 'h'), (60, 'm')]
            .into_iter()
            .find(|(unit_s, _)| self.0 >= *unit_s && self.0.is_multiple_of(*unit_s))
            .unwrap_or((1, 's'));
        write!(formatter, "{}{unit}", self.0 / unit_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_a_number_and_a_unit() {
        let check = |text: &str, seconds| assert_eq!(text.parse(), Ok(Seconds(seconds)), "{text}");
        check("90d", 7_776_000);
        check("36h", 129_600);
        check("15m", 900);
        check("30s", 30);
        check("0s", 0);
        for text in [
            "", "d", "90", "90 d", "1.5h", "-1d", "+1d", "90D", "9999999d", "1d12h",
        ] {
            assert_eq!(text.parse::<Seconds>(), Err(DurationError), "{text:?}");
        }
    }

    #[test]
    fn a_duration_is_shown_as_it_was_written() {
        for text in ["35d", "36h", "15m", "30s", "0s"] {
            assert_eq!(text.parse::<Seconds>().unwrap().to_string(), text);
        }
    }
}
