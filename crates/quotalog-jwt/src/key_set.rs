//! The keys that are trusted at a time.

use serde_json::Value;

use crate::claims::Expected;
use crate::json;
use crate::key::Key;
use crate::refusal::Refusal;
use crate::signed::Signed;

/// The most keys of a JWKS that are taken; issuers have a handful.
const KEYS_MAX: usize = 100;
/// The most keys that are tried for a token that names none.
const KEYS_TRIED_MAX: usize = 8;

/// The keys that are trusted at a time.
#[derive(Debug, Clone)]
pub(crate) struct KeySet {
    pub(crate) keys: Vec<Key>,
    /// Entries of a JWKS that are no keys for signatures of ours, or are too many.
    pub(crate) passed_over: usize,
}

impl KeySet {
    /// One key, whatever tokens call it.
    pub(crate) fn one(key: Key) -> Self {
        Self {
            keys: vec![key],
            passed_over: 0,
        }
    }

    /// The keys of a JWKS (RFC 7517 section 5), if it is one. It may have none for us.
    pub(crate) fn from_jwks(document: &[u8]) -> Option<Self> {
        let document = json::object(document)?;
        let entries = document.get("keys")?.as_array()?;
        let keys: Vec<Key> = entries
            .iter()
            .filter_map(Key::from_jwk)
            .take(KEYS_MAX)
            .collect();
        Some(Self {
            passed_over: entries.len() - keys.len(),
            keys,
        })
    }

    /// What the token claims, if one of these keys has signed it and it is meant for us. A key with an id is for tokens that name it or
    /// none, and one without for all.
    pub(crate) fn claims(&self, token: &Signed<'_>, expected: &Expected) -> Result<Value, Refusal> {
        let of_algorithm = |key: &&Key| key.algorithm == token.algorithm;
        if !self.keys.iter().any(|key| of_algorithm(&key)) {
            return Err(Refusal::Algorithm);
        }
        let mut candidates = self
            .keys
            .iter()
            .filter(of_algorithm)
            .filter(|key| match (&key.id, &token.key_id) {
                (Some(id), Some(named)) => id == named,
                (None, _) | (_, None) => true,
            })
            .take(KEYS_TRIED_MAX)
            .peekable();
        if candidates.peek().is_none() {
            return Err(Refusal::UnknownKey);
        }
        candidates
            .map(|key| key.claims(token, expected))
            .find(|judged| *judged != Err(Refusal::Signature))
            .unwrap_or(Err(Refusal::Signature))
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use ring::signature::{Ed25519KeyPair, KeyPair as _};
    use serde_json::json;

    use super::*;

    fn pair(seed: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("any 32 bytes are a seed")
    }

    fn jwk(seed: u8, changes: Value) -> Value {
        let x = URL_SAFE_NO_PAD.encode(pair(seed).public_key());
        let mut jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": x});
        for (name, value) in changes.as_object().expect("changes are an object") {
            jwk[name] = value.clone();
        }
        jwk
    }

    fn set(keys: &[Value]) -> KeySet {
        let document = json!({ "keys": keys }).to_string();
        KeySet::from_jwks(document.as_bytes()).expect("it is a JWKS")
    }

    fn judged(set: &KeySet, seed: u8, header: Value) -> Result<Value, Refusal> {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let claims = json!({"sub": "alice", "aud": "quotalog", "exp": 1_796_062_800});
        let message = format!("{}.{}", part(&header), part(&claims));
        let signature = URL_SAFE_NO_PAD.encode(pair(seed).sign(message.as_bytes()));
        let expected = Expected {
            audience: "quotalog".to_owned(),
            issuer: None,
            role_claim: None,
        };
        set.claims(
            &Signed::parse(&format!("{message}.{signature}"))?,
            &expected,
        )
    }

    #[test]
    fn a_token_is_tried_with_the_key_it_names_or_with_each() {
        let set = set(&[
            jwk(1, json!({"kid": "a"})),
            jwk(2, json!({"kid": "b"})),
            jwk(3, json!({})),
        ]);
        let check = |seed, kid: Option<&str>, verdict: Result<(), Refusal>| {
            let header = match kid {
                Some(kid) => json!({"alg": "EdDSA", "kid": kid}),
                None => json!({"alg": "EdDSA"}),
            };
            let found = judged(&set, seed, header).map(|_| ());
            assert_eq!(found, verdict, "{seed} {kid:?}");
        };
        for seed in 1..=3 {
            check(seed, None, Ok(()));
        }
        check(1, Some("a"), Ok(()));
        check(2, Some("a"), Err(Refusal::Signature));
        check(3, Some("a"), Ok(()));
        check(4, None, Err(Refusal::Signature));
        check(1, Some("c"), Err(Refusal::Signature));
        for kid in [
            "../../etc/passwd",
            "a' OR '1'='1",
            "",
            "A",
            &"k".repeat(5_000),
        ] {
            check(1, Some(kid), Err(Refusal::Signature));
        }
    }

    #[test]
    fn a_token_that_names_no_key_is_tried_with_so_many_alone() {
        let many: Vec<Value> = (0..=8)
            .map(|seed| jwk(seed, json!({"kid": seed.to_string()})))
            .collect();
        let set = set(&many);
        let header = || json!({"alg": "EdDSA"});
        assert!(judged(&set, 7, header()).is_ok());
        assert_eq!(judged(&set, 8, header()), Err(Refusal::Signature));
        let named = json!({"alg": "EdDSA", "kid": "8"});
        assert!(judged(&set, 8, named).is_ok());
        let unknown = json!({"alg": "EdDSA", "kid": "9"});
        assert_eq!(judged(&set, 8, unknown), Err(Refusal::UnknownKey));
    }

    #[test]
    fn what_is_no_key_for_signatures_of_ours_is_passed_over() {
        let secret = URL_SAFE_NO_PAD.encode([7; 32]);
        for entry in [
            jwk(1, json!({"use": "enc"})),
            jwk(1, json!({"key_ops": ["sign"]})),
            jwk(1, json!({"alg": "ES256"})),
            jwk(1, json!({"alg": "HS256"})),
            jwk(1, json!({"alg": 7})),
            jwk(1, json!({"alg": "unknown"})),
            jwk(1, json!({"crv": "Ed448"})),
            jwk(1, json!({"kty": "RSA"})),
            jwk(1, json!({"kid": 7})),
            jwk(1, json!({"d": secret})),
            jwk(1, json!({"x": "AAAA"})),
            json!({"kty": "oct", "k": secret, "alg": "HS256"}),
            json!({"kty": "RSA", "n": URL_SAFE_NO_PAD.encode([0xff; 128]), "e": "AQAB"}),
            json!({"kty": "RSA", "n": URL_SAFE_NO_PAD.encode([0xff; 256]), "e": "AQ"}),
            json!({"kty": "RSA", "n": URL_SAFE_NO_PAD.encode([0xff; 256])}),
            json!({"kty": "EC", "crv": "P-384", "x": secret, "y": secret}),
            json!({"kty": "EC", "crv": "P-256", "x": secret, "y": "AAAA"}),
            json!({"kty": "new"}),
            json!({}),
            json!("key"),
            json!(null),
        ] {
            let set = set(&[entry.clone(), jwk(1, json!({"use": "sig", "alg": "EdDSA"}))]);
            assert_eq!((set.keys.len(), set.passed_over), (1, 1), "{entry}");
        }
        let many: Vec<Value> = (0..=100).map(|seed| jwk(seed, json!({}))).collect();
        assert_eq!(set(&many).keys.len(), KEYS_MAX);
    }

    #[test]
    fn another_document_is_no_jwks() {
        for text in [
            "",
            "<html>",
            "{}",
            "[]",
            r#"{"keys":{}}"#,
            r#"{"keys":[],"keys":[]}"#,
        ] {
            assert!(KeySet::from_jwks(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn a_header_is_understood_or_refused() {
        let set = set(&[jwk(1, json!({}))]);
        let check = |changes: Value, verdict: Result<(), Refusal>| {
            let mut header = json!({"alg": "EdDSA"});
            for (name, value) in changes.as_object().expect("changes are an object") {
                header[name] = value.clone();
            }
            assert_eq!(
                judged(&set, 1, header.clone()).map(|_| ()),
                verdict,
                "{header}"
            );
        };
        for kind in ["JWT", "jwt", "at+jwt", "application/at+JWT"] {
            check(json!({"typ": kind}), Ok(()));
        }
        // Keys that the token itself brings are nobody's.
        check(
            json!({"jku": "https://evil.example", "jwk": jwk(2, json!({})), "x5c": []}),
            Ok(()),
        );
        for changes in [
            json!({"typ": "logout+jwt"}),
            json!({"typ": 7}),
            json!({"crit": ["b64"], "b64": false}),
            json!({"crit": []}),
            json!({"kid": 7}),
            json!({"alg": "none"}),
            json!({"alg": "None"}),
            json!({"alg": "eddsa"}),
            json!({"alg": "Ed448"}),
            json!({"alg": ""}),
        ] {
            check(changes, Err(Refusal::Header));
        }
        for algorithm in [json!(null), json!(["EdDSA"])] {
            check(json!({"alg": algorithm}), Err(Refusal::Malformed));
        }
        for algorithm in ["HS256", "HS512", "RS256", "PS256", "ES256", "ES384"] {
            check(json!({"alg": algorithm}), Err(Refusal::Algorithm));
        }
    }
}
