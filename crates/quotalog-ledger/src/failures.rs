//! Questions and orders that the store failed: named in the log, but never so many that they flood it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::store::StoreError;

const LINE_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    last_at: Option<Instant>,
    silenced: u64,
}

impl Failures {
    /// Logs a failure that is the store's state. One that is a request's own is logged by its front.
    pub(crate) fn note(&self, error: &StoreError) {
        match error {
            StoreError::Unavailable(_) | StoreError::OutcomeUnknown(_) => {}
            StoreError::Internal(_) => return,
        }
        let error: &dyn std::error::Error = error;
        match self.turn(Instant::now()) {
            Some(silenced) => tracing::warn!(error, silenced, "the store failed a request"),
            None => tracing::debug!(error, "the store failed a request"),
        }
    }

    /// How many were silenced since the last line, if it is time for another one.
    fn turn(&self, now: Instant) -> Option<u64> {
        // Nothing that can panic runs under this lock.
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_soon = |last: Instant| now.duration_since(last) < LINE_EVERY;
        if lines.last_at.is_some_and(is_soon) {
            lines.silenced = lines.silenced.saturating_add(1);
            return None;
        }
        lines.last_at = Some(now);
        Some(std::mem::take(&mut lines.silenced))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_line_every_ten_seconds_at_most() {
        let failures = Failures::default();
        let begin = Instant::now();
        let at = |s| failures.turn(begin + Duration::from_secs(s));
        assert_eq!(at(0), Some(0));
        assert_eq!((at(0), at(9)), (None, None));
        assert_eq!(at(10), Some(2));
        assert_eq!(at(19), None);
        assert_eq!(at(60), Some(1));
    }
}
