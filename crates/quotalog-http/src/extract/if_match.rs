//! The `If-Match` field (RFC 9110 section 13.1.1): `*`, or a list of entity tags.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::IF_MATCH;
use axum::http::request::Parts;
use quotalog_domain::IfMatch;

use crate::problem::Problem;

/// The field as it came; judged only when a handler asks.
pub(crate) struct IfMatchField(Result<Option<IfMatch>, MalformedTags>);

/// The field is no list of entity tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MalformedTags;

impl IfMatchField {
    /// The condition, if there is one.
    pub(crate) fn read(self) -> Result<Option<IfMatch>, Problem> {
        self.0.map_err(|MalformedTags| {
            Problem::malformed("If-Match must be \"*\" or a list of quoted entity tags.")
        })
    }
}

impl<S: Sync> FromRequestParts<S> for IfMatchField {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self(read(&parts.headers)))
    }
}

fn read(headers: &HeaderMap) -> Result<Option<IfMatch>, MalformedTags> {
    let mut lines = headers.get_all(IF_MATCH).iter().peekable();
    let Some(first) = lines.peek() else {
        return Ok(None);
    };
    if first.as_bytes() == b"*" {
        let alone = lines.count() == 1;
        return if alone {
            Ok(Some(IfMatch::AnyPolicy))
        } else {
            Err(MalformedTags)
        };
    }
    let mut texts = Vec::new();
    for line in lines {
        read_tags(line.as_bytes(), &mut texts)?;
    }
    Ok(Some(IfMatch::OneOf(texts)))
}

/// Adds the strong tags of one line. A weak one never matches (section 8.8.3.2), nor does one with
/// bytes that are not ASCII, since ours have none; empty elements of the list mean nothing (section
/// 5.6.1.2).
fn read_tags(line: &[u8], texts: &mut Vec<Box<str>>) -> Result<(), MalformedTags> {
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        if let Some(after_comma) = rest.strip_prefix(b",") {
            rest = after_comma.trim_ascii_start();
            continue;
        }
        let strong = rest.strip_prefix(b"W/").is_none();
        let opaque = rest.strip_prefix(b"W/").unwrap_or(rest);
        let opaque = opaque.strip_prefix(b"\"").ok_or(MalformedTags)?;
        let len = opaque
            .iter()
            .position(|byte| *byte == b'"')
            .ok_or(MalformedTags)?;
        let (text, after) = (&opaque[..len], opaque[len + 1..].trim_ascii_start());
        let sound = text
            .iter()
            .all(|byte| byte.is_ascii_graphic() || *byte >= 0x80);
        if !sound || !(after.is_empty() || after.starts_with(b",")) {
            return Err(MalformedTags);
        }
        if strong && let Ok(text) = std::str::from_utf8(text) {
            texts.push(text.into());
        }
        rest = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn condition_of(lines: &[&str]) -> Result<Option<IfMatch>, MalformedTags> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(IF_MATCH, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        read(&headers)
    }

    #[test]
    fn a_list_of_tags_is_read() {
        let check = |lines: &[&str], texts: &[&str]| {
            let texts = texts.iter().map(|text| Box::from(*text)).collect();
            assert_eq!(
                condition_of(lines),
                Ok(Some(IfMatch::OneOf(texts))),
                "{lines:?}"
            );
        };
        check(&["\"a\""], &["a"]);
        check(&["\"a\", \"b,c\" ,\"\""], &["a", "b,c", ""]);
        check(&["\"a\"", "\"b\""], &["a", "b"]);
        check(&["W/\"a\", \"b\""], &["b"]);
        check(&["W/\"a\""], &[]);
        check(&[", ,\"a\",,"], &["a"]);
        check(&["\"*\""], &["*"]);
        check(&[""], &[]);
        assert_eq!(condition_of(&["*"]), Ok(Some(IfMatch::AnyPolicy)));
        assert_eq!(condition_of(&[]), Ok(None));
    }

    #[test]
    fn anything_else_is_malformed() {
        for line in [
            "a",
            "\"a",
            "a\"",
            "\"a\" \"b\"",
            "w/\"a\"",
            "W/",
            "W/ \"a\"",
            "\"a b\"",
            "*, \"a\"",
            "\"a\", *",
            "**",
            "\"a\"x",
        ] {
            assert_eq!(condition_of(&[line]), Err(MalformedTags), "{line}");
        }
        assert_eq!(condition_of(&["*", "*"]), Err(MalformedTags));
        assert_eq!(condition_of(&["*", "\"a\""]), Err(MalformedTags));
    }
}
