//! An authenticated caller, and what its permission rests on.

use quotalog_domain::{CallerId, Timestamp};

use crate::{JwtId, Role, TokenId, TokenRecord};

/// Counts the changes of a store's tokens. Every change, by whichever process, makes it another number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Generation(pub i64);

/// Who sent a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// What it may do.
    pub role: Role,
    /// What that rests on; judged again in the transaction that serves the request.
    pub credential: Credential,
}

/// What a caller's permission rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// The operator at the command line, who holds the database itself.
    CommandLine,
    /// The admin token of the process's own configuration.
    Environment,
    /// A token of the store, as it was found at `generation`.
    Token {
        /// Its public name.
        id: TokenId,
        /// From when on it is refused.
        expires_at: Option<Timestamp>,
        /// The state of the store's tokens in which it was found.
        generation: Generation,
    },
    /// A JWT, which was verified. The store has nothing of it but its clock.
    Jwt {
        /// Who it is about.
        id: JwtId,
        /// From when on it is refused.
        expires_at: Timestamp,
    },
}

/// Whether a credential still holds, as far as it can tell by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing<'a> {
    /// It holds.
    Valid,
    /// It has expired.
    Expired,
    /// Tokens have changed since it was found: it holds only if this one still exists.
    IfExists(&'a TokenId),
}

impl Caller {
    /// The caller that holds a stored token, found at `generation`.
    #[must_use]
    pub fn holding(token: TokenRecord, generation: Generation) -> Self {
        Self {
            role: token.role,
            credential: Credential::Token {
                id: token.id,
                expires_at: token.expires_at,
                generation,
            },
        }
    }

    /// The caller that holds a JWT, which was verified.
    #[must_use]
    pub fn with_jwt(role: Role, id: JwtId, expires_at: Timestamp) -> Self {
        Self {
            role,
            credential: Credential::Jwt { id, expires_at },
        }
    }

    /// The caller's name in idempotency scopes: the id of its token, or issuer and subject of its JWT.
    #[must_use]
    pub fn id(&self) -> CallerId {
        CallerId::new(self.credential.id())
    }
}

impl Credential {
    /// What it is known by: the id of its token, or the name of what it is instead of one.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::CommandLine => "command-line",
            Self::Environment => "environment",
            Self::Token { id, .. } => id.as_str(),
            Self::Jwt { id, .. } => id.as_str(),
        }
    }

    /// Judges the credential at `now`, against the `generation` that the transaction reads.
    #[must_use]
    pub fn standing(&self, generation: Generation, now: Timestamp) -> Standing<'_> {
        match self {
            Self::CommandLine | Self::Environment => Standing::Valid,
            Self::Jwt { expires_at, .. } if *expires_at <= now => Standing::Expired,
            Self::Jwt { .. } => Standing::Valid,
            Self::Token {
                id,
                expires_at,
                generation: found_at,
            } => {
                if expires_at.is_some_and(|end| end <= now) {
                    Standing::Expired
                } else if *found_at == generation {
                    Standing::Valid
                } else {
                    Standing::IfExists(id)
                }
            }
        }
    }
}
