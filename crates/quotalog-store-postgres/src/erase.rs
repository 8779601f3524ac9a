//! Erasing a user. What serves requests goes at once, with the entry of the audit; the rest follows in short
//! transactions, between which others write. What is left for them is stored with the first one, so that it is
//! done whatever happens in between, by this node or another.
//!
//! What comes into being after the first transaction is not the erased user's any more, though it may bear
//! the same id: to delete it would grant units twice, or forget an answer that a retry needs. So the rest is
//! bounded by what there was then. Nothing is under way for the user while the first transaction looks: it has the
//! rows that lock the user's pairs, and keeps others from making any.

use quotalog_auth::Credential;
use quotalog_domain::{UserId, Window};
use quotalog_ledger::store::{Deed, ErasureId, Judged, StoreError};
use quotalog_record::kept;
use tokio_postgres::{Error, Row};

use crate::batch::GUARD_USER;
use crate::connection::Value;
use crate::instant::Instant;
use crate::store::Inner;
use crate::tx::{For, Tx};
use crate::{audit, row, token};

/// Usage rows of one transaction.
const ROWS_MAX: i64 = 500;
/// Kept answers that are looked at in one transaction; each may tell of a hundred quotas.
const ANSWERS_MAX: i64 = 500;

/// The rows of the user's pairs, in the order of all locks, and which of them are policies.
pub(crate) const LOCK: &str = "SELECT p.\"window\" IS NOT NULL FROM quota_policies p \
     WHERE p.user_id = $1 ORDER BY p.resource FOR UPDATE";
pub(crate) const DELETE_POLICIES: &str = "DELETE FROM quota_policies WHERE user_id = $1";
pub(crate) const DELETE_PRESENT_USAGE: &str =
    "DELETE FROM quota_usage WHERE user_id = $1 AND window_start >= $2";
pub(crate) const DELETE_PAST_USAGE: &str = "DELETE FROM quota_usage WHERE ctid = ANY (ARRAY \
     (SELECT o.ctid FROM quota_usage o WHERE o.user_id = $1 AND o.window_start < $2 \
     ORDER BY o.resource, o.window_start LIMIT $3 FOR UPDATE))";
pub(crate) const DELETE_KEPT: &str = "DELETE FROM quotalog_idempotency_keys WHERE user_id = $1";
/// All that was kept before has a smaller one, and all that will be kept a larger one.
const NEXT_PLACE: &str =
    "SELECT nextval(pg_get_serial_sequence('quotalog_idempotency_keys', 'place'))";
/// The answers that are kept for a caller, not for a pair; with the answer itself where it holds the bytes `$5`, so
/// that few are sent.
pub(crate) const KEPT_FOR_CALLERS: &str = "SELECT operation, caller, key, place, \
     CASE WHEN position($5::bytea in kept) > 0 THEN kept END \
     FROM quotalog_idempotency_keys WHERE user_id = '' AND resource = '' \
     AND (operation, caller, key) > ($1, $2, $3) ORDER BY operation, caller, key LIMIT $4";
pub(crate) const DELETE_KEPT_ONE: &str = "DELETE FROM quotalog_idempotency_keys WHERE user_id = '' AND resource = '' \
     AND operation = $1 AND caller = $2 AND key = $3 AND place = $4";

const INSERT: &str = "INSERT INTO quotalog_erasures \
     (user_id, day_start, kept_before, after_operation, after_caller, after_key) \
     VALUES ($1, $2, $3, '', '', '') RETURNING id";
/// The oldest erasure that no other node works on.
pub(crate) const OLDEST_FREE: &str = "SELECT id, user_id, day_start, kept_before, after_operation, after_caller, after_key \
     FROM quotalog_erasures ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED";
pub(crate) const OLDEST: &str = "SELECT id FROM quotalog_erasures ORDER BY id LIMIT 1";
pub(crate) const GO_ON_AFTER: &str = "UPDATE quotalog_erasures \
     SET after_operation = $2, after_caller = $3, after_key = $4 WHERE id = $1";
pub(crate) const DELETE: &str = "DELETE FROM quotalog_erasures WHERE id = $1";

/// The first transaction.
pub(crate) async fn begin(
    store: &Inner,
    credential: &Credential,
    user_id: &UserId,
) -> Result<Judged<ErasureId>, StoreError> {
    let tx = match Tx::judged(store, For::Tokens, credential).await? {
        Ok(tx) => tx,
        Err(revoked) => return Ok(Err(revoked)),
    };
    let erasure = tx.work(erase_present(&tx, credential, user_id)).await?;
    tx.commit().await?;
    Ok(Ok(erasure))
}

/// One more transaction for the oldest erasure that no other node works on, if there is one.
pub(crate) async fn step(store: &Inner) -> Result<Option<ErasureId>, StoreError> {
    let tx = Tx::begin(store, For::Writing, None).await?;
    let oldest = tx.work(erase_more(&tx)).await?;
    tx.commit().await?;
    Ok(oldest)
}

async fn erase_present(
    tx: &Tx<'_>,
    credential: &Credential,
    user_id: &UserId,
) -> Result<ErasureId, Error> {
    let (on, id) = (tx.connection(), user_id.as_str());
    let day_start = Instant::from(Window::Daily.span_at(tx.now).start);
    on.query(GUARD_USER, &[&id]).await?;
    let rows = on.query(LOCK, &[&id]).await?;
    let policies = rows.iter().filter(|row| row.try_get(0).unwrap_or(false));
    let policies = u64::try_from(policies.count()).unwrap_or(u64::MAX);
    on.execute(DELETE_POLICIES, &[&id]).await?;
    on.execute(DELETE_KEPT, &[&id]).await?;
    on.execute(DELETE_PRESENT_USAGE, &[&id, &day_start]).await?;
    let token_ids = token::delete_of_user(tx, user_id).await?;
    let deed = Deed::user_erased(user_id.clone(), policies, token_ids);
    audit::write(tx, credential, &deed).await?;
    let kept_before: i64 = on.query_one(NEXT_PLACE, &[]).await?.try_get(0)?;
    let values: [Value<'_>; 3] = [&id, &day_start, &kept_before];
    let erasure = on.query_one(INSERT, &values).await?;
    erasure.try_get(0).map(ErasureId)
}

async fn erase_more(tx: &Tx<'_>) -> Result<Option<ErasureId>, Error> {
    let on = tx.connection();
    if let Some(row) = on.query_opt(OLDEST_FREE, &[]).await? {
        let erasure = Erasure::of(&row)?;
        if erasure.erase_past_usage(tx).await? && erasure.erase_answers(tx).await? {
            on.execute(DELETE, &[&erasure.id]).await?;
        }
    }
    let oldest = on.query_opt(OLDEST, &[]).await?;
    let oldest = oldest.map(|row| row.try_get(0).map(ErasureId));
    oldest.transpose()
}

/// An erasure that is not finished. Its row is locked.
struct Erasure<'r> {
    id: i64,
    user_id: &'r str,
    /// Usage rows that start before this instant are still to go.
    day_start: Instant,
    /// Kept answers with places before this one are.
    kept_before: i64,
    /// Those up to this operation, caller and key have been looked at.
    after: [&'r str; 3],
}

impl<'r> Erasure<'r> {
    fn of(row: &'r Row) -> Result<Self, Error> {
        Ok(Self {
            id: row.try_get(0)?,
            user_id: row.try_get(1)?,
            day_start: row.try_get(2)?,
            kept_before: row.try_get(3)?,
            after: [row.try_get(4)?, row.try_get(5)?, row.try_get(6)?],
        })
    }

    /// Deletes some of the usage of earlier days; true when none is left.
    async fn erase_past_usage(&self, tx: &Tx<'_>) -> Result<bool, Error> {
        let values: [Value<'_>; 3] = [&self.user_id, &self.day_start, &ROWS_MAX];
        let deleted = tx.connection().execute(DELETE_PAST_USAGE, &values).await?;
        Ok(i64::try_from(deleted).is_ok_and(|deleted| deleted < ROWS_MAX))
    }

    /// Deletes those of the next kept answers that name the user; true when these were the last.
    async fn erase_answers(&self, tx: &Tx<'_>) -> Result<bool, Error> {
        let on = tx.connection();
        let [operation, caller, key] = &self.after;
        let user_id = self.user_id.as_bytes();
        let values: [Value<'_>; 5] = [operation, caller, key, &ANSWERS_MAX, &user_id];
        let rows = on.query(KEPT_FOR_CALLERS, &values).await?;
        for row in &rows {
            let place: i64 = row.try_get(3)?;
            // NULL where the bytes of the user's id are not in it.
            let kept: Option<&[u8]> = row.try_get(4)?;
            if place < self.kept_before && kept.is_some_and(|kept| kept::names(kept, self.user_id))
            {
                let [operation, caller, key] = key_of(row);
                // If it is kept anew meanwhile, it has another place.
                let values: [Value<'_>; 4] = [&operation, &caller, &key, &place];
                on.execute(DELETE_KEPT_ONE, &values).await?;
            }
        }
        let full = i64::try_from(rows.len()).is_ok_and(|len| len == ANSWERS_MAX);
        let Some(last) = rows.last().filter(|_| full) else {
            return Ok(true);
        };
        let [operation, caller, key] = key_of(last);
        let values: [Value<'_>; 4] = [&self.id, &operation, &caller, &key];
        on.execute(GO_ON_AFTER, &values).await?;
        Ok(false)
    }
}

/// The operation, caller and key of a kept answer.
fn key_of(row: &Row) -> [&str; 3] {
    [0, 1, 2].map(|column| row::text(row, column))
}
