//! From rows to values of the domain, through its constructors. The only place that does so.

use quotalog_auth::{Actor, ActorKind, Role, RoleKind, TokenId, TokenName, TokenRecord};
use quotalog_domain::{Limit, Pair, Policy, Resource, Timestamp, UserId, Window};
use quotalog_ledger::store::{AuditAction, AuditEntry, AuditId, Facts};
use quotalog_record::facts;
use quotalog_record::unfit::Unfit;
use tokio_postgres::Row;

use crate::instant::Instant;

/// `window, limit_count, created_at, updated_at`, from column `first` on; `None` if there is no policy in the
/// row, as where a default serves the pair.
pub(crate) fn policy(row: &Row, first: usize) -> Result<Option<Policy>, Unfit> {
    let Some(window) = optional_text(row, first) else {
        return Ok(None);
    };
    let limit = integer(row, first + 1).and_then(|units| Limit::stored(units).ok());
    Ok(Some(Policy {
        window: Window::try_from(window).map_err(|_| Unfit::Window)?,
        limit: limit.ok_or(Unfit::Limit)?,
        created_at: timestamp(row, first + 2)?,
        updated_at: timestamp(row, first + 3)?,
    }))
}

/// `window_start, usage`, from column `first` on.
pub(crate) fn usage(row: &Row, first: usize) -> Result<(Timestamp, u64), Unfit> {
    let window_start = timestamp(row, first)?;
    let units = integer(row, first + 1).and_then(|units| u64::try_from(units).ok());
    Ok((window_start, units.ok_or(Unfit::Usage)?))
}

/// `user_id`, in column `column`.
pub(crate) fn user_id(row: &Row, column: usize) -> Result<UserId, Unfit> {
    let id = optional_text(row, column).and_then(|text| UserId::try_from(text).ok());
    id.ok_or(Unfit::UserId)
}

/// `resource`, in column `column`.
pub(crate) fn resource(row: &Row, column: usize) -> Result<Resource, Unfit> {
    let id = optional_text(row, column).and_then(|text| Resource::try_from(text).ok());
    id.ok_or(Unfit::Resource)
}

/// `user_id, resource`, from column `first` on.
pub(crate) fn pair(row: &Row, first: usize) -> Result<Pair, Unfit> {
    Ok(Pair {
        user_id: user_id(row, first)?,
        resource: resource(row, first + 1)?,
    })
}

/// `id, at, actor_kind, actor_id, actor_name, action, user_id, resource, before, after`.
pub(crate) fn audit_entry(row: &Row) -> Result<AuditEntry, Unfit> {
    let kind = optional_text(row, 2).and_then(|text| ActorKind::try_from(text).ok());
    let action = optional_text(row, 5).and_then(|text| AuditAction::try_from(text).ok());
    Ok(AuditEntry {
        id: AuditId(integer(row, 0).ok_or(Unfit::Action)?),
        at: timestamp(row, 1)?,
        actor: Actor {
            kind: kind.ok_or(Unfit::Actor)?,
            id: text(row, 3).to_owned(),
            name: optional_text(row, 4).map(str::to_owned),
        },
        action: action.ok_or(Unfit::Action)?,
        user_id: present(row, 6, user_id)?,
        resource: present(row, 7, resource)?,
        before: present(row, 8, read_facts)?,
        after: present(row, 9, read_facts)?,
    })
}

/// `id, role, user_id, name, created_at, expires_at`, from column `first` on.
pub(crate) fn token(row: &Row, first: usize) -> Result<TokenRecord, Unfit> {
    let kind = optional_text(row, first + 1).and_then(|text| RoleKind::try_from(text).ok());
    let user = present(row, first + 2, user_id)?;
    let name = present(row, first + 3, |row, column| {
        TokenName::try_from(text(row, column)).map_err(|_| Unfit::Name)
    });
    Ok(TokenRecord {
        id: TokenId::named(text(row, first)),
        role: Role::new(kind.ok_or(Unfit::Role)?, user).map_err(|_| Unfit::Role)?,
        name: name?,
        created_at: timestamp(row, first + 4)?,
        expires_at: expiry(row, first + 5)?,
    })
}

/// An instant, in column `column`.
pub(crate) fn timestamp(row: &Row, column: usize) -> Result<Timestamp, Unfit> {
    let instant: Option<Instant> = row.try_get(column).ok().flatten();
    instant.and_then(Instant::timestamp).ok_or(Unfit::Instant)
}

/// A text; empty where there is none.
pub(crate) fn text(row: &Row, column: usize) -> &str {
    optional_text(row, column).unwrap_or_default()
}

/// A number of our own making, such as a place in an array.
pub(crate) fn integer(row: &Row, column: usize) -> Option<i64> {
    row.try_get(column).ok().flatten()
}

fn expiry(row: &Row, column: usize) -> Result<Option<Timestamp>, Unfit> {
    match row.try_get::<_, Option<Instant>>(column) {
        Ok(None) => Ok(None),
        Ok(Some(instant)) => instant.timestamp().map(Some).ok_or(Unfit::Instant),
        Err(_) => Err(Unfit::Instant),
    }
}

fn read_facts(row: &Row, column: usize) -> Result<Facts, Unfit> {
    let facts = optional_text(row, column).and_then(facts::from_json);
    facts.ok_or(Unfit::Facts)
}

fn present<T>(
    row: &Row,
    column: usize,
    read: impl FnOnce(&Row, usize) -> Result<T, Unfit>,
) -> Result<Option<T>, Unfit> {
    match optional_text(row, column) {
        None => Ok(None),
        Some(_) => read(row, column).map(Some),
    }
}

fn optional_text(row: &Row, column: usize) -> Option<&str> {
    row.try_get(column).ok().flatten()
}
