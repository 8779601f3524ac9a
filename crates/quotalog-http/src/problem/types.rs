//! The table of problem types. `docs/problems.md` names the same ones.

use axum::http::StatusCode;
use quotalog_front::denial;

/// One kind of problem.
#[derive(Debug)]
pub(crate) struct ProblemType {
    /// Its name, the last segment of its page's path.
    pub(crate) name: &'static str,
    /// The status of its answers.
    pub(crate) status: StatusCode,
    /// What it is, in a few words.
    pub(crate) title: &'static str,
    /// The URI under which the type is registered, if it is not only ours.
    pub(crate) registered_uri: Option<&'static str>,
    /// What happened and what to do, for people.
    pub(crate) explanation: &'static str,
}

impl ProblemType {
    /// Every type there is.
    pub(crate) const ALL: [&'static Self; 15] = [
        &MALFORMED_REQUEST,
        &UNAUTHORIZED,
        &FORBIDDEN,
        &NOT_FOUND,
        &METHOD_NOT_ALLOWED,
        &REQUEST_TIMEOUT,
        &PRECONDITION_FAILED,
        &CONTENT_TOO_LARGE,
        &UNSUPPORTED_MEDIA_TYPE,
        &VALIDATION_FAILED,
        &IDEMPOTENCY_MISMATCH,
        &QUOTA_EXCEEDED,
        &INTERNAL,
        &UNAVAILABLE,
        &OUTCOME_UNKNOWN,
    ];

    /// The type of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.into_iter().find(|kind| kind.name == name)
    }
}

pub(super) static MALFORMED_REQUEST: ProblemType = ProblemType {
    name: "malformed-request",
    status: StatusCode::BAD_REQUEST,
    title: "The request cannot be read",
    registered_uri: None,
    explanation: "The path, a header field or the body is not well-formed: a broken percent sign, bytes \
                  that are not UTF-8,\na body that is not a JSON object, a field given twice, or HTTP/1.1 without its \
                  one Host line.\nCorrect the request; the same one will fail again.",
};

pub(super) static UNAUTHORIZED: ProblemType = ProblemType {
    name: "unauthorized",
    status: StatusCode::UNAUTHORIZED,
    title: "A valid token is required",
    registered_uri: None,
    explanation: "There is no Authorization field, more than one, or its token is unknown, revoked or \
                  expired.\nSend \"Authorization: Bearer <token>\" with a valid token.",
};

pub(super) static FORBIDDEN: ProblemType = ProblemType {
    name: "forbidden",
    status: StatusCode::FORBIDDEN,
    title: "The token may not do this",
    registered_uri: None,
    explanation: "The token is valid, but its role does not allow this, or not for this user.\n\
                  Use a token of another role, or ask an administrator.",
};

pub(super) static NOT_FOUND: ProblemType = ProblemType {
    name: "not-found",
    status: StatusCode::NOT_FOUND,
    title: "There is nothing of this name",
    registered_uri: None,
    explanation: "The path does not exist, or neither a policy nor a default serves this user and \
                  resource, or there is no such default or token.\nCheck the path; an administrator may have to \
                  set a policy or a default first. Nothing was counted.",
};

pub(super) static METHOD_NOT_ALLOWED: ProblemType = ProblemType {
    name: "method-not-allowed",
    status: StatusCode::METHOD_NOT_ALLOWED,
    title: "The path does not know this method",
    registered_uri: None,
    explanation: "The path exists, but not with this method.\nUse one that the Allow field names.",
};

pub(super) static REQUEST_TIMEOUT: ProblemType = ProblemType {
    name: "request-timeout",
    status: StatusCode::REQUEST_TIMEOUT,
    title: "The body did not come in time",
    registered_uri: None,
    explanation: "The body did not arrive within 30 seconds, and the connection closes.\n\
                  Nothing was counted or changed. Send the request again, whole.",
};

pub(super) static PRECONDITION_FAILED: ProblemType = ProblemType {
    name: "precondition-failed",
    status: StatusCode::PRECONDITION_FAILED,
    title: "The policy is in another state",
    registered_uri: None,
    explanation: "If-Match does not name the policy's present ETag, or If-None-Match does, so nothing was changed.\n\
                  GET the policy, look at what has changed, and decide again.",
};

pub(super) static CONTENT_TOO_LARGE: ProblemType = ProblemType {
    name: "content-too-large",
    status: StatusCode::PAYLOAD_TOO_LARGE,
    title: "The body is too large",
    registered_uri: None,
    explanation: "The body is larger than this path takes.\nSend a smaller one; the same will fail again.",
};

pub(super) static UNSUPPORTED_MEDIA_TYPE: ProblemType = ProblemType {
    name: "unsupported-media-type",
    status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
    title: "The body is not application/json",
    registered_uri: None,
    explanation: "A body must come with \"Content-Type: application/json\" and without a content coding.\n\
                  Send it so, or send no body where none is needed.",
};

pub(super) static VALIDATION_FAILED: ProblemType = ProblemType {
    name: "validation-failed",
    status: StatusCode::UNPROCESSABLE_ENTITY,
    title: "Some values are not valid",
    registered_uri: None,
    explanation: "The request is well-formed, but some of its values are not valid; \"errors\" names each.\nAn amount above the whole limit is among them (\"exceeds_limit\"): it \
                  could never be granted.\nCorrect them; the same request will fail again. Nothing was counted or changed.",
};

pub(super) static IDEMPOTENCY_MISMATCH: ProblemType = ProblemType {
    name: "idempotency-mismatch",
    status: StatusCode::UNPROCESSABLE_ENTITY,
    title: "The idempotency key belongs to another request",
    registered_uri: None,
    explanation: "Another request was answered under this Idempotency-Key. Nothing was counted.\n\
                  Use a new key for a new request.",
};

pub(super) static QUOTA_EXCEEDED: ProblemType = ProblemType {
    name: "quota-exceeded",
    status: StatusCode::TOO_MANY_REQUESTS,
    title: denial::TITLE,
    registered_uri: Some(denial::TYPE_URI),
    explanation: "The units do not fit into what is left of the window. Nothing was counted.\n\
                  Wait for as many seconds as Retry-After says, or ask for fewer units.",
};

pub(super) static INTERNAL: ProblemType = ProblemType {
    name: "internal",
    status: StatusCode::INTERNAL_SERVER_ERROR,
    title: "The server made a mistake",
    registered_uri: None,
    explanation: "This is a fault of the server, not of the request. A change may or may not have been counted.\n\
                  Tell its operator the X-Request-Id of the answer: the log has the cause. A retry with the same \
                  Idempotency-Key is safe; without a key, look first.",
};

pub(super) static UNAVAILABLE: ProblemType = ProblemType {
    name: "unavailable",
    status: StatusCode::SERVICE_UNAVAILABLE,
    title: "The service is unavailable",
    registered_uri: None,
    explanation: "The store cannot be reached, or the server has more to do than it can. Nothing was \
                  counted or changed.\nTry again after as many seconds as Retry-After says.",
};

pub(super) static OUTCOME_UNKNOWN: ProblemType = ProblemType {
    name: "outcome-unknown",
    status: StatusCode::SERVICE_UNAVAILABLE,
    title: "It is not known whether the request took effect",
    registered_uri: None,
    explanation: "The request was handed to the store, and no answer came: it may or may not have taken \
                  effect.\nTry again with the same Idempotency-Key, which settles it; without a key, look \
                  first.",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_names_the_same_types() {
        let page = include_str!("../../../../docs/problems.md");
        let documented: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .collect();
        let known: Vec<String> = ProblemType::ALL
            .iter()
            .map(|kind| format!("{} ({})", kind.name, kind.status.as_u16()))
            .collect();
        assert_eq!(documented, known);
    }
}
