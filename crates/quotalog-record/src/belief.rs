//! How far the clock is believed when rows are deleted by their age. It bounds nothing else.
//!
//! A clock that is wrong for a while does no lasting harm to what is counted: each window has its own rows,
//! and when the clock is right again, they are there. Only pruning destroys; one start under a clock that
//! is years ahead would delete today's usage and today's kept answers, and the window would be full again
//! once the clock is set right.
//!
//! So a store remembers how far the clock was believed when pruning last looked. A server looks every
//! few minutes, and thus the clock is believed step by step. A clock that leaps ahead of that is believed
//! once it has gone on for a day from where it leapt to: today's windows are over by then, and today's kept
//! answers too. Until then rows are pruned by what was believed before. After a long stop this delays
//! pruning by that day, and costs nothing else.

use quotalog_domain::Timestamp;

/// A step that is believed at once: several times what a server lets pass between two looks.
const STEP_S: i64 = 3_600;
/// For how long a leap is doubted.
const DOUBT_S: i64 = 86_400;

/// What is believed, and since when the clock claims more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Belief {
    /// How far the clock was believed.
    pub seen_at: Timestamp,
    /// Since when it claims to be far ahead of that.
    pub leapt_at: Option<Timestamp>,
}

impl Belief {
    /// What is believed when the clock shows `now`.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Self {
        if now <= self.seen_at.plus_s(STEP_S) {
            return Self {
                seen_at: self.seen_at.max(now),
                leapt_at: None,
            };
        }
        match self.leapt_at {
            Some(leapt_at) if now >= leapt_at.plus_s(DOUBT_S) => Self {
                seen_at: now,
                leapt_at: None,
            },
            Some(leapt_at) if now >= leapt_at => self,
            Some(_) | None => Self {
                leapt_at: Some(now),
                ..self
            },
        }
    }
}

impl Belief {
    /// Whether the clock is doubted from now on, where `before` was believed until now.
    #[must_use]
    pub fn doubts_anew(self, before: Self) -> bool {
        self.leapt_at.is_some() && self.leapt_at != before.leapt_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leap_is_believed_after_a_day() {
        let at = Timestamp::from_unix_s;
        let mut belief = Belief {
            seen_at: at(0),
            leapt_at: None,
        };
        let mut check = |now_s: i64, seen_s: i64, leapt_s: Option<i64>| {
            belief = belief.at(at(now_s));
            let expected = Belief {
                seen_at: at(seen_s),
                leapt_at: leapt_s.map(at),
            };
            assert_eq!(belief, expected, "at {now_s}");
        };
        let day = 86_400;
        check(600, 600, None);
        check(4_200, 4_200, None);
        check(100, 4_200, None);
        check(7_801, 4_200, Some(7_801));
        check(7_801 + day - 1, 4_200, Some(7_801));
        check(5_000, 5_000, None);
        check(900 * day, 5_000, Some(900 * day));
        check(800 * day, 5_000, Some(800 * day));
        check(801 * day, 801 * day, None);
    }
}
