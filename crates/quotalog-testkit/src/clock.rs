//! A clock that stands still until a test sets it.

use std::sync::atomic::{AtomicI64, Ordering};

use quotalog_domain::Timestamp;
use quotalog_ledger::clock::Clock;

/// A clock that shows what it was set to.
#[derive(Debug)]
pub struct ManualClock {
    unix_us: AtomicI64,
}

impl ManualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self {
            unix_us: AtomicI64::new(now.unix_us()),
        }
    }

    /// Sets the clock, also backwards.
    pub fn set(&self, now: Timestamp) {
        self.unix_us.store(now.unix_us(), Ordering::SeqCst);
    }

    /// Moves the clock by `seconds`, also backwards.
    pub fn advance_s(&self, seconds: i64) {
        self.set(self.now().plus_s(seconds));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_us(self.unix_us.load(Ordering::SeqCst))
    }
}
