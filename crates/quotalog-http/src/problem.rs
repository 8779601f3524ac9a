//! Problem documents (RFC 9457), and the only map from an error to a status.
//!
//! A handler returns a [`Problem`]; the outermost layer writes it, since it knows the path. Nothing
//! of a database, a file or a stack is told to a caller.

mod types;

use std::borrow::Cow;
use std::error::Error;
use std::sync::Arc;

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use quotalog_domain::{DeniedItem, MissingItem, Quota, Refusal};
use quotalog_front::denial::{self, DeniedPart};
use quotalog_ledger::LedgerError;
use serde::{Serialize, Serializer};

use crate::fault::{Code, Fault, Faults};
use crate::message::MessageFault;
use crate::path::PathFault;
use crate::ratelimit;
pub(crate) use types::ProblemType;

/// What went wrong with a request.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    kind: &'static ProblemType,
    detail: Cow<'static, str>,
    extra: Extra,
    /// Whether the store found it, and so has judged the caller's credential. If not, the outermost
    /// layer asks for that before a caller reads it.
    judged_by_store: bool,
}

/// What one kind of problem says beyond the others.
#[derive(Debug, Clone)]
enum Extra {
    Nothing,
    Faults(Faults),
    Exhausted(Box<Quota>),
    BatchExhausted(Vec<DeniedItem>),
    Cause(Arc<dyn Error + Send + Sync>),
}

impl Problem {
    /// The request cannot be read.
    pub(crate) fn malformed(detail: &'static str) -> Self {
        Self::new(&types::MALFORMED_REQUEST, detail)
    }

    /// The request comes without a valid token.
    pub(crate) fn unauthorized() -> Self {
        Self::new(
            &types::UNAUTHORIZED,
            "Send one valid token, as: Authorization: Bearer <token>. There is none here, or it is unknown, \
             revoked or expired.",
        )
    }

    /// The token does not allow this. Always the same words, so that it tells of no user and no
    /// quota.
    pub(crate) fn forbidden() -> Self {
        let detail = "It is valid, but of a role that may not do this, or not for this user. An admin makes tokens of \
                      other roles.";
        Self::new(&types::FORBIDDEN, detail)
    }

    /// The path leads nowhere.
    pub(crate) fn no_such_route() -> Self {
        Self::new(&types::NOT_FOUND, "There is no such path.")
    }

    /// An id of the path holds what no id does.
    fn slash_in_id() -> Self {
        let detail = "There is no such path: no id holds a \"/\", also when it is sent as %2F.";
        Self::new(&types::NOT_FOUND, detail)
    }

    /// The store holds no policy and no default that serves the request.
    pub(crate) fn no_policy() -> Self {
        let detail = "Neither a policy nor a default serves this user and resource. An admin sets a policy with PUT \
                      /quotas/{userId}/{resource}, or a default for all users with PUT /defaults/{resource}.";
        Self::new(&types::NOT_FOUND, detail).judged_by_store()
    }

    /// The store holds no policy to delete, whether or not a default serves the pair.
    pub(crate) fn no_own_policy() -> Self {
        let detail = "This user and resource have no policy of their own. A default is deleted with DELETE \
                      /defaults/{resource}.";
        Self::new(&types::NOT_FOUND, detail).judged_by_store()
    }

    /// The store holds no policy and no default for some items of a batch.
    fn no_policy_for(items: &[MissingItem]) -> Self {
        let named = items.iter().take(MISSING_ITEMS_NAMED_MAX).map(missing_item);
        let named = named.collect::<Vec<_>>().join(", ");
        let more = match items.len().saturating_sub(MISSING_ITEMS_NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let detail = format!(
            "Neither a policy nor a default serves {named}{more}. Nothing was counted. An admin sets a policy with PUT \
             /quotas/{{userId}}/{{resource}}, or a default for all users with PUT /defaults/{{resource}}."
        );
        Self::new(&types::NOT_FOUND, detail)
    }

    /// The store holds no default for the resource.
    pub(crate) fn no_default() -> Self {
        let detail = "There is no default for this resource; an admin sets one with PUT /defaults/{resource}.";
        Self::new(&types::NOT_FOUND, detail).judged_by_store()
    }

    /// The store holds no such token.
    pub(crate) fn no_such_token() -> Self {
        Self::new(&types::NOT_FOUND, "There is no such token.").judged_by_store()
    }

    /// The path does not know the method.
    pub(crate) fn method_not_allowed() -> Self {
        let detail = "This path does not know this method; see the Allow field.";
        Self::new(&types::METHOD_NOT_ALLOWED, detail)
    }

    /// The body is too large.
    pub(crate) fn content_too_large() -> Self {
        let detail = "The body is larger than this path takes.";
        Self::new(&types::CONTENT_TOO_LARGE, detail)
    }

    /// The body did not come in time.
    pub(crate) fn request_timeout() -> Self {
        let detail = "The body did not come in time. Nothing was counted or changed.";
        Self::new(&types::REQUEST_TIMEOUT, detail)
    }

    /// The body is not declared as JSON.
    pub(crate) fn unsupported_media_type() -> Self {
        let detail = "A body must be application/json, without a content coding.";
        Self::new(&types::UNSUPPORTED_MEDIA_TYPE, detail)
    }

    /// The store, or this process, does not take requests now.
    pub(crate) fn unavailable() -> Self {
        let detail = "The service cannot serve the request now. Nothing was counted or changed.";
        Self::new(&types::UNAVAILABLE, detail).judged_by_store()
    }

    /// The process is about to end.
    pub(crate) fn stopping() -> Self {
        let detail =
            "The server is stopping. It still answers what it gets; send new requests elsewhere.";
        Self::new(&types::UNAVAILABLE, detail).judged_by_store()
    }

    /// A fault of ours, whose cause goes to the log alone.
    pub(crate) fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let detail = "The server made a mistake. It is logged under the request id.";
        Self {
            extra: Extra::Cause(Arc::from(cause.into())),
            ..Self::new(&types::INTERNAL, detail).judged_by_store()
        }
    }

    fn new(kind: &'static ProblemType, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            extra: Extra::Nothing,
            judged_by_store: false,
        }
    }

    /// The same problem, found in the transaction that judged the caller's credential.
    pub(crate) fn judged_by_store(mut self) -> Self {
        self.judged_by_store = true;
        self
    }

    /// Whether the caller's credential must be confirmed before this is answered.
    pub(crate) fn needs_confirmation(&self) -> bool {
        !self.judged_by_store
    }

    /// What to log, if the fault is ours.
    pub(crate) fn cause(&self) -> Option<&(dyn Error + 'static)> {
        match &self.extra {
            Extra::Cause(cause) => Some(&**cause),
            Extra::Nothing | Extra::Faults(_) | Extra::Exhausted(_) | Extra::BatchExhausted(_) => {
                None
            }
        }
    }

    /// The whole answer to a request for `path`.
    pub(crate) fn answer(&self, path: &str) -> Response {
        let mut response = Response::new(Body::from(self.document(path)));
        *response.status_mut() = self.kind.status;
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        match &self.extra {
            Extra::Exhausted(quota) => {
                ratelimit::add_fields(quota, headers);
                ratelimit::add_retry_after(quota.reset_in_s(), headers);
            }
            Extra::BatchExhausted(items) => {
                let quotas = items.iter().map(|item| &item.quota);
                ratelimit::add_retry_after(denial::wait_s(quotas), headers);
            }
            Extra::Nothing | Extra::Faults(_) | Extra::Cause(_) => {}
        }
        if self.kind.status == StatusCode::SERVICE_UNAVAILABLE {
            ratelimit::add_retry_after(1, headers);
        }
        if self.kind.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }

    fn document(&self, path: &str) -> Vec<u8> {
        let errors = match &self.extra {
            Extra::Exhausted(quota) => return denial::of_one(Some(path), quota),
            Extra::BatchExhausted(items) => {
                let parts: Vec<_> = items.iter().map(denied_part).collect();
                return denial::of_several(Some(path), &parts);
            }
            Extra::Faults(faults) => Some(faults.as_slice()),
            Extra::Nothing | Extra::Cause(_) => None,
        };
        let document = Document {
            kind: self.kind,
            title: self.kind.title,
            status: self.kind.status.as_u16(),
            detail: &self.detail,
            instance: path,
            errors,
        };
        serde_json::to_vec(&document).expect("plain structs serialise into a vector")
    }
}

/// Leaves the problem with the answer, for the outermost layer to write.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.kind.status;
        response.extensions_mut().insert(self);
        response
    }
}

impl From<MessageFault> for Problem {
    fn from(fault: MessageFault) -> Self {
        Self::malformed(match fault {
            MessageFault::Host => "HTTP/1.1 asks for one Host line.",
            MessageFault::TransferEncoding => {
                "The only Transfer-Encoding that is read is: chunked."
            }
        })
    }
}

impl From<PathFault> for Problem {
    fn from(fault: PathFault) -> Self {
        match fault {
            PathFault::Malformed => {
                Self::malformed("The path has a broken percent sign or is not UTF-8.")
            }
            PathFault::SlashInSegment => Self::slash_in_id(),
            PathFault::EmptySegment => Self::no_such_route(),
        }
    }
}

impl From<LedgerError> for Problem {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Revoked => Self::unauthorized().judged_by_store(),
            LedgerError::Unavailable => Self::unavailable(),
            LedgerError::OutcomeUnknown => {
                let detail = "The request may or may not have taken effect. \
                              Ask for the state, or retry with the same Idempotency-Key.";
                Self::new(&types::OUTCOME_UNKNOWN, detail).judged_by_store()
            }
            LedgerError::Internal(error) => Self::internal(error),
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let problem = match refusal {
            Refusal::KeyReused => {
                let detail = "This Idempotency-Key was used for another request.";
                Self::new(&types::IDEMPOTENCY_MISMATCH, detail)
            }
            Refusal::NotFound => Self::no_policy(),
            Refusal::BatchNotFound(items) => Self::no_policy_for(&items),
            Refusal::PreconditionFailed => {
                let detail = "It is not in the state that If-Match or If-None-Match asks for. Nothing was changed.";
                Self::new(&types::PRECONDITION_FAILED, detail)
            }
            // Of a single consume. A batch names its items, and does so itself.
            Refusal::AmountExceedsLimit(_positions) => {
                let message = "amount must not exceed the limit of the policy.";
                Faults::one("amount", Code::ExceedsLimit, message).into()
            }
            Refusal::Exhausted(quota) => Self {
                extra: Extra::Exhausted(Box::new(quota)),
                ..Self::new(&types::QUOTA_EXCEEDED, denial::DETAIL)
            },
            Refusal::BatchExhausted(items) => Self {
                extra: Extra::BatchExhausted(items),
                ..Self::new(&types::QUOTA_EXCEEDED, denial::DETAIL)
            },
            Refusal::OverLimit(_) => Self::internal("no route makes a rate-limit call"),
        };
        problem.judged_by_store()
    }
}

impl From<Faults> for Problem {
    fn from(faults: Faults) -> Self {
        Self {
            extra: Extra::Faults(faults),
            ..Self::new(
                &types::VALIDATION_FAILED,
                "Some values are not valid; see errors.",
            )
        }
    }
}

/// A hundred of the longest ids would fill a page.
const MISSING_ITEMS_NAMED_MAX: usize = 10;

fn missing_item(MissingItem { position, pair }: &MissingItem) -> String {
    let (user_id, resource) = (pair.user_id.as_str(), pair.resource.as_str());
    format!("items[{position}] (user \"{user_id}\", resource \"{resource}\")")
}

fn denied_part(item: &DeniedItem) -> DeniedPart<'_> {
    DeniedPart {
        amount: item.amount.get(),
        quota: Some(&item.quota),
    }
}

/// The problem document.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "type", serialize_with = "type_uri")]
    kind: &'static ProblemType,
    title: &'static str,
    status: u16,
    detail: &'a str,
    instance: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<&'a [Fault]>,
}

fn type_uri<S: Serializer>(kind: &&'static ProblemType, serializer: S) -> Result<S::Ok, S::Error> {
    match kind.registered_uri {
        Some(uri) => serializer.serialize_str(uri),
        None => serializer.collect_str(&format_args!("/problems/{}", kind.name)),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header::RETRY_AFTER;
    use http_body_util::BodyExt as _;
    use quotalog_domain::{
        Amount, Limit, Pair, Policy, Resource, Source, Timestamp, UserId, Window,
    };

    use super::*;

    async fn answered(problem: Problem) -> (Response, serde_json::Value) {
        let (parts, body) = problem.answer("/consume").into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let document = serde_json::from_slice(&bytes).unwrap();
        (Response::from_parts(parts, Body::empty()), document)
    }

    /// At 2026-11-30T18:39:00Z, with 9 of 10 units used.
    fn denied(resource: &str, window: Window, allowed: bool) -> DeniedItem {
        let at = Timestamp::from_unix_s(1_796_063_940);
        let quota = Quota {
            pair: Pair {
                user_id: UserId::try_from("alice").unwrap(),
                resource: Resource::try_from(resource).unwrap(),
            },
            policy: Policy {
                window,
                limit: Limit::settable(10).unwrap(),
                created_at: at,
                updated_at: at,
            },
            source: Source::Policy,
            usage: 9,
            allowed,
            at,
        };
        DeniedItem {
            amount: Amount::ONE,
            quota,
        }
    }

    #[tokio::test]
    async fn an_exhausted_quota_is_told_whole() {
        let quota = denied("r", Window::Hourly, false).quota;
        let (response, document) = answered(Refusal::Exhausted(quota).into()).await;
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()[RETRY_AFTER], "1260");
        assert_eq!(response.headers()["ratelimit"], "\"hourly\";r=1;t=1260");
        assert_eq!(document["violated-policies"], serde_json::json!(["hourly"]));
        assert_eq!(document["remaining"], 1);
        assert_eq!(document["allowed"], false);
        assert_eq!(document["instance"], "/consume");
        assert!(
            document["type"]
                .as_str()
                .unwrap()
                .ends_with("#quota-exceeded")
        );
    }

    #[tokio::test]
    async fn a_denied_batch_waits_for_the_latest_reset_of_those_that_do_not_fit() {
        let items = vec![
            denied("a", Window::Hourly, false),
            denied("b", Window::Daily, true),
            denied("a", Window::Hourly, false),
        ];
        let (response, document) = answered(Refusal::BatchExhausted(items).into()).await;
        assert_eq!(response.headers()[RETRY_AFTER], "1260");
        assert!(!response.headers().contains_key("ratelimit"));
        assert_eq!(document["violated-policies"], serde_json::json!(["hourly"]));
        assert_eq!(document["items"][1]["allowed"], true);
        assert_eq!(document["items"][2]["quota"]["resource"], "a");
        assert!(document.get("remaining").is_none());
    }

    #[tokio::test]
    async fn a_fault_of_ours_tells_nothing_of_its_cause() {
        let problem = Problem::internal("no such table: quota_usage");
        assert_eq!(
            problem.cause().unwrap().to_string(),
            "no such table: quota_usage"
        );
        let (response, document) = answered(problem).await;
        assert_eq!(response.status(), 500);
        assert_eq!(document["status"], 500);
        assert_eq!(document["type"], "/problems/internal");
        assert!(!document.to_string().contains("table"));
    }

    #[tokio::test]
    async fn an_outage_says_when_to_try_again() {
        for error in [LedgerError::Unavailable, LedgerError::OutcomeUnknown] {
            let (response, _) = answered(error.into()).await;
            assert_eq!(response.status(), 503);
            assert_eq!(response.headers()[RETRY_AFTER], "1");
        }
        let (response, _) = answered(LedgerError::Revoked.into()).await;
        assert_eq!(response.headers()[WWW_AUTHENTICATE], "Bearer");
    }
}
