//! The time of day. [`SystemClock`] is the only reader of it in the program.

use quotalog_domain::Timestamp;

/// Where a store takes the time from: once per transaction.
pub trait Clock: Send + Sync + 'static {
    /// The present instant. It may step back, and that is taken as it comes.
    fn now(&self) -> Timestamp;
}

/// The operating system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the time of day"
    )]
    fn now(&self) -> Timestamp {
        let now = std::time::SystemTime::now();
        let unix_us = match now.duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |us| -us),
        };
        Timestamp::from_unix_us(unix_us)
    }
}
