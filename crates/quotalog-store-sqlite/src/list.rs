//! Pages of lists: each walks its index from where the last page ended, and stops when it is full.

use quotalog_auth::TokenRecord;
use quotalog_domain::{Pair, Quota, Resource, Source, UserId};
use quotalog_ledger::store::{Listed, Page, TokenOrder};
use rusqlite::{OptionalExtension as _, Result};

use crate::quota::{Pairs, held};
use crate::row;
use crate::tx::Tx;

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
    Ok(Listed {
        entries,
        next: None,
    })
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
    Ok(Listed {
        entries,
        next: None,
    })
}

fn counted(tx: &Tx<'_>, pair: &Pair) -> Result<bool> {
    let mut counted = tx.connection.prepare_cached(COUNTED)?;
    let ids = (pair.user_id.as_str(), pair.resource.as_str());
    Ok(counted.query_row(ids, |_| Ok(())).optional()?.is_some())
}

fn more<T, Key>(entries: Vec<T>, key: impl FnOnce(&T) -> Key) -> Listed<T, Key> {
    let next = entries.last().map(key);
    Listed { entries, next }
}
