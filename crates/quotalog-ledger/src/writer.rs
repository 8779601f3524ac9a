//! The one task that hands batches to the store, and answers when they are durable.
//!
//! While one batch commits, the next one gathers in the queue. There is no timer that a batch waits for:
//! an idle server commits a batch of one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::ledger::{LedgerError, WAIT_MAX};
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
}

/// The part of a batch that the ledger keeps while the store has the rest.
#[derive(Default)]
struct InFlight {
    taken: Option<Taken>,
}

struct Taken {
    at: Instant,
    submissions: Vec<Submission>,
    /// In the order of the submissions; emptied when the answers have been given.
    replies: Vec<Reply>,
}

impl Writer {
    /// Serves the queue until it is closed and empty.
    pub(crate) async fn run(self) {
        let mut failing = false;
        while self.queue.wait().await {
            let queue = Arc::clone(&self.queue);
            let len_max = self.batch_len_max;
            let result = self.commit(move || queue.take(len_max)).await;
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

    /// Commits what `take` gives, and answers it. An error is returned for the log, when every request
    /// has been answered or is still in the queue.
    async fn commit(
        &self,
        take: impl FnOnce() -> Vec<Waiting> + Send + 'static,
    ) -> Result<(), Arc<StoreError>> {
        let in_flight = Arc::new(Mutex::new(InFlight::default()));
        let batch = {
            let in_flight = Arc::clone(&in_flight);
            Batch::new(move || hand_over(take(), &in_flight))
        };
        let result = self.drive(batch, &in_flight).await;
        let taken = lock(&in_flight).taken.take();
        match (result, taken) {
            (Ok(verdicts), Some(taken)) => answer(taken.replies, verdicts),
            (Ok(_), None) => {}
            (Err(StoreError::Internal(_)), Some(taken)) if taken.submissions.len() > 1 => {
                self.commit_one_by_one(taken).await?;
            }
            (Err(error), Some(taken)) => {
                let error = Arc::new(error);
                for reply in taken.replies {
                    let _left = reply.send(Err(LedgerError::from(&error)));
                }
                return Err(error);
            }
            (Err(error), None) => return Err(Arc::new(error)),
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

    /// A batch failed in a way that one bad command can cause, so each command gets a transaction of its
    /// own and fails no neighbour.
    async fn commit_one_by_one(&self, taken: Taken) -> Result<(), Arc<StoreError>> {
        let mut result = Ok(());
        for (submission, reply) in taken.submissions.into_iter().zip(taken.replies) {
            let alone = Waiting {
                submission,
                reply,
                since: taken.at,
            };
            let one = Box::pin(self.commit(move || vec![alone])).await;
            result = result.and(one);
        }
        result
    }
}

/// Whether a failure is the store's state, logged here, rather than one request's, logged by its front.
fn may_pass(error: &StoreError) -> bool {
    match error {
        StoreError::Unavailable(_) | StoreError::OutcomeUnknown(_) => true,
        StoreError::Internal(_) => false,
    }
}

/// Splits a batch: the submissions go to the store, the replies stay here.
fn hand_over(waiting: Vec<Waiting>, in_flight: &Mutex<InFlight>) -> Vec<Submission> {
    let (submissions, replies): (Vec<_>, Vec<_>) = waiting
        .into_iter()
        .map(|waiting| (waiting.submission, waiting.reply))
        .unzip();
    lock(in_flight).taken = Some(Taken {
        at: Instant::now(),
        submissions: submissions.clone(),
        replies,
    });
    submissions
}

/// The writes of these requests were sent, and no answer came in time.
fn answer_overdue(in_flight: &Mutex<InFlight>, now: Instant) {
    if let Some(taken) = &mut lock(in_flight).taken
        && now.saturating_duration_since(taken.at) >= WAIT_MAX
    {
        for reply in taken.replies.drain(..) {
            let _left = reply.send(Err(LedgerError::OutcomeUnknown));
        }
    }
}

fn answer(replies: Vec<Reply>, verdicts: Vec<Verdict>) {
    for (reply, verdict) in replies.into_iter().zip(verdicts) {
        let _left = reply.send(verdict.map_err(LedgerError::from));
    }
}

fn lock(in_flight: &Mutex<InFlight>) -> std::sync::MutexGuard<'_, InFlight> {
    // A panic under this lock leaves replies that are dropped, which their clients see as such.
    in_flight.lock().unwrap_or_else(PoisonError::into_inner)
}
