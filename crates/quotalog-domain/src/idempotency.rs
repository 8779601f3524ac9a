//! Idempotency keys and the answers kept under them.

use crate::{Answer, Pair, Resource};

/// What a client calls one request, so that its retries are told from new ones: 1 to 255 visible ASCII
/// characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdempotencyKey(Box<str>);

/// The text is not an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Idempotency-Key must be 1 to 255 visible ASCII characters.")]
pub struct IdempotencyKeyError;

/// Who sent a request, as far as keys on requests without a pair of their own need to know: the id of a
/// token, or issuer and subject of a JWT.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallerId(Box<str>);

/// A key together with where it is unique.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keyed {
    /// Where the key is unique.
    pub scope: KeyScope,
    /// The client's key.
    pub key: IdempotencyKey,
}

/// Where a key is unique. Two scopes never meet, so two users never see each other's answers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyScope {
    /// One kind of operation (its name, as stored) on one pair.
    Pair(&'static str, Pair),
    /// One kind of operation on the default of one resource.
    Resource(&'static str, Resource),
    /// One kind of operation of one caller.
    Caller(&'static str, CallerId),
}

/// What a request asked for beyond its scope, in canonical bytes: equal exactly when the requests are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint(Vec<u8>);

/// The answer of a request that succeeded, kept with its effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAnswer {
    /// What was asked.
    pub fingerprint: Fingerprint,
    /// What was answered.
    pub answer: Answer,
}

impl IdempotencyKey {
    /// The longest key, in characters.
    pub const LEN_MAX: usize = 255;

    /// The key as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for IdempotencyKey {
    type Error = IdempotencyKeyError;

    fn try_from(text: &str) -> Result<Self, IdempotencyKeyError> {
        let sound = (1..=Self::LEN_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        if sound {
            Ok(Self(text.into()))
        } else {
            Err(IdempotencyKeyError)
        }
    }
}

impl CallerId {
    /// A caller's id, made by the part of the program that authenticated it.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The id as it was made.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl KeyScope {
    /// The name of the operation.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        match self {
            Self::Pair(operation, _)
            | Self::Resource(operation, _)
            | Self::Caller(operation, _) => operation,
        }
    }
}

impl Fingerprint {
    /// The canonical bytes, as made by [`crate::Operation::fingerprint`] or read back from a store.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The canonical bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
