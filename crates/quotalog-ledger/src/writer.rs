//! The one task that hands batches to the store, and answers when they are durable.
//!
//! While one batch commits, the next one gathers in the queue. There is no timer that a batch waits for:
//! an idle server commits a batch of one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::ledger::{LedgerError, WAIT_MAX};
use crate::queue::{Queue, Waiting};
use crate::store::{Batch, Commit, StoreError, Submission, Verdict};

/// How often overdue requests are looked for while a commit takes long.
const TICK: Duration = Duration::from_millis(100);
/// The pause after a failure that left the requests in the queue.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(50);

pub(crate) struct Writer {
    pub(crate) store: Arc<dyn Commit>,
    pub(crate) queue: Arc<Queue>,
    /// The most commands in one transaction.
    pub(crate) batch_len_max: usize,
}

/// What the ledger keeps of a batch while the store has it.
#[derive(Default)]
struct InFlight {
    taken: Option<Taken>,
}

struct Taken {
    at: Instant,
    /// Emptied when the answers have been given.
    requests: Vec<Waiting>,
}

impl Writer {
    /// Serves the queue until it is closed and empty.
    pub(crate) async fn run(self) {
        let mut failing = false;
        while self.queue.wait().await {
            let result = self.commit().await;
            let failed = result.as_ref().is_err_and(|error| may_pass(error));
            if let Err(error) = &result
                && failed
                && !failing
            {
                let error: &dyn std::error::Error = &**error;
                tracing::warn!(error, "the store takes no writes");
            }
            if failing && !failed {
                tracing::info!("the store takes writes again");
            }
            failing = failed;
            if result.is_err() {
                tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
                self.queue.expire(Instant::now());
            }
        }
    }

    /// Commits a batch from the queue, and answers it. An error is returned for the log, when every
    /// request has been answered or is in the queue again.
    async fn commit(&self) -> Result<(), Arc<StoreError>> {
        let in_flight = Arc::new(Mutex::new(InFlight::default()));
        let batch = {
            let (queue, in_flight) = (Arc::clone(&self.queue), Arc::clone(&in_flight));
            let len_max = self.batch_len_max;
            Batch::new(move || hand_over(queue.take(len_max), &in_flight))
        };
        let result = self.drive(batch, &in_flight).await;
        let requests = lock(&in_flight).taken.take().map(|taken| taken.requests);
        let requests = requests.unwrap_or_default();
        match result {
            Ok(verdicts) => answer(requests, verdicts),
            // One bad command can cause this, so each gets a transaction of its own and fails no
            // neighbour.
            Err(StoreError::Internal(_)) if requests.len() > 1 => self.queue.put_back(requests),
            Err(error) => {
                let error = Arc::new(error);
                for request in requests {
                    let _left = request.reply.send(Err(LedgerError::from(&error)));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Waits for the store, and meanwhile answers whoever has waited too long.
    async fn drive(
        &self,
        batch: Batch,
        in_flight: &Mutex<InFlight>,
    ) -> Result<Vec<Verdict>, StoreError> {
        let mut committing = self.store.commit(batch);
        loop {
            match tokio::time::timeout(TICK, &mut committing).await {
                Ok(result) => return result,
                Err(_elapsed) => {
                    let now = Instant::now();
                    self.queue.expire(now);
                    answer_overdue(in_flight, now);
                }
            }
        }
    }
}

/// Whether a failure is the store's state, logged here, rather than one request's, logged by its front.
fn may_pass(error: &StoreError) -> bool {
    match error {
        StoreError::Unavailable(_) | StoreError::OutcomeUnknown(_) => true,
        StoreError::Internal(_) => false,
    }
}

/// Gives the store the submissions; the requests stay here until they are answered.
fn hand_over(requests: Vec<Waiting>, in_flight: &Mutex<InFlight>) -> Vec<Submission> {
    let submissions = requests.iter().map(|request| request.submission.clone());
    let submissions = submissions.collect();
    lock(in_flight).taken = Some(Taken {
        at: Instant::now(),
        requests,
    });
    submissions
}

/// The writes of these requests were sent, and no answer came in time.
fn answer_overdue(in_flight: &Mutex<InFlight>, now: Instant) {
    if let Some(taken) = &mut lock(in_flight).taken
        && now.saturating_duration_since(taken.at) >= WAIT_MAX
    {
        for request in taken.requests.drain(..) {
            let _left = request.reply.send(Err(LedgerError::OutcomeUnknown));
        }
    }
}

fn answer(requests: Vec<Waiting>, verdicts: Vec<Verdict>) {
    for (request, verdict) in requests.into_iter().zip(verdicts) {
        let _left = request.reply.send(verdict.map_err(LedgerError::from));
    }
}

fn lock(in_flight: &Mutex<InFlight>) -> std::sync::MutexGuard<'_, InFlight> {
    // A panic under this lock leaves requests that are dropped, which their clients see as such.
    in_flight.lock().unwrap_or_else(PoisonError::into_inner)
}
