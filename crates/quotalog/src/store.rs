//! The store that the configuration names: opening it, waiting for it, closing it again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use quotalog_ledger::clock::{Clock as _, SystemClock};
use quotalog_ledger::store::Store;
use quotalog_record::import::{Import, Subject};
use quotalog_record::transfer::{Source, Target};
use quotalog_store_postgres::{
    PostgresClock, PostgresConfig, PostgresImport, PostgresStore, PostgresTransfer,
};
use quotalog_store_sqlite::{SqliteConfig, SqliteImport, SqliteStore, SqliteTransfer};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::config::{Connections, DATABASE, Database, SqliteFile};
use crate::exit_code::{Exit, Failure};
use crate::postgres_url::PostgresUrl;

/// How many reads of an SQLite file are served at once.
const SQLITE_READERS: usize = 2;
/// The pause before a server that could not be reached is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a start waits to see whether the server can be reached: it may have to wait for another node that
/// brings the tables up to date.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// A store that is open. Clones are handles of the same.
#[derive(Debug, Clone)]
pub(crate) enum OpenStore {
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
}

/// Why a store is not open.
struct NotOpened {
    error: anyhow::Error,
    /// Whether it may open later without anybody changing a setting.
    may_pass: bool,
}

/// A store that is being opened, for as long as that takes.
pub(crate) struct Opening {
    task: JoinHandle<anyhow::Result<OpenStore>>,
    waits: Arc<Notify>,
    is_on_server: bool,
}

impl OpenStore {
    /// Opens the store at once, or tells why not.
    pub(crate) async fn open(
        database: &Database,
        connections: Connections,
        idempotency_retention_s: i64,
    ) -> anyhow::Result<Self> {
        let opened = open(database, connections, idempotency_retention_s).await;
        opened.map_err(|not_opened| not_opened.error)
    }

    /// The ports, whichever store fills them.
    pub(crate) fn ports(&self) -> &dyn Store {
        match self {
            Self::Sqlite(store) => store,
            Self::Postgres(store) => store,
        }
    }

    /// Waits for what is under way, and closes the store.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        match self {
            Self::Sqlite(store) => tokio::task::spawn_blocking(move || store.close())
                .await
                .context("the store did not close"),
            Self::Postgres(store) => {
                store.close().await;
                Ok(())
            }
        }
    }
}

impl Opening {
    /// Begins to open the store. A server that cannot be reached is tried again and again.
    pub(crate) fn begin(
        database: Database,
        connections: Connections,
        idempotency_retention_s: i64,
    ) -> Self {
        let waits = Arc::new(Notify::new());
        let waiting = Arc::clone(&waits);
        let is_on_server = matches!(database, Database::Postgres(_));
        let task = tokio::spawn(async move {
            let mut has_waited = false;
            loop {
                match open(&database, connections, idempotency_retention_s).await {
                    Ok(store) => {
                        if has_waited {
                            tracing::info!("the database is there");
                        }
                        return Ok(store);
                    }
                    Err(NotOpened { error, may_pass }) if may_pass => {
                        if !has_waited {
                            tracing::warn!(
                                error = format!("{error:#}"),
                                "waiting for the database"
                            );
                        }
                        has_waited = true;
                        waiting.notify_one();
                    }
                    Err(NotOpened { error, .. }) => return Err(error),
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self {
            task,
            waits,
            is_on_server,
        }
    }

    /// The store, unless its server is to be waited for. A file opens or does not, however long that takes.
    pub(crate) async fn at_once(&mut self) -> anyhow::Result<Option<OpenStore>> {
        tokio::select! {
            opened = &mut self.task => finished(opened).map(Some),
            () = self.waits.notified() => Ok(None),
            () = tokio::time::sleep(ANSWERED_WITHIN), if self.is_on_server => Ok(None),
        }
    }

    /// The store, however long it takes.
    pub(crate) async fn in_the_end(self) -> anyhow::Result<OpenStore> {
        finished(self.task.await)
    }
}

fn finished(
    opened: Result<anyhow::Result<OpenStore>, tokio::task::JoinError>,
) -> anyhow::Result<OpenStore> {
    opened.context("the store did not open")?
}

async fn open(
    database: &Database,
    connections: Connections,
    idempotency_retention_s: i64,
) -> Result<OpenStore, NotOpened> {
    match database {
        Database::Sqlite(file) => {
            let file = file.clone();
            let opening =
                tokio::task::spawn_blocking(move || open_sqlite(file, idempotency_retention_s));
            let opened = opening.await.context("the store did not open");
            opened.flatten().map_err(|error| NotOpened {
                error,
                may_pass: false,
            })
        }
        Database::Postgres(url) => open_postgres(url, connections, idempotency_retention_s).await,
    }
}

fn open_sqlite(file: SqliteFile, idempotency_retention_s: i64) -> anyhow::Result<OpenStore> {
    let config = SqliteConfig {
        path: file.0,
        idempotency_retention_s,
        readers: SQLITE_READERS,
    };
    let opened = SqliteStore::open(config, Arc::new(SystemClock));
    opened.map(OpenStore::Sqlite).map_err(sqlite_not_opened)
}

/// Why an SQLite file did not open, with the exit code that a script can act on.
pub(crate) fn sqlite_not_opened(error: quotalog_store_sqlite::OpenError) -> anyhow::Error {
    let exit = sqlite_exit(&error);
    not_opened(DATABASE, exit, &error)
}

/// The exit code for an SQLite file that did not open.
pub(crate) fn sqlite_exit(error: &quotalog_store_sqlite::OpenError) -> Exit {
    use quotalog_store_sqlite::OpenError;
    let misnamed = matches!(
        error,
        OpenError::NoPath
            | OpenError::NotAPath(_)
            | OpenError::NotAFile(_)
            | OpenError::Folder { .. }
            | OpenError::NotADatabase(_)
    );
    if misnamed {
        Exit::Usage
    } else if matches!(error, OpenError::Busy(_)) {
        Exit::Unavailable
    } else {
        Exit::Failure
    }
}

/// What the store is told of a PostgreSQL server.
pub(crate) fn postgres_config(
    url: &PostgresUrl,
    connections: Connections,
    idempotency_retention_s: i64,
) -> PostgresConfig {
    let mut server = url.server.clone();
    if let (None, Some(within)) = (server.get_connect_timeout(), connections.made_within) {
        server.connect_timeout(within);
    }
    PostgresConfig {
        url: server,
        tls: url.tls.clone(),
        is_pooled: url.is_pooled,
        lanes: connections.lanes,
        readers: connections.readers,
        idempotency_retention_s,
        clock: PostgresClock::Database,
    }
}

async fn open_postgres(
    url: &PostgresUrl,
    connections: Connections,
    idempotency_retention_s: i64,
) -> Result<OpenStore, NotOpened> {
    let config = postgres_config(url, connections, idempotency_retention_s);
    let opened = PostgresStore::connect(config).await;
    opened.map(OpenStore::Postgres).map_err(|error| NotOpened {
        may_pass: error.may_pass(),
        error: postgres_not_opened(DATABASE, url, &error),
    })
}

fn postgres_not_opened(
    setting: &str,
    url: &PostgresUrl,
    error: &quotalog_store_postgres::OpenError,
) -> anyhow::Error {
    use quotalog_store_postgres::OpenError;
    let misnamed = matches!(
        error,
        OpenError::Refused(_)
            | OpenError::Authorities(_)
            | OpenError::Copied
            | OpenError::NeedsSession
            | OpenError::NoTables
    );
    let exit = if error.may_pass() {
        Exit::Unavailable
    } else if misnamed {
        Exit::Usage
    } else {
        Exit::Failure
    };
    not_opened(setting, exit, &format_args!("{url}: {error}"))
}

fn not_opened(setting: &str, exit: Exit, error: &dyn std::fmt::Display) -> anyhow::Error {
    Failure::error(exit, format!("{setting}: {error}"))
}

/// What a database holds now, as plain data. `setting` is what names it.
pub(crate) async fn source(setting: &str, database: &Database) -> anyhow::Result<Box<dyn Source>> {
    match database {
        Database::Sqlite(SqliteFile(path)) => {
            let path = path.clone();
            let opening = tokio::task::spawn_blocking(move || SqliteTransfer::read(&path));
            let opened = opening.await.context("the store did not open")?;
            let source = opened.map_err(|error| {
                let exit = sqlite_exit(&error);
                not_opened(setting, exit, &error)
            })?;
            Ok(Box::new(source))
        }
        Database::Postgres(url) => {
            let config = postgres_config(url, Connections::OF_A_COMMAND, 0);
            let opened = PostgresTransfer::read(&config).await;
            let source = opened.map_err(|error| postgres_not_opened(setting, url, &error))?;
            Ok(Box::new(source))
        }
    }
}

/// The same for whoever only looks, beside any others.
pub(crate) async fn looked_at(database: &Database) -> anyhow::Result<Box<dyn Source>> {
    match database {
        Database::Sqlite(_) => source(DATABASE, database).await,
        Database::Postgres(url) => {
            let config = postgres_config(url, Connections::OF_A_COMMAND, 0);
            let opened = PostgresTransfer::look(&config).await;
            let source = opened.map_err(|error| postgres_not_opened(DATABASE, url, &error))?;
            Ok(Box::new(source))
        }
    }
}

/// A file's way into a database.
pub(crate) async fn import(
    database: &Database,
    subject: Subject,
) -> anyhow::Result<Box<dyn Import>> {
    match database {
        Database::Sqlite(SqliteFile(path)) => {
            let path = path.clone();
            let opening = tokio::task::spawn_blocking(move || {
                SqliteImport::open(&path, subject, Arc::new(SystemClock))
            });
            let opened = opening.await.context("the store did not open")?;
            Ok(Box::new(opened.map_err(sqlite_not_opened)?))
        }
        Database::Postgres(url) => {
            let config = postgres_config(url, Connections::OF_A_COMMAND, 0);
            let opened = PostgresImport::open(&config, subject).await;
            let import = opened.map_err(|error| postgres_not_opened(DATABASE, url, &error))?;
            Ok(Box::new(import))
        }
    }
}

/// A transaction that writes into a database. `setting` is what names it.
pub(crate) async fn target(setting: &str, database: &Database) -> anyhow::Result<Box<dyn Target>> {
    match database {
        Database::Sqlite(SqliteFile(path)) => {
            let path = path.clone();
            let opening = tokio::task::spawn_blocking(move || {
                SqliteTransfer::write(&path, SystemClock.now())
            });
            let opened = opening.await.context("the store did not open")?;
            let target = opened.map_err(|error| {
                let exit = sqlite_exit(&error);
                not_opened(setting, exit, &error)
            })?;
            Ok(Box::new(target))
        }
        Database::Postgres(url) => {
            let config = postgres_config(url, Connections::OF_A_COMMAND, 0);
            let opened = PostgresTransfer::write(&config).await;
            let target = opened.map_err(|error| postgres_not_opened(setting, url, &error))?;
            Ok(Box::new(target))
        }
    }
}
