//! The audit: entries written in the transaction of what they tell of, and pages of them, newest first.

use quotalog_auth::{Actor, Credential};
use quotalog_domain::{Resource, UserId};
use quotalog_ledger::store::{AuditEntry, AuditFilter, AuditId, Deed, Listed, Page};
use quotalog_record::facts;
use tokio_postgres::Error;

use crate::connection::{Connection, Value};
use crate::instant::Instant;
use crate::list::Listing;
use crate::row;
use crate::tx::Tx;

/// Several entries at once, in their order; each with the name that its actor's token bears now.
pub(crate) const INSERT: &str = "INSERT INTO quotalog_audit \
     (at, actor_kind, actor_id, actor_name, action, user_id, resource, before, after) \
     SELECT date_trunc('second', $1::timestamptz, 'UTC'), k.kind, k.id, (SELECT t.name FROM quotalog_tokens t \
     WHERE k.kind = 'token' AND t.id = k.id), k.action, k.user_id, k.resource, k.before, k.after \
     FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[]) \
     WITH ORDINALITY AS k(kind, id, action, user_id, resource, before, after, at) ORDER BY k.at";

/// Each walks its own index backwards from `$1`, so that a page reads its entries and no others.
macro_rules! page_of {
    ($filter:literal, $limit:literal) => {
        concat!(
            "SELECT id, at, actor_kind, actor_id, actor_name, action, user_id, resource, before, \
             after FROM quotalog_audit WHERE id < $1",
            $filter,
            " ORDER BY id DESC LIMIT ",
            $limit
        )
    };
}
pub(crate) const PAGE: &str = page_of!("", "$2");
pub(crate) const PAGE_OF_USER: &str = page_of!(" AND user_id = $2", "$3");
pub(crate) const PAGE_OF_RESOURCE: &str = page_of!(" AND resource = $2", "$3");
pub(crate) const PAGE_OF_PAIR: &str = page_of!(" AND user_id = $2 AND resource = $3", "$4");

/// Entries that are written together, as the arrays of a statement.
#[derive(Debug, Default)]
pub(crate) struct Entries<'a> {
    kinds: Vec<&'static str>,
    actor_ids: Vec<&'a str>,
    actions: Vec<&'static str>,
    user_ids: Vec<Option<String>>,
    resources: Vec<Option<String>>,
    before: Vec<Option<String>>,
    after: Vec<Option<String>>,
}

impl<'a> Entries<'a> {
    /// Adds what the holder of `credential` did.
    pub(crate) fn add(&mut self, credential: &'a Credential, deed: &Deed) {
        // The name is looked up where the entry is written.
        self.kinds
            .push(Actor::holding(credential, None).kind.as_str());
        self.actor_ids.push(credential.id());
        self.actions.push(deed.action.as_str());
        let user_id = deed.user_id.as_ref().map(UserId::as_str);
        self.user_ids.push(user_id.map(str::to_owned));
        let resource = deed.resource.as_ref().map(Resource::as_str);
        self.resources.push(resource.map(str::to_owned));
        self.before.push(deed.before.as_ref().map(facts::to_json));
        self.after.push(deed.after.as_ref().map(facts::to_json));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    pub(crate) async fn save(&self, on: &Connection, at: &Instant) -> Result<(), Error> {
        let values: [Value<'_>; 8] = [
            at,
            &self.kinds,
            &self.actor_ids,
            &self.actions,
            &self.user_ids,
            &self.resources,
            &self.before,
            &self.after,
        ];
        on.execute_unless(self.is_empty(), INSERT, &values).await
    }
}

/// Writes what the holder of `credential` did.
pub(crate) async fn write(tx: &Tx<'_>, credential: &Credential, deed: &Deed) -> Result<(), Error> {
    let mut entries = Entries::default();
    entries.add(credential, deed);
    entries.save(tx.connection(), &Instant::from(tx.now)).await
}

/// The entries that pass the filter, newest first.
pub(crate) async fn page(
    tx: &Tx<'_>,
    filter: &AuditFilter,
    page: &Page<AuditId>,
) -> Result<Listed<AuditEntry, AuditId>, Error> {
    let user_id = filter.user_id.as_ref().map(UserId::as_str);
    let resource = filter.resource.as_ref().map(Resource::as_str);
    let mut before = page.after.map_or(i64::MAX, |AuditId(id)| id);
    let mut listing = Listing::new(page.len_max);
    let limit = listing.limit();
    loop {
        let (sql, values): (&str, &[Value<'_>]) = match (&user_id, &resource) {
            (None, None) => (PAGE, &[&before, &limit]),
            (Some(user_id), None) => (PAGE_OF_USER, &[&before, user_id, &limit]),
            (None, Some(resource)) => (PAGE_OF_RESOURCE, &[&before, resource, &limit]),
            (Some(user_id), Some(resource)) => {
                (PAGE_OF_PAIR, &[&before, user_id, resource, &limit])
            }
        };
        let rows = tx.connection().query(sql, values).await?;
        for row in &rows {
            before = row.try_get(0)?;
            let key = [&*before.to_string()];
            let entry = tx
                .passed_over
                .held("quotalog_audit", key, row::audit_entry(row));
            if !listing.add(entry, AuditId(before)) {
                return Ok(listing.more());
            }
        }
        if listing.was_last(&rows) {
            return Ok(listing.end());
        }
    }
}
