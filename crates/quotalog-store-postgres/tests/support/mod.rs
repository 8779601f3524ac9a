//! A database of its own on the server that the tests of a process share.
#![allow(dead_code, reason = "each test program uses its part")]

use std::sync::Arc;

use quotalog_store_postgres::{OpenError, PostgresClock, PostgresConfig, PostgresStore, TlsMode};
use quotalog_testkit::ManualClock;
use quotalog_testkit::conformance::{IDEMPOTENCY_RETENTION_S, START};
use quotalog_testkit::postgres::{Cluster, Database};

/// How often a database is opened that is there.
const OPENINGS_MAX: u32 = 20;

pub(crate) struct Fresh {
    pub(crate) database: Database,
    pub(crate) clock: Arc<ManualClock>,
}

impl Fresh {
    /// `None` on a machine without PostgreSQL.
    pub(crate) async fn new(clock: Arc<ManualClock>) -> Option<Self> {
        let made = tokio::task::spawn_blocking(|| Some(Cluster::shared()?.database()));
        let database = made.await.expect("the server makes a database")?;
        Some(Self { database, clock })
    }

    pub(crate) async fn at_start() -> Option<Self> {
        Self::new(Arc::new(ManualClock::new(START))).await
    }

    pub(crate) fn config(&self) -> PostgresConfig {
        config(&self.database, PostgresClock::Fixed(self.clock.clone()))
    }

    pub(crate) async fn try_open(&self) -> Result<PostgresStore, OpenError> {
        open(self.config()).await
    }

    pub(crate) async fn store(&self) -> PostgresStore {
        self.try_open().await.expect("the database opens")
    }
}

/// Opens a database, and asks again, as the program does, where a busy machine lets nobody in within the second that a
/// host is given.
pub(crate) async fn open(config: PostgresConfig) -> Result<PostgresStore, OpenError> {
    let mut opened = PostgresStore::connect(config.clone()).await;
    for _ in 1..OPENINGS_MAX {
        if !matches!(opened, Err(OpenError::Unreachable(_))) {
            break;
        }
        opened = PostgresStore::connect(config.clone()).await;
    }
    opened
}

pub(crate) fn config(database: &Database, clock: PostgresClock) -> PostgresConfig {
    PostgresConfig {
        url: database.url().parse().expect("a URL"),
        tls: TlsMode::Disable,
        is_pooled: false,
        lanes: 2,
        readers: 4,
        idempotency_retention_s: IDEMPOTENCY_RETENTION_S,
        clock,
    }
}
