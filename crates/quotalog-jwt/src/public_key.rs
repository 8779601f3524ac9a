//! Public keys as they stand in PEM files: SubjectPublicKeyInfo (RFC 5280 section 4.1) of the three kinds we trust.

use spki::SubjectPublicKeyInfoRef;
use spki::der::asn1::{ObjectIdentifier, UintRef};
use spki::der::{self, Decode as _, Reader as _, SliceReader};

use crate::key::{Key, KeyError};

/// `rsaEncryption` (RFC 3279 section 2.3.1).
const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
/// `id-ecPublicKey` (RFC 5480 section 2.1.1).
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
/// `secp256r1` (RFC 5480 section 2.1.1.1).
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
/// `id-Ed25519` (RFC 8410 section 3).
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// The key of a SubjectPublicKeyInfo.
pub(crate) fn public_key(info: &[u8]) -> Result<Key, KeyError> {
    let info = SubjectPublicKeyInfoRef::from_der(info).map_err(|_| KeyError::Unreadable)?;
    let key = info.subject_public_key.as_bytes();
    let key = key.ok_or(KeyError::Unreadable)?;
    match info.algorithm.oids() {
        Ok((RSA, None)) => {
            let (modulus, exponent) = rsa_parts(key).map_err(|_| KeyError::Unreadable)?;
            Key::rsa(modulus.as_bytes(), exponent.as_bytes())
        }
        Ok((EC, Some(P256))) => Key::p256(key),
        Ok((ED25519, None)) => Key::ed25519(key),
        Ok(_) | Err(_) => Err(KeyError::Kind),
    }
}

/// Modulus and exponent of an RSAPublicKey (RFC 8017 appendix A.1.1).
fn rsa_parts(key: &[u8]) -> der::Result<(UintRef<'_>, UintRef<'_>)> {
    let mut reader = SliceReader::new(key)?;
    let parts = reader.sequence(|parts| Ok((parts.decode()?, parts.decode()?)))?;
    reader.finish(parts)
}
