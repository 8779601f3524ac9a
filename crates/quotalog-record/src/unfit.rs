//! Rows that the domain cannot hold: passed over as if absent, and named in the log.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What of a row the domain cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// See the message, as for all of them.
    #[error("the user id is none")]
    UserId,
    /// Empty, too long, or of letters that none has.
    #[error("the resource is none")]
    Resource,
    /// Neither `hourly` nor `daily`.
    #[error("the window is unknown")]
    Window,
    /// Limits of more than the API allows are held.
    #[error("the limit is not a positive integer")]
    Limit,
    /// A negative number, or a text.
    #[error("the usage is not an integer of 0 or more")]
    Usage,
    /// As each store writes them.
    #[error("an instant is unreadable, or none of the years 1 to 9999")]
    Instant,
    /// Also a user's without a user, or another's with one.
    #[error("the role is unknown")]
    Role,
    /// A token's.
    #[error("the name is none")]
    Name,
    /// Of an entry of the audit.
    #[error("the actor is unknown")]
    Actor,
    /// Of an entry of the audit.
    #[error("the action is unknown")]
    Action,
    /// Of an entry of the audit.
    #[error("the facts are unreadable")]
    Facts,
}

/// Names such rows in the log, but never floods it.
#[derive(Debug, Default)]
pub struct PassedOver(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    last_at: Option<Instant>,
    silenced: u64,
}

const LINE_EVERY: Duration = Duration::from_secs(10);

impl PassedOver {
    /// What was read of a row; a row that cannot be held is noted by its `key`, and passed over.
    pub fn held<T>(
        &self,
        table: &'static str,
        key: impl Debug,
        read: Result<T, Unfit>,
    ) -> Option<T> {
        read.map_err(|why| self.note(table, key, why)).ok()
    }

    /// Notes that the row of this `key` was passed over.
    pub fn note(&self, table: &'static str, key: impl Debug, why: Unfit) {
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
