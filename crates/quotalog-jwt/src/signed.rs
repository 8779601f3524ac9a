//! A token of which only the header is read yet.

use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, decode_header};

use crate::refusal::Refusal;

/// The algorithms that tokens may be signed by.
const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::HS256,
    Algorithm::RS256,
    Algorithm::ES256,
    Algorithm::EdDSA,
];

/// A token that is signed, by whomever.
pub(crate) struct Signed<'a> {
    pub(crate) text: &'a str,
    /// How it says that it is signed.
    pub(crate) algorithm: Algorithm,
    /// With what key.
    pub(crate) key_id: Option<String>,
}

impl<'a> Signed<'a> {
    /// Whether a text has the form of a JWT, and so may be one.
    pub(crate) fn resembles(text: &str) -> bool {
        text.matches('.').count() == 2
    }

    pub(crate) fn parse(text: &'a str) -> Result<Self, Refusal> {
        let header = decode_header(text).map_err(|error| unreadable(&error))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(Refusal::Algorithm);
        }
        // What must be understood (RFC 7515 section 4.1.11) is nothing that we understand.
        if header.crit.is_some() || !header.typ.as_deref().is_none_or(is_for_access) {
            return Err(Refusal::Header);
        }
        Ok(Self {
            text,
            algorithm: header.alg,
            key_id: header.kid,
        })
    }
}

/// Why a header is none: it is no JSON, or JSON of another kind, such as one of an unknown algorithm.
fn unreadable(error: &Error) -> Refusal {
    if matches!(error.kind(), ErrorKind::Json(error) if error.is_data()) {
        Refusal::Header
    } else {
        Refusal::Malformed
    }
}

/// A token that names its kind must be of one that says who calls: the same issuer may sign others with the same key
/// (RFC 8725 section 3.11), such as orders to log somebody out.
fn is_for_access(kind: &str) -> bool {
    // `application/` may be left out (RFC 7515 section 4.1.9).
    let kind = kind.to_ascii_lowercase();
    let kind = kind.strip_prefix("application/").unwrap_or(&kind);
    matches!(kind, "jwt" | "at+jwt")
}
