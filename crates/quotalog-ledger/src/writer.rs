//! A task that hands batches to the store, and answers when they are durable.
//!
//! While one batch commits, the next one gathers in the queue. There is no timer that a batch waits for:
//! an idle server commits a batch of one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quotalog_domain::Outcome;
use tokio::time::Instant;

use crate::deadline::Deadline;
use crate::ledger::LedgerError;
use crate::metrics::Metrics;
use crate::queue::{Queue, Reply, Waiting};
use crate::store::{Batch, Commit, StoreError, Submission, Verdict};

/// A batch that takes longer holds up no other: it may wait for a row that somebody keeps.
const SLOW_AFTER: Duration = Duration::from_millis(20);
/// How often a slow batch is left alone for no longer: a request may come to wait behind it that has waited elsewhere.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// The pause after a failure that left the requests in the queue.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(50);

pub(crate) struct Writer {
    pub(crate) store: Arc<dyn Commit>,
    pub(crate) queue: Arc<Queue>,
    /// Which of the queue's groups of lanes is served.
    pub(crate) group: usize,
    /// The most commands in one transaction.
    pub(crate) batch_len_max: usize,
    pub(crate) metrics: Metrics,
}

/// What the ledger keeps of a batch while the store has it.
#[derive(Default)]
struct InFlight {
    taken: Option<Taken>,
    /// The lanes that are busy with it.
    lanes: Vec<usize>,
}

struct Taken {
    at: Instant,
    /// Shared with the store, since a copy of each would cost more than all else that the ledger does.
    submissions: Arc<[Submission]>,
    /// Whom to answer, in the order of the submissions.
    clients: Vec<Client>,
}

struct Client {
    /// `None` once it has been answered.
    reply: Option<Reply>,
    deadline: Deadline,
}

impl Writer {
    /// Serves its lanes until they are closed and empty.
    pub(crate) async fn run(self) {
        let mut failing = false;
        while self.queue.begin(self.group).await {
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
                self.queue.expire(self.group, Instant::now());
            }
        }
    }

    /// Commits a batch from the queue, and answers it. An error is returned for the log, when every
    /// request has been answered or is in the queue again.
    async fn commit(&self) -> Result<(), Arc<StoreError>> {
        let in_flight = Arc::new(Mutex::new(InFlight::default()));
        let batch = {
            let (queue, in_flight) = (Arc::clone(&self.queue), Arc::clone(&in_flight));
            let (group, len_max) = (self.group, self.batch_len_max);
            Batch::new(move || hand_over(&queue, group, len_max, &in_flight))
        };
        let (result, was_brisk) = self.drive(batch, &in_flight).await;
        let InFlight { taken, lanes } = std::mem::take(&mut *lock(&in_flight));
        let finished = self.finish(result, taken);
        self.queue.end(self.group, was_brisk, &lanes);
        finished
    }

    /// Answers a batch that the store is done with, or puts it back.
    fn finish(
        &self,
        result: Result<Vec<Verdict>, StoreError>,
        taken: Option<Taken>,
    ) -> Result<(), Arc<StoreError>> {
        match (result, taken) {
            (Ok(verdicts), Some(taken)) => self.answer(taken, verdicts),
            // One bad command can cause this, so each gets a transaction of its own and fails no
            // neighbour.
            (Err(StoreError::Internal(_)), Some(taken)) if taken.clients.len() > 1 => {
                self.queue.put_back(alone(taken));
            }
            (Err(error), taken) => {
                let error = Arc::new(error);
                self.metrics.failed(&LedgerError::from(&error));
                for client in taken.into_iter().flat_map(|taken| taken.clients) {
                    client.answer(Err(LedgerError::from(&error)));
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
        for (client, verdict) in taken.clients.into_iter().zip(verdicts) {
            client.answer(verdict.map_err(LedgerError::from));
        }
    }

    /// Waits for the store, and meanwhile answers whoever has waited too long. Tells also whether it was brisk.
    async fn drive(
        &self,
        batch: Batch,
        in_flight: &Mutex<InFlight>,
    ) -> (Result<Vec<Verdict>, StoreError>, bool) {
        let mut committing = self.store.commit(batch);
        if let Ok(result) = tokio::time::timeout(SLOW_AFTER, &mut committing).await {
            return (result, true);
        }
        self.queue.is_slow(self.group);
        loop {
            let due = self.due(in_flight, Instant::now());
            match tokio::time::timeout_at(due, &mut committing).await {
                Ok(result) => return (result, false),
                Err(_elapsed) => {
                    let now = Instant::now();
                    self.queue.expire(self.group, now);
                    answer_overdue(in_flight, now);
                }
            }
        }
    }

    /// When to look for requests that have waited too long.
    fn due(&self, in_flight: &Mutex<InFlight>, now: Instant) -> Instant {
        let waiting = self.queue.oldest(self.group).map(Deadline::wait_until);
        let taken = lock(in_flight).taken.as_ref().and_then(Taken::oldest);
        let dues = [waiting, taken.map(Deadline::answer_by)];
        let look_at = now + LOOK_INTERVAL;
        dues.into_iter().flatten().fold(look_at, Instant::min)
    }
}

impl Taken {
    /// The deadline of the oldest request that has no answer yet.
    fn oldest(&self) -> Option<Deadline> {
        let unanswered = self.clients.iter().filter(|client| client.reply.is_some());
        unanswered.map(|client| client.deadline).min()
    }
}

impl Client {
    fn answer(self, answer: Result<Outcome, LedgerError>) {
        if let Some(reply) = self.reply {
            // A failed send means that the client has left.
            let _left = reply.send(answer);
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
fn hand_over(
    queue: &Queue,
    group: usize,
    len_max: usize,
    in_flight: &Mutex<InFlight>,
) -> Arc<[Submission]> {
    let at = Instant::now();
    let (requests, lanes) = queue.take(group, len_max, at);
    let mut clients = Vec::with_capacity(requests.len());
    let submissions = requests.into_iter().map(|request| {
        clients.push(Client {
            reply: Some(request.reply),
            deadline: request.deadline,
        });
        request.submission
    });
    let submissions: Arc<[Submission]> = submissions.collect();
    let taken = Taken {
        at,
        submissions: Arc::clone(&submissions),
        clients,
    };
    *lock(in_flight) = InFlight {
        taken: Some(taken),
        lanes,
    };
    submissions
}

/// The requests of a batch that have no answer yet, each to be served alone.
fn alone(taken: Taken) -> Vec<Waiting> {
    let requests = taken.submissions.iter().zip(taken.clients);
    let alone = requests.filter_map(|(submission, client)| {
        Some(Waiting {
            submission: submission.clone(),
            reply: client.reply?,
            deadline: client.deadline,
            alone: true,
        })
    });
    alone.collect()
}

/// The writes of these requests may have been sent, and no answer came in time.
fn answer_overdue(in_flight: &Mutex<InFlight>, now: Instant) {
    let mut in_flight = lock(in_flight);
    let taken = in_flight.taken.iter_mut();
    let clients = taken.flat_map(|taken| &mut taken.clients);
    for client in clients.filter(|client| now >= client.deadline.answer_by()) {
        if let Some(reply) = client.reply.take() {
            let _left = reply.send(Err(LedgerError::OutcomeUnknown));
        }
    }
}

fn lock(in_flight: &Mutex<InFlight>) -> std::sync::MutexGuard<'_, InFlight> {
    // A panic under this lock leaves requests that are dropped, which their clients see as such.
    in_flight.lock().unwrap_or_else(PoisonError::into_inner)
}
