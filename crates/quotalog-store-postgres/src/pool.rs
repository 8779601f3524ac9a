//! A bounded number of connections, made when they are needed.
//!
//! A connection comes back only from whoever finished with it. One that was left in the middle of a
//! transaction, by an error or by a caller that stopped waiting, is cut, and so is never handed to anybody else.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quotalog_ledger::store::StoreError;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::connection::{Connection, Connector};
use crate::fault::Fault;

/// How long somebody waits for a connection that others use.
const FREE_WITHIN: Duration = Duration::from_secs(1);

/// How long a store that is closed waits for the server to end what was given up.
const ENDED_WITHIN: Duration = Duration::from_secs(2);

pub(crate) struct Pool {
    connector: Arc<Connector>,
    permits: Arc<Semaphore>,
    len_max: u32,
    idle: Mutex<Vec<Connection>>,
    /// What ends the sessions that were given up.
    cutting: Mutex<JoinSet<()>>,
}

/// A connection in use.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    /// `None` once it has been given back or cut.
    connection: Option<Connection>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(crate) fn new(connector: Arc<Connector>, len_max: usize) -> Self {
        let len_max = u32::try_from(len_max).unwrap_or(u32::MAX).clamp(1, 1_000);
        Self {
            connector,
            permits: Arc::new(Semaphore::new(len_max as usize)),
            len_max,
            idle: Mutex::default(),
            cutting: Mutex::default(),
        }
    }

    /// A connection that is open as far as one can tell without asking the server.
    pub(crate) async fn lease(self: &Arc<Self>) -> Result<Lease, StoreError> {
        let permit = Arc::clone(&self.permits).acquire_owned();
        let permit = tokio::time::timeout(FREE_WITHIN, permit)
            .await
            .map_err(|_elapsed| Fault::NoneFree.unavailable())?
            .map_err(|_closed| Fault::Closed.unavailable())?;
        let connection = match self.sound() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        Ok(Lease {
            pool: Arc::clone(self),
            connection: Some(connection),
            _permit: permit,
        })
    }

    async fn connect(&self) -> Result<Connection, StoreError> {
        match self.connector.connect().await {
            Ok(Some(connection)) => Ok(connection),
            Ok(None) => Err(Fault::TimedOut.unavailable()),
            // A server that refuses us now did not when the store was opened: nobody's request is at fault.
            Err(error) => Err(StoreError::Unavailable(Box::new(error))),
        }
    }

    /// The connection that was used last, of those that are still open: the others may rest.
    fn sound(&self) -> Option<Connection> {
        let mut idle = self.idle();
        while let Some(connection) = idle.pop() {
            if !connection.is_closed() {
                return Some(connection);
            }
        }
        None
    }

    /// Adds a connection that was made elsewhere.
    pub(crate) fn add(&self, connection: Connection) {
        self.idle().push(connection);
    }

    /// Waits for what is under way, and ends all connections. From then on there are none.
    pub(crate) async fn close(&self) {
        let all = self.permits.acquire_many(self.len_max).await;
        self.permits.close();
        drop(all);
        let idle = std::mem::take(&mut *self.idle());
        for connection in idle {
            connection.close().await;
        }
        let cutting = std::mem::take(&mut *self.cutting());
        let ended = tokio::time::timeout(ENDED_WITHIN, cutting.join_all()).await;
        if ended.is_err() {
            tracing::debug!("sessions of the database are left with work under way");
        }
    }

    /// Ends a session in the background, whatever is under way on it.
    fn cut(&self, connection: Connection) {
        // Without a runtime nothing can be told to anybody; its driver has ended then.
        if !connection.is_closed()
            && let Ok(runtime) = Handle::try_current()
        {
            let cut = connection.cut(Arc::clone(&self.connector));
            let mut cutting = self.cutting();
            while cutting.try_join_next().is_some() {}
            cutting.spawn_on(cut, &runtime);
        }
    }

    fn cutting(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        // Nothing that can panic runs under this lock.
        self.cutting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        // Nothing that can panic runs under this lock.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// Ends the use of a connection on which no transaction is open.
    pub(crate) fn give_back(mut self) {
        if let Some(connection) = self.connection.take()
            && !connection.is_closed()
        {
            self.pool.add(connection);
        }
    }
}

impl Deref for Lease {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
            .as_ref()
            .expect("it is there until the lease ends")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.cut(connection);
        }
    }
}
