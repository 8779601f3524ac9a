//! The one task that hands batches to the store, and answers when they are durable.
//!
//! While one batch commits, the next one gathers in the queue. There is no timer that a batch waits for:
//! an idle server commits a batch of one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::ledger::{LedgerError, WAIT_MAX};
use crate::metrics::Metrics;
use crate::queue::{Queue, Reply, Waiting};
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
    pub(crate) metrics: Metrics,
}

/// What the ledger keeps of a batch while the store has it.
#[derive(Default)]
struct InFlight {
    taken: Option<Taken>,
}

struct Taken {
    at: Instant,
    /// Shared with the store, since a copy of each would cost more than all else that the ledger does.
    submissions: Arc<[Submission]>,
    /// Whom to answer, in the order of the submissions. Emptied when the answers have been given.
    waiting: Vec<(Reply, Instant)>,
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
        let taken = lock(&in_flight).taken.take();
        match (result, taken) {
            (Ok(verdicts), Some(taken)) => self.answer(taken, verdicts),
            // One bad command can cause this, so each gets a transaction of its own and fails no
            // neighbour.
            (Err(StoreError::Internal(_)), Some(taken)) if taken.waiting.len() > 1 => {
                self.queue.put_back(alone(taken));
            }
            (Err(error), taken) => {
                let error = Arc::new(error);
                self.metrics.failed(&LedgerError::from(&error));
                for (reply, _) in taken.into_iter().flat_map(|taken| taken.waiting) {
                    let _left = reply.send(Err(LedgerError::from(&error)));
                }
                return Err(error);
            }
            (Ok(_), None) => {}
        }
        Ok(())
    }

    fn answer(&self, taken: Taken, verdicts: Vec<Verdict>) {
        self.metrics
            .committed(&taken.submissions, &verdicts, taken.at.elapsed());
        for ((reply, _), verdict) in taken.waiting.into_iter().zip(verdicts) {
            let _left = reply.send(verdict.map_err(LedgerError::from));
        }
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

/// Gives the store the submissions; whom to answer stays here.
fn hand_over(requests: Vec<Waiting>, in_flight: &Mutex<InFlight>) -> Arc<[Submission]> {
    let mut waiting = Vec::with_capacity(requests.len());
    let submissions = requests.into_iter().map(|request| {
        waiting.push((request.reply, request.since));
        request.submission
    });
    let submissions: Arc<[Submission]> = submissions.collect();
    lock(in_flight).taken = Some(Taken {
        at: Instant::now(),
        submissions: Arc::clone(&submissions),
        waiting,
    });
    submissions
}

/// The requests of a batch again, each to be served alone.
fn alone(taken: Taken) -> Vec<Waiting> {
    let pairs = taken.submissions.iter().zip(taken.waiting);
    let alone = pairs.map(|(submission, (reply, since))| Waiting {
        submission: submission.clone(),
        reply,
        since,
        alone: true,
    });
    alone.collect()
}

/// The writes of these requests were sent, and no answer came in time.
fn answer_overdue(in_flight: &Mutex<InFlight>, now: Instant) {
    if let Some(taken) = &mut lock(in_flight).taken
        && now.saturating_duration_since(taken.at) >= WAIT_MAX
    {
        for (reply, _) in taken.waiting.drain(..) {
            let _left = reply.send(Err(LedgerError::OutcomeUnknown));
        }
    }
}

fn lock(in_flight: &Mutex<InFlight>) -> std::sync::MutexGuard<'_, InFlight> {
    // A panic under this lock leaves requests that are dropped, which their clients see as such.
    in_flight.lock().unwrap_or_else(PoisonError::into_inner)
}
