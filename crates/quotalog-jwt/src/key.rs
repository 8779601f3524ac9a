//! One trusted key, and the one algorithm that it is for.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde_json::Value;
use tokio_rustls::rustls::pki_types::SubjectPublicKeyInfoDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::der;

/// The shortest secret, in bytes: as long as what HS256 makes of it (RFC 7518 section 3.2).
pub const SECRET_LEN_MIN: usize = 32;

/// The sizes of an RSA modulus that can be trusted and verified, in bits.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=8_192;
/// The most bytes of an RSA exponent; in use are 3 and 65537.
const RSA_EXPONENT_LEN_MAX: usize = 4;

/// How a token is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Hs256,
    Rs256,
    Es256,
    EdDsa,
}

/// A key and what it is called. Its `Debug` tells only the algorithm.
#[derive(Clone)]
pub(crate) struct Key {
    /// What a token may call it.
    pub(crate) id: Option<String>,
    material: Material,
}

#[derive(Clone)]
enum Material {
    Secret(hmac::Key),
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// An uncompressed point.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
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

impl Algorithm {
    /// The algorithm that a header or a JWK names (RFC 7518 section 3.1, RFC 8037, RFC 9864), if it is one of ours.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "HS256" => Some(Self::Hs256),
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            "EdDSA" | "Ed25519" => Some(Self::EdDsa),
            _ => None,
        }
    }
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
        Ok(Self::of(Material::Secret(hmac::Key::new(
            hmac::HMAC_SHA256,
            secret,
        ))))
    }

    /// The public key of a PEM text.
    pub(crate) fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let text = str::from_utf8(pem).map_err(|_| KeyError::Unreadable)?;
        if text.contains("PRIVATE KEY-----") {
            return Err(KeyError::Private);
        }
        let mut keys = SubjectPublicKeyInfoDer::pem_slice_iter(pem);
        match (keys.next(), keys.next()) {
            (Some(Ok(key)), None) => der::public_key(&key),
            (Some(Ok(_)), Some(_)) => Err(KeyError::Several),
            (None, _) if text.contains("BEGIN CERTIFICATE-----") => Err(KeyError::Certificate),
            (None | Some(Err(_)), _) => Err(KeyError::Unreadable),
        }
    }

    /// The key that an entry of a JWKS is (RFC 7517), if it is one for signatures that we can verify. Secrets and
    /// private keys in a document that is fetched are everybody's, and are none.
    pub(crate) fn from_jwk(jwk: &Value) -> Option<Self> {
        let text = |name: &str| {
            jwk.get(name)
                .map(|value| value.as_str().unwrap_or_default())
        };
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
        if text("use").is_some_and(|for_what| for_what != "sig") || jwk.get("d").is_some() {
            return None;
        }
        let verifies = |operations: &Value| {
            let operations = operations.as_array().map(Vec::as_slice).unwrap_or_default();
            operations.iter().any(|operation| operation == "verify")
        };
        if !jwk.get("key_ops").is_none_or(verifies) {
            return None;
        }
        let key = match (text("kty")?, text("crv")) {
            ("RSA", None) => Self::rsa(&bytes("n")?, &bytes("e")?),
            ("EC", Some("P-256")) => Self::p256(
                &[
                    &[4][..],
                    &coordinate(bytes("x")?)?,
                    &coordinate(bytes("y")?)?,
                ]
                .concat(),
            ),
            ("OKP", Some("Ed25519")) => Self::ed25519(&bytes("x")?),
            _ => return None,
        };
        let key = key.ok()?;
        let named = text("alg").map(Algorithm::named);
        if named.is_some_and(|named| named != Some(key.algorithm())) {
            return None;
        }
        let id = match jwk.get("kid") {
            None => None,
            Some(Value::String(id)) => Some(id.clone()),
            Some(_) => return None,
        };
        Some(Self { id, ..key })
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
        Ok(Self::of(Material::Rsa {
            n: n.to_vec(),
            e: e.to_vec(),
        }))
    }

    /// An uncompressed point (SEC 1 section 2.3.3).
    pub(crate) fn p256(point: &[u8]) -> Result<Self, KeyError> {
        match point {
            [4, coordinates @ ..] if coordinates.len() == 64 => {
                Ok(Self::of(Material::P256(point.to_vec())))
            }
            _ => Err(KeyError::Unreadable),
        }
    }

    /// The 32 bytes of RFC 8032.
    pub(crate) fn ed25519(key: &[u8]) -> Result<Self, KeyError> {
        if key.len() != 32 {
            return Err(KeyError::Unreadable);
        }
        Ok(Self::of(Material::Ed25519(key.to_vec())))
    }

    fn of(material: Material) -> Self {
        Self { id: None, material }
    }

    /// The one algorithm that it verifies.
    pub(crate) fn algorithm(&self) -> Algorithm {
        match self.material {
            Material::Secret(_) => Algorithm::Hs256,
            Material::Rsa { .. } => Algorithm::Rs256,
            Material::P256(_) => Algorithm::Es256,
            Material::Ed25519(_) => Algorithm::EdDsa,
        }
    }

    /// Whether `signature` is this key's over `message`.
    pub(crate) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match &self.material {
            Material::Secret(key) => hmac::verify(key, message, signature),
            Material::Rsa { n, e } => {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            Material::P256(point) => {
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
                key.verify(message, signature)
            }
            Material::Ed25519(key) => {
                UnparsedPublicKey::new(&ED25519, key).verify(message, signature)
            }
        };
        verified.is_ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Key({:?})", self.algorithm())
    }
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

/// Exactly as long as the curve's numbers are (RFC 7518 section 6.2.1.2).
fn coordinate(bytes: Vec<u8>) -> Option<Vec<u8>> {
    (bytes.len() == 32).then_some(bytes)
}
