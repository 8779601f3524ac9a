//! What a connection is doing and since when. Noted as it happens, without a timer of its own, and judged
//! now and then by whoever looks all connections over.
//!
//! A connection either has a request in hand or waits for its client: for a request, for the rest of one,
//! or for answers to be read. Only what waits for its client is ever closed on it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a client may take to read any more of its answers.
const UNREAD_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long a connection that was told to close, and has nothing in hand, may take to say goodbye.
const GOODBYE_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long a connection may wait for its client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waits {
    /// For the whole head of a request once it has begun, and for a TLS handshake.
    pub(super) head: Duration,
    /// For the first byte of a request.
    pub(super) idle: Duration,
}

/// What is to become of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    /// It is told to close, and serves what it has in hand.
    Close,
    /// It ends now.
    Cut,
}

/// The activity of one connection.
#[derive(Debug)]
pub(super) struct Activity(Mutex<State>);

#[derive(Debug)]
struct State {
    /// How many requests were begun and are not answered.
    requests: usize,
    /// How many of these still wait for their bodies.
    arriving: usize,
    /// Whether the client has begun the head of a request, or should be in its handshake.
    in_head: bool,
    /// Whether bytes come for reasons other than a request, as they do in HTTP/2.
    multiplexed: bool,
    /// When it last began to wait as it does now.
    since: Instant,
    /// Since when nothing more of its answers can be written.
    unread_since: Option<Instant>,
    /// When it was told to close.
    told_at: Option<Instant>,
    /// Whether it ends now, so that no further request may be begun.
    cut: bool,
}

/// A request that was begun; dropped when there is an answer, or when nobody wants one any more.
#[derive(Debug)]
pub(super) struct InHand(Arc<Activity>);

/// A request whose body is still on its way; dropped when nothing more of it will be read.
#[derive(Debug)]
pub(super) struct Arriving(Arc<Activity>);

/// The connection ends now: no request is begun on it.
#[derive(Debug, thiserror::Error)]
#[error("the connection was cut")]
pub(super) struct Cut;

impl Activity {
    /// Of a connection that waits for its first request.
    pub(super) fn idle() -> Self {
        Self::new(false)
    }

    /// Of a connection that waits for its handshake.
    pub(super) fn in_handshake() -> Self {
        Self::new(true)
    }

    fn new(in_head: bool) -> Self {
        Self(Mutex::new(State {
            requests: 0,
            arriving: 0,
            in_head,
            multiplexed: false,
            since: Instant::now(),
            unread_since: None,
            told_at: None,
            cut: false,
        }))
    }

    /// The handshake is done.
    pub(super) fn shook_hands(&self) {
        self.state().waits(false);
    }

    /// The client speaks HTTP/2.
    pub(super) fn speaks_http2(&self) {
        let mut state = self.state();
        state.multiplexed = true;
        state.waits(false);
    }

    /// Bytes came. The first ones between two requests begin a head; if they came together with the end of
    /// the request before, the head begins with the next ones.
    pub(super) fn received(&self) {
        let mut state = self.state();
        if state.requests == 0 && !state.in_head && !state.multiplexed {
            state.waits(true);
        }
    }

    /// A request's head is read.
    pub(super) fn begin(
        self: &Arc<Self>,
        has_body: bool,
    ) -> Result<(InHand, Option<Arriving>), Cut> {
        let mut state = self.state();
        if state.cut {
            return Err(Cut);
        }
        if has_body {
            if state.requests == 0 {
                state.waits(false);
            }
            state.arriving += 1;
        }
        state.requests += 1;
        state.in_head = false;
        let arriving = has_body.then(|| Arriving(Arc::clone(self)));
        Ok((InHand(Arc::clone(self)), arriving))
    }

    /// Nothing more can be written until the client reads.
    pub(super) fn blocked(&self) {
        self.state().unread_since = Some(Instant::now());
    }

    /// The client has read.
    pub(super) fn unblocked(&self) {
        let mut state = self.state();
        state.unread_since = None;
        // A client that still reads its answer is not idle.
        if state.requests == 0 && !state.in_head {
            state.since = Instant::now();
        }
    }

    /// The connection is told to close.
    pub(super) fn told(&self) {
        self.state().told_at = Some(Instant::now());
    }

    /// What is to become of it at this time. After [`Verdict::Cut`], no request is begun any more.
    pub(super) fn judge(&self, waits: Waits, now: Instant) -> Verdict {
        let mut state = self.state();
        let verdict = state.judge(waits, now);
        state.cut |= verdict == Verdict::Cut;
        verdict
    }

    /// Since when it waits for its client; none while it has a request in hand.
    pub(super) fn waiting_since(&self) -> Option<Instant> {
        self.state().waiting_since()
    }

    /// Cuts it if it still waits for what it has waited for since then.
    pub(super) fn cut_if_waiting_since(&self, since: Instant) -> bool {
        let mut state = self.state();
        let waits = state.waiting_since() == Some(since);
        state.cut |= waits;
        waits
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is whole in itself.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.requests -= 1;
        state.came_to_wait();
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.arriving -= 1;
        state.came_to_wait();
    }
}

impl State {
    /// It waits for its client from now on.
    fn waits(&mut self, in_head: bool) {
        self.in_head = in_head;
        self.since = Instant::now();
    }

    /// Whether nothing can go on but by the client. A request that is given up may end before its body.
    fn waits_for_client(&self) -> bool {
        self.requests <= self.arriving
    }

    fn came_to_wait(&mut self) {
        if self.waits_for_client() {
            self.waits(false);
        }
    }

    fn judge(&self, waits: Waits, now: Instant) -> Verdict {
        let over = |since: Instant, wait: Duration| now.saturating_duration_since(since) >= wait;
        if let Some(since) = self.unread_since
            && over(since, UNREAD_WAIT_MAX)
        {
            return Verdict::Cut;
        }
        // The wait for a body has its own end, where the body is read.
        if self.requests > 0 {
            return Verdict::Keep;
        }
        if self.in_head {
            return if over(self.since, waits.head) {
                Verdict::Cut
            } else {
                Verdict::Keep
            };
        }
        match self.told_at {
            // Whatever it did since it was told, it has the whole time for its goodbye.
            Some(told_at) if over(self.since.max(told_at), GOODBYE_WAIT_MAX) => Verdict::Cut,
            None if over(self.since, waits.idle) => Verdict::Close,
            Some(_) | None => Verdict::Keep,
        }
    }

    fn waiting_since(&self) -> Option<Instant> {
        if self.cut {
            return None;
        }
        let waiting_since = self.waits_for_client().then_some(self.since);
        self.unread_since.or(waiting_since)
    }
}
