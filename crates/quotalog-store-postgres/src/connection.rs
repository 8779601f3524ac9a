//! One connection to the database: how it is made and set, and its prepared statements.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use quotalog_ledger::store::StoreError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::{ToSql, Type, WrongType};
use tokio_postgres::{AsyncMessage, Client, Error, Row, SimpleQueryMessage, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::fault::{Fault, at_commit, of_opening};
use crate::schema::no_answer;
use crate::{OpenError, PostgresConfig, host, tls};

/// How long connecting to one host may take, from the first packet to a session that is set, unless the URL says it.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// The most for all hosts together, of the 5 s in which a request is answered.
const ALL_HOSTS_MAX: Duration = Duration::from_secs(4);
/// After so long without an answer to a packet the other end is taken for dead.
const UNANSWERED_MAX: Duration = Duration::from_secs(5);

/// How long a session that is given up may take to answer what was sent, before the server is told to end it.
const ANSWERS_WITHIN: Duration = Duration::from_millis(100);
/// How often that is tried.
const ENDINGS: u32 = 5;

/// What tells the session from every other, of this server and of one that takes its place.
const OF_SESSION: &str = "SELECT pid, (extract(epoch FROM backend_start) * 1000000)::bigint \
     FROM pg_catalog.pg_stat_activity WHERE pid = pg_catalog.pg_backend_pid()";
/// What tells the transaction from every other, where the session has those of others too.
const OF_TRANSACTION: &str = "SELECT pg_catalog.pg_backend_pid(), \
     (extract(epoch FROM transaction_timestamp()) * 1000000)::bigint";

/// The server waits for a standby inside the commit, where it must; to be told to stop there is to be told that it is
/// done. In a transaction that has failed the setting fails, and the commit behind it is not run: the server would
/// answer it with a rollback, and no error.
const COMMIT: &str = "SET LOCAL statement_timeout = 0; COMMIT";
/// The routine of the server that warns of a commit whose wait for a standby was ended. Its text may be of any language.
const STANDBY_WAIT: &str = "SyncRepWaitForLSN";

/// What every session is given, so that neither the role's settings nor the database's change what our statements
/// mean, how long they wait, or which way they go.
///
/// Our statements come with arrays of keys, of which the planner does not know that they are few; it would read
/// whole tables for them. So it is left the index, and plans once instead of for each batch.
///
/// What is answered is on disk, whatever the role or the database has set. What they want beyond that stays, such as a
/// standby's word.
const SESSION: &str = "SET search_path = public; SET TIME ZONE 'UTC'; \
     SET client_encoding = 'UTF8'; SET default_transaction_isolation = 'read committed'; \
     SET default_transaction_read_only = off; SET default_transaction_deferrable = off; \
     SET statement_timeout = '3s'; SET lock_timeout = '2s'; \
     SET idle_in_transaction_session_timeout = '5s'; \
     SET jit = off; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off; \
     SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_hashagg = off; \
     SET enable_material = off; SET enable_memoize = off; \
     SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";
/// The same for one transaction: behind a pooler the next one has another session, which may be anybody's.
static LOCAL: LazyLock<String> = LazyLock::new(|| {
    let settings = SESSION.replace("SET ", "SET LOCAL ");
    settings.replace("'on', false)", "'on', true)")
});

/// What a parameter may be.
const KINDS: [Type; 10] = [
    Type::TEXT,
    Type::TEXT_ARRAY,
    Type::INT8,
    Type::INT8_ARRAY,
    Type::TIMESTAMPTZ,
    Type::TIMESTAMPTZ_ARRAY,
    Type::BYTEA,
    Type::BYTEA_ARRAY,
    Type::INT4,
    Type::BOOL,
];

/// What makes connections.
pub(crate) struct Connector {
    /// One for each host, in the order of the URL.
    hosts: Vec<tokio_postgres::Config>,
    tls: MakeRustlsConnect,
    /// How long each host is given: one that is frozen takes connections, and never says a word.
    patience: Duration,
    is_pooled: bool,
}

/// A session of the database.
pub(crate) struct Connection {
    client: Client,
    driver: JoinHandle<()>,
    /// Who works for us in the server; `None` while that is not known.
    backend: Mutex<Option<Backend>>,
    /// Whether the server has committed without the word of the standby that it was to wait for.
    is_unconfirmed: Arc<AtomicBool>,
    /// Whether each transaction may have another session of the server, as behind a pooler.
    is_pooled: bool,
    statements: Mutex<HashMap<&'static str, Statement>>,
}

/// A process of the server, and since when it works on what is ours, in microseconds of the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Backend {
    pid: i32,
    since_us: i64,
}

/// What a transaction is begun for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    Write,
    /// One snapshot of all tables.
    Read,
}

/// A parameter of a statement.
pub(crate) type Value<'a> = &'a (dyn ToSql + Sync);

impl Connector {
    pub(crate) fn new(config: &PostgresConfig) -> Result<Self, OpenError> {
        let (tls, ssl_mode): (_, SslMode) = tls::connector(&config.tls)?;
        let mut url = config.url.clone();
        url.ssl_mode(ssl_mode)
            .keepalives(true)
            .keepalives_idle(UNANSWERED_MAX)
            .keepalives_interval(Duration::from_secs(1))
            .tcp_user_timeout(UNANSWERED_MAX);
        if url.get_application_name().is_none() {
            url.application_name("quotalog");
        }
        let mut hosts = host::each_of(&url);
        let number = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        let wanted = url.get_connect_timeout().copied().unwrap_or(CONNECT_MAX);
        let patience = wanted.min(ALL_HOSTS_MAX / number.max(1));
        for host in &mut hosts {
            host.connect_timeout(patience);
        }
        Ok(Self {
            hosts,
            tls,
            patience,
            is_pooled: config.is_pooled,
        })
    }

    /// A new session, set as all are, on the first host that gives one; `None` if the last took too long.
    pub(crate) async fn connect(&self) -> Result<Option<Connection>, OpenError> {
        let mut last = Ok(None);
        for host in &self.hosts {
            last = match tokio::time::timeout(self.patience, self.open(host)).await {
                Ok(Ok(connection)) => return Ok(Some(connection)),
                Ok(Err(error)) => Err(of_opening(&error)),
                Err(_elapsed) => Ok(None),
            };
        }
        last
    }

    async fn open(&self, host: &tokio_postgres::Config) -> Result<Connection, Error> {
        let (client, connection) = host.connect(self.tls.clone()).await?;
        let is_unconfirmed = Arc::default();
        let driver = tokio::spawn(drive(connection, Arc::clone(&is_unconfirmed)));
        let connection = Connection {
            client,
            driver,
            backend: Mutex::default(),
            is_unconfirmed,
            is_pooled: self.is_pooled,
            statements: Mutex::default(),
        };
        // A pooler lets us in although its server may be gone.
        if self.is_pooled {
            connection.run("SELECT 1").await?;
        } else {
            connection.set(&format!("{SESSION}; {OF_SESSION}")).await?;
        }
        Ok(connection)
    }

    /// Has the server end what is under way for a session of ours. Whoever has the same role may.
    async fn end(&self, backend: Backend) -> Result<(), OpenError> {
        let Some(connection) = self.connect().await? else {
            return Err(no_answer());
        };
        let since = if self.is_pooled {
            "xact_start"
        } else {
            "backend_start"
        };
        let sql = format!(
            "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity \
             WHERE pid = {} AND (extract(epoch FROM {since}) * 1000000)::bigint = {}",
            backend.pid, backend.since_us
        );
        let ended = tokio::time::timeout(CONNECT_MAX, connection.run(&sql)).await;
        connection.close().await;
        ended
            .map_err(|_elapsed| no_answer())?
            .map_err(|error| of_opening(&error))
    }
}

impl Connection {
    /// Runs statements that have no parameters and whose rows nobody wants.
    pub(crate) async fn run(&self, sql: &str) -> Result<(), Error> {
        self.client.batch_execute(sql).await
    }

    /// Runs statements of which the last tells who works for us.
    async fn set(&self, sql: &str) -> Result<(), Error> {
        *self.backend() = None;
        let told = self.client.simple_query(sql).await?;
        *self.backend() = Backend::told(&told);
        Ok(())
    }

    fn backend(&self) -> std::sync::MutexGuard<'_, Option<Backend>> {
        // Nothing that can panic runs under this lock.
        self.backend.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a transaction, in which all is set as it is for our sessions.
    pub(crate) async fn begin(&self, begin: Begin) -> Result<(), Error> {
        if self.is_pooled {
            // What a session would start with by itself is not ours to know.
            let isolation = match begin {
                Begin::Write => "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; ",
                Begin::Read => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; ",
            };
            let settings = &*LOCAL;
            return self
                .set(&format!("{isolation}{settings}; {OF_TRANSACTION}"))
                .await;
        }
        match begin {
            Begin::Write => self.run("BEGIN").await,
            Begin::Read => {
                self.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                    .await
            }
        }
    }

    /// Makes what was done in the transaction durable, on the standby too that the server waits for.
    ///
    /// The server ends that wait if anybody tells it to, and calls the commit done. What is only said beside it is
    /// seen before the answer to it, since the driver reads both in their order.
    pub(crate) async fn commit(&self) -> Result<(), StoreError> {
        self.run(COMMIT).await.map_err(at_commit)?;
        if self.is_unconfirmed.load(Ordering::Acquire) {
            return Err(Fault::Unconfirmed.unknown());
        }
        Ok(())
    }

    /// Runs one statement that is a transaction by itself.
    pub(crate) async fn alone<T>(
        &self,
        statement: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        if !self.is_pooled {
            return statement.await;
        }
        let (begun, answer, ended) = tokio::join! {
            biased;
            self.begin(Begin::Write),
            statement,
            self.run("COMMIT"),
        };
        begun?;
        let answer = answer?;
        ended.map(|()| answer)
    }

    /// Whether each transaction may have another session of the server.
    pub(crate) fn is_pooled(&self) -> bool {
        self.is_pooled
    }

    /// Prepares the statement once for this session, so that to run it takes no trip more.
    pub(crate) async fn prepare(&self, sql: &'static str) -> Result<(), Error> {
        if !self.is_pooled {
            self.statement(sql).await?;
        }
        Ok(())
    }

    async fn statement(&self, sql: &'static str) -> Result<Statement, Error> {
        if let Some(statement) = self.prepared().get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.prepared().insert(sql, statement.clone());
        Ok(statement)
    }

    pub(crate) async fn query(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, Error> {
        if self.is_pooled {
            return self.client.query_typed(sql, &typed(values)).await;
        }
        let statement = self.statement(sql).await?;
        self.client.query(&statement, values).await
    }

    pub(crate) async fn query_one(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Row, Error> {
        if self.is_pooled {
            return self.client.query_typed_one(sql, &typed(values)).await;
        }
        let statement = self.statement(sql).await?;
        self.client.query_one(&statement, values).await
    }

    pub(crate) async fn query_opt(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Option<Row>, Error> {
        if self.is_pooled {
            return self.client.query_typed_opt(sql, &typed(values)).await;
        }
        let statement = self.statement(sql).await?;
        self.client.query_opt(&statement, values).await
    }

    /// The rows of a statement that was prepared before; none if it is not needed.
    pub(crate) async fn query_unless(
        &self,
        unneeded: bool,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, Error> {
        if unneeded {
            return Ok(Vec::new());
        }
        self.query(sql, values).await
    }

    /// Runs a statement that was prepared before, if it is needed.
    pub(crate) async fn execute_unless(
        &self,
        unneeded: bool,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<(), Error> {
        if !unneeded {
            self.execute(sql, values).await?;
        }
        Ok(())
    }

    /// Runs a statement, and tells how many rows it changed.
    pub(crate) async fn execute(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<u64, Error> {
        if self.is_pooled {
            return self.client.execute_typed(sql, &typed(values)).await;
        }
        let statement = self.statement(sql).await?;
        self.client.execute(&statement, values).await
    }

    /// The session itself, for statements that are made where they are run.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The same, for what begins transactions by itself.
    pub(crate) fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Ends the session in good order.
    pub(crate) async fn close(self) {
        let Self { client, driver, .. } = self;
        drop(client);
        let ended = tokio::time::timeout(CONNECT_MAX, driver).await;
        if ended.is_err() {
            tracing::debug!("a connection to the database did not end in time");
        }
    }

    /// Gives the session up, whatever is under way on it. The server undoes what was not committed.
    ///
    /// A server that is busy with a statement does not see that its client has left, and one whose commit waits for
    /// a standby that is away would wait on; each would keep one of its connections. So it is told to end that, by a
    /// statement: the request that the protocol has for it is dropped, or worse, by poolers if it does not wait for
    /// their answer, and the driver's does not.
    pub(crate) async fn cut(self, connector: Arc<Connector>) {
        let backend = *self.backend();
        let Self {
            client, mut driver, ..
        } = self;
        // Without it the driver ends the session as soon as all that was sent is answered.
        drop(client);
        let ended = tokio::time::timeout(ANSWERS_WITHIN, &mut driver).await;
        if ended.is_err() {
            // A pooler has room for another session then, as it may need it now.
            driver.abort();
            if let Some(backend) = backend {
                end(backend, &connector).await;
            }
        }
    }

    fn prepared(&self) -> std::sync::MutexGuard<'_, HashMap<&'static str, Statement>> {
        // Nothing that can panic runs under this lock.
        self.statements
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has the session go on until it ends.
async fn drive<S, T>(
    mut connection: tokio_postgres::Connection<S, T>,
    is_unconfirmed: Arc<AtomicBool>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        match message {
            Ok(AsyncMessage::Notice(notice)) => {
                if notice.routine() == Some(STANDBY_WAIT) {
                    is_unconfirmed.store(true, Ordering::Release);
                }
                tracing::debug!(notice = notice.message(), "the database remarks");
            }
            // Nobody here listens for notifications.
            Ok(_) => {}
            // Whoever waits for an answer is told of the error too, and has more to say about it.
            Err(error) => {
                tracing::debug!(%error, "a connection to the database ended");
                return;
            }
        }
    }
}

/// Has the server end what is under way for a session that was given up, as soon as it can be told so.
async fn end(backend: Backend, connector: &Connector) {
    for _ in 0..ENDINGS {
        match connector.end(backend).await {
            Ok(()) => return,
            Err(error) => {
                tracing::debug!(%error, "the database could not be told to end a session");
                tokio::time::sleep(CONNECT_MAX).await;
            }
        }
    }
}

impl Backend {
    /// The one that the last row tells of.
    fn told(messages: &[SimpleQueryMessage]) -> Option<Self> {
        let mut row = None;
        for message in messages {
            if let SimpleQueryMessage::Row(told) = message {
                row = Some(told);
            }
        }
        let row = row?;
        Some(Self {
            pid: row.get(0)?.parse().ok()?,
            since_us: row.get(1)?.parse().ok()?,
        })
    }
}

/// The parameters with the types that they have by themselves, for a statement that nobody has prepared.
fn typed<'v>(values: &[Value<'v>]) -> Vec<(Value<'v>, Type)> {
    let mut unread = BytesMut::new();
    let mut kind_of = |value: Value<'_>| {
        let takes = |kind: &&Type| {
            let written = value.to_sql_checked(kind, &mut unread);
            !written.is_err_and(|error| error.is::<WrongType>())
        };
        KINDS.iter().find(takes).cloned().unwrap_or(Type::UNKNOWN)
    };
    values
        .iter()
        .map(|value| (*value, kind_of(*value)))
        .collect()
}
