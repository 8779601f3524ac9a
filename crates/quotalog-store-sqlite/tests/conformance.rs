//! What every store does alike, on SQLite.

mod support;

use std::future::{Ready, ready};
use std::sync::Arc;

use quotalog_store_sqlite::SqliteStore;
use quotalog_testkit::conformance::Database;
use quotalog_testkit::{ManualClock, store_conformance};

use support::TempDatabase;

impl Database for TempDatabase {
    type Store = SqliteStore;

    async fn open(&self) -> SqliteStore {
        self.store()
    }

    async fn close(&self, store: SqliteStore) {
        store.close();
    }
}

fn fresh(clock: Arc<ManualClock>) -> Ready<Option<TempDatabase>> {
    ready(Some(TempDatabase::new(clock)))
}

store_conformance!(fresh);
