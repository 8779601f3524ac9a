//! The wiring: from a checked configuration to a running server. The one module that names every crate.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use quotalog_http::{App, Draining};
use quotalog_ledger::clock::SystemClock;
use quotalog_ledger::store::StoreError;
use quotalog_ledger::{Ledger, Settings};
use quotalog_store_sqlite::{OpenError, SqliteConfig, SqliteStore};

use crate::config::{Database, Serve};
use crate::exit_code::{Exit, Failure};
use crate::shutdown::{Signals, hangups};
use crate::{certificate, first_token, pruning, sockets};

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
    let router = quotalog_http::router(App {
        ledger: ledger.clone(),
        draining: draining.clone(),
    });
    let pruning = {
        let store = store.clone();
        tokio::spawn(async move { pruning::keep_pruning(&store, config.retention).await })
    };

    let scheme = if tls.is_some() { "https" } else { "http" };
    let settings = quotalog_http::Settings {
        tls: tls.clone(),
        head_timeout: config.head_timeout.into(),
        idle_timeout: config.idle_timeout.into(),
        connections_max: sockets::connections_max(config.connections_max),
        drain_deadline: config.shutdown_deadline.into(),
    };
    let certificate = tokio::spawn(certificate::keep_current(tls, hangups));

    crate::cli::say(&format!("quotalog listens on {scheme}://{address}"));
    let shutdown = async move {
        let signal = signals.next().await;
        draining.start();
        tracing::info!(signal, "stopping");
        // A person at the terminal is not kept waiting, and a second signal ends the wait.
        if signal == "SIGTERM" {
            let delay = config.shutdown_delay.into();
            let _second = tokio::time::timeout(delay, signals.next()).await;
        }
    };
    let cut_off = quotalog_http::serve(listener, router, settings, shutdown).await;
    if cut_off > 0 {
        tracing::warn!(connections = cut_off, "the deadline cut requests off");
    }

    pruning.abort();
    certificate.abort();
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
