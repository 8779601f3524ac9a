//! The wiring: from a checked configuration to a running server. The one module that names every crate.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use prometheus::process_collector::ProcessCollector;
use quotalog_http::{Admission, App, Draining, Metrics, Settings as ServerSettings};
use quotalog_ledger::clock::SystemClock;
use quotalog_ledger::store::StoreError;
use quotalog_ledger::{Ledger, Settings};
use quotalog_store_sqlite::{BackupError, Finding, OpenError, SqliteConfig, SqliteStore};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::config::{Database, Serve};
use crate::exit_code::{Exit, Failure};
use crate::pruning::Pruned;
use crate::shutdown::{Signals, hangups};
use crate::{certificate, first_token, pruning, sockets};

/// How many reads are served at once.
const READERS: usize = 2;
/// Retries of a command line's own requests find their answers for this long.
const COMMAND_LINE_IDEMPOTENCY_S: i64 = 86_400;

/// The most connections to the metrics, which a few collectors read.
const METRICS_CONNECTIONS_MAX: usize = 32;

/// How long the last batch and the store may take to end, when the requests have.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(10);

/// Runs the server until a signal ends it.
pub(crate) fn run(config: Serve) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(serve(config));
    // A thread that still waits for the disk must not hold the exit.
    runtime.shutdown_background();
    result
}

async fn serve(config: Serve) -> anyhow::Result<()> {
    // Before anything opens, so that no signal is missed.
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let hangups = hangups().context("cannot listen for signals")?;
    let tls = config.tls.map(certificate::load).transpose()?;
    let (path, retention_s) = (config.database.path, config.retention.idempotency_s);
    let opening = tokio::task::spawn_blocking(move || open(&path, retention_s));
    let store = tokio::select! {
        opened = opening => opened.context("the store did not open")??,
        signal = signals.next() => {
            tracing::info!(signal, "stopped before the store was open");
            return Ok(());
        }
    };
    // Once the store is open, so that nobody connects to a server that cannot answer; and before a token
    // is made, so that a port in use costs none.
    let listener = sockets::listen(&config.listen).await?;
    let address = listener.local_addr().context("cannot tell the address")?;
    let metrics_listener = match &config.metrics_listen {
        Some(address) => Some(sockets::listen(address).await?),
        None => None,
    };
    if config.admin_token.is_none() {
        first_token::ensure(&store, &config.token_file).await?;
    }
    let bounds = Settings {
        admin_token: config.admin_token,
        ..Settings::default()
    };
    let ledger = Ledger::start(Arc::new(store.clone()), bounds);
    let draining = Draining::default();
    let pruned = Pruned::new();
    let app = App {
        ledger: ledger.clone(),
        draining: draining.clone(),
        admission: Admission::new(config.requests_per_caller_max),
        metrics: metrics(&ledger, &pruned),
        metrics_apart: metrics_listener.is_some(),
    };
    let pruning = {
        let store = store.clone();
        tokio::spawn(async move { pruning::keep_pruning(&store, config.retention, &pruned).await })
    };

    let scheme = if tls.is_some() { "https" } else { "http" };
    let settings = ServerSettings {
        tls: tls.clone(),
        head_timeout: config.head_timeout.into(),
        idle_timeout: config.idle_timeout.into(),
        connections_max: sockets::connections_max(config.connections_max),
        drain_deadline: config.shutdown_deadline.into(),
    };
    let certificate = tokio::spawn(certificate::keep_current(tls, hangups));

    crate::cli::say(&format!("quotalog listens on {scheme}://{address}"));
    let metrics_server = match metrics_listener {
        Some(listener) => Some(serve_metrics(listener, app.clone(), settings.clone())?),
        None => None,
    };
    let router = quotalog_http::router(app);
    let shutdown = told_to_stop(signals, draining, config.shutdown_delay.into());
    let cut_off = quotalog_http::serve(listener, router, settings, shutdown).await;
    if cut_off > 0 {
        tracing::warn!(connections = cut_off, "the deadline cut requests off");
    }

    pruning.abort();
    certificate.abort();
    // Until the last request is answered, so that the end of it can be watched as well.
    if let Some(server) = metrics_server {
        server.abort();
    }
    close(ledger, store).await?;
    tracing::info!("stopped");
    Ok(())
}

/// Answers what the ledger has taken, then closes the store.
async fn close(ledger: Ledger, store: SqliteStore) -> anyhow::Result<()> {
    let closing = async move {
        ledger.shut_down().await;
        tokio::task::spawn_blocking(move || store.close()).await
    };
    tokio::time::timeout(CLOSE_WAIT_MAX, closing)
        .await
        .context("the store did not close in time; what was answered is on disk")?
        .context("the store did not close")
}

/// Returns when no more connections are to be taken.
async fn told_to_stop(mut signals: Signals, draining: Draining, delay: Duration) {
    let signal = signals.next().await;
    draining.start();
    tracing::info!(signal, "stopping");
    // A person at the terminal is not kept waiting, and a second signal ends the wait.
    if signal == "SIGTERM" {
        let _second = tokio::time::timeout(delay, signals.next()).await;
    }
}

/// All that is measured.
fn metrics(ledger: &Ledger, pruned: &Pruned) -> Metrics {
    let metrics = Metrics::new(ledger);
    metrics.add(Box::new(ProcessCollector::for_self()));
    for collector in pruned.collectors() {
        metrics.add(collector);
    }
    metrics
}

/// Serves the metrics on a listener of their own, in plain HTTP, until the task is aborted.
fn serve_metrics(
    listener: TcpListener,
    app: App,
    of_main: ServerSettings,
) -> anyhow::Result<JoinHandle<usize>> {
    let address = listener.local_addr().context("cannot tell the address")?;
    crate::cli::say(&format!("metrics are at http://{address}/metrics"));
    let settings = ServerSettings {
        tls: None,
        connections_max: METRICS_CONNECTIONS_MAX,
        ..of_main
    };
    let router = quotalog_http::metrics_router(app);
    let serving = quotalog_http::serve(listener, router, settings, std::future::pending());
    Ok(tokio::spawn(serving))
}

/// Opens the store for one command, and closes it again.
pub(crate) fn on_store<T>(
    database: &Database,
    work: impl AsyncFnOnce(&SqliteStore) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let store = open(&database.path, COMMAND_LINE_IDEMPOTENCY_S)?;
    let result = runtime.block_on(work(&store));
    store.close();
    result
}

fn open(path: &Path, idempotency_retention_s: i64) -> anyhow::Result<SqliteStore> {
    let config = SqliteConfig {
        path: path.to_owned(),
        idempotency_retention_s,
        readers: READERS,
    };
    SqliteStore::open(config, Arc::new(SystemClock)).map_err(not_opened)
}

/// Looks a store over, without changing it.
pub(crate) fn examine(database: &Database) -> Vec<Finding> {
    quotalog_store_sqlite::examine(&database.path, &SystemClock)
}

/// Copies the store into a new file.
pub(crate) fn back_up(database: &Database, file: &Path) -> anyhow::Result<()> {
    quotalog_store_sqlite::backup(&database.path, file).map_err(|error| {
        let exit = match error {
            BackupError::Database(error) => return not_opened(error),
            BackupError::File(ref error) => exit_of(error),
            BackupError::Exists(_) | BackupError::Leftover(_) => Exit::Usage,
            BackupError::DraftExists(_)
            | BackupError::NoRoom(_)
            | BackupError::Damaged { .. }
            | BackupError::Unwritten { .. } => Exit::Failure,
        };
        Failure::error(exit, error.to_string())
    })
}

fn not_opened(error: OpenError) -> anyhow::Error {
    let exit = exit_of(&error);
    Failure::error(exit, format!("--database (QUOTALOG_DATABASE): {error}"))
}

fn exit_of(error: &OpenError) -> Exit {
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

/// A failure of the store, with the exit code that a script can act on.
pub(crate) fn failed(error: StoreError) -> anyhow::Error {
    let exit = match &error {
        StoreError::Unavailable(_) | StoreError::OutcomeUnknown(_) => Exit::Unavailable,
        StoreError::Internal(_) => Exit::Failure,
    };
    Failure::error(exit, format!("{:#}", anyhow::Error::new(error)))
}
