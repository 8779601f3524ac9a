//! How many requests of one caller are worked on at once.
//!
//! A caller that sends more than its share has the rest wait here, without cost to others: they are not
//! in the ledger's queue, and a client that waits for its answer sends no more meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quick_cache::sync::Cache;
use quotalog_auth::Caller;
use quotalog_domain::CallerId;
use quotalog_ledger::WAIT_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most callers that are told apart at a time, some 100 bytes each. One that is forgotten while it is
/// busy begins with a share of its own again.
const CALLERS_MAX: usize = 16_384;

/// The most requests of all callers together that wait for their turn; more are refused at once.
const WAITING_MAX: usize = 16_384;

/// Gives each caller its share. Cheap to clone; clones share.
#[derive(Clone)]
pub struct Admission(Arc<Inner>);

struct Inner {
    shares: Cache<CallerId, Arc<Semaphore>>,
    share: usize,
    waiting: AtomicUsize,
}

/// A request that may be worked on, until this is dropped.
#[derive(Debug)]
pub struct Admitted {
    _permit: OwnedSemaphorePermit,
}

/// The caller has too many requests under way, and this one waited in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overloaded;

impl Admission {
    /// At most `share` requests of each caller at once; at least 1.
    #[must_use]
    pub fn new(share: usize) -> Self {
        Self(Arc::new(Inner {
            shares: Cache::new(CALLERS_MAX),
            share: share.clamp(1, Semaphore::MAX_PERMITS),
            waiting: AtomicUsize::new(0),
        }))
    }

    /// Waits for the caller's turn, as long as a request may wait.
    ///
    /// # Errors
    /// [`Overloaded`] when it did not come.
    pub async fn admit(&self, caller: &Caller) -> Result<Admitted, Overloaded> {
        let share = self.share_of(caller);
        let permit = match Arc::clone(&share).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_none_left) => self.wait(share).await?,
        };
        Ok(Admitted { _permit: permit })
    }

    fn share_of(&self, caller: &Caller) -> Arc<Semaphore> {
        let new = || Ok::<_, std::convert::Infallible>(Arc::new(Semaphore::new(self.0.share)));
        match self.0.shares.get_or_insert_with(&caller.id(), new) {
            Ok(share) => share,
            Err(never) => match never {},
        }
    }

    async fn wait(&self, share: Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Overloaded> {
        let _waiting = Waiting::enter(&self.0.waiting)?;
        match tokio::time::timeout(WAIT_MAX, share.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            // Nobody closes a share, so what is left is that the wait was too long.
            Ok(Err(_)) | Err(_) => Err(Overloaded),
        }
    }
}

/// One of those that wait; no longer once this is dropped, as when its client leaves.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(waiting: &'a AtomicUsize) -> Result<Self, Overloaded> {
        let entered = Self(waiting);
        if waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX {
            Ok(entered)
        } else {
            Err(Overloaded)
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Poll;

    use quotalog_auth::{Credential, Generation, Role, TokenId};

    use super::*;

    fn caller(id: &str) -> Caller {
        Caller {
            role: Role::Service,
            credential: Credential::Token {
                id: TokenId::named(id),
                expires_at: None,
                generation: Generation(1),
            },
        }
    }

    #[tokio::test]
    async fn a_caller_beyond_its_share_waits_and_no_other_does() {
        let admission = Admission::new(2);
        let (greedy, modest) = (caller("greedy"), caller("modest"));
        let first = admission.admit(&greedy).await.ok();
        let _second = admission.admit(&greedy).await.ok();
        let mut third = pin!(admission.admit(&greedy));
        assert!(matches!(poll_once(third.as_mut()).await, Poll::Pending));
        assert!(admission.admit(&modest).await.is_ok());
        drop(first);
        assert!(third.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_in_vain_ends_and_is_forgotten() {
        let admission = Admission::new(1);
        let _held = admission.admit(&caller("greedy")).await;
        let refused = admission.admit(&caller("greedy")).await;
        assert_eq!(refused.err(), Some(Overloaded));
        assert_eq!(admission.0.waiting.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn no_more_wait_than_there_is_room_for() {
        let admission = Admission::new(1);
        let _held = admission.admit(&caller("greedy")).await;
        admission.0.waiting.store(WAITING_MAX, Ordering::Relaxed);
        let refused = admission.admit(&caller("greedy")).await;
        assert_eq!(refused.err(), Some(Overloaded));
        assert_eq!(admission.0.waiting.load(Ordering::Relaxed), WAITING_MAX);
    }

    /// What one look at a future finds.
    async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
    }
}
