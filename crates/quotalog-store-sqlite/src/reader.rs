//! The threads that read. Each owns a connection, and answers what is queued in one read transaction.
//!
//! The transaction begins after its reads were taken from the queue, so that a read sees every change that
//! was answered before it was asked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::Receiver;
use quotalog_ledger::clock::Clock;
use quotalog_record::unfit::PassedOver;
use rusqlite::Connection;

use crate::connection;
use crate::tx::Tx;
use crate::writer::{Message, panic_text};

/// The most reads in one transaction: enough to share its cost, few enough to keep it short.
const READS_MAX: usize = 64;

/// A read that answers by itself, and tells what it found out about the connection.
pub(crate) type ReadJob = Box<dyn FnOnce(&Tx<'_>) -> Soundness + Send>;

/// Whether a connection can be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Soundness {
    Sound,
    Broken,
}

/// A reading connection and its surroundings.
pub(crate) struct Reader {
    pub(crate) connection: Connection,
    pub(crate) path: PathBuf,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) passed_over: Arc<PassedOver>,
}

impl Reader {
    /// Works until it is told to stop, or until no handle of the store is left.
    pub(crate) fn run(mut self, jobs: &Receiver<Message<ReadJob>>) {
        while let Ok(Message::Job(first)) = jobs.recv() {
            let mut taken = vec![first];
            let mut stopped = false;
            while taken.len() < READS_MAX && !stopped {
                match jobs.try_recv() {
                    Ok(Message::Job(job)) => taken.push(job),
                    Ok(Message::Stop) => stopped = true,
                    Err(_) => break,
                }
            }
            if self.serve(taken) == Soundness::Broken {
                self.reopen();
            }
            if stopped {
                return;
            }
        }
    }

    fn serve(&self, jobs: Vec<ReadJob>) -> Soundness {
        let transaction = match self.connection.unchecked_transaction() {
            Ok(transaction) => transaction,
            Err(error) => {
                // Dropped jobs are answered as unavailable.
                tracing::warn!(%error, "a read transaction cannot begin");
                return Soundness::Broken;
            }
        };
        let tx = Tx {
            connection: &transaction,
            now: self.clock.now(),
            passed_over: &self.passed_over,
        };
        let mut soundness = Soundness::Sound;
        for job in jobs {
            match catch_unwind(AssertUnwindSafe(|| job(&tx))) {
                Ok(Soundness::Sound) => {}
                Ok(Soundness::Broken) => soundness = Soundness::Broken,
                Err(panic) => {
                    tracing::error!(panic = panic_text(panic.as_ref()), "a read panicked");
                    soundness = Soundness::Broken;
                }
            }
        }
        soundness
    }

    /// Replaces the connection; if that fails, the old one meets its next error.
    fn reopen(&mut self) {
        match connection::open_reader(&self.path) {
            Ok(connection) => self.connection = connection,
            Err(error) => tracing::warn!(%error, "a reading connection cannot be opened again"),
        }
    }
}
