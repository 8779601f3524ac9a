//! Idempotency keys and the answers kept under them.

use sha2::{Digest as _, Sha256};

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

/// What a request asked for beyond its scope: equal exactly when the requests are. Canonical bytes; of more than
/// [`Fingerprint::LEN_MAX`] of them, their SHA-256, so that what is kept neither grows with a batch nor names its
/// users.
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
    /// The most bytes of a fingerprint, which are those of a SHA-256.
    pub const LEN_MAX: usize = 32;

    /// The fingerprint of canonical bytes, as [`crate::Operation::fingerprint`] makes them; one that is read
    /// back from a store stays what it is.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        if bytes.len() <= Self::LEN_MAX {
            Self(bytes)
        } else {
            Self(Sha256::digest(&bytes).to_vec())
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_fingerprint_is_a_hash_and_stays_the_same() {
        let of = |len: usize| Fingerprint::from_bytes(vec![b'a'; len]);
        assert_eq!(of(32).as_bytes(), [b'a'; 32]);
        let long = of(33);
        assert_eq!(long.as_bytes().len(), Fingerprint::LEN_MAX);
        assert_eq!(Fingerprint::from_bytes(long.as_bytes().to_vec()), long);
        for other in [of(0), of(32), of(34)] {
            assert_ne!(long, other);
        }
    }
}
