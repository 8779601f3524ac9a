//! The bounded queue between the fronts and the writer.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quotalog_domain::Outcome;
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

/// Requests in the order of their arrival, at most `len_max` of them.
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    /// Wakes the writer: something came, or nothing will come any more.
    changed: Notify,
    len_max: usize,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Waiting>,
    closed: bool,
}

impl Queue {
    pub(crate) fn new(len_max: usize) -> Self {
        Self {
            inner: Mutex::default(),
            changed: Notify::new(),
            len_max,
        }
    }

    /// Adds a request, or tells at once that there is no room for it.
    pub(crate) fn push(&self, waiting: Waiting) -> Result<(), LedgerError> {
        let mut inner = self.lock();
        if inner.closed || inner.waiting.len() >= self.len_max {
            return Err(LedgerError::Unavailable);
        }
        let was_empty = inner.waiting.is_empty();
        inner.waiting.push_back(waiting);
        drop(inner);
        if was_empty {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// How many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Waits for a request; `false` once the queue is closed and empty.
    pub(crate) async fn wait(&self) -> bool {
        loop {
            {
                let inner = self.lock();
                if !inner.waiting.is_empty() {
                    return true;
                }
                if inner.closed {
                    return false;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Takes up to `len_max` requests, oldest first, and forgets those whose client has left.
    pub(crate) fn take(&self, len_max: usize) -> Vec<Waiting> {
        let mut inner = self.lock();
        let mut taken = Vec::with_capacity(inner.waiting.len().min(len_max));
        while taken.len() < len_max {
            let next = inner
                .waiting
                .pop_front_if(|next| taken.is_empty() || !next.alone);
            match next {
                Some(waiting) if waiting.reply.is_closed() => {}
                Some(waiting) if waiting.alone => return vec![waiting],
                Some(waiting) => taken.push(waiting),
                None => break,
            }
        }
        taken
    }

    /// Puts requests that were taken back at their place in front.
    pub(crate) fn put_back(&self, requests: Vec<Waiting>) {
        let mut inner = self.lock();
        for waiting in requests.into_iter().rev() {
            inner.waiting.push_front(waiting);
        }
    }

    /// Answers the requests that have waited for [`WAIT_MAX`] at `now`.
    pub(crate) fn expire(&self, now: Instant) {
        let mut inner = self.lock();
        while let Some(oldest) = inner.waiting.front() {
            if now.saturating_duration_since(oldest.since) < WAIT_MAX {
                break;
            }
            if let Some(expired) = inner.waiting.pop_front() {
                // A failed send means that the client has left.
                let _left = expired.reply.send(Err(LedgerError::Unavailable));
            }
        }
    }

    /// Takes no more requests; those that wait are still served.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code that can panic runs under this lock, so a poisoned one still holds a sound queue.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
