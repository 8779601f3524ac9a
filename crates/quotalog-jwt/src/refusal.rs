//! Why a token is not believed: for the log and the metrics, never for whoever sent it.

use jsonwebtoken::errors::{Error, ErrorKind};

/// Why a token is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("it is too long")]
    TooLong,
    #[error("it has not the form of a JWT that is signed")]
    Malformed,
    #[error("its header is not understood: an algorithm or a type that is none of ours, or `crit`")]
    Header,
    #[error("no trusted key is of its algorithm")]
    Algorithm,
    #[error("no trusted key is the one it names")]
    UnknownKey,
    #[error("its signature is wrong")]
    Signature,
    #[error("it has no `exp`, or a date in it is none")]
    Date,
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    NotYetValid,
    #[error("it is for another audience")]
    Audience,
    #[error("it is from another issuer")]
    Issuer,
    #[error("its `sub` is missing, or no user's id")]
    Subject,
    #[error("its claim of a role names no single role that quotalog knows")]
    Role,
}

impl Refusal {
    /// All of them.
    pub(crate) const ALL: [Self; 13] = [
        Self::TooLong,
        Self::Malformed,
        Self::Header,
        Self::Algorithm,
        Self::UnknownKey,
        Self::Signature,
        Self::Date,
        Self::Expired,
        Self::NotYetValid,
        Self::Audience,
        Self::Issuer,
        Self::Subject,
        Self::Role,
    ];

    /// Its name in the metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::TooLong => "too-long",
            Self::Malformed => "malformed",
            Self::Header => "header",
            Self::Algorithm => "algorithm",
            Self::UnknownKey => "unknown-key",
            Self::Signature => "signature",
            Self::Date => "date",
            Self::Expired => "expired",
            Self::NotYetValid => "not-yet-valid",
            Self::Audience => "audience",
            Self::Issuer => "issuer",
            Self::Subject => "subject",
            Self::Role => "role",
        }
    }
}

impl From<&Error> for Refusal {
    /// Why the library does not believe a token whose header was read and whose key was found.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all others are faults of the form, and their list may grow"
    )]
    fn from(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::InvalidSignature => Self::Signature,
            ErrorKind::InvalidAudience => Self::Audience,
            ErrorKind::InvalidIssuer => Self::Issuer,
            ErrorKind::MissingRequiredClaim(claim) | ErrorKind::InvalidClaimFormat(claim) => {
                match &**claim {
                    "exp" => Self::Date,
                    "iss" => Self::Issuer,
                    _ => Self::Audience,
                }
            }
            _ => Self::Malformed,
        }
    }
}
