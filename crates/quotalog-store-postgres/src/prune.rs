//! Deleting what is too old, a few rows at a time, by one node at a time.

use std::collections::BTreeSet;

use quotalog_ledger::store::{PruneStep, Retention, StoreError};
use tokio_postgres::Error;

use crate::batch::DROP_ANCHORS;
use crate::believed;
use crate::connection::Value;
use crate::instant::Instant;
use crate::row;
use crate::store::Inner;
use crate::tx::{For, Tx};

/// Known to this program alone: whoever prunes has the lock until the end of the transaction. And a step holds
/// what others may wait for, so that none of its statements is given as long as one of theirs.
const TURN: &str = "SELECT pg_try_advisory_xact_lock(8148427718541895), \
     set_config('statement_timeout', '1s', true)";
pub(crate) const PRUNE_USAGE: &str = "DELETE FROM quota_usage WHERE ctid = ANY (ARRAY \
     (SELECT o.ctid FROM quota_usage o \
     WHERE (o.window_start AT TIME ZONE 'UTC') < ($1::timestamptz AT TIME ZONE 'UTC') \
     ORDER BY (o.window_start AT TIME ZONE 'UTC') LIMIT $2 FOR UPDATE SKIP LOCKED)) \
     RETURNING user_id, resource";
/// Whoever counts for such a pair has its row; whoever deletes the row must have it too, from before it looks
/// whether there is usage.
pub(crate) const LOCK_ANCHORS: &str = "SELECT FROM (SELECT n.user_id COLLATE \"C\" AS user_id, \
     n.resource COLLATE \"C\" AS resource FROM unnest($1::text[], $2::text[]) AS n(user_id, resource) \
     ORDER BY 1, 2) k CROSS JOIN LATERAL (SELECT FROM quota_policies o \
     WHERE o.user_id = k.user_id AND o.resource = k.resource AND o.\"window\" IS NULL FOR UPDATE) p";
pub(crate) const PRUNE_KEPT: &str = "DELETE FROM quotalog_idempotency_keys WHERE ctid = ANY (ARRAY \
     (SELECT o.ctid FROM quotalog_idempotency_keys o \
     WHERE (o.kept_at AT TIME ZONE 'UTC') < ($1::timestamptz AT TIME ZONE 'UTC') \
     ORDER BY (o.kept_at AT TIME ZONE 'UTC') LIMIT $2 FOR UPDATE SKIP LOCKED))";
/// Nobody is admitted by such a token, so that their generation stays as it is.
pub(crate) const PRUNE_TOKENS: &str = "DELETE FROM quotalog_tokens WHERE ctid = ANY (ARRAY \
     (SELECT o.ctid FROM quotalog_tokens o WHERE o.expires_at IS NOT NULL \
     AND (o.expires_at AT TIME ZONE 'UTC') < ($1::timestamptz AT TIME ZONE 'UTC') \
     ORDER BY (o.expires_at AT TIME ZONE 'UTC') LIMIT $2 FOR UPDATE SKIP LOCKED))";
/// The entries after `$1` in their order; whether each is older than `$2`, and whether it is of a time after `$3`.
pub(crate) const ENTRIES: &str =
    "SELECT id, at < $2, at > $3 FROM quotalog_audit WHERE id > $1 ORDER BY id LIMIT $4";
pub(crate) const DELETE_ENTRIES: &str = "DELETE FROM quotalog_audit WHERE id = ANY($1)";

/// Entries of the audit that are read at once.
const ENTRIES_PER_PAGE: i64 = 500;
/// Pages of them that are looked at in one step, if so many come from a clock that was ahead.
const PAGES_MAX: u32 = 20;

/// Deletes at most `rows_max` of the oldest rows, and tells how many they were; none while another node
/// prunes.
pub(crate) async fn step(
    store: &Inner,
    retention: Retention,
    rows_max: u32,
) -> Result<PruneStep, StoreError> {
    let tx = Tx::begin(store, For::Writing, None).await?;
    let Some(pruned) = tx.work(prune(&tx, retention, rows_max)).await? else {
        tx.roll_back().await?;
        return Ok(PruneStep::LeftToAnother);
    };
    tx.commit().await?;
    Ok(PruneStep::Deleted(pruned))
}

async fn prune(tx: &Tx<'_>, retention: Retention, rows_max: u32) -> Result<Option<u32>, Error> {
    let on = tx.connection();
    if !on.query_one(TURN, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let now = believed::now(tx).await?;
    let mut left = i64::from(rows_max);
    left -= prune_usage(tx, retention.usage_before(now).into(), left).await?;
    let audit_before = Instant::from(retention.audit_before(now));
    for (sql, before) in [
        (PRUNE_KEPT, retention.kept_before(now).into()),
        (PRUNE_TOKENS, audit_before),
    ] {
        let pruned = on.execute(sql, &[&before, &left]).await?;
        left -= i64::try_from(pruned).unwrap_or(left).min(left);
    }
    left -= prune_audit(tx, audit_before, now.into(), left).await?;
    Ok(Some(rows_max - u32::try_from(left).unwrap_or(0)))
}

/// Usage, and the rows of pairs whose last usage it was.
async fn prune_usage(tx: &Tx<'_>, before: Instant, rows_max: i64) -> Result<i64, Error> {
    let on = tx.connection();
    let pruned = on.query(PRUNE_USAGE, &[&before, &rows_max]).await?;
    // Several hours of one pair may be among them.
    let pairs: BTreeSet<_> = pruned
        .iter()
        .map(|row| (row::text(row, 0), row::text(row, 1)))
        .collect();
    if !pairs.is_empty() {
        let (user_ids, resources): (Vec<&str>, Vec<&str>) = pairs.into_iter().unzip();
        on.query(LOCK_ANCHORS, &[&user_ids, &resources]).await?;
        on.execute(DROP_ANCHORS, &[&user_ids, &resources]).await?;
    }
    Ok(i64::try_from(pruned.len()).unwrap_or(rows_max))
}

/// The ids tell in which order entries were written, whatever the clock showed. So an entry that stands behind
/// one which is to stay is as young as that, though a clock that was behind may have dated it long ago. One
/// that a clock ahead has dated tells nothing of its neighbours, and stays.
async fn prune_audit(
    tx: &Tx<'_>,
    before: Instant,
    now: Instant,
    rows_max: i64,
) -> Result<i64, Error> {
    let on = tx.connection();
    let rows_max = usize::try_from(rows_max).unwrap_or(0);
    let mut old: Vec<i64> = Vec::new();
    let mut after = 0_i64;
    'pages: for _ in 0..PAGES_MAX {
        let values: [Value<'_>; 4] = [&after, &before, &now, &ENTRIES_PER_PAGE];
        let rows = on.query(ENTRIES, &values).await?;
        for row in &rows {
            if old.len() == rows_max {
                break 'pages;
            }
            after = row.try_get(0)?;
            let (is_old, is_ahead): (bool, bool) = (row.try_get(1)?, row.try_get(2)?);
            if is_old {
                old.push(after);
            } else if !is_ahead {
                break 'pages;
            }
        }
        if rows.is_empty() {
            break;
        }
    }
    on.execute_unless(old.is_empty(), DELETE_ENTRIES, &[&old])
        .await?;
    Ok(i64::try_from(old.len()).unwrap_or(i64::MAX))
}
