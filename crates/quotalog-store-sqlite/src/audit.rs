//! The audit: entries written in the transaction of what they tell of, and pages of them, newest first.

use quotalog_auth::{Actor, Credential};
use quotalog_domain::{Resource, UserId};
use quotalog_ledger::store::{AuditEntry, AuditFilter, AuditId, Deed, Listed, Page};
use quotalog_record::facts;
use rusqlite::{OptionalExtension as _, Result, Statement, ToSql};

use crate::batch::must_be_one;
use crate::quota::held;
use crate::tx::Tx;
use crate::{instant, list, row};

const INSERT: &str = "INSERT INTO quotalog_audit \
     (at, actor_kind, actor_id, actor_name, action, user_id, resource, before, after) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const NAME: &str = "SELECT name FROM quotalog_tokens WHERE id = ?1";

/// Each walks its own index backwards from `?1`, so that a page reads its entries and no others.
macro_rules! page_of {
    ($filter:literal) => {
        concat!(
            "SELECT id, at, actor_kind, actor_id, actor_name, action, user_id, resource, before, \
             after FROM quotalog_audit WHERE id < ?1",
            $filter,
            " ORDER BY id DESC"
        )
    };
}
pub(crate) const PAGE: &str = page_of!("");
pub(crate) const PAGE_OF_USER: &str = page_of!(" AND user_id = ?2");
pub(crate) const PAGE_OF_RESOURCE: &str = page_of!(" AND resource = ?2");
pub(crate) const PAGE_OF_PAIR: &str = page_of!(" AND user_id = ?2 AND resource = ?3");

/// Writes what the holder of `credential` did.
pub(crate) fn write(tx: &Tx<'_>, credential: &Credential, deed: &Deed) -> Result<()> {
    let actor = actor(tx, credential)?;
    let written = tx.connection.prepare_cached(INSERT)?.execute((
        instant::to_text(tx.now),
        actor.kind.as_str(),
        &actor.id,
        &actor.name,
        deed.action.as_str(),
        deed.user_id.as_ref().map(UserId::as_str),
        deed.resource.as_ref().map(Resource::as_str),
        deed.before.as_ref().map(facts::to_json),
        deed.after.as_ref().map(facts::to_json),
    ))?;
    must_be_one(written)
}

/// The entries that pass the filter, newest first.
pub(crate) fn page(
    tx: &Tx<'_>,
    filter: &AuditFilter,
    page: &Page<AuditId>,
) -> Result<Listed<AuditEntry, AuditId>> {
    let before = page.after.map_or(i64::MAX, |AuditId(id)| id);
    let user_id = filter.user_id.as_ref().map(UserId::as_str);
    let resource = filter.resource.as_ref().map(Resource::as_str);
    let (sql, values): (&str, &[&dyn ToSql]) = match (&user_id, &resource) {
        (None, None) => (PAGE, &[&before]),
        (Some(user_id), None) => (PAGE_OF_USER, &[&before, user_id]),
        (None, Some(resource)) => (PAGE_OF_RESOURCE, &[&before, resource]),
        (Some(user_id), Some(resource)) => (PAGE_OF_PAIR, &[&before, user_id, resource]),
    };
    read(
        tx,
        &mut *tx.connection.prepare_cached(sql)?,
        values,
        page.len_max,
    )
}

fn read(
    tx: &Tx<'_>,
    statement: &mut Statement<'_>,
    values: &[&dyn ToSql],
    len_max: usize,
) -> Result<Listed<AuditEntry, AuditId>> {
    let mut rows = statement.query(values)?;
    let mut entries: Vec<AuditEntry> = Vec::new();
    while let Some(row) = rows.next()? {
        let Some(entry) = held(tx, "quotalog_audit", row, row::audit_entry)? else {
            continue;
        };
        if entries.len() == len_max {
            return Ok(list::more(entries, |entry| entry.id));
        }
        entries.push(entry);
    }
    Ok(list::end(entries))
}

/// Who holds the credential, with the name that its token bears now.
fn actor(tx: &Tx<'_>, credential: &Credential) -> Result<Actor> {
    let name = match credential {
        Credential::CommandLine | Credential::Environment | Credential::Jwt { .. } => None,
        Credential::Token { id, .. } => {
            let mut find = tx.connection.prepare_cached(NAME)?;
            let name = find.query_row([id.as_str()], |row| Ok(row::token_name(row, 0)));
            name.optional()?.and_then(std::result::Result::ok).flatten()
        }
    };
    Ok(Actor::holding(credential, name.as_ref()))
}
