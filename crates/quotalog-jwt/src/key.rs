//! One trusted key, and the one algorithm that it is for.

use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, decode};
use serde_json::Value;
use tokio_rustls::rustls::pki_types::SubjectPublicKeyInfoDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::claims::Expected;
use crate::json::Object;
use crate::provider;
use crate::public_key::public_key;
use crate::refusal::Refusal;
use crate::signed::Signed;

/// The shortest secret, in bytes: as long as what HS256 makes of it (RFC 7518 section 3.2).
pub const SECRET_LEN_MIN: usize = 32;

/// The sizes of an RSA modulus that can be trusted and verified, in bits.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=8_192;
/// The most bytes of an RSA exponent; in use are 3 and 65537.
const RSA_EXPONENT_LEN_MAX: usize = 4;

/// A key and what it is called. The key's own `Debug` tells nothing of it.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    /// What a token may call it.
    pub(crate) id: Option<String>,
    /// The one algorithm that it verifies.
    pub(crate) algorithm: Algorithm,
    key: DecodingKey,
}

/// Why something is no key that can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The secret can be guessed.
    #[error(
        "the secret is shorter than {SECRET_LEN_MIN} bytes; make one with: openssl rand -hex 32"
    )]
    SecretTooShort,
    /// The secret is everybody's.
    #[error(
        "it holds a key or certificate in PEM, and no secret: a public key would let everybody sign"
    )]
    SecretIsPem,
    /// A private key where a public one is meant.
    #[error(
        "it is a private key, which only the issuer may hold; take the public one out of it with: \
         openssl pkey -pubout"
    )]
    Private,
    /// A certificate where a key is meant.
    #[error("it is a certificate; take the public key out of it with: openssl x509 -pubkey -noout")]
    Certificate,
    /// Several keys where one is meant.
    #[error("it holds more than one key; list several in a JWKS")]
    Several,
    /// Not a public key in PEM.
    #[error("it is not a public key in PEM (BEGIN PUBLIC KEY)")]
    Unreadable,
    /// A key of another kind.
    #[error("it is a key of a kind that is not taken: it must be of RSA, of P-256 or of Ed25519")]
    Kind,
    /// A modulus that can be factored, or is too large to verify.
    #[error("its RSA modulus has not 2048 to 8192 bits")]
    RsaSize,
}

impl Key {
    /// A secret that the issuer has too.
    pub(crate) fn secret(secret: &[u8]) -> Result<Self, KeyError> {
        if secret.windows(11).any(|bytes| bytes == b"-----BEGIN ") {
            return Err(KeyError::SecretIsPem);
        }
        if secret.len() < SECRET_LEN_MIN {
            return Err(KeyError::SecretTooShort);
        }
        let key = DecodingKey::from_secret(secret).map_err(|_| KeyError::SecretTooShort)?;
        Ok(Self::of(Algorithm::HS256, key))
    }

    /// The public key of a PEM text.
    pub(crate) fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let text = str::from_utf8(pem).map_err(|_| KeyError::Unreadable)?;
        if text.contains("PRIVATE KEY-----") {
            return Err(KeyError::Private);
        }
        let mut keys = SubjectPublicKeyInfoDer::pem_slice_iter(pem);
        match (keys.next(), keys.next()) {
            (Some(Ok(key)), None) => public_key(&key),
            (Some(Ok(_)), Some(_)) => Err(KeyError::Several),
            (None, _) if text.contains("BEGIN CERTIFICATE-----") => Err(KeyError::Certificate),
            (None | Some(Err(_)), _) => Err(KeyError::Unreadable),
        }
    }

    /// The key that an entry of a JWKS is (RFC 7517), if it is one for signatures that we can verify. Secrets and
    /// private keys in a document that is fetched are everybody's, and are none.
    pub(crate) fn from_jwk(entry: &Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(entry.clone()).ok()?;
        let Jwk { common, algorithm } = &jwk;
        let for_what = common.public_key_use.as_ref();
        let operations = common.key_operations.as_ref();
        if entry.get("d").is_some()
            || for_what.is_some_and(|for_what| *for_what != PublicKeyUse::Signature)
            || operations.is_some_and(|several| !several.contains(&KeyOperations::Verify))
        {
            return None;
        }
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        let key = match (algorithm, key.kind()) {
            (AlgorithmParameters::RSA(_), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                Self::rsa(n, e)
            }
            (AlgorithmParameters::EllipticCurve(parts), DecodingKeyKind::SecretOrDer(point))
                if parts.curve == EllipticCurve::P256 =>
            {
                Self::p256(point)
            }
            (AlgorithmParameters::OctetKeyPair(parts), DecodingKeyKind::SecretOrDer(key))
                if parts.curve == EllipticCurve::Ed25519 =>
            {
                Self::ed25519(key)
            }
            _ => return None,
        };
        let key = key.ok()?;
        let named = common.key_algorithm;
        if named.is_some_and(|named| named != KeyAlgorithm::from(key.algorithm)) {
            return None;
        }
        Some(Self {
            id: common.key_id.clone(),
            ..key
        })
    }

    /// Both as big-endian bytes.
    pub(crate) fn rsa(modulus: &[u8], exponent: &[u8]) -> Result<Self, KeyError> {
        let (n, e) = (without_zeros(modulus), without_zeros(exponent));
        let bits = n.first().map_or(0, |first| {
            n.len() * 8 - usize::try_from(first.leading_zeros()).unwrap_or_default()
        });
        if !RSA_BITS.contains(&bits) {
            return Err(KeyError::RsaSize);
        }
        let is_odd_and_more_than_1 = matches!(e, [.., last] if last % 2 == 1) && e != [1];
        if e.len() > RSA_EXPONENT_LEN_MAX || !is_odd_and_more_than_1 {
            return Err(KeyError::Unreadable);
        }
        let key = DecodingKey::from_rsa_raw_components(n, e);
        Ok(Self::of(Algorithm::RS256, key))
    }

    /// An uncompressed point (SEC 1 section 2.3.3).
    pub(crate) fn p256(point: &[u8]) -> Result<Self, KeyError> {
        match point {
            [4, coordinates @ ..] if coordinates.len() == 64 => {
                Ok(Self::of(Algorithm::ES256, DecodingKey::from_ec_der(point)))
            }
            _ => Err(KeyError::Unreadable),
        }
    }

    /// The 32 bytes of RFC 8032.
    pub(crate) fn ed25519(key: &[u8]) -> Result<Self, KeyError> {
        if key.len() != 32 {
            return Err(KeyError::Unreadable);
        }
        Ok(Self::of(Algorithm::EdDSA, DecodingKey::from_ed_der(key)))
    }

    fn of(algorithm: Algorithm, key: DecodingKey) -> Self {
        // Whoever has a key can verify.
        provider::install();
        Self {
            id: None,
            algorithm,
            key,
        }
    }

    /// What the token claims, if it is signed with this key and meant for us.
    pub(crate) fn claims(&self, token: &Signed<'_>, expected: &Expected) -> Result<Value, Refusal> {
        let validation = expected.validation(self.algorithm);
        let decoded = decode(token.text, &self.key, &validation);
        let decoded = decoded.map_err(|error| Refusal::from(&error))?;
        let Object(claims) = decoded.claims;
        Ok(claims)
    }
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}
