//! API tokens and their generation: lookups, judgements and changes.
//!
//! Whoever changes tokens holds the row of the generation first, so that places are given in the order of
//! commits, and one node at a time looks whether there is an admin token.

use quotalog_auth::{Caller, Credential, NewToken, TokenHash, TokenId, TokenRecord};
use quotalog_domain::{Timestamp, UserId};
use quotalog_ledger::store::{
    Deed, ExpiryPassed, Judged, Listed, Page, Publish, Revoked, StoreError, TokenOrder,
};
use quotalog_record::unfit::PassedOver;
use tokio_postgres::Error;

use crate::connection::Connection;
use crate::fault::before_commit;
use crate::instant::Instant;
use crate::list::Listing;
use crate::quota::Head;
use crate::store::Inner;
use crate::tx::{For, Tx, in_time, token_id};
use crate::{audit, row};

pub(crate) const BUMP: &str =
    "UPDATE quotalog_token_generation SET generation = generation + 1 WHERE id = 1";
pub(crate) const CONFIRM: &str = "SELECT generation, coalesce($1, transaction_timestamp()), \
     EXISTS (SELECT FROM quotalog_tokens WHERE id = $2) \
     FROM quotalog_token_generation WHERE id = 1";
pub(crate) const FIND: &str = "SELECT g.generation, coalesce($1, transaction_timestamp()), false, \
     t.id, t.role, t.user_id, t.name, t.created_at, t.expires_at \
     FROM quotalog_token_generation g JOIN quotalog_tokens t ON t.hash = $2 WHERE g.id = 1";
const ADMINS: &str = "SELECT id, role, user_id, name, created_at, expires_at \
     FROM quotalog_tokens WHERE role = 'admin'";
pub(crate) const FIND_BY_ID: &str = "SELECT id, role, user_id, name, created_at, expires_at \
     FROM quotalog_tokens WHERE id = $1";
pub(crate) const EXISTING: &str = "SELECT id FROM quotalog_tokens WHERE id = ANY($1)";
const INSERT: &str = "INSERT INTO quotalog_tokens \
     (id, hash, role, user_id, name, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7)";
pub(crate) const DELETE: &str = "DELETE FROM quotalog_tokens WHERE id = $1";
pub(crate) const DELETE_OF_USER: &str =
    "DELETE FROM quotalog_tokens WHERE user_id = $1 RETURNING id";
pub(crate) const PAGE: &str = "SELECT place, id, role, user_id, name, created_at, expires_at \
     FROM quotalog_tokens WHERE place > $1 ORDER BY place LIMIT $2";

const TABLE: &str = "quotalog_tokens";

/// Whether the credential holds: one statement, outside a transaction.
pub(crate) async fn confirm(
    store: &Inner,
    credential: &Credential,
) -> Result<Judged<()>, StoreError> {
    let instant = store.clock.instant().map(Instant::from);
    let lease = store.readers.lease().await?;
    let token_id = token_id(credential);
    let asked = in_time(lease.alone(lease.query_one(CONFIRM, &[&instant, &token_id]))).await?;
    let row = asked.map_err(before_commit)?;
    lease.give_back();
    let holds = Head::of(&row).map_err(before_commit)?.admits(credential);
    Ok(if holds { Ok(()) } else { Err(Revoked) })
}

/// The caller that holds the token of this hash, unless it has expired.
pub(crate) async fn caller(store: &Inner, hash: TokenHash) -> Result<Option<Caller>, StoreError> {
    let instant = store.clock.instant().map(Instant::from);
    let lease = store.readers.lease().await?;
    let hash = hash.as_bytes().as_slice();
    let asked = in_time(lease.alone(lease.query_opt(FIND, &[&instant, &hash]))).await?;
    let row = asked.map_err(before_commit)?;
    lease.give_back();
    let Some(row) = row else {
        return Ok(None);
    };
    let Head {
        generation, now, ..
    } = Head::of(&row).map_err(before_commit)?;
    let read = row::token(&row, 3);
    let token = store.passed_over.held(TABLE, [row::text(&row, 3)], read);
    Ok(token
        .filter(|token| !token.expired_at(now))
        .map(|token| Caller::holding(token, generation)))
}

/// Stores the token as an order of `credential`, unless it would have expired already.
pub(crate) async fn create(
    store: &Inner,
    credential: &Credential,
    token: NewToken,
) -> Result<Judged<Result<TokenRecord, ExpiryPassed>>, StoreError> {
    let tx = match Tx::judged(store, For::Tokens, credential).await? {
        Ok(tx) => tx,
        Err(revoked) => return Ok(Err(revoked)),
    };
    let Some(record) = tx.work(insert(&tx, credential, token)).await? else {
        tx.roll_back().await?;
        return Ok(Ok(Err(ExpiryPassed)));
    };
    tx.commit().await?;
    Ok(Ok(Ok(record)))
}

/// Stores the token, if there is no admin token that is valid.
pub(crate) async fn create_first_admin(
    store: &Inner,
    token: NewToken,
    publish: Publish,
) -> Result<bool, StoreError> {
    let tx = Tx::begin(store, For::Tokens, None).await?;
    let has_admin = has_valid_admin(tx.connection(), tx.now, tx.passed_over);
    if tx.work(has_admin).await? {
        tx.roll_back().await?;
        return Ok(false);
    }
    // Whoever starts the server holds the database.
    let stored = tx
        .work(insert(&tx, &Credential::CommandLine, token))
        .await?;
    stored.ok_or_else(|| StoreError::Internal(Box::new(ExpiryPassed)))?;
    publish().map_err(|error| StoreError::Internal(Box::new(error)))?;
    tx.commit().await?;
    Ok(true)
}

/// Deletes the token as an order of `credential`, and tells whether there was one.
pub(crate) async fn revoke(
    store: &Inner,
    credential: &Credential,
    id: &TokenId,
) -> Result<Judged<bool>, StoreError> {
    let tx = match Tx::judged(store, For::Tokens, credential).await? {
        Ok(tx) => tx,
        Err(revoked) => return Ok(Err(revoked)),
    };
    if tx.work(delete(&tx, credential, id)).await? {
        tx.commit().await?;
        return Ok(Ok(true));
    }
    tx.roll_back().await?;
    Ok(Ok(false))
}

/// The tokens, oldest first.
pub(crate) async fn page(
    tx: &Tx<'_>,
    page: &Page<TokenOrder>,
) -> Result<Listed<TokenRecord, TokenOrder>, Error> {
    let mut after = page.after.map_or(i64::MIN, |TokenOrder(place)| place);
    let mut listing = Listing::new(page.len_max);
    loop {
        let rows = tx
            .connection()
            .query(PAGE, &[&after, &listing.limit()])
            .await?;
        for row in &rows {
            after = row.try_get(0)?;
            let key = [row::text(row, 1)];
            let token = tx.passed_over.held(TABLE, key, row::token(row, 1));
            if !listing.add(token, TokenOrder(after)) {
                return Ok(listing.more());
            }
        }
        if listing.was_last(&rows) {
            return Ok(listing.end());
        }
    }
}

/// Deletes the tokens of a user, and tells their ids.
pub(crate) async fn delete_of_user(tx: &Tx<'_>, user_id: &UserId) -> Result<Vec<String>, Error> {
    let user_id = user_id.as_str();
    let deleted = tx.connection().query(DELETE_OF_USER, &[&user_id]).await?;
    if !deleted.is_empty() {
        tx.connection().execute(BUMP, &[]).await?;
    }
    deleted.iter().map(|row| row.try_get(0)).collect()
}

/// Whether a valid token of an administrator is stored.
pub(crate) async fn has_valid_admin(
    connection: &Connection,
    now: Timestamp,
    passed_over: &PassedOver,
) -> Result<bool, Error> {
    let rows = connection.query(ADMINS, &[]).await?;
    Ok(rows.iter().any(|row| {
        let token = passed_over.held(TABLE, [row::text(row, 0)], row::token(row, 0));
        token.is_some_and(|token| !token.expired_at(now))
    }))
}

async fn insert(
    tx: &Tx<'_>,
    credential: &Credential,
    token: NewToken,
) -> Result<Option<TokenRecord>, Error> {
    let NewToken {
        id,
        hash,
        role,
        name,
        expires_at,
    } = token;
    let record = TokenRecord {
        id,
        role,
        name,
        created_at: tx.now.floor_to_s(),
        // A part of a second is not stored: better refused too early than too late.
        expires_at: expires_at.map(Timestamp::floor_to_s),
    };
    if record.expired_at(tx.now) {
        return Ok(None);
    }
    let user_id = record.user_id().map(UserId::as_str);
    let name = record.name.as_ref().map(|name| name.as_str());
    let (created_at, expires_at) = (
        Instant::from(record.created_at),
        record.expires_at.map(Instant::from),
    );
    tx.connection()
        .execute(
            INSERT,
            &[
                &record.id.as_str(),
                &hash.as_bytes().as_slice(),
                &record.role.kind().as_str(),
                &user_id,
                &name,
                &created_at,
                &expires_at,
            ],
        )
        .await?;
    tx.connection().execute(BUMP, &[]).await?;
    audit::write(tx, credential, &Deed::token_created(&record)).await?;
    Ok(Some(record))
}

async fn delete(tx: &Tx<'_>, credential: &Credential, id: &TokenId) -> Result<bool, Error> {
    let id_text = id.as_str();
    let Some(row) = tx.connection().query_opt(FIND_BY_ID, &[&id_text]).await? else {
        return Ok(false);
    };
    let token = tx.passed_over.held(TABLE, [id_text], row::token(&row, 0));
    let deed = Deed::token_revoked(id, token.as_ref());
    // First, while the name of a token that deletes itself can still be found.
    audit::write(tx, credential, &deed).await?;
    tx.connection().execute(DELETE, &[&id_text]).await?;
    tx.connection().execute(BUMP, &[]).await?;
    Ok(true)
}
