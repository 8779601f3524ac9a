//! How many requests of one caller are worked on at once, and how many bytes of bodies are kept meanwhile.
//!
//! A caller that sends more than its share has the rest wait here, without cost to others: they are not
//! in the ledger's queue, and a client that waits for its answer sends no more meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quick_cache::sync::Cache;
use quotalog_auth::Caller;
use quotalog_domain::CallerId;
use quotalog_ledger::{Asker, Deadline};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// The most callers that are told apart at a time, some 100 bytes each. One that is forgotten while it is
/// busy begins with a share of its own again.
const CALLERS_MAX: usize = 16_384;

/// The most requests of all callers together that wait for their turn; more are refused at once.
const WAITING_MAX: usize = 16_384;

/// The most bytes of bodies that are kept for all callers together: what two hundred callers need who have
/// three full batches each under way.
const BODIES_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The most of them for one caller, so that no caller takes the room of all: 64 full batches, or many more of
/// the usual size.
const OWN_BODIES_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// What room is given out in.
const ROOM_UNIT_BYTES: u64 = 1024;

/// How long a body waits for room among all, and among its caller's.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(1);

/// Gives each caller its share. Cheap to clone; clones share.
#[derive(Clone)]
pub struct Admission(Arc<Inner>);

struct Inner {
    requests: Shares,
    bodies: Shares,
    all_bodies: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// The same share of something for each caller.
struct Shares {
    of_callers: Cache<CallerId, Arc<Semaphore>>,
    share: usize,
}

/// A request that may be worked on, until this is dropped.
#[derive(Debug)]
pub struct Admitted {
    _permit: OwnedSemaphorePermit,
}

/// Room for the bytes of a body, until this is dropped.
#[derive(Debug)]
pub struct Room {
    _own: OwnedSemaphorePermit,
    _among_all: OwnedSemaphorePermit,
}

/// The caller has too much under way, and this waited in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overloaded;

impl Admission {
    /// At most `share` requests of each caller at once; at least 1.
    #[must_use]
    pub fn new(share: usize) -> Self {
        Self(Arc::new(Inner {
            requests: Shares::of(share),
            bodies: Shares::of(units(OWN_BODIES_BYTES_MAX) as usize),
            all_bodies: Arc::new(Semaphore::new(units(BODIES_BYTES_MAX) as usize)),
            waiting: AtomicUsize::new(0),
        }))
    }

    /// Waits for the caller's turn, as long as a request may wait.
    ///
    /// # Errors
    /// [`Overloaded`] when it did not come.
    pub async fn admit(&self, asker: Asker<'_>) -> Result<Admitted, Overloaded> {
        let share = self.0.requests.of_caller(asker.caller);
        let permit = self.take(share, 1, || asker.deadline.wait_until());
        Ok(Admitted {
            _permit: permit.await?,
        })
    }

    /// Waits a little for room for a body of the caller.
    ///
    /// # Errors
    /// [`Overloaded`] when none came free.
    pub async fn room(&self, asker: Asker<'_>, bytes: u64) -> Result<Room, Overloaded> {
        let units = units(bytes);
        let own = self.0.bodies.of_caller(asker.caller);
        let all = Arc::clone(&self.0.all_bodies);
        let until = || soon(asker.deadline);
        Ok(Room {
            _own: self.take(own, units, until).await?,
            _among_all: self.take(all, units, until).await?,
        })
    }

    async fn take(
        &self,
        share: Arc<Semaphore>,
        units: u32,
        until: impl FnOnce() -> Instant,
    ) -> Result<OwnedSemaphorePermit, Overloaded> {
        if let Ok(permit) = Arc::clone(&share).try_acquire_many_owned(units) {
            return Ok(permit);
        }
        let _waiting = Waiting::enter(&self.0.waiting)?;
        match tokio::time::timeout_at(until(), share.acquire_many_owned(units)).await {
            Ok(Ok(permit)) => Ok(permit),
            // Nobody closes a share, so what is left is that the wait was too long.
            Ok(Err(_)) | Err(_) => Err(Overloaded),
        }
    }
}

impl Shares {
    fn of(share: usize) -> Self {
        Self {
            of_callers: Cache::new(CALLERS_MAX),
            share: share.clamp(1, Semaphore::MAX_PERMITS),
        }
    }

    fn of_caller(&self, caller: &Caller) -> Arc<Semaphore> {
        let new = || Ok::<_, std::convert::Infallible>(Arc::new(Semaphore::new(self.share)));
        match self.of_callers.get_or_insert_with(&caller.id(), new) {
            Ok(share) => share,
            Err(never) => match never {},
        }
    }
}

/// Until when a body waits for room; the request may have waited before.
fn soon(deadline: Deadline) -> Instant {
    deadline.wait_until().min(Instant::now() + ROOM_WAIT_MAX)
}

/// How many units of room so many bytes take.
fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(ROOM_UNIT_BYTES)).unwrap_or(u32::MAX)
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
    use quotalog_ledger::WAIT_MAX;

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
        let first = admission.admit(Asker::now(&greedy)).await.ok();
        let _second = admission.admit(Asker::now(&greedy)).await.ok();
        let mut third = pin!(admission.admit(Asker::now(&greedy)));
        assert!(matches!(poll_once(third.as_mut()).await, Poll::Pending));
        assert!(admission.admit(Asker::now(&modest)).await.is_ok());
        drop(first);
        assert!(third.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_in_vain_ends_and_is_forgotten() {
        let admission = Admission::new(1);
        let _held = admission.admit(Asker::now(&caller("greedy"))).await;
        let refused = admission.admit(Asker::now(&caller("greedy"))).await;
        assert_eq!(refused.err(), Some(Overloaded));
        assert_eq!(admission.0.waiting.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waited_before_has_what_is_left_of_its_time() {
        tokio::time::advance(Duration::from_secs(10)).await;
        let admission = Admission::new(1);
        let greedy = caller("greedy");
        let _held = admission.admit(Asker::now(&greedy)).await;
        let left = Duration::from_millis(300);
        let late = Asker {
            caller: &greedy,
            deadline: Deadline::of_arrival(Instant::now() + left - WAIT_MAX),
        };
        let started = Instant::now();
        assert_eq!(admission.admit(late).await.err(), Some(Overloaded));
        assert_eq!(started.elapsed(), left);
        let mut rooms = Vec::new();
        while let Ok(room) = admission.room(Asker::now(&greedy), 128 * 1024).await {
            rooms.push(room);
        }
        let late = Asker {
            caller: &greedy,
            deadline: Deadline::of_arrival(Instant::now() + left - WAIT_MAX),
        };
        let started = Instant::now();
        assert!(admission.room(late, 1).await.is_err());
        assert_eq!(started.elapsed(), left);
    }

    #[tokio::test]
    async fn no_more_wait_than_there_is_room_for() {
        let admission = Admission::new(1);
        let _held = admission.admit(Asker::now(&caller("greedy"))).await;
        admission.0.waiting.store(WAITING_MAX, Ordering::Relaxed);
        let refused = admission.admit(Asker::now(&caller("greedy"))).await;
        assert_eq!(refused.err(), Some(Overloaded));
        assert_eq!(admission.0.waiting.load(Ordering::Relaxed), WAITING_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_have_room_for_their_caller_and_among_all() {
        let admission = Admission::new(1);
        let fill = async |caller: &Caller| {
            let mut rooms = Vec::new();
            while let Ok(room) = admission.room(Asker::now(caller), 128 * 1024).await {
                rooms.push(room);
            }
            rooms
        };
        let greedy = fill(&caller("greedy")).await;
        assert_eq!(greedy.len(), 64);
        assert!(
            admission
                .room(Asker::now(&caller("greedy")), 1)
                .await
                .is_err()
        );
        let mut others = Vec::new();
        for n in 1..8 {
            others.push(fill(&caller(&n.to_string())).await);
            assert_eq!(others[n - 1].len(), 64);
        }
        // Among all there is none left, until some is given back.
        let modest = caller("modest");
        assert!(admission.room(Asker::now(&modest), 1).await.is_err());
        let mut waiting = pin!(admission.room(Asker::now(&modest), 128 * 1024));
        assert!(poll_once(waiting.as_mut()).await.is_pending());
        drop(greedy);
        assert!(waiting.await.is_ok());
    }

    /// What one look at a future finds.
    async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
    }
}
