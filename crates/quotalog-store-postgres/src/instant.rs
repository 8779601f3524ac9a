//! Instants as the tables hold them: `timestamptz`, which is microseconds since 2000 in UTC and has no time
//! zone of its own, whatever the session's is.

use std::error::Error;

use bytes::BytesMut;
use quotalog_domain::Timestamp;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// From 1970 to 2000.
const EPOCH_US: i64 = 946_684_800_000_000;

/// A column or parameter of type `timestamptz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instant {
    since_2000_us: i64,
}

impl From<Timestamp> for Instant {
    fn from(timestamp: Timestamp) -> Self {
        Self {
            since_2000_us: timestamp.unix_us().saturating_sub(EPOCH_US),
        }
    }
}

impl Instant {
    /// After every row there is, `infinity` aside.
    pub(crate) const AFTER_ALL: Self = Self {
        since_2000_us: i64::MAX,
    };

    /// The instant as the domain has it; `None` if it lies outside, as `infinity` does.
    pub(crate) fn timestamp(self) -> Option<Timestamp> {
        let unix_us = self.since_2000_us.checked_add(EPOCH_US)?;
        let timestamp = Timestamp::from_unix_us(unix_us);
        (timestamp.unix_us() == unix_us).then_some(timestamp)
    }
}

impl<'a> FromSql<'a> for Instant {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self {
            since_2000_us: i64::from_be_bytes(raw.try_into()?),
        })
    }

    accepts!(TIMESTAMPTZ);
}

impl ToSql for Instant {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.since_2000_us.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_read_as_it_was_written() {
        for unix_us in [
            0,
            -1,
            1_796_061_600_123_456,
            Timestamp::MIN.unix_us(),
            Timestamp::MAX.unix_us(),
        ] {
            let timestamp = Timestamp::from_unix_us(unix_us);
            let mut bytes = BytesMut::new();
            let written = Instant::from(timestamp).to_sql(&Type::TIMESTAMPTZ, &mut bytes);
            assert!(matches!(written, Ok(IsNull::No)));
            let read = Instant::from_sql(&Type::TIMESTAMPTZ, &bytes).unwrap();
            assert_eq!(read.timestamp(), Some(timestamp));
        }
    }

    #[test]
    fn what_the_domain_does_not_hold_is_none() {
        let after = Instant::from(Timestamp::MAX).since_2000_us + 1;
        for since_2000_us in [i64::MAX, i64::MIN, after] {
            assert_eq!(Instant { since_2000_us }.timestamp(), None);
        }
    }
}
