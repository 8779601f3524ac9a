//! What the audit is to remember of a decision.

use crate::{Pair, Policy, Quota, Resource};

/// A change that somebody answers for, with what was before and after. Consuming is none: it is what
/// quotas are for, and usage tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A pair's own policy was made, changed, or removed.
    Policy {
        /// Whose, and for what.
        pair: Pair,
        /// What it was.
        before: Option<Policy>,
        /// What it is.
        after: Option<Policy>,
    },
    /// The default of a resource was made, changed, or removed.
    Default {
        /// The resource it serves.
        resource: Resource,
        /// What it was.
        before: Option<Policy>,
        /// What it is.
        after: Option<Policy>,
    },
    /// The usage of a window was set to zero, where it may have been before.
    Reset {
        /// The quota as it was.
        before: Quota,
        /// The quota as it is.
        after: Quota,
    },
    /// Units of a window were given back, or none where none were used.
    Refund {
        /// The quota as it was.
        before: Quota,
        /// The quota as it is.
        after: Quota,
    },
}
