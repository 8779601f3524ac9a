//! The handle of the store: it opens the file, starts the threads, and carries work to them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam_channel::{Sender, TrySendError, bounded};
use quotalog_ledger::clock::Clock;
use quotalog_ledger::store::{StoreError, StoreFuture};
use quotalog_record::unfit::PassedOver;
use tokio::sync::oneshot;

use crate::fault::{self, Fault, before_commit};
use crate::presence::Presence;
use crate::reader::{ReadJob, Reader, Soundness};
use crate::tx::Tx;
use crate::writer::{Message, WriteJob, Writer};
use crate::{OpenError, connection, place, schema};

/// Pieces of work that may wait for the writer, beyond the one in hand. The ledger sends one at a time;
/// at the bound, an answer of "unavailable".
const WRITES_QUEUED_MAX: usize = 64;
/// Reads that may wait. At the bound, an answer of "unavailable".
const READS_QUEUED_MAX: usize = 4_096;
const READERS_MAX: usize = 16;

/// Which file, and how it is used.
#[derive(Debug, Clone)]
pub struct SqliteConfig {
    /// The database's file; its folder must exist.
    pub path: PathBuf,
    /// Kept answers older than this, in seconds, are not replayed.
    pub idempotency_retention_s: i64,
    /// Threads that read, 1 to 16.
    pub readers: usize,
}

/// A store on one SQLite file.
///
/// Clones are handles of the same store. When the last one is dropped, its threads end by themselves
/// after the work that was queued.
#[derive(Debug, Clone)]
pub struct SqliteStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    writer: Sender<Message<WriteJob>>,
    readers: Sender<Message<ReadJob>>,
    threads: Mutex<Threads>,
    idempotency_retention_s: i64,
    presence: Arc<Presence>,
    /// Held by the one search through all of today's usage, which is work for a reader for seconds.
    search: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Threads {
    readers: Vec<JoinHandle<()>>,
    writer: Option<JoinHandle<()>>,
}

impl SqliteStore {
    /// Makes or adopts the file, brings its tables up to date, and starts the threads. Blocks.
    ///
    /// # Errors
    /// [`OpenError`], which says what to change.
    pub fn open(config: SqliteConfig, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let path = place::locate(&config.path)?;
        let turnstile = place::open_turnstile(&path)?;
        let passed_over = Arc::new(PassedOver::default());
        let writing = schema::prepare(&path, &turnstile, clock.now())?;
        let presence = Arc::new(Presence::of(path.clone())?);

        let (reads, read_jobs) = bounded(READS_QUEUED_MAX);
        let (writes, write_jobs) = bounded(WRITES_QUEUED_MAX);
        let mut threads = Threads::default();
        for _ in 0..config.readers.clamp(1, READERS_MAX) {
            let reading = connection::open_reader(&path);
            let reader = Reader {
                connection: reading.map_err(|error| schema::refused(&path, error))?,
                path: path.clone(),
                clock: Arc::clone(&clock),
                passed_over: Arc::clone(&passed_over),
            };
            let jobs = read_jobs.clone();
            threads
                .readers
                .push(spawn("sqlite-read", move || reader.run(&jobs))?);
        }
        let writer = Writer {
            connection: writing,
            path,
            presence: Arc::clone(&presence),
            turnstile,
            clock,
            passed_over,
            broken: false,
            // A process before this one may have been killed in between.
            log_names_erased: true,
        };
        threads.writer = Some(spawn("sqlite-write", move || writer.run(&write_jobs))?);

        Ok(Self(Arc::new(Inner {
            writer: writes,
            readers: reads,
            threads: Mutex::new(threads),
            idempotency_retention_s: config.idempotency_retention_s,
            presence,
            search: tokio::sync::Mutex::default(),
        })))
    }

    /// Ends the threads after the work that was queued, and waits for them. Blocks.
    ///
    /// Other handles of this store answer "unavailable" from then on.
    pub fn close(self) {
        let threads = {
            let mut threads = self
                .0
                .threads
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *threads)
        };
        // The readers first, so that the writer can empty the log.
        for _ in &threads.readers {
            let _ = self.0.readers.send(Message::Stop);
        }
        threads.readers.into_iter().for_each(join);
        let _ = self.0.writer.send(Message::Stop);
        threads.writer.into_iter().for_each(join);
    }

    /// For how long kept answers are replayed.
    pub(crate) fn idempotency_retention_s(&self) -> i64 {
        self.0.idempotency_retention_s
    }

    /// Whether the database's path still leads to the file that was opened.
    pub(crate) fn check_presence(&self) -> Result<(), StoreError> {
        self.0.presence.check()
    }

    /// Waits until no other search is under way, and keeps others waiting.
    pub(crate) async fn begin_search(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.search.lock().await
    }

    /// Has the writer do `work` in a transaction of its own.
    ///
    /// It is done even if the caller stops waiting.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        self.work(move |writer| writer.transaction(work))
    }

    /// Has the writer do `work`, also outside a transaction.
    ///
    /// It is done even if the caller stops waiting.
    pub(crate) fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Writer) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let job: WriteJob = Box::new(move |writer| {
                let _ = answer.send(work(writer));
            });
            enqueue(&self.0.writer, job)?;
            answered
                .await
                .unwrap_or_else(|_| Err(Fault::Closed.unavailable()))
        })
    }

    /// Has a reader do `work` in a read transaction, unless the caller stops waiting before.
    pub(crate) fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let job: ReadJob = Box::new(move |tx| {
                if answer.is_closed() {
                    return Soundness::Sound;
                }
                let result = work(tx).map_err(before_commit);
                let soundness = match &result {
                    Err(error) if fault::breaks_connection(error) => Soundness::Broken,
                    Ok(_) | Err(_) => Soundness::Sound,
                };
                let _ = answer.send(result);
                soundness
            });
            enqueue(&self.0.readers, job)?;
            answered
                .await
                .unwrap_or_else(|_| Err(Fault::Closed.unavailable()))
        })
    }
}

fn enqueue<Job>(queue: &Sender<Message<Job>>, job: Job) -> Result<(), StoreError> {
    queue
        .try_send(Message::Job(job))
        .map_err(|error| match error {
            TrySendError::Full(_) => Fault::QueueFull.unavailable(),
            TrySendError::Disconnected(_) => Fault::Closed.unavailable(),
        })
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, OpenError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(OpenError::Thread)
}

fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("a thread of the store panicked");
    }
}
