//! By when a request is answered: every wait on its way is measured from one instant, so that their sum keeps the
//! promise that each of them alone would keep.

use std::time::Duration;

use quotalog_auth::Caller;
use tokio::time::Instant;

/// How long a request waits to be taken into a transaction, and a question for its answer, all waits before that
/// included. Whoever asks is promised an answer within 5 s; what is left of them is for the way there and back.
pub const WAIT_MAX: Duration = Duration::from_millis(4_500);

/// How long a request that was taken into a transaction waits for its answer, from its arrival on.
const ANSWER_MAX: Duration = Duration::from_millis(4_800);

/// The instants by which a request gets on, since it arrived. Those of one that arrived earlier are earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    arrived_at: Instant,
}

/// Who asks, and by when an answer is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// By when.
    pub deadline: Deadline,
}

impl Deadline {
    /// That of a request that arrived at this instant.
    #[must_use]
    pub fn of_arrival(arrived_at: Instant) -> Self {
        Self { arrived_at }
    }

    /// That of a request that arrives now.
    #[must_use]
    pub fn from_now() -> Self {
        Self::of_arrival(Instant::now())
    }

    /// When an answer is given up that nothing was counted for.
    #[must_use]
    pub fn wait_until(self) -> Instant {
        self.within(WAIT_MAX)
    }

    /// When the outcome of what was taken into a transaction is told as unknown.
    pub(crate) fn answer_by(self) -> Instant {
        self.within(ANSWER_MAX)
    }

    /// So long after the arrival.
    pub(crate) fn within(self, wait_max: Duration) -> Instant {
        self.arrived_at + wait_max
    }
}

impl<'a> Asker<'a> {
    /// A caller whose request arrives now.
    #[must_use]
    pub fn now(caller: &'a Caller) -> Self {
        Self {
            caller,
            deadline: Deadline::from_now(),
        }
    }
}
