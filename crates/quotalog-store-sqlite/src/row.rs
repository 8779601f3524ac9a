//! From rows to values of the domain, through its constructors. The only place that does so.

use quotalog_auth::{Actor, ActorKind, Role, RoleKind, TokenId, TokenName, TokenRecord};
use quotalog_domain::{Limit, Pair, Policy, Resource, Timestamp, UserId, Window};
use quotalog_ledger::store::{AuditAction, AuditEntry, AuditId, Facts};
use quotalog_record::facts;
use quotalog_record::unfit::Unfit;
use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::instant;

/// `window, limit_count, created_at, updated_at`, from column `first` on.
pub(crate) fn policy(row: &Row<'_>, first: usize) -> Result<Policy, Unfit> {
    let window = text(row, first).and_then(|text| Window::try_from(text).ok());
    let limit = integer(row, first + 1).and_then(|units| Limit::stored(units).ok());
    Ok(Policy {
        window: window.ok_or(Unfit::Window)?,
        limit: limit.ok_or(Unfit::Limit)?,
        created_at: timestamp(row, first + 2)?,
        updated_at: timestamp(row, first + 3)?,
    })
}

/// `window_start, usage`, from column `first` on.
pub(crate) fn usage(row: &Row<'_>, first: usize) -> Result<(Timestamp, u64), Unfit> {
    let window_start = timestamp(row, first)?;
    let units = integer(row, first + 1).and_then(|units| u64::try_from(units).ok());
    Ok((window_start, units.ok_or(Unfit::Usage)?))
}

/// `user_id`, in column `column`.
pub(crate) fn user_id(row: &Row<'_>, column: usize) -> Result<UserId, Unfit> {
    let id = text(row, column).and_then(|text| UserId::try_from(text).ok());
    id.ok_or(Unfit::UserId)
}

/// `resource`, in column `column`.
pub(crate) fn resource(row: &Row<'_>, column: usize) -> Result<Resource, Unfit> {
    let id = text(row, column).and_then(|text| Resource::try_from(text).ok());
    id.ok_or(Unfit::Resource)
}

/// `user_id, resource`, from column `first` on.
pub(crate) fn pair(row: &Row<'_>, first: usize) -> Result<Pair, Unfit> {
    Ok(Pair {
        user_id: user_id(row, first)?,
        resource: resource(row, first + 1)?,
    })
}

/// `id, at, actor_kind, actor_id, actor_name, action, user_id, resource, before, after`.
pub(crate) fn audit_entry(row: &Row<'_>) -> Result<AuditEntry, Unfit> {
    let kind = text(row, 2).and_then(|text| ActorKind::try_from(text).ok());
    let action = text(row, 5).and_then(|text| AuditAction::try_from(text).ok());
    Ok(AuditEntry {
        id: AuditId(integer(row, 0).ok_or(Unfit::Action)?),
        at: timestamp(row, 1)?,
        actor: Actor {
            kind: kind.ok_or(Unfit::Actor)?,
            id: text(row, 3).ok_or(Unfit::Actor)?.to_owned(),
            name: optional(row, 4, |row, column| {
                text(row, column).map(str::to_owned).ok_or(Unfit::Actor)
            })?,
        },
        action: action.ok_or(Unfit::Action)?,
        user_id: optional(row, 6, user_id)?,
        resource: optional(row, 7, resource)?,
        before: optional(row, 8, read_facts)?,
        after: optional(row, 9, read_facts)?,
    })
}

/// A token's `name`, in column `column`.
pub(crate) fn token_name(row: &Row<'_>, column: usize) -> Result<Option<TokenName>, Unfit> {
    optional(row, column, |row, column| {
        let name = text(row, column).and_then(|text| TokenName::try_from(text).ok());
        name.ok_or(Unfit::Name)
    })
}

/// `id, role, user_id, name, created_at, expires_at`, from column `first` on.
pub(crate) fn token(row: &Row<'_>, first: usize) -> Result<TokenRecord, Unfit> {
    let kind = text(row, first + 1).and_then(|text| RoleKind::try_from(text).ok());
    let user = optional(row, first + 2, user_id)?;
    Ok(TokenRecord {
        id: TokenId::named(text(row, first).ok_or(Unfit::Name)?),
        role: Role::new(kind.ok_or(Unfit::Role)?, user).map_err(|_| Unfit::Role)?,
        name: token_name(row, first + 3)?,
        created_at: timestamp(row, first + 4)?,
        expires_at: optional(row, first + 5, timestamp)?,
    })
}

fn read_facts(row: &Row<'_>, column: usize) -> Result<Facts, Unfit> {
    let facts = text(row, column).and_then(facts::from_json);
    facts.ok_or(Unfit::Facts)
}

/// An instant, in column `column`.
pub(crate) fn timestamp(row: &Row<'_>, column: usize) -> Result<Timestamp, Unfit> {
    text(row, column)
        .and_then(instant::from_text)
        .ok_or(Unfit::Instant)
}

fn optional<T>(
    row: &Row<'_>,
    column: usize,
    read: impl FnOnce(&Row<'_>, usize) -> Result<T, Unfit>,
) -> Result<Option<T>, Unfit> {
    match row.get_ref(column) {
        Ok(ValueRef::Null) => Ok(None),
        _ => read(row, column).map(Some),
    }
}

fn text<'r>(row: &'r Row<'_>, column: usize) -> Option<&'r str> {
    row.get_ref(column).ok()?.as_str().ok()
}

fn integer(row: &Row<'_>, column: usize) -> Option<i64> {
    row.get_ref(column).ok()?.as_i64().ok()
}
