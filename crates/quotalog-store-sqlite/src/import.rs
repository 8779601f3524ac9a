//! Entries of a file on their way into the database.
//!
//! They are laid ready in a temporary table, which SQLite keeps in a file without a name, and this connection alone sees.
//! So nothing is left of what is broken off, and others write meanwhile. What is there already is told by reading;
//! the one transaction that writes, and for which others wait, has only the rest to do.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quotalog_auth::Credential;
use quotalog_domain::Pair;
use quotalog_ledger::clock::Clock;
use quotalog_ledger::store::{StoreError, StoreFuture};
use quotalog_record::import::{Entry, Fate, Import, Present, Staged, Subject, Tally, Tell, Wanted};
use quotalog_record::transfer::ROWS_MAX;
use quotalog_record::unfit::PassedOver;
use rusqlite::{Connection, OptionalExtension as _, Result, TransactionBehavior};

use crate::batch::{INSERT_USAGE, UPDATE_USAGE, must_be_one, save_default, save_policy, stored};
use crate::fault::{Fault, at_commit, before_commit};
use crate::presence::Presence;
use crate::quota::{self, Pairs};
use crate::schema::{self, refused};
use crate::turnstile::Turnstile;
use crate::tx::Tx;
use crate::{OpenError, audit, instant, place, row};

/// How long the transaction waits for its turn.
const TURN_WAIT: Duration = Duration::from_secs(30);

/// Temporary tables go into files, and the log is moved into the database when nobody waits for it.
const SETTINGS: &str = "PRAGMA temp_store = FILE; PRAGMA wal_autocheckpoint = 0";
const STAGED: &str = "CREATE TEMPORARY TABLE quotalog_import_staged \
     (line INTEGER, user_id TEXT, resource TEXT, start_s INTEGER, window TEXT, units INTEGER)";
const STAGE: &str = "INSERT INTO temp.quotalog_import_staged VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
/// In the order of the indexes, in which rows are found and added with the least reading and writing.
const SORT: &str = "CREATE TEMPORARY TABLE quotalog_import (place INTEGER PRIMARY KEY, \
     line INTEGER, user_id TEXT, resource TEXT, start_s INTEGER, window TEXT, units INTEGER); \
     INSERT INTO temp.quotalog_import (line, user_id, resource, start_s, window, units) \
     SELECT * FROM temp.quotalog_import_staged ORDER BY user_id, resource, start_s, line; \
     DROP TABLE temp.quotalog_import_staged";
const REPEATED: &str = "SELECT a.line, b.line FROM temp.quotalog_import a \
     JOIN temp.quotalog_import b ON b.place = a.place + 1 AND b.user_id = a.user_id \
     AND b.resource = a.resource AND b.start_s = a.start_s ORDER BY b.line LIMIT ?1";
const PAGE: &str = "SELECT place, line, user_id, resource, start_s, window, units \
     FROM temp.quotalog_import WHERE place > ?1 ORDER BY place LIMIT ?2";
const FORGET: &str = "DELETE FROM temp.quotalog_import WHERE place = ?1";
const FIND_UNITS: &str = "SELECT id, window_start, usage FROM quota_usage \
     WHERE user_id = ?1 AND resource = ?2 AND window_start = ?3";

/// A file's way into the database.
pub struct SqliteImport {
    /// `None` while a thread works with it, and for good if that panicked.
    work: Option<Work>,
}

struct Work {
    connection: Connection,
    path: PathBuf,
    presence: Presence,
    turnstile: Turnstile,
    clock: Arc<dyn Clock>,
    passed_over: PassedOver,
    subject: Subject,
}

impl SqliteImport {
    /// Opens the file, and brings it up to date. Blocks.
    ///
    /// # Errors
    /// [`OpenError`], which says what to change.
    pub fn open(
        path: &Path,
        subject: Subject,
        clock: Arc<dyn Clock>,
    ) -> std::result::Result<Self, OpenError> {
        let path = place::locate(path)?;
        let turnstile = place::open_turnstile(&path)?;
        let connection = schema::prepare(&path, &turnstile, clock.now())?;
        for sql in [SETTINGS, STAGED] {
            let prepared = connection.execute_batch(sql);
            prepared.map_err(|error| refused(&path, error))?;
        }
        Ok(Self {
            work: Some(Work {
                connection,
                presence: Presence::of(path.clone())?,
                path,
                turnstile,
                clock,
                passed_over: PassedOver::default(),
                subject,
            }),
        })
    }

    /// Has a thread that may block do `work`.
    fn run<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Work) -> Result<T> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(async move {
            let mut taken = self.work.take().ok_or_else(closed)?;
            let done = tokio::task::spawn_blocking(move || {
                let result = work(&mut taken);
                (taken, result)
            });
            let (taken, result) = done.await.map_err(panicked)?;
            self.work = Some(taken);
            result.map_err(before_commit)
        })
    }
}

fn closed() -> StoreError {
    Fault::Closed.unavailable()
}

fn panicked(error: tokio::task::JoinError) -> StoreError {
    Fault::Panicked(error.to_string()).internal()
}

impl Import for SqliteImport {
    fn stage(&mut self, entries: Vec<Entry>) -> StoreFuture<'_, ()> {
        self.run(move |work| work.stage(&entries))
    }

    fn repeated(&mut self, named_max: usize) -> StoreFuture<'_, Vec<[u64; 2]>> {
        self.run(move |work| {
            work.connection.execute_batch(SORT)?;
            let named_max = i64::try_from(named_max).unwrap_or(i64::MAX);
            let mut repeated = work.connection.prepare(REPEATED)?;
            let lines = |row: &rusqlite::Row<'_>| {
                let [first, second]: [i64; 2] = [row.get(0)?, row.get(1)?];
                Ok([first.unsigned_abs(), second.unsigned_abs()])
            };
            repeated.query_map([named_max], lines)?.collect()
        })
    }

    fn compare(&mut self, tell: Tell) -> StoreFuture<'_, Tally> {
        self.run(move |work| work.compare(&*tell))
    }

    fn save(mut self: Box<Self>, tell: Tell) -> StoreFuture<'static, ()> {
        Box::pin(async move {
            let mut work = self.work.take().ok_or_else(closed)?;
            let saved = tokio::task::spawn_blocking(move || {
                work.save(&*tell)?;
                // Nobody waits for this, and all is on disk.
                let emptied = work
                    .connection
                    .pragma_query(None, "wal_checkpoint", |_| Ok(()));
                if let Err(error) = emptied {
                    tracing::debug!(%error, path = %work.path.display(), "the write-ahead log stays as it is");
                }
                Ok(())
            });
            saved.await.map_err(panicked)?
        })
    }
}

impl Work {
    fn stage(&mut self, entries: &[Entry]) -> Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut stage = transaction.prepare_cached(STAGE)?;
            for entry in entries {
                let staged = entry.staged();
                stage.execute((
                    staged.line,
                    staged.user_id,
                    staged.resource,
                    staged.start_s,
                    staged.window,
                    staged.units,
                ))?;
            }
        }
        transaction.commit()
    }

    /// All of it as the database is at one moment.
    fn compare(&mut self, tell: &dyn Fn(u64)) -> Result<Tally> {
        let transaction = self.connection.transaction()?;
        let tx = Tx {
            connection: &transaction,
            now: self.clock.now(),
            passed_over: &self.passed_over,
        };
        let mut tally = Tally::default();
        let mut pages = Pages::new(self.subject);
        let mut find = Find::new(&tx)?;
        loop {
            let page = pages.next(&tx)?;
            if page.is_empty() {
                break;
            }
            let mut forget = transaction.prepare_cached(FORGET)?;
            for (place, entry) in &page {
                let (_, present) = find.present(&tx, &entry.wanted)?;
                let fate = entry.wanted.fate(&present);
                tally.add(entry.line, fate);
                if fate == Fate::Unchanged {
                    forget.execute([place])?;
                }
            }
            tell(len(&page));
        }
        drop(find);
        transaction.commit()?;
        Ok(tally)
    }

    fn save(&mut self, tell: &dyn Fn(u64)) -> std::result::Result<(), StoreError> {
        self.presence.check()?;
        let deadline = Instant::now() + TURN_WAIT;
        let _turn = self
            .turnstile
            .enter(deadline)
            .map_err(|error| StoreError::Unavailable(Box::new(error)))?;
        let wait = deadline.saturating_duration_since(Instant::now());
        self.connection.busy_timeout(wait).map_err(before_commit)?;
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(before_commit)?;
        let tx = Tx {
            connection: &transaction,
            now: self.clock.now(),
            passed_over: &self.passed_over,
        };
        save_all(&tx, self.subject, tell).map_err(before_commit)?;
        transaction.commit().map_err(at_commit)
    }
}

fn save_all(tx: &Tx<'_>, subject: Subject, tell: &dyn Fn(u64)) -> Result<()> {
    let mut pages = Pages::new(subject);
    let mut find = Find::new(tx)?;
    loop {
        let page = pages.next(tx)?;
        if page.is_empty() {
            return Ok(());
        }
        for (_, Entry { wanted, .. }) in &page {
            let (row_id, present) = find.present(tx, wanted)?;
            let (after, deed) = wanted.applied(&present, tx.now);
            if after != present {
                write(tx, wanted, row_id, &after)?;
            }
            if let Some(deed) = deed {
                audit::write(tx, &Credential::CommandLine, &deed)?;
            }
        }
        tell(len(&page));
    }
}

fn write(tx: &Tx<'_>, wanted: &Wanted, row_id: Option<i64>, after: &Present) -> Result<()> {
    match wanted {
        Wanted::Policy { pair, .. } => save_policy(tx, pair, after.policy.as_ref()),
        Wanted::Default { resource, .. } => save_default(tx, resource, after.policy.as_ref()),
        Wanted::Usage {
            pair,
            window_start,
            units,
        } => {
            let now = instant::to_text(tx.now);
            let written = match row_id {
                Some(row_id) => {
                    let mut update = tx.connection.prepare_cached(UPDATE_USAGE)?;
                    update.execute((row_id, stored(*units), now))?
                }
                None => tx.connection.prepare_cached(INSERT_USAGE)?.execute((
                    pair.user_id.as_str(),
                    pair.resource.as_str(),
                    instant::to_text(*window_start),
                    stored(*units),
                    now,
                ))?,
            };
            must_be_one(written)
        }
    }
}

/// Reads what is laid ready, page after page.
struct Pages {
    subject: Subject,
    after: i64,
}

impl Pages {
    fn new(subject: Subject) -> Self {
        Self { subject, after: 0 }
    }

    fn next(&mut self, tx: &Tx<'_>) -> Result<Vec<(i64, Entry)>> {
        let mut page = tx.connection.prepare_cached(PAGE)?;
        let len_max = i64::try_from(ROWS_MAX).unwrap_or(i64::MAX);
        let mut rows = page.query((self.after, len_max))?;
        let mut entries = Vec::with_capacity(ROWS_MAX);
        while let Some(row) = rows.next()? {
            self.after = row.get(0)?;
            let staged = Staged {
                line: row.get(1)?,
                user_id: row.get_ref(2)?.as_str()?,
                resource: row.get_ref(3)?.as_str()?,
                start_s: row.get(4)?,
                window: row.get_ref(5)?.as_str()?,
                units: row.get(6)?,
            };
            let entry = staged.entry(self.subject);
            entries.push((self.after, entry.ok_or(rusqlite::Error::InvalidQuery)?));
        }
        Ok(entries)
    }
}

/// Finds what is there.
struct Find<'c> {
    pairs: Pairs<'c>,
}

impl<'c> Find<'c> {
    fn new(tx: &Tx<'c>) -> Result<Self> {
        Ok(Self {
            pairs: Pairs::new(tx.connection, tx.now)?,
        })
    }

    /// What is there where `wanted` is to be, and, of usage, its row id.
    fn present(&mut self, tx: &Tx<'_>, wanted: &Wanted) -> Result<(Option<i64>, Present)> {
        let policy = match wanted {
            Wanted::Policy { pair, .. } => self.pairs.policy(tx, pair)?,
            Wanted::Default { resource, .. } => quota::default_of(tx, resource)?,
            Wanted::Usage {
                pair, window_start, ..
            } => {
                let found = units(tx, pair, &instant::to_text(*window_start))?;
                let (row_id, units) = found.unzip();
                return Ok((
                    row_id,
                    Present {
                        policy: None,
                        units,
                    },
                ));
            }
        };
        let present = Present {
            policy,
            units: None,
        };
        Ok((None, present))
    }
}

/// The row id of a row of usage, and its number. One that cannot be held is replaced.
fn units(tx: &Tx<'_>, pair: &Pair, window_start: &str) -> Result<Option<(i64, u64)>> {
    let mut find = tx.connection.prepare_cached(FIND_UNITS)?;
    let key = (pair.user_id.as_str(), pair.resource.as_str(), window_start);
    let found = find.query_row(key, |found| {
        let held = quota::held(tx, "quota_usage", found, |found| row::usage(found, 1))?;
        let row_id: i64 = found.get(0)?;
        Ok(held.map(|(_, units)| (row_id, units)))
    });
    Ok(found.optional()?.flatten())
}

fn len<T>(page: &[T]) -> u64 {
    u64::try_from(page.len()).unwrap_or(u64::MAX)
}
