//! Deleting what is too old, a few rows at a time.

use quotalog_domain::Timestamp;
use quotalog_ledger::store::Retention;
use rusqlite::Result;

use crate::tx::Tx;
use crate::{believed, erase, instant};

/// Entries of the audit that are looked at in one step, if so many come from a clock that was ahead.
const ENTRIES_MAX: u32 = 10_000;

pub(crate) const PRUNE_USAGE: &str = "DELETE FROM quota_usage WHERE id IN \
     (SELECT id FROM quota_usage WHERE window_start < ?1 ORDER BY window_start LIMIT ?2)";
pub(crate) const PRUNE_KEPT: &str = "DELETE FROM quotalog_idempotency_keys WHERE id IN \
     (SELECT id FROM quotalog_idempotency_keys WHERE kept_at < ?1 ORDER BY kept_at LIMIT ?2)";
/// Nobody is admitted by such a token, so that their generation stays as it is.
pub(crate) const PRUNE_TOKENS: &str = "DELETE FROM quotalog_tokens WHERE place IN \
     (SELECT place FROM quotalog_tokens WHERE expires_at < ?1 ORDER BY expires_at LIMIT ?2)";
/// The entries in their order; whether each is older than `?1`, and whether it is of a time after `?2`.
pub(crate) const ENTRIES: &str =
    "SELECT id, at < ?1, at > ?2 FROM quotalog_audit WHERE id > 0 ORDER BY id LIMIT ?3";
pub(crate) const DELETE_ENTRY: &str = "DELETE FROM quotalog_audit WHERE id = ?1";

/// Deletes at most `rows_max` of the oldest rows, and tells how many they were.
pub(crate) fn step(tx: &Tx<'_>, retention: Retention, rows_max: u32) -> Result<u32> {
    let now = believed::now(tx)?;
    let mut left = rows_max;
    left -= prune(tx, PRUNE_USAGE, retention.usage_before(now), left)?;
    let kept = prune(tx, PRUNE_KEPT, retention.kept_before(now), left)?;
    if kept > 0 {
        erase::note_kept_deleted(tx)?;
    }
    left -= kept;
    let audit_before = retention.audit_before(now);
    left -= prune(tx, PRUNE_TOKENS, audit_before, left)?;
    left -= prune_audit(tx, audit_before, now, left)?;
    Ok(rows_max - left)
}

fn prune(tx: &Tx<'_>, sql: &str, before: Timestamp, rows_max: u32) -> Result<u32> {
    let mut prune = tx.connection.prepare_cached(sql)?;
    let pruned = prune.execute((instant::to_text(before), rows_max))?;
    Ok(u32::try_from(pruned).map_or(rows_max, |pruned| pruned.min(rows_max)))
}

/// The ids tell in which order entries were written, whatever the clock showed. So an entry that stands behind
/// one which is to stay is as young as that, though a clock that was behind may have dated it long ago. One
/// that a clock ahead has dated tells nothing of its neighbours, and stays.
fn prune_audit(tx: &Tx<'_>, before: Timestamp, now: Timestamp, rows_max: u32) -> Result<u32> {
    let mut old: Vec<i64> = Vec::new();
    let mut pruned = 0;
    {
        let mut entries = tx.connection.prepare_cached(ENTRIES)?;
        let mut rows =
            entries.query((instant::to_text(before), instant::to_text(now), ENTRIES_MAX))?;
        while pruned < rows_max
            && let Some(row) = rows.next()?
        {
            let (is_old, is_ahead): (bool, bool) = (row.get(1)?, row.get(2)?);
            if is_old {
                old.push(row.get(0)?);
                pruned += 1;
            } else if !is_ahead {
                break;
            }
        }
    }
    let mut delete = tx.connection.prepare_cached(DELETE_ENTRY)?;
    for id in old {
        delete.execute([id])?;
    }
    Ok(pruned)
}
