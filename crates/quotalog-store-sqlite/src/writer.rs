//! The one thread that writes. It owns the writing connection and does one piece of work after another.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use quotalog_ledger::clock::Clock;
use quotalog_ledger::store::StoreError;
use quotalog_record::unfit::PassedOver;
use rusqlite::{Connection, TransactionBehavior};

use crate::connection;
use crate::fault::{self, Fault, at_commit, before_commit};
use crate::presence::Presence;
use crate::turnstile::Turnstile;
use crate::tx::Tx;

/// How long a transaction waits for other processes, before anything is taken into it.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// SQLite's part of that wait, at least: only programs that do not know the turnstile cause it.
const BUSY_WAIT_MIN: Duration = Duration::from_millis(10);

/// How long emptying the log waits for readers, and keeps writers waiting.
const EMPTYING_WAIT: Duration = Duration::from_millis(50);

/// What the thread receives.
pub(crate) enum Message<Job> {
    /// Work.
    Job(Job),
    /// The end, after all work that was sent before it.
    Stop,
}

/// A piece of work that answers by itself.
pub(crate) type WriteJob = Box<dyn FnOnce(&mut Writer) + Send>;

/// The writing connection and its surroundings.
pub(crate) struct Writer {
    pub(crate) connection: Connection,
    pub(crate) path: PathBuf,
    pub(crate) presence: Arc<Presence>,
    pub(crate) turnstile: Turnstile,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) passed_over: Arc<PassedOver>,
    /// Whether the connection must be replaced before it is used again.
    pub(crate) broken: bool,
    /// Whether the log may still hold what was deleted for an erasure that is finished.
    pub(crate) log_names_erased: bool,
}

impl Writer {
    /// Works until it is told to stop, or until no handle of the store is left.
    pub(crate) fn run(mut self, jobs: &Receiver<Message<WriteJob>>) {
        while let Ok(Message::Job(job)) = jobs.recv() {
            job(&mut self);
        }
        // The last connection that closes moves the log into the file, which is then complete by itself.
    }

    /// Does `work` in one transaction at one instant, and commits it.
    ///
    /// On an error nothing was written, unless it is [`StoreError::OutcomeUnknown`]. A panic of `work` is
    /// such an error too: it ends neither this thread nor the server.
    pub(crate) fn transaction<T>(
        &mut self,
        work: impl FnOnce(&Tx<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.presence.check()?;
        self.mend()?;
        let result =
            catch_unwind(AssertUnwindSafe(|| self.attempt(work))).unwrap_or_else(|panic| {
                self.broken = true;
                Err(Fault::Panicked(panic_text(panic.as_ref())).internal())
            });
        if let Err(error) = &result {
            self.broken |= fault::breaks_connection(error) || !self.connection.is_autocommit();
            if fault::disk_is_full(error) {
                self.reuse_log();
            }
        }
        result
    }

    fn attempt<T>(
        &mut self,
        work: impl FnOnce(&Tx<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let deadline = Instant::now() + WAIT_MAX;
        let _turn = self
            .turnstile
            .enter(deadline)
            .map_err(|error| StoreError::Unavailable(Box::new(error)))?;
        let wait = deadline.saturating_duration_since(Instant::now());
        self.connection
            .busy_timeout(wait.max(BUSY_WAIT_MIN))
            .map_err(before_commit)?;
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(before_commit)?;
        let answer = work(&Tx {
            connection: &transaction,
            now: self.clock.now(),
            passed_over: &self.passed_over,
        })?;
        transaction.commit().map_err(at_commit)?;
        Ok(answer)
    }

    /// Moves the log into the database, so that the next commit writes it from its start again, where the
    /// disk has room for it already.
    fn reuse_log(&self) {
        if let Err(error) = self
            .connection
            .pragma_query(None, "wal_checkpoint", |_| Ok(()))
        {
            tracing::debug!(%error, "the write-ahead log cannot be reused");
        }
    }

    /// Moves the log into the database and cuts it to nothing, so that it tells of nothing older. A read that
    /// takes long forbids it; then it is for the next time.
    pub(crate) fn empty_log(&mut self) {
        let emptied = self.connection.busy_timeout(EMPTYING_WAIT).and_then(|()| {
            let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
            self.connection
                .query_row(sql, [], |row| row.get::<_, i64>(0))
        });
        match emptied {
            Ok(busy) => self.log_names_erased = busy != 0,
            Err(error) => tracing::debug!(%error, "the write-ahead log cannot be emptied"),
        }
    }

    /// Replaces a connection that can no longer be trusted.
    fn mend(&mut self) -> Result<(), StoreError> {
        if !self.broken {
            return Ok(());
        }
        let (connection, mode) = connection::open_writer(&self.path).map_err(before_commit)?;
        if mode != "wal" {
            return Err(Fault::NotReopened.unavailable());
        }
        self.connection = connection;
        self.broken = false;
        Ok(())
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "without a text".to_owned()
    }
}
