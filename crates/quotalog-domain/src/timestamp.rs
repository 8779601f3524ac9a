//! An instant as a value.

/// An instant in UTC with microseconds, between the years 0001 and 9999.
///
/// There is no `now` here: the store reads its clock once per transaction and passes the instant on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    unix_us: i64,
}

const US_PER_S: i64 = 1_000_000;

impl Timestamp {
    /// 0001-01-01T00:00:00Z.
    pub const MIN: Self = Self::from_unix_s(-62_135_596_800);
    /// 9999-12-30T23:59:59Z: a day before the end, so that the end of every window can be written
    /// with a four-digit year.
    pub const MAX: Self = Self::from_unix_s(253_402_214_399);

    /// The instant `unix_us` microseconds after 1970-01-01T00:00:00Z, moved into
    /// [`Timestamp::MIN`]`..=`[`Timestamp::MAX`] where a broken clock lies outside.
    #[must_use]
    pub fn from_unix_us(unix_us: i64) -> Self {
        Self {
            unix_us: unix_us.clamp(Self::MIN.unix_us, Self::MAX.unix_us),
        }
    }

    /// The instant `unix_s` seconds after 1970-01-01T00:00:00Z, saturating like
    /// [`Timestamp::from_unix_us`] at the ends of an `i64` of microseconds.
    #[must_use]
    pub const fn from_unix_s(unix_s: i64) -> Self {
        Self {
            unix_us: unix_s.saturating_mul(US_PER_S),
        }
    }

    /// Microseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn unix_us(self) -> i64 {
        self.unix_us
    }

    /// Whole seconds since 1970-01-01T00:00:00Z, rounded towards the past.
    #[must_use]
    pub const fn unix_s(self) -> i64 {
        self.unix_us.div_euclid(US_PER_S)
    }

    /// The instant without its part of a second, as stores keep it.
    #[must_use]
    pub const fn floor_to_s(self) -> Self {
        Self::from_unix_s(self.unix_s())
    }

    /// The start of the span of `length_s` seconds, counted from 1970-01-01T00:00:00Z, that holds
    /// this instant. UTC has no leap seconds here, so a day is always 86 400 seconds.
    #[must_use]
    pub(crate) const fn floor_to_span(self, length_s: i64) -> Self {
        let into_span_us = self.unix_us.rem_euclid(length_s.saturating_mul(US_PER_S));
        Self {
            unix_us: self.unix_us.saturating_sub(into_span_us),
        }
    }

    /// This instant moved by `seconds`.
    #[must_use]
    pub const fn plus_s(self, seconds: i64) -> Self {
        Self {
            unix_us: self
                .unix_us
                .saturating_add(seconds.saturating_mul(US_PER_S)),
        }
    }

    /// Whole seconds from this instant until `later`, rounded up; 0 if `later` has passed.
    ///
    /// Rounded up so that a caller who waits that long never comes back early
    /// (Retry-After, RFC 9110 section 10.2.3).
    #[must_use]
    pub fn seconds_until(self, later: Self) -> u64 {
        let us = later.unix_us.saturating_sub(self.unix_us);
        u64::try_from(us).map_or(0, |us| us.div_ceil(US_PER_S.unsigned_abs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_until_is_rounded_up() {
        let check = |from_us: i64, until_us: i64, seconds: u64| {
            let from = Timestamp::from_unix_us(from_us);
            assert_eq!(
                from.seconds_until(Timestamp::from_unix_us(until_us)),
                seconds
            );
        };
        check(0, 1, 1);
        check(0, 1_000_000, 1);
        check(0, 1_000_001, 2);
        check(0, 0, 0);
        check(1, 0, 0);
        check(i64::MIN, i64::MAX, 315_537_811_199);
    }

    #[test]
    fn an_instant_before_1970_is_floored_towards_the_past() {
        assert_eq!(Timestamp::from_unix_us(-1).unix_s(), -1);
        assert_eq!(
            Timestamp::from_unix_us(-1).floor_to_span(3600),
            Timestamp::from_unix_s(-3600)
        );
    }
}
