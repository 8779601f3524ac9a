//! Erasing a user. What serves requests goes at once, with the entry of the audit; the rest follows in short
//! transactions, between which others write.
//!
//! What comes into being after the first transaction is not the erased user's any more, though it may bear
//! the same id: to delete it would grant units twice, or forget an answer that a retry needs. So the rest is
//! bounded by what there was then. Nothing is under way for the user while the first transaction looks: it has the
//! rows that lock the user's pairs, and keeps others from making any.

use quotalog_auth::Credential;
use quotalog_domain::{UserId, Window};
use quotalog_ledger::store::{Deed, Judged, StoreError};
use quotalog_record::kept;
use tokio_postgres::Error;

use crate::batch::GUARD_USER;
use crate::connection::Value;
use crate::instant::Instant;
use crate::store::Inner;
use crate::tx::{For, Tx};
use crate::{audit, row, token};

/// Usage rows of one transaction.
const ROWS_MAX: i64 = 500;
/// Kept answers that are read in one transaction; each may tell of a hundred quotas.
const ANSWERS_MAX: i64 = 200;

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
/// The answers that are kept for a caller, not for a pair.
pub(crate) const KEPT_FOR_CALLERS: &str = "SELECT operation, caller, key, place, kept \
     FROM quotalog_idempotency_keys WHERE user_id = '' AND resource = '' \
     AND (operation, caller, key) > ($1, $2, $3) ORDER BY operation, caller, key LIMIT $4";
pub(crate) const DELETE_KEPT_ONE: &str = "DELETE FROM quotalog_idempotency_keys WHERE user_id = '' AND resource = '' \
     AND operation = $1 AND caller = $2 AND key = $3 AND place = $4";

/// Erases the user. After an error, doing the same again does the rest.
pub(crate) async fn user(
    store: &Inner,
    credential: &Credential,
    user_id: &UserId,
) -> Result<Judged<()>, StoreError> {
    let tx = match Tx::judged(store, For::Tokens, credential).await? {
        Ok(tx) => tx,
        Err(revoked) => return Ok(Err(revoked)),
    };
    let left = tx.work(erase_present(&tx, credential, user_id)).await?;
    tx.commit().await?;
    erase_left(store, user_id, left)
        .await
        .map(Ok)
        .map_err(partly_done)
}

/// What the first transaction left to do.
struct Left {
    /// Usage rows that start before this instant.
    day_start: Instant,
    /// Kept answers with places before this one.
    kept_before: i64,
}

/// Something was erased already, so nobody may be told that nothing was.
fn partly_done(error: StoreError) -> StoreError {
    match error {
        StoreError::Unavailable(cause) | StoreError::OutcomeUnknown(cause) => {
            StoreError::OutcomeUnknown(cause)
        }
        StoreError::Internal(cause) => StoreError::Internal(cause),
    }
}

async fn erase_present(
    tx: &Tx<'_>,
    credential: &Credential,
    user_id: &UserId,
) -> Result<Left, Error> {
    let (on, id) = (tx.connection(), user_id.as_str());
    let day_start = Instant::from(Window::Daily.span_at(tx.now).start);
    on.query(GUARD_USER, &[&id]).await?;
    let rows = on.query(LOCK, &[&id]).await?;
    let policies = rows.iter().filter(|row| row.try_get(0).unwrap_or(false));
    let policies = u64::try_from(policies.count()).unwrap_or(u64::MAX);
    on.execute(DELETE_POLICIES, &[&id]).await?;
    on.execute(DELETE_KEPT, &[&id]).await?;
    on.execute(DELETE_PRESENT_USAGE, &[&id, &day_start]).await?;
    let tokens = token::delete_of_user(tx, user_id).await?;
    let deed = Deed::user_erased(user_id.clone(), policies, tokens);
    audit::write(tx, credential, &deed).await?;
    Ok(Left {
        day_start,
        kept_before: on.query_one(NEXT_PLACE, &[]).await?.try_get(0)?,
    })
}

async fn erase_left(store: &Inner, user_id: &UserId, left: Left) -> Result<(), StoreError> {
    let id = user_id.as_str();
    loop {
        let tx = Tx::begin(store, For::Writing, None).await?;
        let values: [Value<'_>; 3] = [&id, &left.day_start, &ROWS_MAX];
        let deleting = tx.connection().execute(DELETE_PAST_USAGE, &values);
        let deleted = tx.work(deleting).await?;
        tx.commit().await?;
        if deleted == 0 {
            break;
        }
    }
    let mut after = Some(Place::first());
    while let Some(place) = after {
        let tx = Tx::begin(store, For::Writing, None).await?;
        let erasing = erase_answers(&tx, user_id, &place, left.kept_before);
        after = tx.work(erasing).await?;
        tx.commit().await?;
    }
    Ok(())
}

/// The operation, caller and key of a kept answer, after which a page goes on.
struct Place([String; 3]);

impl Place {
    fn first() -> Self {
        Self([(); 3].map(|()| String::new()))
    }
}

/// Erases the answers of one page that name the user, and tells where the next one goes on.
async fn erase_answers(
    tx: &Tx<'_>,
    user_id: &UserId,
    after: &Place,
    kept_before: i64,
) -> Result<Option<Place>, Error> {
    let Place([operation, caller, key]) = after;
    let values: [Value<'_>; 4] = [operation, caller, key, &ANSWERS_MAX];
    let rows = tx.connection().query(KEPT_FOR_CALLERS, &values).await?;
    for row in &rows {
        let place: i64 = row.try_get(3)?;
        if place < kept_before && kept::names(row.try_get(4)?, user_id) {
            let (operation, caller, key) =
                (row::text(row, 0), row::text(row, 1), row::text(row, 2));
            // If it is kept anew meanwhile, it has another place.
            let values: [Value<'_>; 4] = [&operation, &caller, &key, &place];
            tx.connection().execute(DELETE_KEPT_ONE, &values).await?;
        }
    }
    let full = i64::try_from(rows.len()).is_ok_and(|len| len == ANSWERS_MAX);
    let last = rows.last().filter(|_| full);
    Ok(last.map(|row| Place([0, 1, 2].map(|column| row::text(row, column).to_owned()))))
}
