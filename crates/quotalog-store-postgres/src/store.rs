//! The handle of the store: it brings the tables up to date and holds the connections.

use std::fmt;
use std::sync::Arc;

use quotalog_record::unfit::PassedOver;

use crate::config::{PostgresClock, PostgresConfig};
use crate::connection::Connector;
use crate::pool::Pool;
use crate::{OpenError, schema};

/// A hundred years: more is no retention, and instants before the year 1 are none.
const RETENTION_S_MAX: i64 = 100 * 366 * 86_400;

/// A store on PostgreSQL.
///
/// Clones are handles of the same store.
#[derive(Clone)]
pub struct PostgresStore(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    /// Connections that commit batches.
    pub(crate) lanes: Arc<Pool>,
    /// Connections for all else.
    pub(crate) readers: Arc<Pool>,
    pub(crate) clock: PostgresClock,
    pub(crate) idempotency_retention_s: i64,
    pub(crate) passed_over: PassedOver,
    /// Held by the one search through all quotas, which is work for a connection for seconds.
    pub(crate) search: tokio::sync::Mutex<()>,
}

impl PostgresStore {
    /// Connects, and brings the tables up to date: one node at a time, however many start at once.
    ///
    /// # Errors
    /// [`OpenError`], which says what to change, or that the same may work later.
    pub async fn connect(config: PostgresConfig) -> Result<Self, OpenError> {
        let connector = Arc::new(Connector::new(&config)?);
        let connection = schema::prepare(&connector, &config.clock).await?;
        let lanes = Pool::new(Arc::clone(&connector), config.lanes);
        lanes.add(connection);
        Ok(Self(Arc::new(Inner {
            lanes: Arc::new(lanes),
            readers: Arc::new(Pool::new(connector, config.readers)),
            clock: config.clock,
            idempotency_retention_s: config.idempotency_retention_s.clamp(0, RETENTION_S_MAX),
            passed_over: PassedOver::default(),
            search: tokio::sync::Mutex::default(),
        })))
    }

    /// Waits for what is under way, and ends the connections.
    ///
    /// Other handles of this store answer "unavailable" from then on.
    pub async fn close(self) {
        self.0.lanes.close().await;
        self.0.readers.close().await;
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PostgresStore")
    }
}
