//! How long to pause before the next attempt.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// Pauses that double, each cut by chance so that many clients do not come back at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    step: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { step: FIRST }
    }

    /// The next pause. What the server asked for is waited for in full, and a while on top.
    pub(crate) fn next(&mut self, retry_after: Option<Duration>) -> Duration {
        let step = self.step;
        self.step = (step * 2).min(LONGEST);
        let half = step / 2;
        let pause = half + half.mul_f64(chance());
        retry_after.unwrap_or_default().saturating_add(pause)
    }
}

/// From 0 to 1. Without random bytes the pauses are only less spread out.
fn chance() -> f64 {
    f64::from(getrandom::u32().unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_a_bound_and_honour_the_server() {
        let mut backoff = Backoff::new();
        for step_ms in [50, 100, 200, 400, 800, 1600, 2000, 2000] {
            let step = Duration::from_millis(step_ms);
            let pause = backoff.next(None);
            assert!(pause >= step / 2 && pause <= step, "{pause:?} of {step:?}");
        }
        let asked = Duration::from_secs(7);
        let pause = Backoff::new().next(Some(asked));
        assert!(pause > asked && pause <= asked + FIRST, "{pause:?}");
        Backoff::new().next(Some(Duration::MAX));
    }
}
