//! The objects of the API, as types of this crate's own: a program that uses it need not build the server.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::serde::rfc3339;

/// The span after which usage starts again, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Window {
    /// From one full hour to the next.
    Hourly,
    /// From one midnight to the next.
    Daily,
}

/// Where the policy of a quota comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The pair has a policy of its own.
    Policy,
    /// The resource's default serves the pair.
    Default,
}

/// How many units of a resource may be counted in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The window.
    pub window: Window,
    /// The limit, from 1 to 1 000 000.
    pub limit_count: u64,
}

/// What a user may still use of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Quota {
    /// Whose it is.
    pub user_id: String,
    /// Of what.
    pub resource: String,
    /// The window of its policy.
    pub window: Window,
    /// The limit of its policy.
    pub limit_count: u64,
    /// Units counted in the present window.
    pub usage: u64,
    /// What is left of it.
    pub remaining: u64,
    /// On a check, whether anything is left; on a consume, whether the units were granted.
    pub allowed: bool,
    /// When the window began.
    #[serde(with = "rfc3339")]
    pub window_start: OffsetDateTime,
    /// When it ends.
    #[serde(with = "rfc3339")]
    pub reset_at: OffsetDateTime,
    /// Where the policy comes from.
    pub source: Source,
    /// When the policy was made.
    #[serde(with = "rfc3339")]
    pub created_at: OffsetDateTime,
    /// When the policy was last changed.
    #[serde(with = "rfc3339")]
    pub updated_at: OffsetDateTime,
    /// The policy's `ETag`, for `if_match`; only after a check or after setting a policy.
    #[serde(skip)]
    pub etag: Option<String>,
}

/// One item of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    user_id: String,
    resource: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<u64>,
}

/// The policy of all who have none of their own for a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DefaultPolicy {
    /// The resource.
    pub resource: String,
    /// Its window.
    pub window: Window,
    /// Its limit.
    pub limit_count: u64,
    /// When it was made.
    #[serde(with = "rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it was last changed.
    #[serde(with = "rfc3339")]
    pub updated_at: OffsetDateTime,
}

/// What was counted from one instant on: a row of a pair's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UsageRow {
    /// When its window began.
    #[serde(with = "rfc3339")]
    pub window_start: OffsetDateTime,
    /// The units.
    pub usage: u64,
}

/// An entry of the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuditEntry {
    /// Its place; newer is larger.
    pub id: i64,
    /// When it happened.
    #[serde(with = "rfc3339")]
    pub at: OffsetDateTime,
    /// Who did it.
    pub actor: Actor,
    /// What they did, such as `policy.set`.
    pub action: String,
    /// To whom, if it concerns one user.
    pub user_id: Option<String>,
    /// To what, if it concerns one resource.
    pub resource: Option<String>,
    /// What was there before.
    pub before: Option<Map<String, Value>>,
    /// What is there since.
    pub after: Option<Map<String, Value>>,
}

/// Who did something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Actor {
    /// By which way, such as `token` or `command-line`.
    pub kind: String,
    /// Their id there.
    pub id: String,
    /// What people call them.
    pub name: Option<String>,
}

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// All.
    Admin,
    /// Reads every quota and default.
    Viewer,
    /// Checks, consumes and refunds for every user.
    Service,
    /// Checks and consumes its own.
    User,
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Token {
    /// Its id.
    pub id: String,
    /// What it may do.
    pub role: Role,
    /// The user of a token of the role user.
    pub user_id: Option<String>,
    /// What people call it.
    pub name: Option<String>,
    /// When it was made.
    #[serde(with = "rfc3339")]
    pub created_at: OffsetDateTime,
    /// From when on it is refused.
    #[serde(with = "rfc3339::option")]
    pub expires_at: Option<OffsetDateTime>,
}

/// A token that was just made.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct CreatedToken {
    /// What is known of it from now on.
    #[serde(flatten)]
    pub token: Token,
    /// The secret, which is shown only now.
    #[serde(rename = "token")]
    pub secret: String,
}

/// A token to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewToken {
    role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", with = "rfc3339::option")]
    expires_at: Option<OffsetDateTime>,
}

impl Window {
    /// Its name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hourly => "hourly",
            Self::Daily => "daily",
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl Source {
    /// Its name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Default => "default",
        }
    }
}

impl Policy {
    /// So many units an hour.
    #[must_use]
    pub const fn hourly(limit_count: u64) -> Self {
        Self {
            window: Window::Hourly,
            limit_count,
        }
    }

    /// So many units a day.
    #[must_use]
    pub const fn daily(limit_count: u64) -> Self {
        Self {
            window: Window::Daily,
            limit_count,
        }
    }
}

impl Item {
    /// One unit of `resource` for `user_id`.
    pub fn new(user_id: impl Into<String>, resource: impl Into<String>) -> Self {
        Self {
            user_id: user_id.into(),
            resource: resource.into(),
            amount: None,
        }
    }

    /// So many units instead.
    #[must_use]
    pub fn amount(mut self, amount: u64) -> Self {
        self.amount = Some(amount);
        self
    }
}

impl NewToken {
    /// A token of a role other than user.
    #[must_use]
    pub const fn new(role: Role) -> Self {
        Self {
            role,
            user_id: None,
            name: None,
            expires_at: None,
        }
    }

    /// A user's token.
    pub fn of_user(user_id: impl Into<String>) -> Self {
        Self {
            user_id: Some(user_id.into()),
            ..Self::new(Role::User)
        }
    }

    /// What people shall call it.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// From when on it is refused.
    #[must_use]
    pub fn expires_at(mut self, at: OffsetDateTime) -> Self {
        self.expires_at = Some(at);
        self
    }
}

impl fmt::Debug for CreatedToken {
    /// Hides the secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CreatedToken")
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
