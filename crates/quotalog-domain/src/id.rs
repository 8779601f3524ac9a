//! User and resource ids: checked once, at construction.

use std::sync::Arc;

/// Why a text cannot be a user id or a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// No bytes at all.
    #[error("must not be empty.")]
    Empty,
    /// More than [`UserId::LEN_BYTES_MAX`] bytes of UTF-8.
    #[error("must not exceed 255 bytes of UTF-8.")]
    TooLong,
    /// A character of Unicode category Cc.
    #[error("must not contain control characters.")]
    ControlCharacter,
    /// Exactly `.` or `..`, which paths give another meaning.
    #[error("must not be \".\" or \"..\".")]
    DotSegment,
    /// A `/`, which would make two readings of one path possible.
    #[error("must not contain a \"/\".")]
    Slash,
}

const LEN_BYTES_MAX: usize = 255;

fn check(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > LEN_BYTES_MAX {
        return Err(IdError::TooLong);
    }
    if matches!(text, "." | "..") {
        return Err(IdError::DotSegment);
    }
    if text.contains('/') {
        return Err(IdError::Slash);
    }
    if text.chars().any(char::is_control) {
        return Err(IdError::ControlCharacter);
    }
    Ok(())
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The longest id, in bytes of UTF-8.
            pub const LEN_BYTES_MAX: usize = LEN_BYTES_MAX;

            /// The id as it was given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<&str> for $name {
            type Error = IdError;

            fn try_from(text: &str) -> Result<Self, IdError> {
                check(text)?;
                Ok(Self(Arc::from(text)))
            }
        }
    };
}

id! {
    /// Whose quota: 1 to 255 bytes of printable text, compared byte by byte.
    ///
    /// No case folding, no normalisation, no trimming: `Alice` and `alice` are two users.
    UserId
}

id! {
    /// What the quota is of: the same rules as for a [`UserId`].
    Resource
}

/// One user's use of one resource: what a policy and a count belong to. Ordered by the bytes of the
/// user, then of the resource, as the stores' indexes are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// Whose quota.
    pub user_id: UserId,
    /// Of what.
    pub resource: Resource,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_printable_text_is_an_id() {
        for text in [
            "alice",
            "api'; DROP TABLE quota_policies; --",
            "system::admin",
            "日本語",
            "007",
            " leading and trailing ",
            "%2F",
            "a+b",
            "...",
            "\u{e9}",
            "e\u{301}",
            &"x".repeat(255),
            &"\u{1f600}".repeat(63),
        ] {
            assert_eq!(UserId::try_from(text).unwrap().as_str(), text);
            assert_eq!(Resource::try_from(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn what_is_no_id_says_why() {
        let check = |text: &str, error: IdError| {
            assert_eq!(UserId::try_from(text), Err(error), "{text:?}");
            assert_eq!(Resource::try_from(text), Err(error), "{text:?}");
        };
        check("", IdError::Empty);
        check(&"x".repeat(256), IdError::TooLong);
        check(&"\u{1f600}".repeat(64), IdError::TooLong);
        check(".", IdError::DotSegment);
        check("..", IdError::DotSegment);
        check("../etc", IdError::Slash);
        check("a\0b", IdError::ControlCharacter);
        check("a\u{7f}", IdError::ControlCharacter);
        check("\u{85}", IdError::ControlCharacter);
    }

    #[test]
    fn ids_are_compared_and_ordered_by_bytes() {
        let id = |text| UserId::try_from(text).unwrap();
        assert_ne!(id("\u{e9}"), id("e\u{301}"));
        assert_ne!(id("7"), id("007"));
        assert!(id("Z") < id("a"));
        assert!(id("z") < id("\u{e9}"));
    }
}
