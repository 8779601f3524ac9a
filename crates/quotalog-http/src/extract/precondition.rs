//! The fields `If-Match` and `If-None-Match` (RFC 9110 sections 13.1.1 and 13.1.2): `*`, or a list of entity tags.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};
use axum::http::request::Parts;
use quotalog_domain::Precondition;

use crate::problem::Problem;

/// The fields as they came; judged only when a handler asks.
pub(crate) struct PreconditionField(Result<Option<Precondition>, Malformed>);

/// Why there is no telling what the client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Malformed {
    /// A field is no list of entity tags.
    Tags,
    /// Both fields are there.
    Both,
}

/// What a field asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tags {
    /// `*`
    Any,
    /// The opaque texts of a list, and whether each is a strong one.
    Listed(Vec<(Box<str>, bool)>),
}

impl PreconditionField {
    /// The condition, if there is one.
    pub(crate) fn read(self) -> Result<Option<Precondition>, Problem> {
        self.0.map_err(|malformed| {
            Problem::malformed(match malformed {
                Malformed::Tags => {
                    "If-Match and If-None-Match must be \"*\" or a list of quoted entity tags."
                }
                Malformed::Both => "Send If-Match or If-None-Match, not both.",
            })
        })
    }
}

impl<S: Sync> FromRequestParts<S> for PreconditionField {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self(read(&parts.headers)))
    }
}

fn read(headers: &HeaderMap) -> Result<Option<Precondition>, Malformed> {
    let if_match = tags(headers, &IF_MATCH)?;
    let if_none_match = tags(headers, &IF_NONE_MATCH)?;
    Ok(match (if_match, if_none_match) {
        (None, None) => None,
        (Some(Tags::Any), None) => Some(Precondition::AnyPolicy),
        // A weak tag never matches here (section 8.8.3.2), and there it matches like a strong one.
        (Some(Tags::Listed(tags)), None) => {
            let strong = tags.into_iter().filter(|(_, strong)| *strong);
            Some(Precondition::OneOf(strong.map(|(text, _)| text).collect()))
        }
        (None, Some(Tags::Any)) => Some(Precondition::NoPolicy),
        (None, Some(Tags::Listed(tags))) => {
            let texts = tags.into_iter().map(|(text, _)| text);
            Some(Precondition::NoneOf(texts.collect()))
        }
        (Some(_), Some(_)) => return Err(Malformed::Both),
    })
}

fn tags(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tags>, Malformed> {
    let mut lines = headers.get_all(name).iter().peekable();
    let Some(first) = lines.peek() else {
        return Ok(None);
    };
    if first.as_bytes() == b"*" {
        let alone = lines.count() == 1;
        return if alone {
            Ok(Some(Tags::Any))
        } else {
            Err(Malformed::Tags)
        };
    }
    let mut listed = Vec::new();
    for line in lines {
        read_tags(line.as_bytes(), &mut listed)?;
    }
    Ok(Some(Tags::Listed(listed)))
}

/// Adds the tags of one line. One with bytes that are not ASCII never matches, since ours have none; empty elements
/// of the list mean nothing (section 5.6.1.2).
fn read_tags(line: &[u8], listed: &mut Vec<(Box<str>, bool)>) -> Result<(), Malformed> {
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        if let Some(after_comma) = rest.strip_prefix(b",") {
            rest = after_comma.trim_ascii_start();
            continue;
        }
        let strong = rest.strip_prefix(b"W/").is_none();
        let opaque = rest.strip_prefix(b"W/").unwrap_or(rest);
        let opaque = opaque.strip_prefix(b"\"").ok_or(Malformed::Tags)?;
        let len = opaque
            .iter()
            .position(|byte| *byte == b'"')
            .ok_or(Malformed::Tags)?;
        let (text, after) = (&opaque[..len], opaque[len + 1..].trim_ascii_start());
        let sound = text
            .iter()
            .all(|byte| byte.is_ascii_graphic() || *byte >= 0x80);
        if !sound || !(after.is_empty() || after.starts_with(b",")) {
            return Err(Malformed::Tags);
        }
        if let Ok(text) = std::str::from_utf8(text) {
            listed.push((text.into(), strong));
        }
        rest = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(name: &HeaderName, lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(name, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        headers
    }

    fn condition_of(lines: &[&str]) -> Result<Option<Precondition>, Malformed> {
        read(&headers(&IF_MATCH, lines))
    }

    #[test]
    fn if_none_match_is_the_other_way_round() {
        let condition = |lines: &[&str]| read(&headers(&IF_NONE_MATCH, lines)).unwrap();
        assert_eq!(condition(&["*"]), Some(Precondition::NoPolicy));
        let texts = vec!["a".into(), "b".into()];
        let none_of = Some(Precondition::NoneOf(texts));
        assert_eq!(condition(&["\"a\", W/\"b\""]), none_of);
        let mut both = headers(&IF_NONE_MATCH, &["*"]);
        both.append(IF_MATCH, HeaderValue::from_static("\"a\""));
        assert_eq!(read(&both), Err(Malformed::Both));
        let bad = read(&headers(&IF_NONE_MATCH, &["a"]));
        assert_eq!(bad, Err(Malformed::Tags));
    }

    #[test]
    fn a_list_of_tags_is_read() {
        let check = |lines: &[&str], texts: &[&str]| {
            let texts = texts.iter().map(|text| Box::from(*text)).collect();
            assert_eq!(
                condition_of(lines),
                Ok(Some(Precondition::OneOf(texts))),
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
        assert_eq!(condition_of(&["*"]), Ok(Some(Precondition::AnyPolicy)));
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
            assert_eq!(condition_of(&[line]), Err(Malformed::Tags), "{line}");
        }
        assert_eq!(condition_of(&["*", "*"]), Err(Malformed::Tags));
        assert_eq!(condition_of(&["*", "\"a\""]), Err(Malformed::Tags));
    }
}
