//! A token's parts (RFC 7515 section 7.1), of which only the header is read yet.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::json;
use crate::key::Algorithm;
use crate::refusal::Refusal;

/// A token that is signed, by whomever.
pub(crate) struct Signed<'a> {
    /// How it says that it is signed.
    pub(crate) algorithm: Algorithm,
    /// With what key.
    pub(crate) key_id: Option<String>,
    /// What the signature is over.
    pub(crate) message: &'a [u8],
    pub(crate) signature: Vec<u8>,
    payload: &'a str,
}

impl<'a> Signed<'a> {
    /// Whether a text has the form of a JWT, and so may be one.
    pub(crate) fn resembles(text: &str) -> bool {
        text.matches('.').count() == 2
    }

    pub(crate) fn parse(text: &'a str) -> Result<Self, Refusal> {
        let mut parts = text.split('.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Refusal::Malformed);
        };
        let message = &text.as_bytes()[..header.len() + 1 + payload.len()];
        let header = object(header)?;
        // What must be understood (RFC 7515 section 4.1.11) is nothing that we understand.
        if header.get("crit").is_some() || !header.get("typ").is_none_or(is_for_access) {
            return Err(Refusal::Header);
        }
        let key_id = match header.get("kid") {
            None => None,
            Some(Value::String(id)) => Some(id.clone()),
            Some(_) => return Err(Refusal::Header),
        };
        let algorithm = header.get("alg").and_then(Value::as_str);
        Ok(Self {
            algorithm: algorithm
                .and_then(Algorithm::named)
                .ok_or(Refusal::Algorithm)?,
            key_id,
            message,
            signature: decoded(signature)?,
            payload,
        })
    }

    /// What it claims, to be believed once its signature was verified.
    pub(crate) fn claims(&self) -> Result<Value, Refusal> {
        object(self.payload)
    }
}

/// A token that names its kind must be of one that says who calls: the same issuer may sign others with the same key
/// (RFC 8725 section 3.11), such as orders to log somebody out.
fn is_for_access(kind: &Value) -> bool {
    let Some(kind) = kind.as_str() else {
        return false;
    };
    // `application/` may be left out (RFC 7515 section 4.1.9).
    let kind = kind.to_ascii_lowercase();
    let kind = kind.strip_prefix("application/").unwrap_or(&kind);
    matches!(kind, "jwt" | "at+jwt")
}

fn object(part: &str) -> Result<Value, Refusal> {
    json::object(&decoded(part)?).ok_or(Refusal::Malformed)
}

/// Only the one encoding there is of some bytes: no padding, no blanks, no bits left over.
fn decoded(part: &str) -> Result<Vec<u8>, Refusal> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| Refusal::Malformed)
}
