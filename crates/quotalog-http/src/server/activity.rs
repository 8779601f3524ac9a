//! What a connection is doing and since when. Noted as it happens, without a timer of its own, and judged
//! now and then by whoever looks all connections over.
//!
//! A connection either has a request in hand or waits for its client: for a request, for the rest of one,
//! or for answers to be read. Only what waits for its client is ever closed on it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a client may take to read any more of its answers.
const UNREAD_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long a connection that was told to close, and has nothing in hand, may take to say goodbye.
const GOODBYE_WAIT_MAX: Duration = Duration::from_secs(5);

/// How much a connection reads before others have their turn. Without this, a client that sends requests and gives them up
/// at once has the memory of all of them taken before the first is over.
const TURN_BYTES_MAX: usize = 16 * 1024;

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
pub(super) struct Activity {
    state: Mutex<State>,
    /// What was read since its task was last resumed.
    turn_bytes: AtomicUsize,
}

#[derive(Debug)]
struct State {
    /// How many requests were begun and are not answered.
    requests: usize,
    /// How many of these have somebody wait for their bodies.
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

/// A body that somebody reads; dropped when nothing more of it will be read.
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
        let state = State {
            requests: 0,
            arriving: 0,
            in_head,
            multiplexed: false,
            since: Instant::now(),
            unread_since: None,
            told_at: None,
            cut: false,
        };
        Self {
            state: Mutex::new(state),
            turn_bytes: AtomicUsize::new(0),
        }
    }

    /// Its task is resumed.
    pub(super) fn begins_turn(&self) {
        self.turn_bytes.store(0, Ordering::Relaxed);
    }

    /// Whether it has read so much that it is the turn of others, such as of the requests that it has begun.
    pub(super) fn ends_turn(&self) -> bool {
        self.turn_bytes.load(Ordering::Relaxed) >= TURN_BYTES_MAX
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
    pub(super) fn received(&self, bytes: usize) {
        self.turn_bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut state = self.state();
        if state.requests == 0 && !state.in_head && !state.multiplexed {
            state.waits(true);
        }
    }

    /// A request's head is read.
    pub(super) fn begin(self: &Arc<Self>) -> Result<InHand, Cut> {
        let mut state = self.state();
        if state.cut {
            return Err(Cut);
        }
        state.requests += 1;
        state.in_head = false;
        Ok(InHand(Arc::clone(self)))
    }

    /// Somebody begins to read the body of a request in hand. Until then it is not the client that is waited for.
    pub(super) fn awaits_body(self: &Arc<Self>) -> Arriving {
        let mut state = self.state();
        state.arriving += 1;
        state.came_to_wait();
        Arriving(Arc::clone(self))
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use super::*;

    const WAITS: Waits = Waits {
        head: Duration::from_secs(10),
        idle: Duration::from_secs(75),
    };

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    /// Checks what becomes of it just before so many seconds are over, and then.
    #[track_caller]
    fn after(activity: &Activity, seconds: u64, verdict: Verdict) {
        let then = Instant::now() + Duration::from_secs(seconds);
        let before = then - Duration::from_millis(1);
        assert_eq!(activity.judge(WAITS, before), Verdict::Keep);
        assert_eq!(activity.judge(WAITS, then), verdict);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_told_to_close_and_has_time_for_its_goodbye() {
        let activity = Activity::idle();
        after(&activity, 75, Verdict::Close);
        pass(75).await;
        activity.told();
        after(&activity, 5, Verdict::Cut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_time_from_its_first_byte_however_many_follow() {
        let activity = Activity::idle();
        pass(70).await;
        activity.received(1);
        pass(4).await;
        activity.received(1);
        after(&activity, 6, Verdict::Cut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_handshake_has_the_time_of_a_head() {
        let activity = Activity::in_handshake();
        after(&activity, 10, Verdict::Cut);
        let activity = Activity::in_handshake();
        pass(9).await;
        activity.shook_hands();
        after(&activity, 75, Verdict::Close);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_in_hand_has_no_time_and_the_wait_begins_anew_after_it() {
        let activity = Arc::new(Activity::idle());
        activity.received(1);
        let in_hand = activity.begin().unwrap();
        assert_eq!(activity.waiting_since(), None);
        pass(1_000).await;
        assert_eq!(activity.judge(WAITS, Instant::now()), Verdict::Keep);
        drop(in_hand);
        assert_eq!(activity.waiting_since(), Some(Instant::now()));
        after(&activity, 75, Verdict::Close);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_on_its_way_is_waited_for_and_may_make_room() {
        let activity = Arc::new(Activity::idle());
        activity.received(1);
        let in_hand = activity.begin().unwrap();
        assert_eq!(activity.waiting_since(), None);
        pass(1).await;
        let began_at = Instant::now();
        let arriving = activity.awaits_body();
        pass(1).await;
        activity.received(1);
        assert_eq!(activity.waiting_since(), Some(began_at));
        pass(1_000).await;
        assert_eq!(activity.judge(WAITS, Instant::now()), Verdict::Keep);
        drop(arriving);
        assert_eq!(activity.waiting_since(), None);
        drop(in_hand);
        assert_eq!(activity.waiting_since(), Some(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_given_up_may_end_before_its_body() {
        let activity = Arc::new(Activity::idle());
        let in_hand = activity.begin().unwrap();
        let arriving = activity.awaits_body();
        drop(in_hand);
        pass(1).await;
        drop(arriving);
        assert_eq!(activity.waiting_since(), Some(Instant::now()));
        after(&activity, 75, Verdict::Close);
    }

    #[tokio::test(start_paused = true)]
    async fn one_request_in_hand_is_enough_for_http_2() {
        let activity = Arc::new(Activity::idle());
        activity.received(1);
        activity.speaks_http2();
        let first = (activity.begin().unwrap(), activity.awaits_body());
        let second = activity.begin().unwrap();
        assert_eq!(activity.waiting_since(), None);
        drop(second);
        assert_eq!(activity.waiting_since(), Some(Instant::now()));
        drop(first);
        // Frames that are no request are no reason to stay, and none to go.
        pass(70).await;
        activity.received(1);
        after(&activity, 5, Verdict::Close);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_more_is_cut_even_with_a_request_in_hand() {
        let activity = Arc::new(Activity::idle());
        let _in_hand = activity.begin().unwrap();
        activity.blocked();
        let blocked_at = Instant::now();
        pass(29).await;
        assert_eq!(activity.waiting_since(), Some(blocked_at));
        activity.unblocked();
        activity.blocked();
        after(&activity, 30, Verdict::Cut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_is_not_idle() {
        let activity = Arc::new(Activity::idle());
        drop(activity.begin().unwrap());
        for _ in 0..10 {
            activity.blocked();
            pass(20).await;
            activity.unblocked();
            assert_eq!(activity.judge(WAITS, Instant::now()), Verdict::Keep);
        }
        after(&activity, 75, Verdict::Close);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_gone_on_since_is_not_cut_and_what_is_cut_begins_nothing() {
        let activity = Arc::new(Activity::idle());
        let since = activity.waiting_since().unwrap();
        pass(1).await;
        let in_hand = activity.begin().unwrap();
        assert!(!activity.cut_if_waiting_since(since));
        drop(in_hand);
        assert!(!activity.cut_if_waiting_since(since));
        let since = activity.waiting_since().unwrap();
        assert!(activity.cut_if_waiting_since(since));
        assert!(activity.begin().is_err());
        assert_eq!(activity.waiting_since(), None);

        let late = Arc::new(Activity::in_handshake());
        after(&late, 10, Verdict::Cut);
        assert!(late.begin().is_err());
    }
}
