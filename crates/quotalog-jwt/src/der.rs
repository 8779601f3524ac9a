//! Public keys as they stand in PEM files: SubjectPublicKeyInfo (RFC 5280 section 4.1) of the three kinds we trust.

use crate::key::{Key, KeyError};

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;

/// `rsaEncryption` with its NULL (RFC 3279 section 2.3.1).
const RSA: &[u8] = &[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];
/// `id-ecPublicKey` on `secp256r1` (RFC 5480 section 2.1.1).
const P256: &[u8] = &[
    0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d,
    0x03, 0x01, 0x07,
];
/// `id-Ed25519` (RFC 8410 section 3).
const ED25519: &[u8] = &[0x06, 0x03, 0x2b, 0x65, 0x70];

/// The key of a SubjectPublicKeyInfo.
pub(crate) fn public_key(info: &[u8]) -> Result<Key, KeyError> {
    let (algorithm, key) = parts(info).ok_or(KeyError::Unreadable)?;
    match algorithm {
        RSA => {
            let (modulus, exponent) = rsa_parts(key).ok_or(KeyError::Unreadable)?;
            Key::rsa(modulus, exponent)
        }
        P256 => Key::p256(key),
        ED25519 => Key::ed25519(key),
        _ => Err(KeyError::Kind),
    }
}

fn parts(info: &[u8]) -> Option<(&[u8], &[u8])> {
    let (info, []) = value(SEQUENCE, info)? else {
        return None;
    };
    let (algorithm, rest) = value(SEQUENCE, info)?;
    let (bits, []) = value(BIT_STRING, rest)? else {
        return None;
    };
    // The first byte tells how many bits of the last one are unused.
    let key = bits.strip_prefix(&[0])?;
    Some((algorithm, key))
}

/// Modulus and exponent of an RSAPublicKey (RFC 8017 appendix A.1.1).
fn rsa_parts(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let (key, []) = value(SEQUENCE, key)? else {
        return None;
    };
    let (modulus, rest) = value(INTEGER, key)?;
    let (exponent, []) = value(INTEGER, rest)? else {
        return None;
    };
    Some((modulus, exponent))
}

/// The value of the element that `bytes` start with, and what follows it.
fn value(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = match bytes.strip_prefix(&[tag])? {
        [len @ 0..=0x7f, rest @ ..] => (usize::from(*len), rest),
        [0x81, len @ 0x80..=0xff, rest @ ..] => (usize::from(*len), rest),
        [0x82, high @ 0x01..=0xff, low, rest @ ..] => {
            (usize::from(u16::from_be_bytes([*high, *low])), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(len)
}
