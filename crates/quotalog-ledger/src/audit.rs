//! What the audit remembers: who changed, reset, refunded, erased or issued what, with before and after.
//!
//! A store writes an entry in the transaction of its change, or the change does not happen. What a
//! thing was is kept as [`Facts`] under the names of the contract, so that an entry reads the same for as long
//! as it is kept, whatever becomes of the types.

use quotalog_auth::{Actor, TokenId, TokenRecord};
use quotalog_domain::{Change, Pair, Policy, Quota, Resource, Timestamp, UserId};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The place of an entry in the audit; newer is larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditId(pub i64);

/// An entry of the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its place.
    pub id: AuditId,
    /// When it happened, in whole seconds.
    pub at: Timestamp,
    /// Who did it.
    pub actor: Actor,
    /// What they did.
    pub action: AuditAction,
    /// To whom, if it concerns one user.
    pub user_id: Option<UserId>,
    /// To what, if it concerns one resource.
    pub resource: Option<Resource>,
    /// What was there before.
    pub before: Option<Facts>,
    /// What is there now.
    pub after: Option<Facts>,
}

/// What was done, without who did it and when: the part of an entry that is known before it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed {
    /// See [`AuditEntry::action`].
    pub action: AuditAction,
    /// See [`AuditEntry::user_id`].
    pub user_id: Option<UserId>,
    /// See [`AuditEntry::resource`].
    pub resource: Option<Resource>,
    /// See [`AuditEntry::before`].
    pub before: Option<Facts>,
    /// See [`AuditEntry::after`].
    pub after: Option<Facts>,
}

/// What somebody did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditAction {
    /// Made or changed the policy of a pair.
    PolicySet,
    /// Removed the policy of a pair.
    PolicyDelete,
    /// Made or changed the default of a resource.
    DefaultSet,
    /// Removed the default of a resource.
    DefaultDelete,
    /// Set the usage of a pair's window to zero, or, where an import did it, to a number.
    QuotaReset,
    /// Gave units of a pair's window back.
    QuotaRefund,
    /// Made a token.
    TokenCreate,
    /// Deleted a token.
    TokenRevoke,
    /// Erased a user.
    UserErase,
}

/// The text names no action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the action is unknown")]
pub struct AuditActionError;

/// What a thing was: values under the contract's own names, in an order that reads well.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts(Vec<(String, Fact)>);

/// One value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// A text; an instant too, as RFC 3339.
    Text(String),
    /// Several texts.
    Texts(Vec<String>),
    /// A number of units or things.
    Number(u64),
    /// Nothing.
    Null,
}

/// Which entries to list. What is `None` filters nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Those that concern this user.
    pub user_id: Option<UserId>,
    /// Those that concern this resource.
    pub resource: Option<Resource>,
}

impl Deed {
    /// The most ended tokens that the entry of an erasure names.
    pub const TOKEN_IDS_MAX: usize = 100;

    /// The change of a decision.
    #[must_use]
    pub fn of_change(change: &Change) -> Self {
        match change {
            Change::Policy {
                pair,
                before,
                after,
            } => Self {
                action: match after {
                    Some(_) => AuditAction::PolicySet,
                    None => AuditAction::PolicyDelete,
                },
                user_id: Some(pair.user_id.clone()),
                resource: Some(pair.resource.clone()),
                before: before.as_ref().map(Facts::of_policy),
                after: after.as_ref().map(Facts::of_policy),
            },
            Change::Default {
                resource,
                before,
                after,
            } => Self {
                action: match after {
                    Some(_) => AuditAction::DefaultSet,
                    None => AuditAction::DefaultDelete,
                },
                user_id: None,
                resource: Some(resource.clone()),
                before: before.as_ref().map(Facts::of_policy),
                after: after.as_ref().map(Facts::of_policy),
            },
            Change::Reset { before, after } => Self {
                action: AuditAction::QuotaReset,
                user_id: Some(after.pair.user_id.clone()),
                resource: Some(after.pair.resource.clone()),
                before: Some(Facts::of_usage(before)),
                after: Some(Facts::of_usage(after)),
            },
            Change::Refund { before, after } => {
                let refunded = before.usage.saturating_sub(after.usage);
                Self {
                    action: AuditAction::QuotaRefund,
                    user_id: Some(after.pair.user_id.clone()),
                    resource: Some(after.pair.resource.clone()),
                    before: Some(Facts::of_usage(before)),
                    after: Some(Facts::of_usage(after).with("refunded", Fact::Number(refunded))),
                }
            }
        }
    }

    /// The usage of one window was set to a number.
    #[must_use]
    pub fn usage_set(pair: &Pair, window_start: Timestamp, before: u64, after: u64) -> Self {
        let usage = |units| {
            Facts::default()
                .with("window_start", Fact::instant(window_start))
                .with("usage", Fact::Number(units))
        };
        Self {
            action: AuditAction::QuotaReset,
            user_id: Some(pair.user_id.clone()),
            resource: Some(pair.resource.clone()),
            before: Some(usage(before)),
            after: Some(usage(after)),
        }
    }

    /// A token was made.
    #[must_use]
    pub fn token_created(token: &TokenRecord) -> Self {
        Self {
            action: AuditAction::TokenCreate,
            user_id: token.user_id().cloned(),
            resource: None,
            before: None,
            after: Some(Facts::of_token(token)),
        }
    }

    /// A token was deleted; `token` is what it was, if that could be read.
    #[must_use]
    pub fn token_revoked(id: &TokenId, token: Option<&TokenRecord>) -> Self {
        let unread = || Facts::default().with("id", Fact::text(id.as_str()));
        Self {
            action: AuditAction::TokenRevoke,
            user_id: token.and_then(TokenRecord::user_id).cloned(),
            resource: None,
            before: Some(token.map_or_else(unread, Facts::of_token)),
            after: None,
        }
    }

    /// A user was erased, who had so many policies and these tokens, of which the first
    /// [`Self::TOKEN_IDS_MAX`] are named.
    #[must_use]
    pub fn user_erased(user_id: UserId, policies: u64, mut token_ids: Vec<String>) -> Self {
        let tokens = u64::try_from(token_ids.len()).unwrap_or(u64::MAX);
        token_ids.sort_unstable();
        token_ids.truncate(Self::TOKEN_IDS_MAX);
        let had = Facts::default()
            .with("policies", Fact::Number(policies))
            .with("tokens", Fact::Number(tokens))
            .with("token_ids", Fact::Texts(token_ids));
        Self {
            action: AuditAction::UserErase,
            user_id: Some(user_id),
            resource: None,
            before: Some(had),
            after: None,
        }
    }
}

impl AuditAction {
    /// All actions.
    pub const ALL: [Self; 9] = [
        Self::PolicySet,
        Self::PolicyDelete,
        Self::DefaultSet,
        Self::DefaultDelete,
        Self::QuotaReset,
        Self::QuotaRefund,
        Self::TokenCreate,
        Self::TokenRevoke,
        Self::UserErase,
    ];

    /// The action's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PolicySet => "policy.set",
            Self::PolicyDelete => "policy.delete",
            Self::DefaultSet => "default.set",
            Self::DefaultDelete => "default.delete",
            Self::QuotaReset => "quota.reset",
            Self::QuotaRefund => "quota.refund",
            Self::TokenCreate => "token.create",
            Self::TokenRevoke => "token.revoke",
            Self::UserErase => "user.erase",
        }
    }
}

impl TryFrom<&str> for AuditAction {
    type Error = AuditActionError;

    fn try_from(text: &str) -> Result<Self, AuditActionError> {
        Self::ALL
            .into_iter()
            .find(|action| action.as_str() == text)
            .ok_or(AuditActionError)
    }
}

impl Facts {
    /// The names and values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Fact)> {
        self.0.iter().map(|(name, fact)| (&**name, fact))
    }

    /// What a policy, or a default, allows.
    #[must_use]
    pub fn of_policy(policy: &Policy) -> Self {
        Self::default()
            .with("window", Fact::text(policy.window.as_str()))
            .with("limit_count", Fact::Number(policy.limit.get()))
    }

    /// What was counted in the window in force.
    #[must_use]
    pub fn of_usage(quota: &Quota) -> Self {
        Self::default()
            .with("window_start", Fact::instant(quota.span().start))
            .with("usage", Fact::Number(quota.usage))
    }

    /// What a list shows of a token: neither its secret nor its hash.
    #[must_use]
    pub fn of_token(token: &TokenRecord) -> Self {
        let name = token.name.as_ref().map(|name| name.as_str());
        let user_id = token.user_id().map(UserId::as_str);
        Self::default()
            .with("id", Fact::text(token.id.as_str()))
            .with("role", Fact::text(token.role.kind().as_str()))
            .with("user_id", user_id.map_or(Fact::Null, Fact::text))
            .with("name", name.map_or(Fact::Null, Fact::text))
            .with(
                "expires_at",
                token.expires_at.map_or(Fact::Null, Fact::instant),
            )
    }

    /// The same facts and one more.
    #[must_use]
    pub fn with(mut self, name: &str, fact: Fact) -> Self {
        self.0.push((name.to_owned(), fact));
        self
    }
}

impl FromIterator<(String, Fact)> for Facts {
    fn from_iter<I: IntoIterator<Item = (String, Fact)>>(facts: I) -> Self {
        Self(facts.into_iter().collect())
    }
}

impl Fact {
    fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    fn instant(instant: Timestamp) -> Self {
        let utc = OffsetDateTime::from_unix_timestamp(instant.unix_s());
        let text = utc.ok().and_then(|utc| utc.format(&Rfc3339).ok());
        text.map_or(Self::Null, Self::Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_read_as_it_is_written() {
        for action in AuditAction::ALL {
            assert_eq!(AuditAction::try_from(action.as_str()), Ok(action));
        }
        assert_eq!(AuditAction::try_from("policy"), Err(AuditActionError));
    }

    #[test]
    fn an_instant_is_rfc_3339_in_utc() {
        let check = |unix_us: i64, text: &str| {
            let instant = Timestamp::from_unix_us(unix_us);
            assert_eq!(Fact::instant(instant), Fact::text(text));
        };
        check(1_796_061_600_000_000, "2026-11-30T18:00:00Z");
        check(1_796_061_600_999_999, "2026-11-30T18:00:00Z");
        check(i64::MIN, "0001-01-01T00:00:00Z");
        check(i64::MAX, "9999-12-30T23:59:59Z");
    }
}
