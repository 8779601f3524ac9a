//! The row that remembers how far the clock was believed ([`Belief`]), so that pruning outlives a wrong clock.

use quotalog_domain::Timestamp;
use quotalog_record::Belief;
use rusqlite::{Connection, Result};

use crate::instant;
use crate::tx::Tx;

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
    let before = of(tx.connection)?;
    let now = tx.now.floor_to_s();
    let after = before.at(now);
    if after != before {
        let leapt_at = after.leapt_at.map(instant::to_text);
        let mut save = tx.connection.prepare_cached(SAVE)?;
        save.execute((instant::to_text(after.seen_at), leapt_at))?;
    }
    if after.doubts_anew(before) {
        let seen_at = instant::to_text(after.seen_at);
        tracing::warn!(
            seen_at,
            "the clock is far ahead of when old rows were last looked for; for a day, rows are pruned \
             by their age at that time"
        );
    }
    Ok(now.min(after.seen_at))
}

/// What was believed when rows were last looked at.
pub(crate) fn of(connection: &Connection) -> Result<Belief> {
    let mut find = connection.prepare_cached(FIND)?;
    find.query_row([], |row| {
        let at = |column| -> Result<Option<Timestamp>> {
            let text: Option<String> = row.get(column)?;
            Ok(text.as_deref().and_then(instant::from_text))
        };
        Ok(Belief {
            // An unreadable one is as old as can be, and mends itself within a day.
            seen_at: at(0)?.unwrap_or(Timestamp::MIN),
            leapt_at: at(1)?,
        })
    })
}
