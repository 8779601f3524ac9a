//! The `Idempotency-Key` field: a bare text, or the same text as a quoted string (RFC 9651 section
//! 3.3.3).

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use quotalog_domain::{IdempotencyKey, IdempotencyKeyError};

use crate::fault::Faults;

const NAME: &str = "Idempotency-Key";

/// The field as it came; judged only when a handler asks, with the other values.
pub(crate) struct KeyField(Result<Option<IdempotencyKey>, IdempotencyKeyError>);

impl KeyField {
    /// The key, if there is one; the outer `None` is a fault.
    pub(crate) fn checked(self, faults: &mut Faults) -> Option<Option<IdempotencyKey>> {
        faults.check(NAME, self.0)
    }
}

impl<S: Sync> FromRequestParts<S> for KeyField {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self(read(&parts.headers)))
    }
}

fn read(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, IdempotencyKeyError> {
    let mut lines = headers.get_all("idempotency-key").iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(IdempotencyKeyError);
    }
    let text = line.to_str().map_err(|_not_ascii| IdempotencyKeyError)?;
    let key = match text.strip_prefix('"') {
        Some(quoted) => IdempotencyKey::try_from(&*unquote(quoted)?),
        None => IdempotencyKey::try_from(text),
    };
    key.map(Some)
}

/// The text of a quoted string, without its first quotation mark.
fn unquote(quoted: &str) -> Result<String, IdempotencyKeyError> {
    let mut text = String::with_capacity(quoted.len());
    let mut characters = quoted.chars();
    loop {
        match characters.next() {
            Some('"') => break,
            Some('\\') => match characters.next() {
                Some(escaped @ ('"' | '\\')) => text.push(escaped),
                Some(_) | None => return Err(IdempotencyKeyError),
            },
            Some(character) => text.push(character),
            None => return Err(IdempotencyKeyError),
        }
    }
    match characters.next() {
        None => Ok(text),
        Some(_) => Err(IdempotencyKeyError),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn key_of(lines: &[&str]) -> Result<Option<String>, IdempotencyKeyError> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(NAME, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        read(&headers).map(|key| key.map(|key| key.as_str().to_owned()))
    }

    #[test]
    fn a_quoted_key_and_the_bare_one_are_the_same() {
        let check = |line: &str, key: &str| {
            assert_eq!(key_of(&[line]), Ok(Some(key.to_owned())), "{line}");
        };
        check("a", "a");
        check("\"a\"", "a");
        check(r#""a\"b\\c""#, r#"a"b\c"#);
        check(r#"a"b\c"#, r#"a"b\c"#);
        check(
            "8e03978e-40d5-43e8-bc93-6894a57f9324",
            "8e03978e-40d5-43e8-bc93-6894a57f9324",
        );
        check(&"k".repeat(255), &"k".repeat(255));
        check(&format!("\"{}\"", "k".repeat(255)), &"k".repeat(255));
        assert_eq!(key_of(&[]), Ok(None));
    }

    #[test]
    fn anything_else_is_a_fault() {
        for line in [
            "",
            "\"",
            "\"\"",
            "\"a",
            "\"a\\\"",
            "\"a\\n\"",
            "\"a\"b\"",
            "\"a\";p=1",
            "a b",
            "\"a b\"",
            "\u{e9}",
            "a\tb",
            &"k".repeat(256),
            &format!("\"{}\"", "k".repeat(256)),
        ] {
            assert_eq!(key_of(&[line]), Err(IdempotencyKeyError), "{line}");
        }
        assert_eq!(key_of(&["a", "a"]), Err(IdempotencyKeyError));
    }
}
