//! What every store does alike, on PostgreSQL by way of a pooler that gives each transaction any of a few sessions, of
//! which none is set as ours are.

mod support;

use std::sync::{Arc, OnceLock};

use quotalog_store_postgres::{OpenError, PostgresStore};
use quotalog_testkit::conformance::Database;
use quotalog_testkit::postgres::{Cluster, Pooler};
use quotalog_testkit::{ManualClock, store_conformance};

use support::Fresh;

struct Pooled {
    fresh: Fresh,
    pooler: &'static Pooler,
}

impl Pooled {
    async fn try_open(&self) -> Result<PostgresStore, OpenError> {
        let mut config = self.fresh.config();
        let url = self.pooler.plain_url(&self.fresh.database);
        config.url = url.parse().expect("a URL");
        config.is_pooled = true;
        support::open(config).await
    }
}

impl Database for Pooled {
    type Store = PostgresStore;

    async fn open(&self) -> PostgresStore {
        self.try_open().await.expect("the database opens")
    }

    async fn close(&self, store: PostgresStore) {
        store.close().await;
    }
}

/// The pooler that all tests of this process share.
fn pooler() -> Option<&'static Pooler> {
    static SHARED: OnceLock<Option<Pooler>> = OnceLock::new();
    let made = SHARED.get_or_init(|| Pooler::before(Cluster::shared()?, 4));
    made.as_ref()
}

/// A database whose own settings would have our statements fail, or mean something else.
async fn empty(clock: Arc<ManualClock>) -> Option<Pooled> {
    let fresh = Fresh::new(clock).await?;
    let database = fresh.database.clone();
    let made = tokio::task::spawn_blocking(move || {
        let pooler = pooler()?;
        let name = database.name();
        for setting in [
            "search_path = nowhere",
            "default_transaction_isolation = serializable",
            "TimeZone = 'Asia/Kathmandu'",
            "default_transaction_read_only = on",
        ] {
            database.ask(&format!("ALTER DATABASE {name} SET {setting}"));
        }
        Some(pooler)
    });
    let pooler = made.await.expect("the pooler starts")?;
    Some(Pooled { fresh, pooler })
}

async fn fresh(clock: Arc<ManualClock>) -> Option<Pooled> {
    let pooled = empty(clock).await?;
    // The tables are made by a session.
    pooled.fresh.store().await.close().await;
    Some(pooled)
}

store_conformance!(fresh);

#[tokio::test]
async fn tables_are_not_made_through_a_pooler() {
    let clock = Arc::new(ManualClock::new(quotalog_testkit::conformance::START));
    let Some(pooled) = empty(clock).await else {
        return;
    };
    let error = pooled.try_open().await.expect_err("there are no tables");
    // Whoever waits for them finds them when they are there.
    assert!(matches!(error, OpenError::Pooled { found: 0, .. }) && error.may_pass());
    pooled.fresh.store().await.close().await;
    pooled.open().await.close().await;
}
