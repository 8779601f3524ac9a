//! How far the clock is believed when rows are deleted by their age. It bounds nothing else.
//!
//! A clock that is wrong for a while does no lasting harm to what is counted: each window has its own rows,
//! and when the clock is right again, they are there. Only pruning destroys; one start under a clock that
//! is years ahead would delete today's usage and today's kept answers, and the window would be full again
//! once the clock is set right.
//!
//! So the file remembers how far the clock was believed when pruning last looked. A server looks every
//! few minutes, and thus the clock is believed step by step. A clock that leaps ahead of that is believed
//! once it has gone on for a day from where it leapt to: today's windows are over by then, and today's kept
//! answers too. Until then rows are pruned by what was believed before. After a long stop this delays
//! pruning by that day, and costs nothing else.

use quotalog_domain::Timestamp;
use rusqlite::{Connection, Result};

use crate::instant;
use crate::tx::Tx;

/// A step that is believed at once: several times what a server lets pass between two looks.
const STEP_S: i64 = 3_600;
/// For how long a leap is doubted.
const DOUBT_S: i64 = 86_400;

const BEGIN: &str = "INSERT OR IGNORE INTO quotalog_clock (id, seen_at) VALUES (1, ?1)";
const FIND: &str = "SELECT seen_at, leapt_at FROM quotalog_clock WHERE id = 1";
const SAVE: &str = "UPDATE quotalog_clock SET seen_at = ?1, leapt_at = ?2 WHERE id = 1";

/// In a file that has none yet, belief begins at the clock.
pub(crate) fn begin(connection: &Connection, now: Timestamp) -> Result<()> {
    connection.execute(BEGIN, [instant::to_text(now)])?;
    Ok(())
}

/// The clock's instant, or the last one that is believed where the clock is ahead of it.
pub(crate) fn now(tx: &Tx<'_>) -> Result<Timestamp> {
    let before = Belief::of(tx.connection)?;
    let now = tx.now.floor_to_s();
    let after = before.at(now);
    if after != before {
        let leapt_at = after.leapt_at.map(instant::to_text);
        let mut save = tx.connection.prepare_cached(SAVE)?;
        save.execute((instant::to_text(after.seen_at), leapt_at))?;
    }
    if after.leapt_at.is_some() && after.leapt_at != before.leapt_at {
        let seen_at = instant::to_text(after.seen_at);
        tracing::warn!(
            seen_at,
            "the clock is far ahead of when old rows were last looked for; for a day, rows are pruned \
             by their age at that time"
        );
    }
    Ok(now.min(after.seen_at))
}

/// Until when the file knows the clock, and whether it believes one that shows `now`. Changes nothing.
pub(crate) fn judge(connection: &Connection, now: Timestamp) -> Result<(Timestamp, bool)> {
    let before = Belief::of(connection)?;
    Ok((before.seen_at, before.at(now).leapt_at.is_none()))
}

/// What is believed, and since when the clock claims more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Belief {
    seen_at: Timestamp,
    leapt_at: Option<Timestamp>,
}

impl Belief {
    fn of(connection: &Connection) -> Result<Self> {
        let mut find = connection.prepare_cached(FIND)?;
        find.query_row([], |row| {
            let at = |column| -> Result<Option<Timestamp>> {
                let text: Option<String> = row.get(column)?;
                Ok(text.as_deref().and_then(instant::from_text))
            };
            Ok(Self {
                // An unreadable one is as old as can be, and mends itself within a day.
                seen_at: at(0)?.unwrap_or(Timestamp::MIN),
                leapt_at: at(1)?,
            })
        })
    }

    /// What is believed when the clock shows `now`.
    fn at(self, now: Timestamp) -> Self {
        if now <= self.seen_at.plus_s(STEP_S) {
            return Self {
                seen_at: self.seen_at.max(now),
                leapt_at: None,
            };
        }
        match self.leapt_at {
            Some(leapt_at) if now >= leapt_at.plus_s(DOUBT_S) => Self {
                seen_at: now,
                leapt_at: None,
            },
            Some(leapt_at) if now >= leapt_at => self,
            Some(_) | None => Self {
                leapt_at: Some(now),
                ..self
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leap_is_believed_after_a_day() {
        let at = Timestamp::from_unix_s;
        let mut belief = Belief {
            seen_at: at(0),
            leapt_at: None,
        };
        let mut check = |now_s: i64, seen_s: i64, leapt_s: Option<i64>| {
            belief = belief.at(at(now_s));
            let expected = Belief {
                seen_at: at(seen_s),
                leapt_at: leapt_s.map(at),
            };
            assert_eq!(belief, expected, "at {now_s}");
        };
        let day = 86_400;
        check(600, 600, None);
        check(4_200, 4_200, None);
        check(100, 4_200, None);
        check(7_801, 4_200, Some(7_801));
        check(7_801 + day - 1, 4_200, Some(7_801));
        check(5_000, 5_000, None);
        check(900 * day, 5_000, Some(900 * day));
        check(800 * day, 5_000, Some(800 * day));
        check(801 * day, 801 * day, None);
    }
}
