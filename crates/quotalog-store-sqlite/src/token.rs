//! API tokens and their generation: lookups, judgements and changes.

use quotalog_auth::{
    Caller, Credential, Generation, NewToken, Standing, TokenHash, TokenId, TokenRecord,
};
use quotalog_domain::UserId;
use quotalog_ledger::store::{Deed, Judged, Revoked};
use rusqlite::{Connection, OptionalExtension as _, Result};

use crate::quota::held;
use crate::tx::Tx;
use crate::{audit, instant, row};

const GENERATION: &str = "SELECT generation FROM quotalog_token_generation WHERE id = 1";
const BUMP: &str = "UPDATE quotalog_token_generation SET generation = generation + 1 WHERE id = 1";
const EXISTS: &str = "SELECT 1 FROM quotalog_tokens WHERE id = ?1";
const FIND: &str = "SELECT place, id, role, user_id, name, created_at, expires_at \
     FROM quotalog_tokens WHERE hash = ?1";
const ADMINS: &str = "SELECT place, id, role, user_id, name, created_at, expires_at \
     FROM quotalog_tokens WHERE role = 'admin'";
pub(crate) const FIND_BY_ID: &str = "SELECT place, id, role, user_id, name, created_at, expires_at \
     FROM quotalog_tokens WHERE id = ?1";
const INSERT: &str = "INSERT INTO quotalog_tokens \
     (id, hash, role, user_id, name, created_at, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const DELETE: &str = "DELETE FROM quotalog_tokens WHERE id = ?1";
pub(crate) const DELETE_OF_USER: &str =
    "DELETE FROM quotalog_tokens WHERE user_id = ?1 RETURNING id";

/// The state of the tokens, as this transaction sees it.
pub(crate) fn generation(connection: &Connection) -> Result<Generation> {
    let mut generation = connection.prepare_cached(GENERATION)?;
    generation.query_row([], |row| row.get(0)).map(Generation)
}

/// Whether the credential holds in this transaction.
pub(crate) fn judge(tx: &Tx<'_>, credential: &Credential) -> Result<Judged<()>> {
    let generation = generation(tx.connection)?;
    let holds = match credential.standing(generation, tx.now) {
        Standing::Valid => true,
        Standing::Expired => false,
        Standing::IfExists(id) => exists(tx.connection, id)?,
    };
    Ok(if holds { Ok(()) } else { Err(Revoked) })
}

/// Whether there is a token of this id.
pub(crate) fn exists(connection: &Connection, id: &TokenId) -> Result<bool> {
    let mut exists = connection.prepare_cached(EXISTS)?;
    Ok(exists
        .query_row([id.as_str()], |_| Ok(()))
        .optional()?
        .is_some())
}

/// The caller that holds the token of this hash, unless it has expired.
pub(crate) fn caller(tx: &Tx<'_>, hash: &TokenHash) -> Result<Option<Caller>> {
    let generation = generation(tx.connection)?;
    let mut find = tx.connection.prepare_cached(FIND)?;
    let mut rows = find.query([hash.as_bytes()])?;
    let token = match rows.next()? {
        Some(row) => held(tx, "quotalog_tokens", row, |row| row::token(row, 1))?,
        None => None,
    };
    Ok(token
        .filter(|token| !token.expired_at(tx.now))
        .map(|token| Caller::holding(token, generation)))
}

/// Whether some admin token would be accepted now.
pub(crate) fn has_valid_admin(tx: &Tx<'_>) -> Result<bool> {
    let mut admins = tx.connection.prepare_cached(ADMINS)?;
    let mut rows = admins.query([])?;
    while let Some(row) = rows.next()? {
        let token = held(tx, "quotalog_tokens", row, |row| row::token(row, 1))?;
        if token.is_some_and(|token| !token.expired_at(tx.now)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Stores the token as an order of `credential`; `None` if it would have expired already.
pub(crate) fn insert(
    tx: &Tx<'_>,
    credential: &Credential,
    token: NewToken,
) -> Result<Option<TokenRecord>> {
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
        expires_at: expires_at.map(quotalog_domain::Timestamp::floor_to_s),
    };
    if record.expired_at(tx.now) {
        return Ok(None);
    }
    tx.connection.prepare_cached(INSERT)?.execute((
        record.id.as_str(),
        hash.as_bytes(),
        record.role.kind().as_str(),
        record.user_id().map(|user_id| user_id.as_str()),
        record.name.as_ref().map(|name| name.as_str()),
        instant::to_text(record.created_at),
        record.expires_at.map(instant::to_text),
    ))?;
    bump(tx.connection)?;
    audit::write(tx, credential, &Deed::token_created(&record))?;
    Ok(Some(record))
}

/// Deletes the token as an order of `credential`, and tells whether there was one.
pub(crate) fn delete(tx: &Tx<'_>, credential: &Credential, id: &TokenId) -> Result<bool> {
    let deed = {
        let mut find = tx.connection.prepare_cached(FIND_BY_ID)?;
        let mut rows = find.query([id.as_str()])?;
        let Some(row) = rows.next()? else {
            return Ok(false);
        };
        let token = held(tx, "quotalog_tokens", row, |row| row::token(row, 1))?;
        Deed::token_revoked(id, token.as_ref())
    };
    // First, while the name of a token that deletes itself can still be found.
    audit::write(tx, credential, &deed)?;
    tx.connection
        .prepare_cached(DELETE)?
        .execute([id.as_str()])?;
    bump(tx.connection)?;
    Ok(true)
}

/// Deletes the tokens of a user, and tells their ids.
pub(crate) fn delete_of_user(tx: &Tx<'_>, user_id: &UserId) -> Result<Vec<String>> {
    let mut delete = tx.connection.prepare_cached(DELETE_OF_USER)?;
    let deleted = delete.query_map([user_id.as_str()], |row| row.get(0))?;
    let ids: Vec<String> = deleted.collect::<Result<_>>()?;
    if !ids.is_empty() {
        bump(tx.connection)?;
    }
    Ok(ids)
}

pub(crate) fn bump(connection: &Connection) -> Result<()> {
    connection.prepare_cached(BUMP)?.execute([])?;
    Ok(())
}
