//! What every store does alike, on PostgreSQL.

mod support;

use std::future::Future;
use std::sync::Arc;

use quotalog_store_postgres::PostgresStore;
use quotalog_testkit::conformance::Database;
use quotalog_testkit::{ManualClock, store_conformance};

use support::Fresh;

impl Database for Fresh {
    type Store = PostgresStore;

    async fn open(&self) -> PostgresStore {
        self.store().await
    }

    async fn close(&self, store: PostgresStore) {
        store.close().await;
    }
}

fn fresh(clock: Arc<ManualClock>) -> impl Future<Output = Option<Fresh>> {
    Fresh::new(clock)
}

store_conformance!(fresh);
