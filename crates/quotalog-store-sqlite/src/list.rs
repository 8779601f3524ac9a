//! Pages of lists: each walks its index from where the last page ended, and stops when it is full.

use quotalog_auth::TokenRecord;
use quotalog_domain::{DefaultPolicy, Pair, Quota, Resource, Source, Timestamp, UserId};
use quotalog_ledger::store::{Listed, Page, TokenOrder, UsageEntry, UsageRange};
use rusqlite::{OptionalExtension as _, Result, Row};

use crate::quota::{Pairs, held};
use crate::tx::Tx;
use crate::{instant, row};

// The two halves share no resource, and each is in the order of an index, so that they are merged as they
// are read. A default counts where the user has a usage row, of whatever day.
const USER_RESOURCES: &str = "\
    SELECT id, resource FROM quota_policies WHERE user_id = ?1 AND resource > ?2 \
    UNION ALL \
    SELECT id, resource FROM quotalog_defaults AS defaults WHERE resource > ?2 \
     AND EXISTS (SELECT 1 FROM quota_usage AS counted \
      WHERE counted.user_id = ?1 AND counted.resource = defaults.resource) \
     AND NOT EXISTS (SELECT 1 FROM quota_policies AS own \
      WHERE own.user_id = ?1 AND own.resource = defaults.resource) \
    ORDER BY 2";
const COUNTED: &str = "SELECT 1 FROM quota_usage WHERE user_id = ?1 AND resource = ?2 LIMIT 1";
const TOKENS: &str = "SELECT place, id, role, user_id, name, created_at, expires_at \
     FROM quotalog_tokens WHERE place > ?1 ORDER BY place";

const USAGE: &str = "SELECT id, window_start, usage FROM quota_usage \
     WHERE user_id = ?1 AND resource = ?2 AND window_start >= ?3 AND window_start < ?4 \
     ORDER BY window_start DESC";
const DEFAULTS: &str = "SELECT id, resource, window, limit_count, created_at, updated_at \
     FROM quotalog_defaults WHERE resource > ?1 ORDER BY resource";

/// A colon comes after every digit.
const AFTER_EVERY_INSTANT: &str = ":";

/// The user's policies, and the pairs that were counted under a default, by resource.
pub(crate) fn user_quotas(
    tx: &Tx<'_>,
    user_id: &UserId,
    page: &Page<Resource>,
) -> Result<Listed<Quota, Resource>> {
    let mut pairs = Pairs::new(tx.connection, tx.now)?;
    let mut entries = Vec::new();
    let mut resources = tx.connection.prepare_cached(USER_RESOURCES)?;
    // No resource is empty, so the first page starts after the empty one.
    let after = page.after.as_ref().map_or("", Resource::as_str);
    let mut rows = resources.query((user_id.as_str(), after))?;
    while let Some(row) = rows.next()? {
        let resource = held(tx, "quota_policies", row, |row| row::resource(row, 1))?;
        let Some(resource) = resource else { continue };
        let pair = Pair {
            user_id: user_id.clone(),
            resource,
        };
        let Some(quota) = pairs.quota(tx, pair)? else {
            continue;
        };
        // A default also stands in for a policy that is passed over, but only where it was counted.
        if quota.source == Source::Default && !counted(tx, &quota.pair)? {
            continue;
        }
        if entries.len() == page.len_max {
            return Ok(more(entries, |quota: &Quota| quota.pair.resource.clone()));
        }
        entries.push(quota);
    }
    Ok(end(entries))
}

/// The pair's usage rows of `range`, newest first.
pub(crate) fn usage(
    tx: &Tx<'_>,
    pair: &Pair,
    range: UsageRange,
    page: &Page<Timestamp>,
) -> Result<Listed<UsageEntry, Timestamp>> {
    let from = range.from.map_or_else(String::new, at_or_after);
    let to = match (range.to.map(at_or_after), page.after.map(instant::to_text)) {
        (Some(to), Some(after)) => to.min(after),
        (Some(to), None) | (None, Some(to)) => to,
        (None, None) => AFTER_EVERY_INSTANT.to_owned(),
    };
    let mut usage = tx.connection.prepare_cached(USAGE)?;
    let ids = (pair.user_id.as_str(), pair.resource.as_str());
    let mut rows = usage.query((ids.0, ids.1, from, to))?;
    let mut entries: Vec<UsageEntry> = Vec::new();
    while let Some(row) = rows.next()? {
        let Some((window_start, usage)) = held(tx, "quota_usage", row, |row| row::usage(row, 1))?
        else {
            continue;
        };
        if entries.len() == page.len_max {
            return Ok(more(entries, |entry| entry.window_start));
        }
        entries.push(UsageEntry {
            window_start,
            usage,
        });
    }
    Ok(end(entries))
}

/// The defaults, by resource.
pub(crate) fn defaults(
    tx: &Tx<'_>,
    page: &Page<Resource>,
) -> Result<Listed<DefaultPolicy, Resource>> {
    let mut defaults = tx.connection.prepare_cached(DEFAULTS)?;
    let after = page.after.as_ref().map_or("", Resource::as_str);
    let mut rows = defaults.query([after])?;
    let mut entries: Vec<DefaultPolicy> = Vec::new();
    while let Some(row) = rows.next()? {
        let read = |row: &Row<'_>| {
            Ok(DefaultPolicy {
                resource: row::resource(row, 1)?,
                policy: row::policy(row, 2)?,
            })
        };
        let Some(default) = held(tx, "quotalog_defaults", row, read)? else {
            continue;
        };
        if entries.len() == page.len_max {
            return Ok(more(entries, |default| default.resource.clone()));
        }
        entries.push(default);
    }
    Ok(end(entries))
}

/// The tokens, oldest first.
pub(crate) fn tokens(
    tx: &Tx<'_>,
    page: &Page<TokenOrder>,
) -> Result<Listed<TokenRecord, TokenOrder>> {
    let mut tokens = tx.connection.prepare_cached(TOKENS)?;
    let mut rows = tokens.query([page.after.map_or(i64::MIN, |TokenOrder(place)| place)])?;
    let mut entries: Vec<TokenRecord> = Vec::new();
    let mut last = None;
    while let Some(row) = rows.next()? {
        let Some(token) = held(tx, "quotalog_tokens", row, |row| row::token(row, 1))? else {
            continue;
        };
        if entries.len() == page.len_max {
            return Ok(Listed {
                entries,
                next: last,
            });
        }
        entries.push(token);
        last = Some(TokenOrder(row.get(0)?));
    }
    Ok(end(entries))
}

fn counted(tx: &Tx<'_>, pair: &Pair) -> Result<bool> {
    let mut counted = tx.connection.prepare_cached(COUNTED)?;
    let ids = (pair.user_id.as_str(), pair.resource.as_str());
    Ok(counted.query_row(ids, |_| Ok(())).optional()?.is_some())
}

/// The text of the first second that does not lie before `instant`: rows are named by whole seconds.
fn at_or_after(instant: Timestamp) -> String {
    let second = instant.floor_to_s();
    instant::to_text(if second < instant {
        second.plus_s(1)
    } else {
        second
    })
}

fn end<T, Key>(entries: Vec<T>) -> Listed<T, Key> {
    Listed {
        entries,
        next: None,
    }
}

fn more<T, Key>(entries: Vec<T>, key: impl FnOnce(&T) -> Key) -> Listed<T, Key> {
    let next = entries.last().map(key);
    Listed { entries, next }
}
