//! Deleting what is too old, a few rows at a time.

use quotalog_ledger::store::Retention;
use rusqlite::Result;

use crate::tx::Tx;
use crate::{believed, instant};

const PRUNE_USAGE: &str = "DELETE FROM quota_usage WHERE id IN \
     (SELECT id FROM quota_usage WHERE window_start < ?1 ORDER BY window_start LIMIT ?2)";
const PRUNE_KEPT: &str = "DELETE FROM quotalog_idempotency_keys WHERE id IN \
     (SELECT id FROM quotalog_idempotency_keys WHERE kept_at < ?1 ORDER BY kept_at LIMIT ?2)";

/// Deletes at most `rows_max` of the oldest rows, and tells how many they were.
pub(crate) fn step(tx: &Tx<'_>, retention: Retention, rows_max: u32) -> Result<u32> {
    let now = believed::now(tx)?;
    let usage_before = instant::to_text(retention.usage_before(now));
    let usage = tx
        .connection
        .prepare_cached(PRUNE_USAGE)?
        .execute((usage_before, rows_max))?;
    let usage = u32::try_from(usage).unwrap_or(rows_max).min(rows_max);
    let left = rows_max - usage;
    let kept_before = instant::to_text(retention.kept_before(now));
    let kept = tx
        .connection
        .prepare_cached(PRUNE_KEPT)?
        .execute((kept_before, left))?;
    Ok(usage.saturating_add(u32::try_from(kept).unwrap_or(left)))
}
