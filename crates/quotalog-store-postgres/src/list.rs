//! Pages of lists: each walks its index from where the last page ended, and stops when it is full.

use quotalog_domain::{DefaultPolicy, Pair, Quota, Resource, Timestamp, UserId};
use quotalog_ledger::store::{Listed, Page, UsageEntry, UsageRange};
use tokio_postgres::{Error, Row};

use crate::connection::Value;
use crate::instant::Instant;
use crate::quota::{self, Keys};
use crate::row;
use crate::tx::Tx;

/// Pairs of one page, each for some 10 µs of the server's time.
const PAIRS_LOOKED_AT_MAX: usize = 2_000;
/// Rows of one statement: a page of the longest, and what is passed over with it.
const ROWS_MAX: i64 = 1_001;

/// Every pair that has a policy or was counted has its row there; the last column tells whether it was counted. (As
/// `EXISTS`, it would be made of a hash of all usage.)
macro_rules! pairs {
    ($($rest:literal),+) => {
        concat!(
            "SELECT p.user_id, p.resource, p.\"window\", p.limit_count, p.created_at, p.updated_at, \
             d.\"window\", d.limit_count, d.created_at, d.updated_at, \
             (SELECT true FROM quota_usage u \
             WHERE u.user_id = p.user_id AND u.resource = p.resource LIMIT 1) \
             FROM quota_policies p LEFT JOIN LATERAL (SELECT * FROM quotalog_defaults o \
             WHERE o.resource = p.resource OFFSET 0) d ON true ",
            $($rest),+
        )
    };
}
pub(crate) const PAIRS: &str =
    pairs!("WHERE (p.user_id, p.resource) > ($1, $2) ORDER BY p.user_id, p.resource LIMIT $3");
pub(crate) const PAIRS_OF_USER: &str =
    pairs!("WHERE p.user_id = $1 AND p.resource > $2 ORDER BY p.resource LIMIT $3");
pub(crate) const PAIRS_OF_RESOURCE: &str =
    pairs!("WHERE p.resource = $2 AND p.user_id > $1 ORDER BY p.user_id LIMIT $3");
/// In no order.
pub(crate) const PAIRS_NAMED: &str = pairs!(
    "WHERE p.ctid = ANY (ARRAY (SELECT l.place \
     FROM unnest($1::text[], $2::text[]) AS k(user_id, resource) \
     CROSS JOIN LATERAL (SELECT o.ctid AS place FROM quota_policies o \
     WHERE o.user_id = k.user_id AND o.resource = k.resource OFFSET 0) l))"
);

pub(crate) const USAGE: &str = "SELECT window_start, usage FROM quota_usage \
     WHERE user_id = $1 AND resource = $2 AND window_start >= $3 AND window_start < $4 \
     ORDER BY window_start DESC LIMIT $5";
pub(crate) const DEFAULTS: &str = "SELECT resource, \"window\", limit_count, created_at, updated_at \
     FROM quotalog_defaults WHERE resource > $1 ORDER BY resource LIMIT $2";

/// Which pairs are walked through.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Among<'a> {
    All,
    OfUser(&'a UserId),
    OfResource(&'a Resource),
}

/// The user's policies, and the pairs that were counted under a default, by resource.
pub(crate) async fn user_quotas(
    tx: &Tx<'_>,
    user_id: &UserId,
    page: &Page<Resource>,
) -> Result<Listed<Quota, Resource>, Error> {
    let page = Page {
        after: page.after.as_ref().map(|resource| Pair {
            user_id: user_id.clone(),
            resource: resource.clone(),
        }),
        len_max: page.len_max,
    };
    let among = Among::OfUser(user_id);
    let listed = listed(tx, among, |_| true, &page, usize::MAX).await?;
    Ok(Listed {
        entries: listed.entries,
        next: listed.next.map(|pair| pair.resource),
    })
}

/// The quotas that are wanted, by pair. A page looks at no more than [`PAIRS_LOOKED_AT_MAX`] pairs.
pub(crate) async fn quotas(
    tx: &Tx<'_>,
    among: Among<'_>,
    wanted: impl Fn(&Quota) -> bool,
    page: &Page<Pair>,
) -> Result<Listed<Quota, Pair>, Error> {
    listed(tx, among, wanted, page, PAIRS_LOOKED_AT_MAX).await
}

async fn listed(
    tx: &Tx<'_>,
    among: Among<'_>,
    wanted: impl Fn(&Quota) -> bool,
    page: &Page<Pair>,
    looked_at_max: usize,
) -> Result<Listed<Quota, Pair>, Error> {
    let mut walk = Walk::new(among, page.after.as_ref());
    let mut listing = Listing::new(page.len_max);
    let mut looked_at = 0;
    let mut limit = listing.limit();
    loop {
        let rows = walk.next(tx, limit).await?;
        for (pair, quota) in known(tx, &rows).await? {
            if !listing.add(quota.filter(|quota| wanted(quota)), pair.clone()) {
                return Ok(listing.more());
            }
            looked_at += 1;
            if looked_at >= looked_at_max {
                return Ok(listing.go_on_after(pair));
            }
        }
        if is_short(&rows, limit) {
            return Ok(listing.end());
        }
        // Little passes the filter, so it takes more rows to fill the page.
        limit = limit.saturating_mul(4).min(ROWS_MAX);
    }
}

/// A walk through the pairs, in the order of their bytes, from row to row: also over those that are no ids.
pub(crate) struct Walk {
    sql: &'static str,
    user_id: String,
    resource: String,
    of_user: bool,
    of_resource: bool,
}

impl Walk {
    pub(crate) fn new(among: Among<'_>, after: Option<&Pair>) -> Self {
        // No id is empty, so the first pair comes after the empty ones.
        let user_id = after.map_or("", |pair| pair.user_id.as_str());
        let resource = after.map_or("", |pair| pair.resource.as_str());
        let (sql, user_id, resource) = match among {
            Among::All => (PAIRS, user_id, resource),
            Among::OfUser(of) => (PAIRS_OF_USER, of.as_str(), resource),
            Among::OfResource(of) => (PAIRS_OF_RESOURCE, user_id, of.as_str()),
        };
        Self {
            sql,
            user_id: user_id.to_owned(),
            resource: resource.to_owned(),
            of_user: matches!(among, Among::OfUser(_)),
            of_resource: matches!(among, Among::OfResource(_)),
        }
    }

    /// The next rows; fewer than `limit` are the last ones.
    pub(crate) async fn next(&mut self, tx: &Tx<'_>, limit: i64) -> Result<Vec<Row>, Error> {
        let values: [Value<'_>; 3] = [&self.user_id, &self.resource, &limit];
        let rows = tx.connection().query(self.sql, &values).await?;
        if let Some(last) = rows.last() {
            if !self.of_user {
                self.user_id = last.try_get(0)?;
            }
            if !self.of_resource {
                self.resource = last.try_get(1)?;
            }
        }
        Ok(rows)
    }
}

/// The pairs of a walk's rows, each with its quota, if it has a policy or was counted under a default.
pub(crate) async fn known(tx: &Tx<'_>, rows: &[Row]) -> Result<Vec<(Pair, Option<Quota>)>, Error> {
    let mut pairs = Vec::with_capacity(rows.len());
    for row in rows {
        let key = [row::text(row, 0), row::text(row, 1)];
        let Some(pair) = tx
            .passed_over
            .held("quota_policies", key, row::pair(row, 0))
        else {
            continue;
        };
        let own = quota::policy(tx.passed_over, &key, row, 2);
        let default = quota::default(tx.passed_over, &pair.resource, row, 6);
        let counted: Option<bool> = row.try_get(10)?;
        // A default also stands in for a policy that is passed over, but only where it was counted.
        let served = quota::in_force(own, default).filter(|_| own.is_some() || counted.is_some());
        pairs.push((pair, served));
    }
    let usages = {
        let keys = Keys::of(pairs.iter().map(|(pair, _)| pair));
        quota::usage_of(tx, &keys).await?
    };
    let quotas = pairs
        .into_iter()
        .zip(usages)
        .map(|((pair, served), usage)| {
            let quota = served
                .map(|(policy, source)| Quota::check(pair.clone(), policy, source, &usage, tx.now));
            (pair, quota)
        });
    Ok(quotas.collect())
}

/// The pair's usage rows of `range`, newest first.
pub(crate) async fn usage(
    tx: &Tx<'_>,
    pair: &Pair,
    range: UsageRange,
    page: &Page<Timestamp>,
) -> Result<Listed<UsageEntry, Timestamp>, Error> {
    let (user_id, resource) = (pair.user_id.as_str(), pair.resource.as_str());
    let from = Instant::from(range.from.unwrap_or(Timestamp::MIN));
    let to = match (range.to, page.after) {
        (Some(to), Some(after)) => Instant::from(to.min(after)),
        (Some(to), None) | (None, Some(to)) => Instant::from(to),
        (None, None) => Instant::AFTER_ALL,
    };
    let mut before = to;
    let mut listing = Listing::new(page.len_max);
    loop {
        let values: [Value<'_>; 5] = [&user_id, &resource, &from, &before, &listing.limit()];
        let rows = tx.connection().query(USAGE, &values).await?;
        for row in &rows {
            before = row.try_get(0)?;
            let key = [user_id, resource];
            let held = tx.passed_over.held("quota_usage", key, row::usage(row, 0));
            let entry = held.map(|(window_start, usage)| UsageEntry {
                window_start,
                usage,
            });
            let start = entry.map_or(Timestamp::MIN, |entry| entry.window_start);
            if !listing.add(entry, start) {
                return Ok(listing.more());
            }
        }
        if listing.was_last(&rows) {
            return Ok(listing.end());
        }
    }
}

/// The defaults, by resource.
pub(crate) async fn defaults(
    tx: &Tx<'_>,
    page: &Page<Resource>,
) -> Result<Listed<DefaultPolicy, Resource>, Error> {
    let after = page.after.as_ref().map_or("", Resource::as_str);
    let mut after = after.to_owned();
    let mut listing = Listing::new(page.len_max);
    loop {
        let rows = tx
            .connection()
            .query(DEFAULTS, &[&after, &listing.limit()])
            .await?;
        for row in &rows {
            after = row.try_get(0)?;
            let resource = row::resource(row, 0);
            let key = [&*after];
            let held = tx.passed_over.held("quotalog_defaults", key, resource);
            if let Some(resource) = held {
                let policy = quota::default(tx.passed_over, &resource, row, 1);
                let entry = policy.map(|policy| DefaultPolicy {
                    resource: resource.clone(),
                    policy,
                });
                if !listing.add(entry, resource) {
                    return Ok(listing.more());
                }
            }
        }
        if listing.was_last(&rows) {
            return Ok(listing.end());
        }
    }
}

/// Whether rows that were asked for with `limit` are the last ones there are.
pub(crate) fn is_short(rows: &[Row], limit: i64) -> bool {
    i64::try_from(rows.len()).is_ok_and(|len| len < limit)
}

/// A page that fills.
#[derive(Debug)]
pub(crate) struct Listing<T, Key> {
    entries: Vec<T>,
    last: Option<Key>,
    len_max: usize,
}

impl<T, Key> Listing<T, Key> {
    pub(crate) fn new(len_max: usize) -> Self {
        Self {
            entries: Vec::new(),
            last: None,
            len_max,
        }
    }

    /// How many rows to ask for: one more than the page holds tells whether it is the last.
    pub(crate) fn limit(&self) -> i64 {
        let rows = i64::try_from(self.len_max).unwrap_or(i64::MAX);
        rows.saturating_add(1).min(ROWS_MAX)
    }

    /// Whether these rows, asked for with that limit, are the last ones there are.
    pub(crate) fn was_last(&self, rows: &[Row]) -> bool {
        is_short(rows, self.limit())
    }

    /// Adds an entry, if there is one; `false` if the page is full, so that another page follows.
    pub(crate) fn add(&mut self, entry: Option<T>, key: Key) -> bool {
        let Some(entry) = entry else {
            return true;
        };
        if self.entries.len() >= self.len_max {
            return false;
        }
        self.entries.push(entry);
        self.last = Some(key);
        true
    }

    pub(crate) fn more(self) -> Listed<T, Key> {
        Listed {
            entries: self.entries,
            next: self.last,
        }
    }

    pub(crate) fn go_on_after(self, key: Key) -> Listed<T, Key> {
        Listed {
            entries: self.entries,
            next: Some(key),
        }
    }

    pub(crate) fn end(self) -> Listed<T, Key> {
        Listed {
            entries: self.entries,
            next: None,
        }
    }
}
