//! A quota as it is answered: policy and usage of a pair at one instant.

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

    /// The revision of the pair's own policy; `None` where a default serves it.
    #[must_use]
    pub fn revision(&self) -> Option<Revision> {
        match self.source {
            Source::Policy => Some(self.policy.revision()),
            Source::Default => None,
        }
    }
}
