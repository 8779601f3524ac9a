//! Reading what belongs to pairs: their policies, or their resources' defaults, and their usage of today.

use std::collections::HashMap;

use quotalog_auth::Credential;
use quotalog_domain::{Pair, Policy, Quota, Resource, Source, Timestamp, Usage};
use quotalog_ledger::store::{Judged, Revoked, StoreError};
use quotalog_record::unfit::PassedOver;
use tokio_postgres::{Error, Row};

use crate::connection::Value;
use crate::fault::before_commit;
use crate::instant::Instant;
use crate::row;
use crate::store::Inner;
use crate::tx::{self, Tx, holds, in_time, token_id};

/// The UTC day of an instant, whatever the session's time zone is. Its bounds are found once a statement, since
/// they are questions of their own, and not once a pair.
macro_rules! of_today {
    ($now:literal) => {
        concat!(
            "u.window_start >= (SELECT date_trunc('day', coalesce(",
            $now,
            ", transaction_timestamp()), 'UTC')) \
             AND u.window_start < (SELECT date_trunc('day', coalesce(",
            $now,
            ", transaction_timestamp()), 'UTC') + interval '24 hours')"
        )
    };
}

/// All of one pair in one statement, and so in one snapshot.
pub(crate) const FIND: &str = concat!(
    "SELECT g.generation, coalesce($1, transaction_timestamp()), \
     EXISTS (SELECT FROM quotalog_tokens t WHERE t.id = $2), \
     p.\"window\", p.limit_count, p.created_at, p.updated_at, \
     d.\"window\", d.limit_count, d.created_at, d.updated_at, u.window_start, u.usage \
     FROM quotalog_token_generation g \
     LEFT JOIN quota_policies p ON p.user_id = $3 AND p.resource = $4 \
     LEFT JOIN quotalog_defaults d ON d.resource = $4 \
     LEFT JOIN quota_usage u ON u.user_id = $3 AND u.resource = $4 AND ",
    of_today!("$1"),
    " WHERE g.id = 1"
);
/// The usage of today of the pairs in two arrays, each row with its pair's place in them. A part that comes with
/// `OFFSET 0` is planned by itself, so that it is run for each pair and never the other way round.
pub(crate) const FIND_USAGE: &str = concat!(
    "SELECT k.at, u.window_start, u.usage \
     FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k(user_id, resource, at) \
     CROSS JOIN LATERAL (SELECT u.window_start, u.usage FROM quota_usage u \
     WHERE u.user_id = k.user_id AND u.resource = k.resource AND ",
    of_today!("$3::timestamptz"),
    " OFFSET 0) u"
);
pub(crate) const FIND_DEFAULTS: &str = "SELECT d.resource, d.\"window\", d.limit_count, d.created_at, d.updated_at \
     FROM quotalog_defaults d WHERE d.resource = ANY($1)";
pub(crate) const FIND_DEFAULT: &str = "SELECT g.generation, coalesce($1, transaction_timestamp()), \
     EXISTS (SELECT FROM quotalog_tokens t WHERE t.id = $2), \
     d.\"window\", d.limit_count, d.created_at, d.updated_at \
     FROM quotalog_token_generation g LEFT JOIN quotalog_defaults d ON d.resource = $3 \
     WHERE g.id = 1";

/// The keys of pairs, as the arrays of a statement.
#[derive(Debug, Default)]
pub(crate) struct Keys<'a> {
    pub(crate) user_ids: Vec<&'a str>,
    pub(crate) resources: Vec<&'a str>,
}

impl<'a> Keys<'a> {
    pub(crate) fn of(pairs: impl IntoIterator<Item = &'a Pair>) -> Self {
        let ids = pairs
            .into_iter()
            .map(|pair| (pair.user_id.as_str(), pair.resource.as_str()));
        let (user_ids, resources) = ids.unzip();
        Self {
            user_ids,
            resources,
        }
    }

    pub(crate) fn add(&mut self, pair: &'a Pair) {
        self.user_ids.push(pair.user_id.as_str());
        self.resources.push(pair.resource.as_str());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.user_ids.is_empty()
    }
}

/// The quota of a pair, if a policy or a default serves it: one statement, outside a transaction.
pub(crate) async fn find(
    store: &Inner,
    credential: &Credential,
    pair: Pair,
) -> Result<Judged<Option<Quota>>, StoreError> {
    let (user_id, resource) = (pair.user_id.as_str(), pair.resource.as_str());
    let instant = store.clock.instant().map(Instant::from);
    let token_id = token_id(credential);
    let lease = store.readers.lease().await?;
    let values: [Value<'_>; 4] = [&instant, &token_id, &user_id, &resource];
    let asked = in_time(lease.alone(lease.query(FIND, &values))).await?;
    let rows = asked.map_err(before_commit)?;
    lease.give_back();
    let Some(first) = rows.first() else {
        return Ok(Err(Revoked));
    };
    let head = Head::of(first).map_err(before_commit)?;
    if !head.admits(credential) {
        return Ok(Err(Revoked));
    }
    let key = [user_id, resource];
    let own = policy(&store.passed_over, &key, first, 3);
    let default = default(&store.passed_over, &pair.resource, first, 7);
    let mut usage = Usage::default();
    for row in &rows {
        if row::integer(row, 12).is_some() {
            load(&store.passed_over, &key, row, 11, &mut usage);
        }
    }
    Ok(Ok(in_force(own, default).map(|(policy, source)| {
        Quota::check(pair, policy, source, &usage, head.now)
    })))
}

/// The default of a resource.
pub(crate) async fn find_default(
    store: &Inner,
    credential: &Credential,
    resource: &Resource,
) -> Result<Judged<Option<Policy>>, StoreError> {
    let instant = store.clock.instant().map(Instant::from);
    let (token_id, id) = (token_id(credential), resource.as_str());
    let lease = store.readers.lease().await?;
    let values: [Value<'_>; 3] = [&instant, &token_id, &id];
    let asked = in_time(lease.alone(lease.query_one(FIND_DEFAULT, &values))).await?;
    let row = asked.map_err(before_commit)?;
    lease.give_back();
    if !Head::of(&row).map_err(before_commit)?.admits(credential) {
        return Ok(Err(Revoked));
    }
    Ok(Ok(default(&store.passed_over, resource, &row, 3)))
}

/// The usage of today of several pairs, in their order.
pub(crate) async fn usage_of(tx: &Tx<'_>, keys: &Keys<'_>) -> Result<Vec<Usage>, Error> {
    let now = Some(Instant::from(tx.now));
    let values: [Value<'_>; 3] = [&keys.user_ids, &keys.resources, &now];
    let rows = tx.connection().query(FIND_USAGE, &values).await?;
    let mut usage = vec![Usage::default(); keys.user_ids.len()];
    for row in &rows {
        if let Some(at) = place(row, 0)
            && let Some(usage) = usage.get_mut(at)
        {
            let key = [keys.user_ids[at], keys.resources[at]];
            load(tx.passed_over, &key, row, 1, usage);
        }
    }
    Ok(usage)
}

/// The policy in force, and where it comes from.
pub(crate) fn in_force(own: Option<Policy>, default: Option<Policy>) -> Option<(Policy, Source)> {
    match (own, default) {
        (Some(policy), _) => Some((policy, Source::Policy)),
        (None, Some(default)) => Some((default, Source::Default)),
        (None, None) => None,
    }
}

/// The pair's own policy, from column `first` on.
pub(crate) fn policy(
    passed_over: &PassedOver,
    key: &[&str],
    row: &Row,
    first: usize,
) -> Option<Policy> {
    let read = row::policy(row, first);
    passed_over.held("quota_policies", key, read).flatten()
}

/// The resource's default, from column `first` on.
pub(crate) fn default(
    passed_over: &PassedOver,
    resource: &Resource,
    row: &Row,
    first: usize,
) -> Option<Policy> {
    let read = row::policy(row, first);
    let held = passed_over.held("quotalog_defaults", [resource.as_str()], read);
    held.flatten()
}

/// The defaults of rows that [`FIND_DEFAULTS`] found.
pub(crate) fn defaults(passed_over: &PassedOver, rows: &[Row]) -> HashMap<Resource, Policy> {
    let found = rows.iter().filter_map(|row| {
        let resource = row::resource(row, 0).ok()?;
        let policy = default(passed_over, &resource, row, 1)?;
        Some((resource, policy))
    });
    found.collect()
}

/// Adds a row of usage, from column `first` on.
pub(crate) fn load(
    passed_over: &PassedOver,
    key: &[&str],
    row: &Row,
    first: usize,
    usage: &mut Usage,
) {
    let read = row::usage(row, first);
    if let Some((window_start, units)) = passed_over.held("quota_usage", key, read) {
        usage.load(window_start, units);
    }
}

/// A place in an array, counted from 0, from a column that counts from 1.
pub(crate) fn place(row: &Row, column: usize) -> Option<usize> {
    let at = row::integer(row, column)?;
    usize::try_from(at).ok()?.checked_sub(1)
}

/// What a statement that judges the credential by itself begins with.
pub(crate) struct Head {
    pub(crate) generation: quotalog_auth::Generation,
    pub(crate) now: Timestamp,
    exists: bool,
}

impl Head {
    pub(crate) fn of(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            generation: quotalog_auth::Generation(row.try_get(0)?),
            now: tx::now(row, 1)?,
            exists: row.try_get(2)?,
        })
    }

    pub(crate) fn admits(&self, credential: &Credential) -> bool {
        holds(credential, self.generation, self.now, self.exists)
    }
}
