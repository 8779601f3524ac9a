//! A walk through the pairs that the tables know of, in the order of their bytes: each by two seeks in an
//! index, so that a walk may stop anywhere and go on from there.
//!
//! A pair is known by its policy, or by usage if a default can serve it. What serves it is not told here.

use std::cmp::Ordering;

use quotalog_domain::{Pair, Resource, UserId};
use rusqlite::{CachedStatement, OptionalExtension as _, Result, Row};

use crate::quota::{self, held};
use crate::raw::Raw;
use crate::row;
use crate::tx::Tx;

/// Which pairs are walked through.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Among<'a> {
    All,
    OfUser(&'a UserId),
    OfResource(&'a Resource),
}

/// The first row after the place `?1, ?2`. All rows of a place are skipped in one seek.
pub(crate) const POLICY: &str = "SELECT id, user_id, resource FROM quota_policies \
     WHERE (user_id, resource) > (?1, ?2) ORDER BY user_id, resource LIMIT 1";
pub(crate) const USAGE: &str = "SELECT id, user_id, resource FROM quota_usage \
     WHERE (user_id, resource) > (?1, ?2) ORDER BY user_id, resource LIMIT 1";
pub(crate) const POLICY_OF_USER: &str = "SELECT id, user_id, resource FROM quota_policies \
     WHERE user_id = ?1 AND resource > ?2 ORDER BY resource LIMIT 1";
pub(crate) const USAGE_OF_USER: &str = "SELECT id, user_id, resource FROM quota_usage \
     WHERE user_id = ?1 AND resource > ?2 ORDER BY resource LIMIT 1";
pub(crate) const POLICY_OF_RESOURCE: &str = "SELECT id, user_id, resource FROM quota_policies \
     WHERE resource = ?2 AND user_id > ?1 ORDER BY user_id LIMIT 1";
/// Usage has no index by resource, which every consume would have to keep. So this finds the next user of
/// anything, and whoever walks finds out whether the resource was among it.
pub(crate) const USER_OF_ANYTHING: &str = "SELECT id, user_id, ?2 FROM quota_usage \
     WHERE user_id > ?1 ORDER BY user_id LIMIT 1";

pub(crate) struct Walk<'c> {
    at: Place,
    policies: Source<'c>,
    /// Only where there is a default that could serve a pair without a policy.
    usage: Option<Source<'c>>,
}

/// One of the two tables, and its first row after the place of the walk.
struct Source<'c> {
    table: &'static str,
    first_after: CachedStatement<'c>,
    found: Option<Found>,
    ended: bool,
}

struct Found {
    place: Place,
    /// `None` if the ids are none of the domain's.
    pair: Option<Pair>,
}

/// Where a walk is: two values as SQLite orders them, also where they are no ids.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place(Raw, Raw);

impl<'c> Walk<'c> {
    /// A walk that starts after `after`, or with the first pair.
    pub(crate) fn new(tx: &Tx<'c>, among: Among<'_>, after: Option<&Pair>) -> Result<Self> {
        let (policies, usage) = match among {
            Among::All => (POLICY, USAGE),
            Among::OfUser(_) => (POLICY_OF_USER, USAGE_OF_USER),
            Among::OfResource(_) => (POLICY_OF_RESOURCE, USER_OF_ANYTHING),
        };
        // No id is empty, so the first pair comes after the empty ones.
        let user_id = match (among, after) {
            (Among::OfUser(user_id), _) => user_id.as_str(),
            (_, after) => after.map_or("", |pair| pair.user_id.as_str()),
        };
        let resource = match (among, after) {
            (Among::OfResource(resource), _) => resource.as_str(),
            (_, after) => after.map_or("", |pair| pair.resource.as_str()),
        };
        let by_default = match among {
            Among::OfResource(resource) => quota::default_of(tx, resource)?.is_some(),
            Among::All | Among::OfUser(_) => quota::any_default(tx)?,
        };
        Ok(Self {
            at: Place(Raw::text(user_id), Raw::text(resource)),
            policies: Source::new(tx, "quota_policies", policies)?,
            usage: if by_default {
                Some(Source::new(tx, "quota_usage", usage)?)
            } else {
                None
            },
        })
    }

    /// The next pair.
    pub(crate) fn next(&mut self, tx: &Tx<'_>) -> Result<Option<Pair>> {
        loop {
            let policy = self.policies.after(tx, &self.at)?;
            let counted = match &mut self.usage {
                Some(usage) => usage.after(tx, &self.at)?,
                None => None,
            };
            let nearest = match (policy, counted) {
                (Some(policy), Some(counted)) => match policy.place.cmp(&counted.place) {
                    Ordering::Less | Ordering::Equal => policy,
                    Ordering::Greater => counted,
                },
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => return Ok(None),
            };
            self.at = nearest.place.clone();
            if nearest.pair.is_some() {
                return Ok(nearest.pair.clone());
            }
        }
    }
}

impl<'c> Source<'c> {
    fn new(tx: &Tx<'c>, table: &'static str, first_after: &'static str) -> Result<Self> {
        Ok(Self {
            table,
            first_after: tx.connection.prepare_cached(first_after)?,
            found: None,
            ended: false,
        })
    }

    fn after(&mut self, tx: &Tx<'_>, at: &Place) -> Result<Option<&Found>> {
        let is_ahead = self.found.as_ref().is_some_and(|found| found.place > *at);
        if !is_ahead && !self.ended {
            let table = self.table;
            let found = self
                .first_after
                .query_row((&at.0, &at.1), |row| Found::read(tx, table, row));
            self.found = found.optional()?;
            self.ended = self.found.is_none();
        }
        Ok(self.found.as_ref())
    }
}

impl Found {
    fn read(tx: &Tx<'_>, table: &'static str, row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            place: Place(Raw::of(row.get_ref(1)?), Raw::of(row.get_ref(2)?)),
            pair: held(tx, table, row, |row| row::pair(row, 1))?,
        })
    }
}
