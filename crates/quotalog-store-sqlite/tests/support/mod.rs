//! A database file in a folder of its own.
#![allow(dead_code, reason = "each test program uses its part")]

use std::path::PathBuf;
use std::sync::Arc;

use quotalog_ledger::clock::Clock;
use quotalog_store_sqlite::{OpenError, SqliteConfig, SqliteStore};
use quotalog_testkit::ManualClock;
use quotalog_testkit::conformance::{Desk, IDEMPOTENCY_RETENTION_S, START};
use rusqlite::Connection;
use tempfile::TempDir;

pub(crate) struct TempDatabase {
    pub(crate) folder: TempDir,
    pub(crate) clock: Arc<ManualClock>,
}

impl TempDatabase {
    pub(crate) fn new(clock: Arc<ManualClock>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { folder, clock }
    }

    pub(crate) fn at_start() -> Self {
        Self::new(Arc::new(ManualClock::new(START)))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("quotalog.db")
    }

    pub(crate) fn try_open(&self) -> Result<SqliteStore, OpenError> {
        open(self.path(), self.clock.clone())
    }

    pub(crate) fn store(&self) -> SqliteStore {
        self.try_open().expect("the database opens")
    }

    pub(crate) fn desk(&self) -> Desk<SqliteStore> {
        Desk {
            store: self.store(),
        }
    }

    /// Another program's connection, which knows neither locks nor limits of ours.
    pub(crate) fn foreign(&self) -> Connection {
        Connection::open(self.path()).expect("the file opens")
    }

    /// How many rows a table has.
    pub(crate) fn rows(&self, table: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        let count = self.foreign().query_row(&sql, [], |row| row.get(0));
        count.expect("the table is there")
    }
}

pub(crate) fn open(path: PathBuf, clock: Arc<dyn Clock>) -> Result<SqliteStore, OpenError> {
    let config = SqliteConfig {
        path,
        idempotency_retention_s: IDEMPOTENCY_RETENTION_S,
        readers: 2,
    };
    SqliteStore::open(config, clock)
}
