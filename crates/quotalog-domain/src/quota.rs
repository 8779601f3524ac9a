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
