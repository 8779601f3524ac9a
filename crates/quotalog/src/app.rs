//! The wiring: from a checked configuration to a running server. The one module that knows every part; which
//! store it is is `store`'s matter.

use std::convert::Infallible;
use std::io::{BufWriter, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use prometheus::process_collector::ProcessCollector;
use prometheus::{IntGauge, Opts};
use quotalog_front::{Admission, Authentication, Draining};
use quotalog_grpc::Keys;
use quotalog_http::{App, Metrics, Settings as ServerSettings, Tls};
use quotalog_jwt::Verifier;
use quotalog_ledger::clock::SystemClock;
use quotalog_ledger::store::{Retention, Store, StoreError};
use quotalog_ledger::{Ledger, Settings};
use quotalog_record::Finding;
use quotalog_record::import::{Subject, Tell};
use quotalog_store_sqlite::BackupError;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::field::display;

use crate::config::{Connections, Database, RateLimits, Serve, SqliteFile};
use crate::copy::{Copied, Step};
use crate::exit_code::{Exit, Failure};
use crate::export::Exported;
use crate::import::Imported;
use crate::late_store::LateStore;
use crate::new_file::NewFile;
use crate::pruning::Pruned;
use crate::records::{Format, Reader, Writer};
use crate::shutdown::{Signals, hangups};
use crate::store::{OpenStore, Opening};
use crate::{certificate, export, first_token, import, jwt, pruning, sockets, store};

/// Retries of a command line's own requests find their answers for this long.
const COMMAND_LINE_IDEMPOTENCY_S: i64 = 86_400;

/// What runs, for the log and the metrics.
const VERSION: &str = env!("CARGO_PKG_VERSION");

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
    let tls = config.tls.clone().map(certificate::load).transpose()?;
    let jwts = jwt::start(config.jwt.clone()).await?;
    let mut opening = Opening::begin(
        config.database.clone(),
        config.database_connections,
        config.retention.idempotency_s,
    );
    let opened = tokio::select! {
        opened = opening.at_once() => opened?,
        signal = signals.next() => {
            tracing::info!(signal, "stopped before the store was open");
            return Ok(());
        }
    };
    // Once the store is open, so that nobody connects to a server that cannot answer, unless its database is
    // out of reach; and before a token is made, so that a port in use costs none.
    let listeners = Listeners::open(&config).await?;
    let address = listeners.main.local_addr();
    let address = address.context("cannot tell the address")?;
    let store = LateStore::default();
    let token_file = config
        .admin_token
        .is_none()
        .then(|| config.token_file.clone());
    let waiting = match opened {
        Some(opened) => {
            make_ready(&store, opened, token_file).await?;
            None
        }
        None => Some((opening, token_file)),
    };
    let pruned = Pruned::new();
    let app = app(&config, &store, &pruned, jwts);
    let ledger = app.ledger.clone();
    let draining = app.draining.clone();
    let pruning = start_pruning(store.clone(), config.retention, pruned);
    let scheme = if tls.is_some() { "https" } else { "http" };
    let settings = server_settings(&config, tls.clone());
    let certificate = tokio::spawn(certificate::keep_current(tls, hangups));

    let (stopping, stopped) = oneshot::channel();
    log_start(&config, scheme, address, &listeners.beside);
    let beside = Beside::start(&app, listeners.beside, &settings, stopped)?;
    crate::cli::announce(&format!("quotalog listens on {scheme}://{address}"));
    let router = quotalog_http::router(app);
    let mut unusable = None;
    let shutdown = async {
        tokio::select! {
            () = told_to_stop(signals, &draining, config.shutdown_delay.into()) => {}
            error = never_ready(&store, waiting) => unusable = Some(error),
        }
        draining.start();
        drop(stopping);
    };
    let cut_off = quotalog_http::serve(listeners.main, router, settings, shutdown).await;
    let cut_off = cut_off + beside.end().await?;
    if cut_off > 0 {
        tracing::warn!(connections = cut_off, "the deadline cut requests off");
    }

    pruning.abort();
    certificate.abort();
    close(ledger, store).await?;
    tracing::info!("stopped");
    unusable.map_or(Ok(()), Err)
}

/// So that the log tells what ran from here on, and where.
fn log_start(config: &Serve, scheme: &str, address: SocketAddr, beside: &ListenersBeside) {
    let address_of = |listener: &TcpListener| listener.local_addr().ok().map(display);
    let rate_limits = beside.rate_limits.as_ref();
    tracing::info!(
        version = VERSION,
        listen = %format_args!("{scheme}://{address}"),
        metrics_listen = beside.metrics.as_ref().and_then(address_of),
        rls_listen = rate_limits.and_then(|(listener, _)| address_of(listener)),
        database = config.database.for_log(),
        "started"
    );
}

/// The sockets that the configuration asks for.
struct Listeners {
    main: TcpListener,
    beside: ListenersBeside,
}

struct ListenersBeside {
    metrics: Option<TcpListener>,
    rate_limits: Option<(TcpListener, Keys)>,
}

impl Listeners {
    async fn open(config: &Serve) -> anyhow::Result<Self> {
        let main = sockets::listen(&config.listen).await?;
        let metrics = match &config.metrics_listen {
            Some(address) => Some(sockets::listen(address).await?),
            None => None,
        };
        let rate_limits = match &config.rate_limits {
            Some(RateLimits { listen, keys }) => {
                Some((sockets::listen(listen).await?, keys.clone()))
            }
            None => None,
        };
        Ok(Self {
            main,
            beside: ListenersBeside {
                metrics,
                rate_limits,
            },
        })
    }
}

/// The servers beside the main one.
struct Beside {
    metrics: Option<JoinHandle<usize>>,
    rate_limits: Option<JoinHandle<usize>>,
}

impl Beside {
    fn start(
        app: &App,
        listeners: ListenersBeside,
        settings: &ServerSettings,
        stopped: oneshot::Receiver<Infallible>,
    ) -> anyhow::Result<Self> {
        let metrics = listeners.metrics;
        let metrics =
            metrics.map(|listener| serve_metrics(listener, app.clone(), settings.clone()));
        let rate_limits = listeners.rate_limits.map(|(listener, keys)| {
            serve_rate_limits(listener, keys, app, settings.clone(), stopped)
        });
        Ok(Self {
            metrics: metrics.transpose()?,
            rate_limits: rate_limits.transpose()?,
        })
    }

    /// Waits for the end of those that drain, and returns how many connections were cut off.
    async fn end(self) -> anyhow::Result<usize> {
        let cut_off = match self.rate_limits {
            Some(server) => server.await.context("the rate-limit service failed")?,
            None => 0,
        };
        // Until the last request is answered, so that the end of it can be watched as well.
        if let Some(server) = self.metrics {
            server.abort();
        }
        Ok(cut_off)
    }
}

/// What the routes work with, on a store that is open or will be.
fn app(config: &Serve, store: &LateStore, pruned: &Pruned, jwts: Option<Verifier>) -> App {
    let bounds = Settings {
        lanes: config.lanes(),
        admin_token: config.admin_token,
        ..Settings::default()
    };
    let ledger = Ledger::start(Arc::new(store.clone()), bounds);
    App {
        draining: Draining::default(),
        admission: Admission::new(config.requests_per_caller_max),
        metrics: metrics(&ledger, pruned, jwts.as_ref()),
        authentication: Authentication::new(ledger.clone(), jwts),
        metrics_apart: config.metrics_listen.is_some(),
        cors: config.cors.clone(),
        ledger,
    }
}

fn server_settings(config: &Serve, tls: Option<Tls>) -> ServerSettings {
    let listeners = 1 + usize::from(config.rate_limits.is_some());
    ServerSettings {
        tls,
        head_timeout: config.head_timeout.into(),
        idle_timeout: config.idle_timeout.into(),
        connections_max: sockets::connections_max(config.connections_max, listeners),
        drain_deadline: config.shutdown_deadline.into(),
    }
}

/// Has the store that was opened answer, once there is a token to ask it with.
async fn make_ready(
    store: &LateStore,
    opened: OpenStore,
    token_file: Option<PathBuf>,
) -> anyhow::Result<()> {
    if let Some(file) = token_file {
        first_token::ensure(opened.ports(), &file).await?;
    }
    store.open(opened);
    Ok(())
}

/// Waits for the database, if it was out of reach at the start, and returns only if it turns out to be of no use.
async fn never_ready(
    store: &LateStore,
    waiting: Option<(Opening, Option<PathBuf>)>,
) -> anyhow::Error {
    if let Some((opening, token_file)) = waiting {
        let ready = async {
            let opened = opening.in_the_end().await?;
            make_ready(store, opened, token_file).await
        };
        if let Err(error) = ready.await {
            return error;
        }
    }
    std::future::pending().await
}

/// Prunes in the background, once the store is open.
fn start_pruning(store: LateStore, retention: Retention, pruned: Pruned) -> JoinHandle<()> {
    tokio::spawn(async move {
        pruning::keep_pruning(store.opened().await, retention, &pruned).await;
    })
}

/// Answers what the ledger has taken, then closes the store.
async fn close(ledger: Ledger, store: LateStore) -> anyhow::Result<()> {
    let closing = async move {
        ledger.shut_down().await;
        store.close().await
    };
    tokio::time::timeout(CLOSE_WAIT_MAX, closing)
        .await
        .context("the store did not close in time; what was answered is on disk")?
}

/// Returns when no more connections are to be taken.
async fn told_to_stop(mut signals: Signals, draining: &Draining, delay: Duration) {
    let signal = signals.next().await;
    draining.start();
    tracing::info!(signal, "stopping");
    // A person at the terminal is not kept waiting, and a second signal ends the wait.
    if signal == "SIGTERM" {
        let _second = tokio::time::timeout(delay, signals.next()).await;
    }
}

/// All that is measured.
fn metrics(ledger: &Ledger, pruned: &Pruned, jwts: Option<&Verifier>) -> Metrics {
    let metrics = Metrics::new(ledger);
    metrics.add(Box::new(ProcessCollector::for_self()));
    metrics.add(Box::new(build_info()));
    let of_jwts = jwts.map(Verifier::collectors).unwrap_or_default();
    for collector in pruned.collectors().into_iter().chain(of_jwts) {
        metrics.add(collector);
    }
    metrics
}

/// Which version runs, as a label of a measure that is always 1.
fn build_info() -> IntGauge {
    let info = Opts::new("quotalog_build_info", "The version that runs; always 1.");
    let info = IntGauge::with_opts(info.const_label("version", VERSION));
    let info = info.expect("the name is a sound one");
    info.set(1);
    info
}

/// Serves the metrics on a listener of their own, in plain HTTP, until the task is aborted.
fn serve_metrics(
    listener: TcpListener,
    app: App,
    of_main: ServerSettings,
) -> anyhow::Result<JoinHandle<usize>> {
    let address = listener.local_addr().context("cannot tell the address")?;
    crate::cli::announce(&format!("metrics are at http://{address}/metrics"));
    let settings = ServerSettings {
        tls: None,
        connections_max: METRICS_CONNECTIONS_MAX,
        ..of_main
    };
    let router = quotalog_http::metrics_router(app);
    let serving = quotalog_http::serve(listener, router, settings, std::future::pending());
    Ok(tokio::spawn(serving))
}

/// Serves Envoy's rate-limit service on a listener of its own, with connections as those of the main one, until the
/// other end of `stopped` is dropped. Returns how many connections were cut off by the deadline.
fn serve_rate_limits(
    listener: TcpListener,
    keys: Keys,
    beside: &App,
    settings: ServerSettings,
    stopped: oneshot::Receiver<Infallible>,
) -> anyhow::Result<JoinHandle<usize>> {
    let address = listener.local_addr().context("cannot tell the address")?;
    let scheme = if settings.tls.is_some() {
        "grpcs"
    } else {
        "grpc"
    };
    crate::cli::announce(&format!(
        "the rate-limit service listens on {scheme}://{address}"
    ));
    let metrics = quotalog_grpc::Metrics::new();
    for collector in metrics.collectors() {
        beside.metrics.add(collector);
    }
    let router = quotalog_grpc::router(quotalog_grpc::App {
        ledger: beside.ledger.clone(),
        draining: beside.draining.clone(),
        authentication: beside.authentication.clone(),
        admission: beside.admission.clone(),
        keys,
        metrics,
    });
    let shutdown = async {
        let _dropped = stopped.await;
    };
    let serving = quotalog_http::serve(listener, router, settings, shutdown);
    Ok(tokio::spawn(serving))
}

/// Copies everything from one database into another; each comes with the setting that names it.
pub(crate) fn copy(
    (from_setting, from): (&str, &Database),
    (to_setting, to): (&str, &Database),
    may_leave: bool,
    tell: &dyn Fn(Step),
) -> anyhow::Result<Vec<Copied>> {
    if from.is_same_file(to) {
        let message = format!("{to_setting} names the same file as {from_setting}: {to}");
        return Err(Failure::error(Exit::Usage, message));
    }
    runtime()?.block_on(async {
        let mut source = store::source(from_setting, from).await?;
        let target = store::target(to_setting, to).await?;
        crate::copy::copy(&mut *source, target, may_leave, tell).await
    })
}

/// Writes what the database holds into a new file, or on standard output.
pub(crate) fn export(
    database: &Database,
    subject: Subject,
    file: Option<&Path>,
    format: Format,
    tell: &dyn Fn(export::Step),
) -> anyhow::Result<Exported> {
    runtime()?.block_on(async {
        let mut source = store::looked_at(database).await?;
        let Some(path) = file else {
            let output = BufWriter::new(std::io::stdout().lock());
            let output = Writer::begin(output, format, subject).context(export::UNWRITTEN)?;
            let (_, exported) = export::export(&mut *source, output, subject, tell).await?;
            return Ok(exported);
        };
        let new = NewFile::begin(path)?;
        let output = Writer::begin(BufWriter::new(&new.file), format, subject);
        let output = output.context(export::UNWRITTEN)?;
        let (_, exported) = export::export(&mut *source, output, subject, tell).await?;
        new.publish()?;
        Ok(exported)
    })
}

/// Imports a file.
pub(crate) fn import<R: Read>(
    database: &Database,
    subject: Subject,
    reader: Reader<R>,
    is_rehearsal: bool,
    tell: &dyn Fn(import::Step),
    done: Tell,
) -> anyhow::Result<Imported> {
    runtime()?.block_on(async {
        let into = store::import(database, subject).await?;
        import::import(reader, into, subject, is_rehearsal, tell, done).await
    })
}

/// What a single command needs to wait for its database, or for a server.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// Opens the store for one command, and closes it again.
pub(crate) fn on_store<T>(
    database: &Database,
    work: impl AsyncFnOnce(&dyn Store) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    runtime()?.block_on(async {
        let connections = Connections::OF_A_COMMAND;
        let store = OpenStore::open(database, connections, COMMAND_LINE_IDEMPOTENCY_S).await?;
        let result = work(store.ports()).await;
        store.close().await?;
        result
    })
}

/// Tells whether there are keys to verify JWTs with.
pub(crate) fn examine_jwts(settings: &quotalog_jwt::Settings) -> anyhow::Result<Finding> {
    Ok(runtime()?.block_on(jwt::examine(settings)))
}

/// Looks the database over, without changing it.
pub(crate) fn examine(database: &Database) -> anyhow::Result<Vec<Finding>> {
    match database {
        Database::Sqlite(file) => Ok(quotalog_store_sqlite::examine(&file.0, &SystemClock)),
        Database::Postgres(url) => {
            let connections = Connections::OF_A_COMMAND;
            let config = store::postgres_config(url, connections, COMMAND_LINE_IDEMPOTENCY_S);
            Ok(runtime()?.block_on(quotalog_store_postgres::examine(config)))
        }
    }
}

/// Copies an SQLite file into a new one.
pub(crate) fn back_up(from: &SqliteFile, file: &Path) -> anyhow::Result<()> {
    quotalog_store_sqlite::backup(&from.0, file).map_err(|error| {
        let exit = match error {
            BackupError::Database(error) => return store::sqlite_not_opened(error),
            BackupError::File(ref error) => store::sqlite_exit(error),
            BackupError::Exists(_) | BackupError::Leftover(_) => Exit::Usage,
            BackupError::DraftExists(_)
            | BackupError::NoRoom(_)
            | BackupError::Damaged { .. }
            | BackupError::Unwritten { .. } => Exit::Failure,
        };
        Failure::error(exit, error.to_string())
    })
}

/// A failure of the store, with the exit code that a script can act on.
pub(crate) fn failed(error: StoreError) -> anyhow::Error {
    let exit = match &error {
        StoreError::Unavailable(_) | StoreError::OutcomeUnknown(_) => Exit::Unavailable,
        StoreError::Internal(_) => Exit::Failure,
    };
    Failure::error(exit, format!("{:#}", anyhow::Error::new(error)))
}
