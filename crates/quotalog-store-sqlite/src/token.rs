//! API tokens and their generation: lookups, judgements and changes.

use quotalog_auth::{
    Caller, Credential, Generation, NewToken, Standing, TokenHash, TokenId, TokenRecord,
};
use quotalog_ledger::store::{Judged, Revoked};
use rusqlite::{Connection, OptionalExtension as _, Result};

use crate::instant;
use crate::quota::held;
use crate::row;
use crate::tx::Tx;

const GENERATION: &str = "SELECT generation FROM quotalog_token_generation WHERE id = 1";
const BUMP: &str = "UPDATE quotalog_token_generation SET generation = generation + 1 WHERE id = 1";
const EXISTS: &str = "SELECT 1 FROM quotalog_tokens WHERE id = ?1";
const FIND: &str = "SELECT place, id, role, user_id, name, created_at, expires_at \
     FROM quotalog_tokens WHERE hash = ?1";
const ADMINS: &str = "SELECT place, id, role, user_id, name, created_at, expires_at \
     FROM quotalog_tokens WHERE role = 'admin'";
const INSERT: &str = "INSERT INTO quotalog_tokens \
     (id, hash, role, user_id, name, created_at, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const DELETE: &str = "DELETE FROM quotalog_tokens WHERE id = ?1";

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

/// Stores the token; `None` if it would have expired already.
pub(crate) fn insert(tx: &Tx<'_>, token: NewToken) -> Result<Option<TokenRecord>> {
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
    Ok(Some(record))
}

/// Deletes the token, and tells whether there was one.
pub(crate) fn delete(tx: &Tx<'_>, id: &TokenId) -> Result<bool> {
    let deleted = tx
        .connection
        .prepare_cached(DELETE)?
        .execute([id.as_str()])?;
    if deleted > 0 {
        bump(tx.connection)?;
    }
    Ok(deleted > 0)
}

fn bump(connection: &Connection) -> Result<()> {
    connection.prepare_cached(BUMP)?.execute([])?;
    Ok(())
}
