//! Pages of lists: each walks its index from where the last page ended, and stops when it is full.

use quotalog_auth::TokenRecord;
use quotalog_domain::{DefaultPolicy, Pair, Quota, Resource, Source, Timestamp, UserId};
use quotalog_ledger::store::{Listed, Page, TokenOrder, UsageEntry, UsageRange};
use rusqlite::{OptionalExtension as _, Result, Row};

use crate::quota::{Pairs, held};
use crate::tx::Tx;
use crate::walk::{Among, Walk};
use crate::{instant, row};

/// Pairs of one page, each for some 10 µs of a reader's time at a million pairs.
const PAIRS_LOOKED_AT_MAX: usize = 2_000;

pub(crate) const COUNTED: &str =
    "SELECT 1 FROM quota_usage WHERE user_id = ?1 AND resource = ?2 LIMIT 1";
pub(crate) const TOKENS: &str = "SELECT place, id, role, user_id, name, created_at, expires_at \
     FROM quotalog_tokens WHERE place > ?1 ORDER BY place";

pub(crate) const USAGE: &str = "SELECT id, window_start, usage FROM quota_usage \
     WHERE user_id = ?1 AND resource = ?2 AND window_start >= ?3 AND window_start < ?4 \
     ORDER BY window_start DESC";
pub(crate) const DEFAULTS: &str = "SELECT id, resource, window, limit_count, created_at, updated_at \
     FROM quotalog_defaults WHERE resource > ?1 ORDER BY resource";

/// A colon comes after every digit.
const AFTER_EVERY_INSTANT: &str = ":";

/// The user's policies, and the pairs that were counted under a default, by resource.
pub(crate) fn user_quotas(
    tx: &Tx<'_>,
    user_id: &UserId,
    page: &Page<Resource>,
) -> Result<Listed<Quota, Resource>> {
    let after = page.after.as_ref().map(|resource| Pair {
        user_id: user_id.clone(),
        resource: resource.clone(),
    });
    let walk = Walk::new(tx, Among::OfUser(user_id), after.as_ref())?;
    let listed = served(tx, walk, |_| true, page.len_max, usize::MAX)?;
    Ok(Listed {
        entries: listed.entries,
        next: listed.next.map(|pair| pair.resource),
    })
}

/// The quotas that are wanted, of one resource or of all, by pair. A page looks at no more than
/// [`PAIRS_LOOKED_AT_MAX`] pairs.
pub(crate) fn quotas(
    tx: &Tx<'_>,
    resource: Option<&Resource>,
    wanted: impl Fn(&Quota) -> bool,
    page: &Page<Pair>,
) -> Result<Listed<Quota, Pair>> {
    let among = resource.map_or(Among::All, Among::OfResource);
    let walk = Walk::new(tx, among, page.after.as_ref())?;
    served(tx, walk, wanted, page.len_max, PAIRS_LOOKED_AT_MAX)
}

/// The quotas of a walk that are wanted: of pairs with a policy, and of those counted under a default.
fn served(
    tx: &Tx<'_>,
    mut walk: Walk<'_>,
    wanted: impl Fn(&Quota) -> bool,
    len_max: usize,
    looked_at_max: usize,
) -> Result<Listed<Quota, Pair>> {
    let mut pairs = Pairs::new(tx.connection, tx.now)?;
    let mut entries: Vec<Quota> = Vec::new();
    let mut looked_at = 0;
    while let Some(pair) = walk.next(tx)? {
        if let Some(quota) = pairs.quota(tx, pair.clone())?
            && wanted(&quota)
            && is_known(tx, &quota)?
        {
            if entries.len() == len_max {
                return Ok(more(entries, |quota| quota.pair.clone()));
            }
            entries.push(quota);
        }
        looked_at += 1;
        if looked_at >= looked_at_max {
            let next = Some(pair);
            return Ok(Listed { entries, next });
        }
    }
    Ok(end(entries))
}

/// A default also stands in for a policy that is passed over, but only where it was counted.
pub(crate) fn is_known(tx: &Tx<'_>, quota: &Quota) -> Result<bool> {
    match quota.source {
        Source::Policy => Ok(true),
        Source::Default => counted(tx, &quota.pair),
    }
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

pub(crate) fn end<T, Key>(entries: Vec<T>) -> Listed<T, Key> {
    Listed {
        entries,
        next: None,
    }
}

pub(crate) fn more<T, Key>(entries: Vec<T>, key: impl FnOnce(&T) -> Key) -> Listed<T, Key> {
    let next = entries.last().map(key);
    Listed { entries, next }
}
