//! Deleting what is too old, a few rows at a time.

use quotalog_ledger::store::Retention;
use rusqlite::Result;

use crate::tx::Tx;
use crate::{believed, instant};

pub(crate) const PRUNE_USAGE: &str = "DELETE FROM quota_usage WHERE id IN \
     (SELECT id FROM quota_usage WHERE window_start < ?1 ORDER BY window_start LIMIT ?2)";
pub(crate) const PRUNE_KEPT: &str = "DELETE FROM quotalog_idempotency_keys WHERE id IN \
     (SELECT id FROM quotalog_idempotency_keys WHERE kept_at < ?1 ORDER BY kept_at LIMIT ?2)";
pub(crate) const PRUNE_AUDIT: &str = "DELETE FROM quotalog_audit WHERE id IN \
     (SELECT id FROM quotalog_audit WHERE at < ?1 ORDER BY at LIMIT ?2)";

/// Deletes at most `rows_max` of the oldest rows, and tells how many they were.
pub(crate) fn step(tx: &Tx<'_>, retention: Retention, rows_max: u32) -> Result<u32> {
    let now = believed::now(tx)?;
    let kinds = [
        (PRUNE_USAGE, retention.usage_before(now)),
        (PRUNE_KEPT, retention.kept_before(now)),
        (PRUNE_AUDIT, retention.audit_before(now)),
    ];
    let mut left = rows_max;
    for (sql, before) in kinds {
        let mut prune = tx.connection.prepare_cached(sql)?;
        let pruned = prune.execute((instant::to_text(before), left))?;
        left -= u32::try_from(pruned).unwrap_or(left).min(left);
    }
    Ok(rows_max - left)
}
