//! Rows that the domain cannot hold: passed over as if absent, and named in the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::row::Unfit;

/// Names such rows in the log, but never floods it.
#[derive(Debug, Default)]
pub(crate) struct PassedOver(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    last_at: Option<Instant>,
    silenced: u64,
}

const LINE_EVERY: Duration = Duration::from_secs(10);

impl PassedOver {
    /// What was read of a row; a row that cannot be held is noted, and passed over.
    pub(crate) fn held<T>(
        &self,
        table: &'static str,
        key: &[&str],
        read: Result<T, Unfit>,
    ) -> Option<T> {
        read.map_err(|why| self.note(table, key, why)).ok()
    }

    fn note(&self, table: &'static str, key: &[&str], why: Unfit) {
        let now = Instant::now();
        let silenced = {
            let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if lines
                .last_at
                .is_some_and(|last| now.duration_since(last) < LINE_EVERY)
            {
                lines.silenced = lines.silenced.saturating_add(1);
                return;
            }
            lines.last_at = Some(now);
            std::mem::take(&mut lines.silenced)
        };
        tracing::warn!(table, ?key, %why, silenced, "a row of the database is passed over");
    }
}
