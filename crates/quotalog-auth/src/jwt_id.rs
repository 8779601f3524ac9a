//! Who a JWT is about.

use std::sync::Arc;

/// Issuer and subject of a JWT, which together name somebody for good (OpenID Connect Core section 5.7): `iss` and
/// `sub` with a blank between them, `iss` empty where there is none. An issuer has no blanks, so no two pairs have
/// one text; and no token's id has any, so none is mistaken for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JwtId(Arc<str>);

impl JwtId {
    /// The longest issuer and the longest subject, in bytes of UTF-8.
    pub const PART_LEN_BYTES_MAX: usize = 255;

    /// The id of `subject` at `issuer`; `None` if one of them is too long, has characters that are none of text, or
    /// is empty.
    #[must_use]
    pub fn new(issuer: Option<&str>, subject: &str) -> Option<Self> {
        let sound = is_text(subject) && issuer.is_none_or(Self::is_issuer);
        let issuer = issuer.unwrap_or_default();
        sound.then(|| Self(format!("{issuer} {subject}").into()))
    }

    /// Whether a text can be an issuer.
    #[must_use]
    pub fn is_issuer(text: &str) -> bool {
        is_text(text) && !text.contains(char::is_whitespace)
    }

    /// The id's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_text(text: &str) -> bool {
    (1..=JwtId::PART_LEN_BYTES_MAX).contains(&text.len()) && !text.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_pairs_have_one_id() {
        let id = |issuer, subject| JwtId::new(issuer, subject).unwrap();
        assert_eq!(id(Some("https://i"), "alice").as_str(), "https://i alice");
        assert_ne!(id(Some("i"), "a b"), id(None, "i a b"));
        assert_ne!(id(Some("i"), "alice"), id(Some("j"), "alice"));
        assert_eq!(JwtId::new(Some("i a"), "b"), None);
    }

    #[test]
    fn what_no_database_should_hold_is_no_id() {
        let long = "x".repeat(256);
        for (issuer, subject) in [
            (None, ""),
            (None, &*long),
            (None, "a\0"),
            (Some(""), "a"),
            (Some(&*long), "a"),
            (Some("i\n"), "a"),
        ] {
            assert_eq!(JwtId::new(issuer, subject), None, "{issuer:?} {subject:?}");
        }
        assert!(JwtId::new(Some(&long[1..]), &long[1..]).is_some());
    }
}
