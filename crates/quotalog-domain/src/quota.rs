//! A quota as it is answered: policy and usage of a pair at one instant.

use std::cmp::Ordering;

use crate::{Limit, Pair, Policy, Revision, Timestamp, Usage, Window, WindowSpan};

/// Whose policy serves a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The pair's own policy.
    Policy,
    /// The default of the resource.
    Default,
}

/// Policy and usage of a pair at the instant of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// Whose quota, and of what.
    pub pair: Pair,
    /// The policy in force.
    pub policy: Policy,
    /// Where that policy comes from.
    pub source: Source,
    /// Units counted in the window that holds `at`.
    pub usage: u64,
    /// On a check: whether anything is left. On a consume: whether the units were granted, or in a
    /// denied batch, whether this pair alone would have fitted.
    pub allowed: bool,
    /// The instant of the decision.
    pub at: Timestamp,
}

impl Quota {
    /// The quota as a check sees it: `allowed` while anything is left.
    #[must_use]
    pub fn check(pair: Pair, policy: Policy, source: Source, usage: &Usage, at: Timestamp) -> Self {
        let usage = usage.within(&policy.window.span_at(at));
        Self {
            pair,
            policy,
            source,
            usage,
            allowed: usage < policy.limit.get(),
            at,
        }
    }

    /// The policy's window.
    #[must_use]
    pub fn window(&self) -> Window {
        self.policy.window
    }

    /// The policy's limit.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.policy.limit
    }

    /// The window that holds the instant of the decision.
    #[must_use]
    pub fn span(&self) -> WindowSpan {
        self.policy.window.span_at(self.at)
    }

    /// Units left in the window; 0 when more was used than a lowered limit allows.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.policy.limit.get().saturating_sub(self.usage)
    }

    /// Whole seconds from the decision to the end of the window, rounded up: at least 1.
    #[must_use]
    pub fn reset_in_s(&self) -> u64 {
        self.at.seconds_until(self.span().reset_at)
    }

    /// Whether at least `percent` of the limit is used.
    #[must_use]
    pub fn is_used_to(&self, percent: u8) -> bool {
        // Neither product overflows: both factors have at most 64 bits.
        let used = u128::from(self.usage).saturating_mul(100);
        used >= u128::from(percent).saturating_mul(u128::from(self.limit().get()))
    }

    /// Compares the used parts of two limits, exactly: 2 of 3 is more than 666 of 1000.
    #[must_use]
    pub fn cmp_used_part(&self, other: &Self) -> Ordering {
        let product = |usage: u64, limit: u64| u128::from(usage).saturating_mul(u128::from(limit));
        product(self.usage, other.limit().get()).cmp(&product(other.usage, self.limit().get()))
    }

    /// The revision of the pair's own policy; `None` where a default serves it.
    #[must_use]
    pub fn revision(&self) -> Option<Revision> {
        match self.source {
            Source::Policy => Some(self.policy.revision()),
            Source::Default => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Resource, UserId};

    fn quota(usage: u64, limit: i64) -> Quota {
        let at = Timestamp::from_unix_s(0);
        Quota {
            pair: Pair {
                user_id: UserId::try_from("u").unwrap(),
                resource: Resource::try_from("r").unwrap(),
            },
            policy: Policy {
                window: Window::Daily,
                limit: Limit::stored(limit).unwrap(),
                created_at: at,
                updated_at: at,
            },
            source: Source::Policy,
            usage,
            allowed: true,
            at,
        }
    }

    #[test]
    fn a_percentage_is_reached_exactly() {
        let check = |usage, limit, percent, reached| {
            let quota = quota(usage, limit);
            assert_eq!(quota.is_used_to(percent), reached, "{usage} of {limit}");
        };
        check(0, 1, 0, true);
        check(0, 1, 1, false);
        check(79, 100, 80, false);
        check(80, 100, 80, true);
        // 2 of 3 are 66.6…%.
        check(2, 3, 66, true);
        check(2, 3, 67, false);
        check(5, 3, 100, true);
        check(i64::MAX.unsigned_abs() - 1, i64::MAX, 100, false);
        check(i64::MAX.unsigned_abs(), i64::MAX, 100, true);
        check(u64::MAX, i64::MAX, 255, false);
        check(u64::MAX, 1, 255, true);
    }

    #[test]
    fn used_parts_are_compared_exactly() {
        let check = |one: (u64, i64), other: (u64, i64), order| {
            let (one, other) = (quota(one.0, one.1), quota(other.0, other.1));
            assert_eq!(one.cmp_used_part(&other), order, "{one:?} {other:?}");
            assert_eq!(other.cmp_used_part(&one), order.reverse());
        };
        check((0, 1), (0, 1_000_000), Ordering::Equal);
        check((1, 2), (500_000, 1_000_000), Ordering::Equal);
        check((2, 3), (666, 1_000), Ordering::Greater);
        check((2, 3), (667, 1_000), Ordering::Less);
        check((7, 5), (1_000_000, 1_000_000), Ordering::Greater);
        // These two differ by less than a floating-point number can tell.
        let max = i64::MAX.unsigned_abs();
        check((max - 1, i64::MAX), (max, i64::MAX), Ordering::Less);
        check((max - 2, i64::MAX - 1), (max - 1, i64::MAX), Ordering::Less);
    }
}
