//! The bounded queue between the fronts and the writers, in lanes.
//!
//! Each lane is served by a writer of its own, so that one batch is decided while another commits. A pair has
//! always the same lane: the lanes seldom wait for each other, requests for a pair are served in their order,
//! and a pair that all ask for still makes large batches.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use quotalog_domain::{Operation, Outcome, Pair};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::ledger::{LedgerError, WAIT_MAX};
use crate::store::Submission;

/// Where the answer to one request goes. The front has left if it is closed.
pub(crate) type Reply = oneshot::Sender<Result<Outcome, LedgerError>>;

/// A request that is not in a transaction yet.
pub(crate) struct Waiting {
    pub(crate) submission: Submission,
    pub(crate) reply: Reply,
    pub(crate) since: Instant,
    /// Whether it must have a transaction to itself, since it may have failed others in one.
    pub(crate) alone: bool,
}

/// Requests in the order of their arrival, at most `len_max` of them in all lanes together.
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    /// Each wakes the writer of its lane: something came, or nothing will come any more.
    changed: Vec<Notify>,
    len_max: usize,
}

struct Inner {
    lanes: Vec<VecDeque<Waiting>>,
    closed: bool,
}

impl Queue {
    /// With one lane, everything goes there. With more, pairs are spread over so many, and one more takes what
    /// belongs to no single pair.
    pub(crate) fn new(len_max: usize, lanes: usize) -> Self {
        let lanes = match lanes {
            0 | 1 => 1,
            more => more + 1,
        };
        Self {
            inner: Mutex::new(Inner {
                lanes: (0..lanes).map(|_| VecDeque::new()).collect(),
                closed: false,
            }),
            changed: (0..lanes).map(|_| Notify::new()).collect(),
            len_max,
        }
    }

    /// How many lanes there are to serve.
    pub(crate) fn lanes(&self) -> usize {
        self.changed.len()
    }

    /// Adds a request, or tells at once that there is no room for it.
    pub(crate) fn push(&self, waiting: Waiting) -> Result<(), LedgerError> {
        let lane = self.lane_of(&waiting.submission.command.operation);
        let mut inner = self.lock();
        if inner.closed || inner.len() >= self.len_max {
            return Err(LedgerError::Unavailable);
        }
        let was_empty = inner.lanes[lane].is_empty();
        inner.lanes[lane].push_back(waiting);
        drop(inner);
        if was_empty {
            self.changed[lane].notify_one();
        }
        Ok(())
    }

    /// A batch has the lane of those without a pair whatever it holds, since its key may come again with other
    /// pairs.
    fn lane_of(&self, operation: &Operation) -> usize {
        let of_pairs = self.lanes() - 1;
        if of_pairs == 0 {
            return 0;
        }
        match operation {
            Operation::Consume { pair, .. }
            | Operation::Refund { pair, .. }
            | Operation::Reset { pair }
            | Operation::SetPolicy { pair, .. }
            | Operation::DeletePolicy { pair, .. } => lane_of_pair(pair, of_pairs),
            Operation::ConsumeBatch { .. }
            | Operation::SetDefault { .. }
            | Operation::DeleteDefault { .. } => of_pairs,
        }
    }

    /// How many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Since when the oldest request of a lane waits, if there is one.
    pub(crate) fn oldest(&self, lane: usize) -> Option<Instant> {
        self.lock().lanes[lane].front().map(|oldest| oldest.since)
    }

    /// Waits for a request; `false` once the lane is closed and empty.
    pub(crate) async fn wait(&self, lane: usize) -> bool {
        loop {
            {
                let inner = self.lock();
                if !inner.lanes[lane].is_empty() {
                    return true;
                }
                if inner.closed {
                    return false;
                }
            }
            self.changed[lane].notified().await;
        }
    }

    /// Takes up to `len_max` requests of a lane, oldest first, and forgets those whose client has left.
    pub(crate) fn take(&self, lane: usize, len_max: usize) -> Vec<Waiting> {
        let mut inner = self.lock();
        let waiting = &mut inner.lanes[lane];
        let mut taken = Vec::with_capacity(waiting.len().min(len_max));
        while taken.len() < len_max {
            match waiting.pop_front_if(|next| taken.is_empty() || !next.alone) {
                Some(waiting) if waiting.reply.is_closed() => {}
                Some(waiting) if waiting.alone => return vec![waiting],
                Some(waiting) => taken.push(waiting),
                None => break,
            }
        }
        taken
    }

    /// Puts requests that were taken from a lane back at their place in front.
    pub(crate) fn put_back(&self, lane: usize, requests: Vec<Waiting>) {
        let mut inner = self.lock();
        for waiting in requests.into_iter().rev() {
            inner.lanes[lane].push_front(waiting);
        }
    }

    /// Answers the requests of a lane that have waited for [`WAIT_MAX`] at `now`.
    pub(crate) fn expire(&self, lane: usize, now: Instant) {
        let mut inner = self.lock();
        let waiting = &mut inner.lanes[lane];
        while let Some(expired) = waiting.pop_front_if(|oldest| now >= oldest.since + WAIT_MAX) {
            // A failed send means that the client has left.
            let _left = expired.reply.send(Err(LedgerError::Unavailable));
        }
    }

    /// Takes no more requests; those that wait are still served.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        for changed in &self.changed {
            changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code that can panic runs under this lock, so a poisoned one still holds a sound queue.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same on every node, so that a lane meets no more than one of each other node's. A process of another version
/// may spread otherwise, which costs some waits and nothing else.
fn lane_of_pair(pair: &Pair, of_pairs: usize) -> usize {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let spread = hasher.hash_one(pair) % of_pairs as u64;
    usize::try_from(spread).expect("it is below the number of lanes")
}

impl Inner {
    fn len(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum()
    }
}
