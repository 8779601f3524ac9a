//! Policies: how much may be used, per which window.

use crate::{Limit, Resource, Timestamp, Window};

/// The limit of one pair, or of one resource as its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// After which span usage starts again.
    pub window: Window,
    /// The most that may be consumed in a window.
    pub limit: Limit,
    /// When the policy was made, in whole seconds.
    pub created_at: Timestamp,
    /// When its window or limit last changed, in whole seconds.
    pub updated_at: Timestamp,
}

/// A policy that serves every user who has none of their own for its resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultPolicy {
    /// The resource it serves.
    pub resource: Resource,
    /// What it allows.
    pub policy: Policy,
}

/// The state of a policy as an opaque text of visible ASCII, equal exactly when window, limit and both
/// dates are. It changes with the policy, not with usage: the inside of an entity tag
/// (RFC 9110 section 8.8.3).
///
/// A policy that is removed and made again with the same terms within one second has its old revision. That is
/// sound, since all that a reader is shown of it is the same, and a strong tag promises no more (section 8.8.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision(Box<str>);

/// Under which state of a policy a change may happen (If-Match and If-None-Match, RFC 9110 sections 13.1.1 and
/// 13.1.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Precondition {
    /// There must be a policy, whichever it is.
    AnyPolicy,
    /// There must be none.
    NoPolicy,
    /// One of these texts must be the policy's [`Revision`].
    OneOf(Vec<Box<str>>),
    /// None of them may be; no policy will do.
    NoneOf(Vec<Box<str>>),
}

impl Policy {
    /// This policy's present revision.
    #[must_use]
    pub fn revision(&self) -> Revision {
        Revision(
            format!(
                "{}-{}-{}-{}",
                self.window.as_str(),
                self.limit.get(),
                self.created_at.unix_s(),
                self.updated_at.unix_s()
            )
            .into(),
        )
    }

    /// What this policy, or the lack of one, becomes when it is set at `now`.
    ///
    /// Setting what already holds changes nothing, not even the date.
    #[must_use]
    pub fn set(existing: Option<Self>, window: Window, limit: Limit, now: Timestamp) -> Self {
        let now = now.floor_to_s();
        match existing {
            Some(policy) if policy.window == window && policy.limit == limit => policy,
            Some(policy) => Self {
                window,
                limit,
                created_at: policy.created_at,
                updated_at: now,
            },
            None => Self {
                window,
                limit,
                created_at: now,
                updated_at: now,
            },
        }
    }
}

impl Revision {
    /// The opaque text, without quotes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Precondition {
    /// Whether a change of `policy` may go on.
    pub(crate) fn allows(&self, policy: Option<&Policy>) -> bool {
        let names = |texts: &[Box<str>]| {
            policy.is_some_and(|policy| {
                let revision = policy.revision();
                texts.iter().any(|text| **text == *revision.as_str())
            })
        };
        match self {
            Self::AnyPolicy => policy.is_some(),
            Self::NoPolicy => policy.is_none(),
            Self::OneOf(texts) => names(texts),
            Self::NoneOf(texts) => !names(texts),
        }
    }
}
