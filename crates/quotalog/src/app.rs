//! The wiring: from a checked configuration to a running server. The one module that names every crate.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use prometheus::process_collector::ProcessCollector;
use quotalog_http::{Admission, App, Draining, Metrics};
use quotalog_ledger::clock::SystemClock;
use quotalog_ledger::store::StoreError;
use quotalog_ledger::{Ledger, Settings};
use quotalog_store_sqlite::{OpenError, SqliteConfig, SqliteStore};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::config::{Database, Listen, Serve};
use crate::exit_code::{Exit, Failure};
use crate::pruning::Pruned;
use crate::shutdown::Signals;
use crate::{first_token, pruning};

/// How many reads are served at once.
const READERS: usize = 2;
/// Retries of a command line's own requests find their answers for this long.
const COMMAND_LINE_IDEMPOTENCY_S: i64 = 86_400;

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
    let listener = listen(&config.listen).await?;
    let address = listener.local_addr().context("cannot tell the address")?;
    let metrics_listener = match &config.metrics_listen {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    if config.admin_token.is_none() {
        first_token::ensure(&store, &config.token_file).await?;
    }
    let ledger = Ledger::start(
        Arc::new(store.clone()),
        Settings {
            admin_token: config.admin_token,
            ..Settings::default()
        },
    );
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

    crate::cli::say(&format!("quotalog listens on http://{address}"));
    let metrics_server = match metrics_listener {
        Some(listener) => Some(serve_metrics(listener, app.clone())?),
        None => None,
    };
    let router = quotalog_http::router(app);
    let shutdown = async move {
        let signal = signals.next().await;
        draining.start();
        tracing::info!(signal, "stopping");
        // A person at the terminal is not kept waiting, and a second signal ends the wait.
        if signal == "SIGTERM" {
            let delay = Duration::from_secs(u64::from(config.shutdown_delay.0));
            let _second = tokio::time::timeout(delay, signals.next()).await;
        }
    };
    let deadline = Duration::from_secs(u64::from(config.shutdown_deadline.0));
    let cut_off = quotalog_http::serve(listener, router, shutdown, deadline).await;
    if cut_off > 0 {
        tracing::warn!(connections = cut_off, "the deadline cut requests off");
    }

    pruning.abort();
    // Until the last request is answered, so that the end of it can be watched as well.
    if let Some(server) = metrics_server {
        server.abort();
    }
    let closing = async move {
        ledger.shut_down().await;
        tokio::task::spawn_blocking(move || store.close()).await
    };
    tokio::time::timeout(CLOSE_WAIT_MAX, closing)
        .await
        .context("the store did not close in time; what was answered is on disk")?
        .context("the store did not close")?;
    tracing::info!("stopped");
    Ok(())
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

/// Serves the metrics on a listener of their own, until the task is aborted.
fn serve_metrics(listener: TcpListener, app: App) -> anyhow::Result<JoinHandle<usize>> {
    let address = listener.local_addr().context("cannot tell the address")?;
    crate::cli::say(&format!("metrics are at http://{address}/metrics"));
    let router = quotalog_http::metrics_router(app);
    let serving = quotalog_http::serve(listener, router, std::future::pending(), Duration::ZERO);
    Ok(tokio::spawn(serving))
}

async fn listen(listen: &Listen) -> anyhow::Result<TcpListener> {
    let Listen {
        address,
        flag,
        variable,
    } = listen;
    TcpListener::bind(address).await.map_err(|error| {
        let message = format!(
            "cannot listen on {address:?}: {error}; choose another address with {flag} ({variable})"
        );
        Failure::error(Exit::Failure, message)
    })
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

fn not_opened(error: OpenError) -> anyhow::Error {
    let misnamed = matches!(
        error,
        OpenError::NoPath
            | OpenError::NotAPath(_)
            | OpenError::NotAFile(_)
            | OpenError::Folder { .. }
            | OpenError::NotADatabase(_)
    );
    let exit = if misnamed {
        Exit::Usage
    } else if matches!(error, OpenError::Busy(_)) {
        Exit::Unavailable
    } else {
        Exit::Failure
    };
    Failure::error(exit, format!("--database (QUOTALOG_DATABASE): {error}"))
}

/// A failure of the store, with the exit code that a script can act on.
pub(crate) fn failed(error: StoreError) -> anyhow::Error {
    let exit = match &error {
        StoreError::Unavailable(_) | StoreError::OutcomeUnknown(_) => Exit::Unavailable,
        StoreError::Internal(_) => Exit::Failure,
    };
    Failure::error(exit, format!("{:#}", anyhow::Error::new(error)))
}
