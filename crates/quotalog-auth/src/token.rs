//! API tokens: random texts that only their holder knows, and the hashes we know them by.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quotalog_domain::{Timestamp, UserId};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::Role;

/// A secret that a caller presents. Its text leaves only through [`Token::reveal`].
#[derive(Clone)]
pub struct Token(Box<str>);

/// The SHA-256 of a token (FIPS 180-4): all that is stored of it.
///
/// A token holds 256 random bits, so a fast hash without salt is as safe as a slow one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

/// The public name of a token in lists, logs and audit: 16 hexadecimal digits, independent of its secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenId(Arc<str>);

/// What a person calls a token: 1 to 100 characters, none of them a control character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenName(Box<str>);

/// A stored token, as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// Its public name.
    pub id: TokenId,
    /// What it allows.
    pub role: Role,
    /// What a person calls it.
    pub name: Option<TokenName>,
    /// When it was made, in whole seconds.
    pub created_at: Timestamp,
    /// From when on it is refused.
    pub expires_at: Option<Timestamp>,
}

/// A token to be stored: its hash and what it allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Its public name.
    pub id: TokenId,
    /// What it is known by.
    pub hash: TokenHash,
    /// What it allows.
    pub role: Role,
    /// What a person calls it.
    pub name: Option<TokenName>,
    /// From when on it is refused; must lie in the future when it is stored.
    pub expires_at: Option<Timestamp>,
}

/// The operating system gave no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gives no random bytes")]
pub struct TokenError(#[source] getrandom::Error);

/// The text is not a token's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("name must be 1 to 100 characters, none of them a control character.")]
pub struct TokenNameError;

impl Token {
    /// The start of every token made here, so that secret scanners can find a leaked one.
    pub const PREFIX: &'static str = "ql_";
    const RANDOM_BYTES: usize = 32;

    /// A token as a caller presented it. Any text may be presented; only its hash decides.
    #[must_use]
    pub fn presented(text: &str) -> Self {
        Self(text.into())
    }

    /// Whether a text has the form of the tokens that are made here, and so may be one.
    #[must_use]
    pub fn resembles(text: &str) -> bool {
        let secret = text.strip_prefix(Self::PREFIX);
        let secret = secret.map(|secret| URL_SAFE_NO_PAD.decode(secret));
        matches!(secret, Some(Ok(bytes)) if bytes.len() == Self::RANDOM_BYTES)
    }

    /// The secret text. For the one answer, terminal or file that its holder reads it from.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What the token is known by.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(self.0.as_bytes()).into())
    }

    /// A new token from 32 bytes of the operating system's randomness, and its entry for a store.
    ///
    /// # Errors
    /// [`TokenError`] when the operating system gives no random bytes.
    pub fn generate(
        role: Role,
        name: Option<TokenName>,
        expires_at: Option<Timestamp>,
    ) -> Result<(Self, NewToken), TokenError> {
        let mut secret = [0_u8; Self::RANDOM_BYTES];
        getrandom::fill(&mut secret).map_err(TokenError)?;
        let token = Self(format!("{}{}", Self::PREFIX, URL_SAFE_NO_PAD.encode(secret)).into());
        let new = NewToken {
            id: TokenId::random()?,
            hash: token.hash(),
            role,
            name,
            expires_at,
        };
        Ok((token, new))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(hidden)")
    }
}

impl TokenHash {
    /// The hash as it was read from a store.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The hash as it is stored.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether two hashes are equal, in a time that does not tell where they differ.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TokenHash(hidden)")
    }
}

impl TokenId {
    /// An id as it was read from a store or given by a caller; it may name no token.
    #[must_use]
    pub fn named(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// The id's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn random() -> Result<Self, TokenError> {
        let id = getrandom::u64().map_err(TokenError)?;
        Ok(Self::named(&format!("{id:016x}")))
    }
}

impl TokenName {
    /// The longest name, in characters.
    pub const LEN_CHARS_MAX: usize = 100;

    /// The name's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for TokenName {
    type Error = TokenNameError;

    fn try_from(text: &str) -> Result<Self, TokenNameError> {
        let sound = (1..=Self::LEN_CHARS_MAX).contains(&text.chars().count())
            && !text.chars().any(char::is_control);
        if sound {
            Ok(Self(text.into()))
        } else {
            Err(TokenNameError)
        }
    }
}

impl TokenRecord {
    /// Whether the token is refused at `now` for its age.
    #[must_use]
    pub fn expired_at(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }

    /// The user it is bound to.
    #[must_use]
    pub fn user_id(&self) -> Option<&UserId> {
        self.role.user_id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_token_has_32_random_bytes_and_hides_itself() {
        let (token, new) = Token::generate(Role::Admin, None, None).unwrap();
        let (other, _) = Token::generate(Role::Admin, None, None).unwrap();
        let secret = token.reveal().strip_prefix("ql_").unwrap();
        assert_eq!(URL_SAFE_NO_PAD.decode(secret).unwrap().len(), 32);
        assert_ne!(token.reveal(), other.reveal());
        assert!(Token::resembles(token.reveal()));
        for text in ["ql_", secret, "ql_gateway", "first admin token"] {
            assert!(!Token::resembles(text), "{text}");
        }
        assert!(!format!("{token:?} {new:?}").contains(&secret[..8]));
        assert!(Token::presented(token.reveal()).hash().matches(&new.hash));
        assert!(!other.hash().matches(&new.hash));
    }

    #[test]
    fn the_hash_is_sha_256() {
        // FIPS 180-4 example: "abc".
        let hash = Token::presented("abc").hash();
        assert_eq!(hash.as_bytes()[..4], [0xba, 0x78, 0x16, 0xbf]);
    }

    #[test]
    fn a_name_is_1_to_100_characters_without_controls() {
        assert!(TokenName::try_from("gateway, eu-west").is_ok());
        assert!(TokenName::try_from(&*"\u{e9}".repeat(100)).is_ok());
        for text in ["", &"x".repeat(101), "a\nb", "\u{9b}"] {
            assert_eq!(TokenName::try_from(text), Err(TokenNameError), "{text:?}");
        }
    }
}
