//! Deleting what is too old, a few rows at a time, by one node at a time.

use quotalog_ledger::store::{Retention, StoreError};
use tokio_postgres::Error;

use crate::batch::DROP_ANCHORS;
use crate::believed;
use crate::instant::Instant;
use crate::row;
use crate::store::Inner;
use crate::tx::{For, Tx};

/// Known to this program alone: whoever prunes has it until the end of the transaction.
const TURN: &str = "SELECT pg_try_advisory_xact_lock(8148427718541895)";
pub(crate) const PRUNE_USAGE: &str = "DELETE FROM quota_usage WHERE ctid = ANY (ARRAY \
     (SELECT o.ctid FROM quota_usage o \
     WHERE (o.window_start AT TIME ZONE 'UTC') < ($1::timestamptz AT TIME ZONE 'UTC') \
     ORDER BY (o.window_start AT TIME ZONE 'UTC') LIMIT $2 FOR UPDATE SKIP LOCKED)) \
     RETURNING user_id, resource";
/// Whoever counts for such a pair has its row; whoever deletes the row must have it too, from before it looks
/// whether there is usage.
pub(crate) const LOCK_ANCHORS: &str = "SELECT FROM (SELECT DISTINCT n.user_id COLLATE \"C\" AS user_id, \
     n.resource COLLATE \"C\" AS resource FROM unnest($1::text[], $2::text[]) AS n(user_id, resource) \
     ORDER BY 1, 2) k CROSS JOIN LATERAL (SELECT FROM quota_policies o \
     WHERE o.user_id = k.user_id AND o.resource = k.resource AND o.\"window\" IS NULL FOR UPDATE) p";
pub(crate) const PRUNE_KEPT: &str = "DELETE FROM quotalog_idempotency_keys WHERE ctid = ANY (ARRAY \
     (SELECT o.ctid FROM quotalog_idempotency_keys o \
     WHERE (o.kept_at AT TIME ZONE 'UTC') < ($1::timestamptz AT TIME ZONE 'UTC') \
     ORDER BY (o.kept_at AT TIME ZONE 'UTC') LIMIT $2 FOR UPDATE SKIP LOCKED))";
pub(crate) const PRUNE_AUDIT: &str = "DELETE FROM quotalog_audit WHERE id = ANY (ARRAY \
     (SELECT id FROM quotalog_audit \
     WHERE (at AT TIME ZONE 'UTC') < ($1::timestamptz AT TIME ZONE 'UTC') \
     ORDER BY (at AT TIME ZONE 'UTC') LIMIT $2))";

/// Deletes at most `rows_max` of the oldest rows, and tells how many they were; none while another node
/// prunes.
pub(crate) async fn step(
    store: &Inner,
    retention: Retention,
    rows_max: u32,
) -> Result<u32, StoreError> {
    let tx = Tx::begin(store, For::Writing, None).await?;
    let Some(pruned) = tx.work(prune(&tx, retention, rows_max)).await? else {
        tx.roll_back().await?;
        return Ok(0);
    };
    tx.commit().await?;
    Ok(pruned)
}

async fn prune(tx: &Tx<'_>, retention: Retention, rows_max: u32) -> Result<Option<u32>, Error> {
    let on = tx.connection();
    if !on.query_one(TURN, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let now = believed::now(tx).await?;
    let mut left = i64::from(rows_max);
    left -= prune_usage(tx, retention.usage_before(now).into(), left).await?;
    for (sql, before) in [
        (PRUNE_KEPT, retention.kept_before(now)),
        (PRUNE_AUDIT, retention.audit_before(now)),
    ] {
        let before = Instant::from(before);
        let pruned = on.execute(sql, &[&before, &left]).await?;
        left -= i64::try_from(pruned).unwrap_or(left).min(left);
    }
    Ok(Some(rows_max - u32::try_from(left).unwrap_or(0)))
}

/// Usage, and the rows of pairs whose last usage it was.
async fn prune_usage(tx: &Tx<'_>, before: Instant, rows_max: i64) -> Result<i64, Error> {
    let on = tx.connection();
    let pruned = on.query(PRUNE_USAGE, &[&before, &rows_max]).await?;
    if !pruned.is_empty() {
        let user_ids: Vec<&str> = pruned.iter().map(|row| row::text(row, 0)).collect();
        let resources: Vec<&str> = pruned.iter().map(|row| row::text(row, 1)).collect();
        on.query(LOCK_ANCHORS, &[&user_ids, &resources]).await?;
        on.execute(DROP_ANCHORS, &[&user_ids, &resources]).await?;
    }
    Ok(i64::try_from(pruned.len()).unwrap_or(rows_max))
}
