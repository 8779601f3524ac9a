//! What can go wrong with a call, and the only map from an answer's status to it.
//!
//! "Nothing was counted" and "may have counted" are told apart here and never guessed.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use http::header::RETRY_AFTER;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use crate::answer::Answer;
use crate::ratelimit::RateLimitFields;
use crate::wire::Quota;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// No wait is longer, whatever an answer says.
const RETRY_AFTER_MAX_S: u64 = 2_000_000;

/// Why a call has no answer of its own kind.
///
/// Of all but [`Error::OutcomeUnknown`], nothing was counted or changed; of an [`Error::Unexpected`], as far as can be told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The units do not fit into what is left of the window (429).
    #[error("{0}")]
    Exhausted(Box<Exhausted>),
    /// Neither a policy nor a default serves the pair, or there is no such default or token (404).
    #[error("{0}")]
    NotFound(Box<Problem>),
    /// The token is missing, unknown, revoked or expired (401).
    #[error("{0}")]
    Unauthorized(Box<Problem>),
    /// The token may not do this (403).
    #[error("{0}")]
    Forbidden(Box<Problem>),
    /// What was asked for can never be taken (400, 413, 422); the same call will fail again.
    #[error("{detail}")]
    Invalid {
        /// What is wrong, for people.
        detail: String,
        /// The values that cannot be; none if the request is wrong as a whole.
        errors: Vec<FieldError>,
    },
    /// The idempotency key belongs to another request (422).
    #[error("{0}")]
    Mismatch(Box<Problem>),
    /// The policy is not in the state that `If-Match` names (412).
    #[error("{0}")]
    Precondition(Box<Problem>),
    /// The server cannot serve the request now (503), or a proxy cannot ask it a question.
    #[error("{problem}")]
    Unavailable {
        /// What the server said.
        problem: Box<Problem>,
        /// After how long it is worth trying again.
        retry_after: Option<Duration>,
    },
    /// The request was sent, and may or may not have taken effect. The same call with the same idempotency
    /// key settles it.
    #[error("it is not known whether the request took effect")]
    OutcomeUnknown {
        /// Why it is not known.
        #[source]
        cause: BoxError,
        /// After how long it is worth trying again.
        retry_after: Option<Duration>,
    },
    /// The server cannot be reached, or a question got no answer.
    #[error("the server cannot be reached")]
    Transport(#[source] BoxError),
    /// The server made a mistake at a question (500); its log has the cause under the request id.
    #[error("{0}")]
    Internal(Box<Problem>),
    /// An answer that quotalog does not give to such a call, perhaps of a proxy in between.
    #[error("unexpected answer with status {status}: {detail}")]
    Unexpected {
        /// Its status.
        status: u16,
        /// What it said.
        detail: String,
    },
}

/// What a refused consume was refused for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exhausted {
    /// What was asked for, in the order of the request; one item unless it was a batch.
    pub items: Vec<DeniedItem>,
    /// A client that waits just so long gets its units, if no other takes them.
    pub retry_after: Duration,
    /// The header fields of the answer; none of a batch.
    pub fields: RateLimitFields,
}

/// One item of a refused consume.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct DeniedItem {
    /// How many units were asked for; nothing is known of a single consume's.
    pub amount: Option<u64>,
    /// Whether this pair alone would have fitted.
    pub allowed: bool,
    /// The quota as it is.
    pub quota: Quota,
}

/// What the server said of a failure (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The name of its type, such as `not-found`; empty if the answer was no problem document.
    pub name: String,
    /// The status of the answer.
    pub status: u16,
    /// What happened, for people.
    pub detail: String,
    /// Under which the server has logged it.
    pub request_id: Option<String>,
}

/// One value that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct FieldError {
    /// The field, such as `amount` or `items[3].amount`.
    pub field: String,
    /// A word for programs, such as `too_large`.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

/// The members of a problem document that are read; whatever is missing is made up for.
#[derive(Default, Deserialize)]
struct Document {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    errors: Vec<FieldError>,
    #[serde(default)]
    items: Vec<DeniedItem>,
}

impl Error {
    /// Whether the server could not be asked, rather than that it has decided: what failing open lets through.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Unavailable { .. }
            | Self::OutcomeUnknown { .. }
            | Self::Transport(_)
            | Self::Internal(_) => true,
            Self::Exhausted(_)
            | Self::NotFound(_)
            | Self::Unauthorized(_)
            | Self::Forbidden(_)
            | Self::Invalid { .. }
            | Self::Mismatch(_)
            | Self::Precondition(_)
            | Self::Unexpected { .. } => false,
        }
    }

    /// After how long it is worth trying again, where the server said so.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Exhausted(exhausted) => Some(exhausted.retry_after),
            Self::Unavailable { retry_after, .. } | Self::OutcomeUnknown { retry_after, .. } => {
                *retry_after
            }
            Self::NotFound(_)
            | Self::Unauthorized(_)
            | Self::Forbidden(_)
            | Self::Invalid { .. }
            | Self::Mismatch(_)
            | Self::Precondition(_)
            | Self::Transport(_)
            | Self::Internal(_)
            | Self::Unexpected { .. } => None,
        }
    }

    /// Whether an earlier attempt under the same key had no effect either: the server has looked for its
    /// kept answer before it said this, or would have said this to it as well.
    pub(crate) fn settles_a_key(&self) -> bool {
        match self {
            Self::Exhausted(_)
            | Self::NotFound(_)
            | Self::Invalid { .. }
            | Self::Mismatch(_)
            | Self::Precondition(_) => true,
            Self::Unauthorized(_)
            | Self::Forbidden(_)
            | Self::Unavailable { .. }
            | Self::OutcomeUnknown { .. }
            | Self::Transport(_)
            | Self::Internal(_)
            | Self::Unexpected { .. } => false,
        }
    }

    /// The last failure of a call of which an earlier attempt may have taken effect.
    pub(crate) fn after_an_unknown_outcome(self) -> Self {
        if let Self::OutcomeUnknown { .. } = self {
            return self;
        }
        Self::OutcomeUnknown {
            retry_after: self.retry_after(),
            cause: self.into(),
        }
    }

    /// A value that the server would never take, found before anything is sent.
    pub(crate) fn invalid(field: &str, message: &str) -> Self {
        Self::invalid_fields(vec![FieldError {
            field: field.to_owned(),
            code: "invalid".to_owned(),
            message: format!("{field} {message}"),
        }])
    }

    fn invalid_fields(errors: Vec<FieldError>) -> Self {
        let messages: Vec<_> = errors.iter().map(|error| &*error.message).collect();
        Self::Invalid {
            detail: messages.join(" "),
            errors,
        }
    }

    /// What an answer that is no success means. `changes` says whether the request asked for a change.
    pub(crate) fn of_answer(answer: &Answer, changes: bool) -> Self {
        // A document that cannot be read is as good as none.
        let document: Document = serde_json::from_slice(&answer.body).unwrap_or_default();
        let problem = Box::new(Problem::of(answer, &document));
        let retry_after = retry_after(answer);
        match (answer.status, &*problem.name) {
            (StatusCode::TOO_MANY_REQUESTS, "quota-exceeded") => {
                match Exhausted::read(answer, document.items, retry_after) {
                    Some(exhausted) => Self::Exhausted(Box::new(exhausted)),
                    None => problem.unexpected(),
                }
            }
            (StatusCode::NOT_FOUND, "not-found") => Self::NotFound(problem),
            (StatusCode::UNAUTHORIZED, _) => Self::Unauthorized(problem),
            (StatusCode::FORBIDDEN, _) => Self::Forbidden(problem),
            (StatusCode::PRECONDITION_FAILED, _) => Self::Precondition(problem),
            (StatusCode::UNPROCESSABLE_ENTITY, "idempotency-mismatch") => Self::Mismatch(problem),
            (StatusCode::UNPROCESSABLE_ENTITY, "validation-failed")
                if !document.errors.is_empty() =>
            {
                Self::invalid_fields(document.errors)
            }
            (StatusCode::BAD_REQUEST, "malformed-request")
            | (StatusCode::PAYLOAD_TOO_LARGE, "content-too-large")
            | (StatusCode::UNPROCESSABLE_ENTITY, "validation-failed") => Self::Invalid {
                detail: problem.detail,
                errors: Vec::new(),
            },
            (StatusCode::SERVICE_UNAVAILABLE, "unavailable") => Self::Unavailable {
                problem,
                retry_after,
            },
            // The server's own word, or a proxy's, who does not know what became of the request behind it.
            (status, _) if status.is_server_error() => {
                if changes {
                    Self::OutcomeUnknown {
                        cause: problem,
                        retry_after,
                    }
                } else if status == StatusCode::INTERNAL_SERVER_ERROR {
                    Self::Internal(problem)
                } else {
                    Self::Unavailable {
                        problem,
                        retry_after,
                    }
                }
            }
            _ => problem.unexpected(),
        }
    }
}

impl Problem {
    fn of(answer: &Answer, document: &Document) -> Self {
        // `/problems/not-found`, or the registered `…#quota-exceeded`.
        let name = document.kind.rsplit(['/', '#']).next().unwrap_or_default();
        let said = [&document.detail, &document.title]
            .into_iter()
            .find(|text| !text.is_empty());
        let detail = said.map_or_else(
            || format!("the answer was {} and no problem document", answer.status),
            String::clone,
        );
        Self {
            name: name.to_owned(),
            status: answer.status.as_u16(),
            detail,
            request_id: answer.text("x-request-id"),
        }
    }

    fn unexpected(&self) -> Error {
        Error::Unexpected {
            status: self.status,
            detail: self.detail.clone(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.detail)
    }
}

impl std::error::Error for Problem {}

impl Exhausted {
    /// The quota that did not fit; of a batch, that which is full the longest.
    #[must_use]
    pub fn quota(&self) -> Option<&Quota> {
        let denied = self.items.iter().filter(|item| !item.allowed);
        let last = denied.max_by_key(|item| item.quota.reset_at);
        last.map(|item| &item.quota)
    }

    fn read(
        answer: &Answer,
        items: Vec<DeniedItem>,
        retry_after: Option<Duration>,
    ) -> Option<Self> {
        let items = if items.is_empty() {
            // A single consume's: the quota's members stand beside those of the problem.
            let quota: Quota = serde_json::from_slice(&answer.body).ok()?;
            vec![DeniedItem {
                amount: None,
                allowed: quota.allowed,
                quota,
            }]
        } else {
            items
        };
        Some(Self {
            items,
            retry_after: retry_after.unwrap_or(Duration::from_secs(1)),
            fields: RateLimitFields::of(&answer.headers),
        })
    }
}

impl fmt::Display for Exhausted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.quota() {
            Some(quota) => write!(
                formatter,
                "{} has used {} of {} {} units of {}",
                quota.user_id, quota.usage, quota.limit_count, quota.window, quota.resource
            )?,
            None => formatter.write_str("the units do not fit")?,
        }
        write!(formatter, "; try again in {} s", self.retry_after.as_secs())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the date is a proxy's, and only this machine's clock is at hand"
)]
/// In whole seconds, as quotalog says it, or until an instant, as a proxy may (RFC 9110 section 10.2.3).
fn retry_after(answer: &Answer) -> Option<Duration> {
    let text = answer.headers.get(RETRY_AFTER)?.to_str().ok()?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = if is_number {
        // What does not fit into the type is beyond the bound all the more.
        text.parse().unwrap_or(RETRY_AFTER_MAX_S)
    } else {
        let instant = OffsetDateTime::parse(text, &Rfc2822).ok()?;
        let wait = instant - OffsetDateTime::now_utc();
        // Rounded up; none if the instant is over.
        let whole_s = wait.whole_seconds() + i64::from(wait.subsec_nanoseconds() > 0);
        u64::try_from(whole_s).unwrap_or(0)
    };
    Some(Duration::from_secs(seconds.min(RETRY_AFTER_MAX_S)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue};

    use super::*;

    fn answered(status: u16, body: &str, retry_after: &str) -> Answer {
        let mut headers = HeaderMap::new();
        if !retry_after.is_empty() {
            headers.insert(RETRY_AFTER, HeaderValue::from_str(retry_after).unwrap());
        }
        Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body: Bytes::from(body.to_owned()),
        }
    }

    /// The error's variant and its wait, of a change and of a question.
    #[track_caller]
    fn check(status: u16, name: &str, change: &str, question: &str) {
        let body = format!(r#"{{"type":"/problems/{name}","detail":"d"}}"#);
        let body = if name.is_empty() {
            "<h1>no</h1>"
        } else {
            &*body
        };
        let answer = answered(status, body, "7");
        for (changes, expected) in [(true, change), (false, question)] {
            let error = format!("{:?}", Error::of_answer(&answer, changes));
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn an_answer_is_an_error_of_its_own() {
        check(401, "unauthorized", "Unauthorized", "Unauthorized");
        check(403, "forbidden", "Forbidden", "Forbidden");
        check(404, "not-found", "NotFound", "NotFound");
        check(412, "precondition-failed", "Precondition", "Precondition");
        check(422, "idempotency-mismatch", "Mismatch", "Mismatch");
        check(422, "validation-failed", "Invalid", "Invalid");
        check(500, "internal", "OutcomeUnknown", "Internal");
        check(503, "unavailable", "Unavailable", "Unavailable");
        check(503, "outcome-unknown", "OutcomeUnknown", "Unavailable");
        check(400, "malformed-request", "Invalid", "Invalid");
        check(413, "content-too-large", "Invalid", "Invalid");
        // Those of a proxy in between.
        for status in [302, 400, 404, 413, 422, 429] {
            check(status, "", "Unexpected", "Unexpected");
        }
        check(500, "", "OutcomeUnknown", "Internal");
        check(401, "", "Unauthorized", "Unauthorized");
        for status in [502, 503, 504] {
            check(status, "", "OutcomeUnknown", "Unavailable");
        }
        // A 429 that tells of no quota.
        check(429, "quota-exceeded", "Unexpected", "Unexpected");
    }

    #[test]
    fn a_wait_is_a_number_or_a_date_and_bounded() {
        let check = |text: &str, expected: Option<u64>| {
            let answer = answered(503, "", text);
            let wait = Error::of_answer(&answer, true).retry_after();
            assert_eq!(wait, expected.map(Duration::from_secs), "{text}");
        };
        check("1260", Some(1260));
        check("", None);
        for text in [
            "9999999999",
            "18446744073709551616",
            "Wed, 01 Jan 2200 00:00:00 GMT",
            "Fri, 31 Dec 9999 23:59:59 GMT",
        ] {
            check(text, Some(RETRY_AFTER_MAX_S));
        }
        check("Thu, 01 Jan 1970 00:00:00 GMT", Some(0));
        for text in ["-1", "+1", "3600.5", "soon", "3600 GMT", "\u{663}"] {
            check(text, None);
        }
    }

    #[test]
    fn only_what_was_not_decided_is_an_outage() {
        let check = |status: u16, name: &str, outage: bool| {
            let body = format!(r#"{{"type":"/problems/{name}"}}"#);
            let answer = answered(status, &body, "");
            let error = Error::of_answer(&answer, true);
            assert_eq!(error.is_outage(), outage, "{error:?}");
        };
        check(503, "unavailable", true);
        check(503, "outcome-unknown", true);
        check(500, "internal", true);
        check(500, "", true);
        check(401, "unauthorized", false);
        check(403, "forbidden", false);
        check(404, "not-found", false);
        check(422, "validation-failed", false);
        check(413, "", false);
        check(429, "", false);
        assert!(Error::Transport("refused".into()).is_outage());
    }
}
