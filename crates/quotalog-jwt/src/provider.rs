//! The cryptography of `jsonwebtoken`, which takes it from whoever brings it: by `ring`, as that of all TLS here. What
//! nobody here does, to sign and to make JWKs, is left out.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result, new_error};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::error::Unspecified;
use ring::hmac;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};

static OVER_RING: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(new_error(ErrorKind::UnsupportedAlgorithm)),
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Lets the process verify. To be called before anything is, as often as one likes.
pub(crate) fn install() {
    // Where there is one already, it is this one: nothing else here brings any.
    let _there_already = OVER_RING.install_default();
}

/// Verifies signatures of one algorithm by one key of its family.
struct OverRing {
    algorithm: Algorithm,
    key: DecodingKey,
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    if algorithm.family() != key.family() {
        return Err(new_error(ErrorKind::InvalidAlgorithm));
    }
    Ok(Box::new(OverRing {
        algorithm: *algorithm,
        key: key.clone(),
    }))
}

impl JwtVerifier for OverRing {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for OverRing {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        use DecodingKeyKind::{RsaModulusExponent, SecretOrDer};
        let verified = match (self.algorithm, self.key.kind()) {
            (Algorithm::HS256, SecretOrDer(secret)) => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
                hmac::verify(&key, message, signature)
            }
            (Algorithm::RS256, RsaModulusExponent { n, e }) => {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            (Algorithm::ES256, SecretOrDer(point)) => {
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
                key.verify(message, signature)
            }
            (Algorithm::EdDSA, SecretOrDer(key)) => {
                UnparsedPublicKey::new(&ED25519, key).verify(message, signature)
            }
            _ => Err(Unspecified),
        };
        verified.map_err(|Unspecified| Error::new())
    }
}
