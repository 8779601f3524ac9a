//! Entries of a file on their way into the database.
//!
//! They are laid ready in a temporary table, which this session alone sees, and which goes with it. So nothing is left of
//! what is broken off, and nobody waits meanwhile. What is there already is told by reading; the one transaction that
//! writes has only the rest to do, and locks pairs as every batch does, in their order.
//!
//! That transaction keeps users from being erased and tokens from being changed while it lasts: an erasure would not see
//! the rows that it adds.

use std::pin::pin;

use quotalog_auth::Credential;
use quotalog_domain::{Pair, Policy, Timestamp};
use quotalog_ledger::store::{StoreError, StoreFuture};
use quotalog_record::import::{Entry, Fate, Import, Present, Staged, Subject, Tally, Tell, Wanted};
use quotalog_record::transfer::ROWS_MAX;
use tokio_postgres::Error;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};

use crate::audit::Entries;
use crate::batch::{ANCHOR, LOCK, Policies, SAVE_USAGE, stored};
use crate::config::{PostgresClock, PostgresConfig};
use crate::connection::{Begin, Connection, Connector, Value};
use crate::fault::{Fault, before_commit, of_opening};
use crate::instant::Instant;
use crate::quota::{self, FIND_DEFAULTS, Keys};
use crate::tx;
use crate::{OpenError, row, schema};

/// A page may be long in coming, whoever reads the file takes time too, and locks are worth waiting for.
const PATIENT: &str = "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; \
     SET lock_timeout = '30s'";
const STAGED: &str = "CREATE TEMPORARY TABLE quotalog_import_staged (line bigint NOT NULL, \
     user_id text COLLATE \"C\" NOT NULL, resource text COLLATE \"C\" NOT NULL, start_s bigint NOT NULL, \
     terms text COLLATE \"C\" NOT NULL, units bigint NOT NULL)";
const STAGE: &str = "COPY pg_temp.quotalog_import_staged FROM STDIN (FORMAT binary)";
const STAGE_TYPES: [Type; 6] = [
    Type::INT8,
    Type::TEXT,
    Type::TEXT,
    Type::INT8,
    Type::TEXT,
    Type::INT8,
];
/// In the order of all locks.
const SORT: &str = "CREATE TEMPORARY TABLE quotalog_import AS SELECT \
     row_number() OVER (ORDER BY s.user_id, s.resource, s.start_s, s.line) AS place, s.* \
     FROM pg_temp.quotalog_import_staged s; \
     CREATE UNIQUE INDEX quotalog_import_by_place ON pg_temp.quotalog_import (place); \
     DROP TABLE pg_temp.quotalog_import_staged; ANALYZE pg_temp.quotalog_import";
const REPEATED: &str = "SELECT a.line, b.line FROM pg_temp.quotalog_import a \
     JOIN pg_temp.quotalog_import b ON b.place = a.place + 1 AND b.user_id = a.user_id \
     AND b.resource = a.resource AND b.start_s = a.start_s ORDER BY b.line LIMIT $1";
const PAGE: &str = "SELECT place, line, user_id, resource, start_s, terms, units \
     FROM pg_temp.quotalog_import WHERE place > $1 ORDER BY place LIMIT $2";
const FORGET: &str = "DELETE FROM pg_temp.quotalog_import WHERE place = ANY ($1)";
const FIND_POLICIES: &str = "SELECT k.at, p.\"window\", p.limit_count, p.created_at, p.updated_at \
     FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k(user_id, resource, at) \
     CROSS JOIN LATERAL (SELECT o.\"window\", o.limit_count, o.created_at, o.updated_at \
     FROM quota_policies o WHERE o.user_id = k.user_id AND o.resource = k.resource OFFSET 0) p";
const FIND_UNITS: &str = "SELECT k.at, u.window_start, u.usage \
     FROM unnest($1::text[], $2::text[], $3::timestamptz[]) \
     WITH ORDINALITY AS k(user_id, resource, window_start, at) \
     CROSS JOIN LATERAL (SELECT o.window_start, o.usage FROM quota_usage o WHERE o.user_id = k.user_id \
     AND o.resource = k.resource AND o.window_start = k.window_start OFFSET 0) u";
/// Whoever erases a user or changes a token has this row first, and for itself.
const HOLD_TOKENS: &str = "SELECT generation FROM quotalog_token_generation WHERE id = 1 FOR SHARE";
/// The mutex of the defaults, as batches take it.
const LOCK_DEFAULTS: &str = "SELECT pg_advisory_xact_lock(8148427718541894)";
const NOW: &str = "SELECT clock_timestamp()";

/// A file's way into the database.
pub struct PostgresImport {
    connection: Connection,
    subject: Subject,
}

/// A page of what is laid ready.
type Page = Vec<(i64, Entry)>;

impl PostgresImport {
    /// Connects to the database, and brings it up to date.
    ///
    /// # Errors
    /// [`OpenError`], which says what to change, or that the same may work later.
    pub async fn open(config: &PostgresConfig, subject: Subject) -> Result<Self, OpenError> {
        // A temporary table is a session's, and a pooler gives another session to each transaction.
        if config.is_pooled {
            return Err(OpenError::NeedsSession);
        }
        let connection =
            schema::prepare(&Connector::new(config)?, &PostgresClock::Database).await?;
        for sql in [PATIENT, STAGED] {
            let prepared = connection.run(sql).await;
            prepared.map_err(|error| of_opening(&error))?;
        }
        Ok(Self {
            connection,
            subject,
        })
    }

    async fn copy_in(&self, entries: &[Entry]) -> Result<(), Error> {
        let sink = self.connection.client().copy_in(STAGE).await?;
        let mut writer = pin!(BinaryCopyInWriter::new(sink, &STAGE_TYPES));
        for entry in entries {
            let staged = entry.staged();
            let values: [&(dyn ToSql + Sync); 6] = [
                &staged.line,
                &staged.user_id,
                &staged.resource,
                &staged.start_s,
                &staged.window,
                &staged.units,
            ];
            writer.as_mut().write(&values).await?;
        }
        writer.finish().await?;
        Ok(())
    }

    async fn sort(&self, named_max: i64) -> Result<Vec<[u64; 2]>, Error> {
        self.connection.run(SORT).await?;
        let rows = self.connection.query(REPEATED, &[&named_max]).await?;
        let lines = |row: &tokio_postgres::Row| {
            let [first, second]: [i64; 2] = [row.try_get(0)?, row.try_get(1)?];
            Ok([first.unsigned_abs(), second.unsigned_abs()])
        };
        rows.iter().map(lines).collect()
    }

    async fn page(&self, after: i64) -> Result<Page, StoreError> {
        let len_max = i64::try_from(ROWS_MAX).unwrap_or(i64::MAX);
        let rows = self.connection.query(PAGE, &[&after, &len_max]).await;
        let rows = rows.map_err(before_commit)?;
        rows.iter().map(|row| self.entry(row)).collect()
    }

    fn entry(&self, row: &tokio_postgres::Row) -> Result<(i64, Entry), StoreError> {
        let integer = |column| row.try_get(column).map_err(before_commit);
        let staged = Staged {
            line: integer(1)?,
            user_id: row::text(row, 2),
            resource: row::text(row, 3),
            start_s: integer(4)?,
            window: row::text(row, 5),
            units: integer(6)?,
        };
        let entry = staged.entry(self.subject);
        let entry = entry.ok_or_else(|| Fault::NotAsStaged.internal())?;
        Ok((integer(0)?, entry))
    }

    async fn compare_all(&self, tell: &Tell) -> Result<Tally, StoreError> {
        let mut tally = Tally::default();
        let mut after = 0;
        loop {
            let page = self.page(after).await?;
            let Some((last, _)) = page.last() else {
                return Ok(tally);
            };
            after = *last;
            let found = self.present(&page, FIND_POLICIES).await;
            let found = found.map_err(before_commit)?;
            let mut unchanged: Vec<i64> = Vec::new();
            for ((place, entry), present) in page.iter().zip(&found) {
                let fate = entry.wanted.fate(present);
                tally.add(entry.line, fate);
                if fate == Fate::Unchanged {
                    unchanged.push(*place);
                }
            }
            if !unchanged.is_empty() {
                let forgotten = self.connection.execute(FORGET, &[&unchanged]).await;
                forgotten.map_err(before_commit)?;
            }
            tell(u64::try_from(page.len()).unwrap_or(u64::MAX));
        }
    }

    /// What each of the page's entries finds. `policies` is the statement that finds policies.
    async fn present(&self, page: &Page, policies: &'static str) -> Result<Vec<Present>, Error> {
        let mut found = vec![Present::default(); page.len()];
        let pairs = pairs(page);
        let keys = Keys::of(pairs.iter().copied());
        match self.subject {
            Subject::Policies => {
                let values: [Value<'_>; 2] = [&keys.user_ids, &keys.resources];
                for row in &self.connection.query(policies, &values).await? {
                    if let Some(present) = quota::place(row, 0).and_then(|at| found.get_mut(at)) {
                        // What cannot be held is passed over, and so replaced.
                        present.policy = row::policy(row, 1).ok().flatten();
                    }
                }
            }
            Subject::Usage => {
                let starts: Vec<Instant> = starts(page);
                let values: [Value<'_>; 3] = [&keys.user_ids, &keys.resources, &starts];
                for row in &self.connection.query(FIND_UNITS, &values).await? {
                    if let Some(present) = quota::place(row, 0).and_then(|at| found.get_mut(at)) {
                        present.units = row::usage(row, 1).ok().map(|(_, units)| units);
                    }
                }
            }
            Subject::Defaults => {
                let resources = resources(page);
                for row in &self.connection.query(FIND_DEFAULTS, &[&resources]).await? {
                    let at = resources.iter().position(|name| *name == row::text(row, 0));
                    if let Some(present) = at.and_then(|at| found.get_mut(at)) {
                        present.policy = row::policy(row, 1).ok().flatten();
                    }
                }
            }
        }
        Ok(found)
    }

    async fn save_all(&self, tell: &Tell) -> Result<(), StoreError> {
        let begun = self.begin().await;
        let now = begun.map_err(before_commit)?;
        let mut after = 0;
        loop {
            let page = self.page(after).await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            after = *last;
            self.save_page(&page, now).await.map_err(before_commit)?;
            tell(u64::try_from(page.len()).unwrap_or(u64::MAX));
        }
    }

    async fn begin(&self) -> Result<Timestamp, Error> {
        let on = &self.connection;
        on.begin(Begin::Write).await?;
        on.query_one(HOLD_TOKENS, &[]).await?;
        if self.subject == Subject::Defaults {
            on.query_one(LOCK_DEFAULTS, &[]).await?;
        }
        tx::now(&on.query_one(NOW, &[]).await?, 0)
    }

    async fn save_page(&self, page: &Page, now: Timestamp) -> Result<(), Error> {
        let pairs = pairs(page);
        if !pairs.is_empty() {
            let keys = Keys::of(pairs.iter().copied());
            let values: [Value<'_>; 2] = [&keys.user_ids, &keys.resources];
            self.connection.execute(ANCHOR, &values).await?;
            if self.subject == Subject::Usage {
                self.connection.query(LOCK, &values).await?;
            }
        }
        // Policies are read by the statement that locks them.
        let found = self.present(page, LOCK).await?;
        let credential = Credential::CommandLine;
        let mut entries = Entries::default();
        let mut after: Vec<(&Wanted, Present)> = Vec::with_capacity(page.len());
        for ((_, entry), present) in page.iter().zip(&found) {
            let (applied, deed) = entry.wanted.applied(present, now);
            if applied != *present {
                after.push((&entry.wanted, applied));
            }
            if let Some(deed) = deed {
                entries.add(&credential, &deed);
            }
        }
        self.write(&after, now).await?;
        entries.save(&self.connection, &Instant::from(now)).await
    }

    async fn write(&self, after: &[(&Wanted, Present)], now: Timestamp) -> Result<(), Error> {
        let mut policies = Policies::default();
        let mut defaults = Policies::default();
        let mut keys = Keys::default();
        let (mut starts, mut numbers): (Vec<Instant>, Vec<i64>) = (Vec::new(), Vec::new());
        for (wanted, present) in after {
            let policy: Option<&Policy> = present.policy.as_ref();
            match wanted {
                Wanted::Policy { pair, .. } => {
                    policies.add(pair.user_id.as_str(), pair.resource.as_str(), policy);
                }
                Wanted::Default { resource, .. } => defaults.add("", resource.as_str(), policy),
                Wanted::Usage {
                    pair,
                    window_start,
                    units,
                } => {
                    keys.add(pair);
                    starts.push(Instant::from(*window_start));
                    numbers.push(stored(*units));
                }
            }
        }
        policies.save(&self.connection).await?;
        defaults.save_defaults(&self.connection).await?;
        if !keys.is_empty() {
            let now = Instant::from(now);
            let values: [Value<'_>; 5] = [&keys.user_ids, &keys.resources, &starts, &numbers, &now];
            self.connection.execute(SAVE_USAGE, &values).await?;
        }
        Ok(())
    }
}

fn pairs(page: &Page) -> Vec<&Pair> {
    let entries = page.iter();
    let pairs = entries.filter_map(|(_, entry)| match &entry.wanted {
        Wanted::Policy { pair, .. } | Wanted::Usage { pair, .. } => Some(pair),
        Wanted::Default { .. } => None,
    });
    pairs.collect()
}

fn starts(page: &Page) -> Vec<Instant> {
    let entries = page.iter();
    let starts = entries.filter_map(|(_, entry)| match &entry.wanted {
        Wanted::Usage { window_start, .. } => Some(Instant::from(*window_start)),
        Wanted::Policy { .. } | Wanted::Default { .. } => None,
    });
    starts.collect()
}

fn resources(page: &Page) -> Vec<&str> {
    let entries = page.iter();
    let resources = entries.filter_map(|(_, entry)| match &entry.wanted {
        Wanted::Default { resource, .. } => Some(resource.as_str()),
        Wanted::Policy { .. } | Wanted::Usage { .. } => None,
    });
    resources.collect()
}

impl Import for PostgresImport {
    fn stage(&mut self, entries: Vec<Entry>) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.copy_in(&entries).await.map_err(before_commit) })
    }

    fn repeated(&mut self, named_max: usize) -> StoreFuture<'_, Vec<[u64; 2]>> {
        let named_max = i64::try_from(named_max).unwrap_or(i64::MAX);
        Box::pin(async move { self.sort(named_max).await.map_err(before_commit) })
    }

    fn compare(&mut self, tell: Tell) -> StoreFuture<'_, Tally> {
        Box::pin(async move { self.compare_all(&tell).await })
    }

    fn save(self: Box<Self>, tell: Tell) -> StoreFuture<'static, ()> {
        Box::pin(async move {
            self.save_all(&tell).await?;
            self.connection.commit().await?;
            self.connection.close().await;
            Ok(())
        })
    }
}
