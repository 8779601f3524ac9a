//! Who made a change, as the audit remembers it: it outlives the token that it names.

use crate::{Credential, TokenName};

/// Who made a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// By what they were known.
    pub kind: ActorKind,
    /// The id of their token, or issuer and subject of their JWT; `environment` or `command-line` where there is
    /// neither.
    pub id: String,
    /// What their token was called at the time.
    pub name: Option<String>,
}

/// By what somebody who makes a change is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActorKind {
    /// A token of the store.
    Token,
    /// A JWT of somebody else's.
    Jwt,
    /// The admin token of a process's configuration.
    Environment,
    /// The operator, who holds the database itself; also a start that makes the first admin token.
    CommandLine,
}

/// The text names no kind of actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the kind of actor is unknown")]
pub struct ActorKindError;

impl Actor {
    /// Whoever holds `credential`; `name` is what its token is called, if it rests on one.
    #[must_use]
    pub fn holding(credential: &Credential, name: Option<&TokenName>) -> Self {
        Self {
            kind: match credential {
                Credential::CommandLine => ActorKind::CommandLine,
                Credential::Environment => ActorKind::Environment,
                Credential::Token { .. } => ActorKind::Token,
                Credential::Jwt { .. } => ActorKind::Jwt,
            },
            id: credential.id().to_owned(),
            name: name.map(|name| name.as_str().to_owned()),
        }
    }
}

impl ActorKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Token, Self::Jwt, Self::Environment, Self::CommandLine];

    /// The kind's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Jwt => "jwt",
            Self::Environment => "environment",
            Self::CommandLine => "command-line",
        }
    }
}

impl TryFrom<&str> for ActorKind {
    type Error = ActorKindError;

    fn try_from(text: &str) -> Result<Self, ActorKindError> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or(ActorKindError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_as_it_is_written() {
        for kind in ActorKind::ALL {
            assert_eq!(ActorKind::try_from(kind.as_str()), Ok(kind));
        }
        assert_eq!(ActorKind::try_from("Token"), Err(ActorKindError));
    }
}
