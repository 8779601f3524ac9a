//! Reading what belongs to one pair: its policy, or its resource's default, and its usage of today.

use quotalog_domain::{Pair, Policy, Quota, Resource, Source, Timestamp, Usage, Window};
use quotalog_record::unfit::Unfit;
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Result, Row};

use crate::instant;
use crate::row;
use crate::tx::Tx;

pub(crate) const FIND_POLICY: &str = "SELECT id, window, limit_count, created_at, updated_at \
     FROM quota_policies WHERE user_id = ?1 AND resource = ?2";
pub(crate) const FIND_USAGE: &str = "SELECT id, window_start, usage FROM quota_usage \
     WHERE user_id = ?1 AND resource = ?2 AND window_start >= ?3 AND window_start < ?4";
pub(crate) const FIND_DEFAULT: &str = "SELECT id, window, limit_count, created_at, updated_at \
     FROM quotalog_defaults WHERE resource = ?1";
const ANY_DEFAULT: &str = "SELECT 1 FROM quotalog_defaults LIMIT 1";

const PROBES: [&str; 2] = [
    "SELECT user_id, resource, window, limit_count, created_at, updated_at FROM quota_policies LIMIT 1",
    "SELECT user_id, resource, window_start, usage, updated_at FROM quota_usage LIMIT 1",
];

/// The statements that read one pair after another.
pub(crate) struct Pairs<'c> {
    policy: CachedStatement<'c>,
    usage: CachedStatement<'c>,
}

impl<'c> Pairs<'c> {
    pub(crate) fn new(connection: &'c Connection, now: Timestamp) -> Result<Self> {
        let mut usage = connection.prepare_cached(FIND_USAGE)?;
        // Bound once: a statement that is run again keeps what is not bound anew.
        let today = Window::Daily.span_at(now);
        usage.raw_bind_parameter(3, instant::to_text(today.start))?;
        usage.raw_bind_parameter(4, instant::to_text(today.reset_at))?;
        Ok(Self {
            policy: connection.prepare_cached(FIND_POLICY)?,
            usage,
        })
    }

    /// The pair's own policy.
    pub(crate) fn policy(&mut self, tx: &Tx<'_>, pair: &Pair) -> Result<Option<Policy>> {
        bind_pair(&mut self.policy, pair)?;
        let mut rows = self.policy.raw_query();
        match rows.next()? {
            Some(row) => held(tx, "quota_policies", row, |row| row::policy(row, 1)),
            None => Ok(None),
        }
    }

    /// The pair's usage rows of today, each with its row id, in one order.
    pub(crate) fn usage(
        &mut self,
        tx: &Tx<'_>,
        pair: &Pair,
        mut load: impl FnMut(i64, Timestamp, u64),
    ) -> Result<()> {
        bind_pair(&mut self.usage, pair)?;
        let mut rows = self.usage.raw_query();
        while let Some(row) = rows.next()? {
            if let Some((window_start, units)) =
                held(tx, "quota_usage", row, |row| row::usage(row, 1))?
            {
                load(row.get(0)?, window_start, units);
            }
        }
        Ok(())
    }

    /// The policy in force for the pair, and where it comes from.
    pub(crate) fn in_force(
        &mut self,
        tx: &Tx<'_>,
        pair: &Pair,
    ) -> Result<Option<(Policy, Source)>> {
        Ok(match self.policy(tx, pair)? {
            Some(own) => Some((own, Source::Policy)),
            None => default_of(tx, &pair.resource)?.map(|policy| (policy, Source::Default)),
        })
    }

    /// The pair's quota, if a policy of its own or a default serves it.
    pub(crate) fn quota(&mut self, tx: &Tx<'_>, pair: Pair) -> Result<Option<Quota>> {
        let Some((policy, source)) = self.in_force(tx, &pair)? else {
            return Ok(None);
        };
        let mut usage = Usage::default();
        self.usage(tx, &pair, |_, window_start, units| {
            usage.load(window_start, units);
        })?;
        Ok(Some(Quota::check(pair, policy, source, &usage, tx.now)))
    }
}

/// Whether there is a default of anything.
pub(crate) fn any_default(tx: &Tx<'_>) -> Result<bool> {
    let mut any = tx.connection.prepare_cached(ANY_DEFAULT)?;
    Ok(any.query_row([], |_| Ok(())).optional()?.is_some())
}

/// The default of a resource.
pub(crate) fn default_of(tx: &Tx<'_>, resource: &Resource) -> Result<Option<Policy>> {
    let mut find = tx.connection.prepare_cached(FIND_DEFAULT)?;
    let mut rows = find.query([resource.as_str()])?;
    match rows.next()? {
        Some(row) => held(tx, "quotalog_defaults", row, |row| row::policy(row, 1)),
        None => Ok(None),
    }
}

/// Reads a row of each table that every request needs.
pub(crate) fn probe(connection: &Connection) -> Result<()> {
    for sql in PROBES {
        let mut probe = connection.prepare_cached(sql)?;
        probe.query_row([], |_| Ok(())).optional()?;
    }
    Ok(())
}

fn bind_pair(statement: &mut CachedStatement<'_>, pair: &Pair) -> Result<()> {
    statement.raw_bind_parameter(1, pair.user_id.as_str())?;
    statement.raw_bind_parameter(2, pair.resource.as_str())
}

/// What `read` makes of a row whose first column is its row id; a row that it cannot hold is passed over.
pub(crate) fn held<T>(
    tx: &Tx<'_>,
    table: &'static str,
    row: &Row<'_>,
    read: impl FnOnce(&Row<'_>) -> std::result::Result<T, Unfit>,
) -> Result<Option<T>> {
    match read(row) {
        Ok(value) => Ok(Some(value)),
        Err(why) => {
            let key: i64 = row.get(0)?;
            tx.passed_over.note(table, key, why);
            Ok(None)
        }
    }
}
