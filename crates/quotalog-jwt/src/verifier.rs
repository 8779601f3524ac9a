//! From a token to who is calling.

use std::fmt;
use std::sync::Arc;

use jsonwebtoken::Algorithm;
use prometheus::core::Collector;
use quick_cache::sync::Cache;
use quotalog_auth::{Caller, Token, TokenHash};
use quotalog_ledger::Deadline;
use quotalog_ledger::clock::Clock;
use serde_json::Value;

use crate::claims::{Bearer, Expected};
use crate::jwks::{Jwks, State};
use crate::key::{Key, KeyError};
use crate::key_set::KeySet;
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::signed::Signed;
use crate::source::Source;

/// The longest token that is looked at, in bytes.
pub const TOKEN_LEN_MAX: usize = 8 * 1024;

/// The most verified tokens that are remembered, some 500 bytes each.
const REMEMBERED_MAX: usize = 16_384;

/// Whose signatures are trusted. Its `Debug` tells nothing of a secret.
#[derive(Debug, Clone)]
pub struct Trust(Trusted);

#[derive(Debug, Clone)]
enum Trusted {
    Key(Key),
    Jwks(Source),
}

impl Trust {
    /// Of whoever has this secret.
    ///
    /// # Errors
    /// [`KeyError`] when it can be guessed or is none.
    pub fn secret(secret: &[u8]) -> Result<Self, KeyError> {
        Key::secret(secret).map(|key| Self(Trusted::Key(key)))
    }

    /// Of whoever has the private key to this public one, in PEM.
    ///
    /// # Errors
    /// [`KeyError`] when it is none that can be trusted.
    pub fn public_key(pem: &[u8]) -> Result<Self, KeyError> {
        Key::from_pem(pem).map(|key| Self(Trusted::Key(key)))
    }

    /// Of the keys that an issuer publishes.
    #[must_use]
    pub fn jwks(source: Source) -> Self {
        Self(Trusted::Jwks(source))
    }

    /// The JWKS, if it is one.
    #[must_use]
    pub fn source(&self) -> Option<&Source> {
        match &self.0 {
            Trusted::Key(_) => None,
            Trusted::Jwks(source) => Some(source),
        }
    }
}

/// Which tokens are believed.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whose signatures are trusted.
    pub trust: Trust,
    /// What they must claim.
    pub expected: Expected,
}

/// Why a token is not believed, as far as its sender is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// It is not to be believed.
    #[error("the JWT is refused")]
    Refused,
    /// The keys to judge it by cannot be had.
    #[error("the keys to verify JWTs are unavailable")]
    Unavailable,
}

/// Verifies tokens. Cheap to clone; clones share.
#[derive(Clone)]
pub struct Verifier(Arc<Inner>);

struct Inner {
    keys: Keys,
    expected: Expected,
    clock: Arc<dyn Clock>,
    /// Tokens that were verified, and with which keys: it need not be done again while both hold.
    remembered: Cache<TokenHash, Remembered>,
    metrics: Metrics,
}

enum Keys {
    Fixed(Arc<KeySet>),
    Jwks(Jwks),
}

#[derive(Clone)]
struct Remembered {
    bearer: Bearer,
    revision: u64,
}

impl Verifier {
    /// Starts to verify by `clock`, and to read the JWKS if there is one. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let metrics = Metrics::new();
        let keys = match settings.trust.0 {
            Trusted::Key(key) => {
                metrics.keys.set(1);
                Keys::Fixed(Arc::new(KeySet::one(key)))
            }
            Trusted::Jwks(source) => Keys::Jwks(Jwks::start(source, metrics.clone())),
        };
        Self::with(keys, settings.expected, clock, metrics)
    }

    fn with(keys: Keys, expected: Expected, clock: Arc<dyn Clock>, metrics: Metrics) -> Self {
        Self(Arc::new(Inner {
            keys,
            expected,
            clock,
            remembered: Cache::new(REMEMBERED_MAX),
            metrics,
        }))
    }

    /// What is measured, for a registry.
    #[must_use]
    pub fn collectors(&self) -> Vec<Box<dyn Collector>> {
        self.0.metrics.collectors()
    }

    /// Whether a token may be a JWT, by its form alone.
    #[must_use]
    pub fn takes(token: &Token) -> bool {
        Signed::resembles(token.reveal())
    }

    /// Who calls with this token. Why it is refused is logged for operators (debug) and not told.
    ///
    /// # Errors
    /// [`Unverified`] when nobody does, as far as can be known.
    pub async fn verify(&self, token: &Token, deadline: Deadline) -> Result<Caller, Unverified> {
        let inner = &*self.0;
        let verified = inner.verified(token, deadline).await;
        match verified {
            Ok(bearer) => {
                inner.metrics.accepted();
                Ok(bearer.caller)
            }
            Err(Failure::Refused(refusal)) => {
                inner.metrics.refused(refusal);
                let reason: &dyn std::error::Error = &refusal;
                tracing::debug!(reason, "a JWT was refused");
                Err(Unverified::Refused)
            }
            Err(Failure::NoKeys) => {
                inner.metrics.unavailable();
                tracing::debug!("a JWT could not be judged, since there are no keys to do it with");
                Err(Unverified::Unavailable)
            }
        }
    }
}

/// Why a token was not verified.
enum Failure {
    Refused(Refusal),
    NoKeys,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Inner {
    async fn verified(&self, token: &Token, deadline: Deadline) -> Result<Bearer, Failure> {
        let text = token.reveal();
        if text.len() > TOKEN_LEN_MAX {
            return Err(Refusal::TooLong.into());
        }
        let hash = token.hash();
        if let Some(remembered) = self.remembered.get(&hash)
            && remembered.revision == self.revision()
        {
            remembered.bearer.holds_at(self.clock.now())?;
            return Ok(remembered.bearer);
        }
        let token = Signed::parse(text)?;
        let (claims, revision) = match &self.keys {
            Keys::Fixed(keys) => (keys.claims(&token, &self.expected)?, 0),
            Keys::Jwks(jwks) => self.claims(jwks, &token, deadline).await?,
        };
        let bearer = self.expected.bearer(&claims)?;
        bearer.holds_at(self.clock.now())?;
        let remembered = Remembered { bearer, revision };
        self.remembered.insert(hash, remembered.clone());
        Ok(remembered.bearer)
    }

    /// The number of the keys that are trusted now.
    fn revision(&self) -> u64 {
        match &self.keys {
            Keys::Fixed(_) => 0,
            Keys::Jwks(jwks) => jwks.state().revision,
        }
    }

    /// What the token claims, and by which keys that is believed. Where none of those we have has signed it, newer ones
    /// are asked for.
    async fn claims(
        &self,
        jwks: &Jwks,
        token: &Signed<'_>,
        deadline: Deadline,
    ) -> Result<(Value, u64), Failure> {
        let by = |state: &State| {
            let keys = state.keys.as_ref()?;
            Some(
                keys.claims(token, &self.expected)
                    .map(|claims| (claims, state.revision)),
            )
        };
        let state = jwks.state();
        match by(&state) {
            Some(Ok(claims)) => return Ok(claims),
            Some(Err(refusal)) if !could_change(refusal, token) => return Err(refusal.into()),
            Some(Err(_)) | None => {}
        }
        let state = jwks.refreshed(deadline).await;
        match by(&state) {
            Some(Ok(claims)) => Ok(claims),
            Some(Err(refusal)) if state.is_current || !could_change(refusal, token) => {
                Err(refusal.into())
            }
            Some(Err(_)) | None => Err(Failure::NoKeys),
        }
    }
}

/// Whether newer keys could make another verdict: not if the key that the token names is there.
fn could_change(refusal: Refusal, token: &Signed<'_>) -> bool {
    match refusal {
        Refusal::UnknownKey => true,
        // A JWKS has no secrets.
        Refusal::Algorithm => token.algorithm != Algorithm::HS256,
        Refusal::Signature => token.key_id.is_none(),
        Refusal::TooLong
        | Refusal::Malformed
        | Refusal::Header
        | Refusal::Date
        | Refusal::Expired
        | Refusal::NotYetValid
        | Refusal::Audience
        | Refusal::Issuer
        | Refusal::Subject
        | Refusal::Role => false,
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Verifier")
    }
}
