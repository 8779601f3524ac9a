//! The row that remembers how far the clock was believed ([`Belief`]), so that pruning outlives a wrong clock.

use quotalog_domain::Timestamp;
use quotalog_record::Belief;
use tokio_postgres::{Error, Row};

use crate::config::PostgresClock;
use crate::connection::Connection;
use crate::instant::Instant;
use crate::row;
use crate::tx::Tx;

const BEGIN: &str = "INSERT INTO quotalog_clock (id, seen_at) \
     SELECT 1, date_trunc('second', coalesce($1, transaction_timestamp()), 'UTC') \
     WHERE NOT EXISTS (SELECT FROM quotalog_clock WHERE id = 1) ON CONFLICT (id) DO NOTHING";
const FIND: &str = "SELECT seen_at, leapt_at FROM quotalog_clock WHERE id = 1";
const FIND_TO_SAVE: &str = "SELECT seen_at, leapt_at FROM quotalog_clock WHERE id = 1 FOR UPDATE";
const SAVE: &str = "UPDATE quotalog_clock SET seen_at = $1, leapt_at = $2 WHERE id = 1";

/// In a database that has none yet, belief begins at the clock.
pub(crate) async fn begin(connection: &Connection, clock: &PostgresClock) -> Result<(), Error> {
    let instant = clock.instant().map(Instant::from);
    connection
        .alone(connection.execute(BEGIN, &[&instant]))
        .await?;
    Ok(())
}

/// What was believed when rows were last looked at.
pub(crate) async fn last(connection: &Connection) -> Result<Belief, Error> {
    Ok(of(&connection.query_one(FIND, &[]).await?))
}

fn of(found: &Row) -> Belief {
    Belief {
        // An unreadable one is as old as can be, and mends itself within a day.
        seen_at: row::timestamp(found, 0).unwrap_or(Timestamp::MIN),
        leapt_at: row::timestamp(found, 1).ok(),
    }
}

/// The clock's instant, or the last one that is believed where the clock is ahead of it.
pub(crate) async fn now(tx: &Tx<'_>) -> Result<Timestamp, Error> {
    let before = of(&tx.connection().query_one(FIND_TO_SAVE, &[]).await?);
    let now = tx.now.floor_to_s();
    let after = before.at(now);
    if after != before {
        let seen_at = Instant::from(after.seen_at);
        let leapt_at = after.leapt_at.map(Instant::from);
        tx.connection()
            .execute(SAVE, &[&seen_at, &leapt_at])
            .await?;
    }
    if after.doubts_anew(before) {
        let seen_at_unix_s = after.seen_at.unix_s();
        tracing::warn!(
            seen_at_unix_s,
            "the clock is far ahead of when old rows were last looked for; for a day, rows are pruned \
             by their age at that time"
        );
    }
    Ok(now.min(after.seen_at))
}
