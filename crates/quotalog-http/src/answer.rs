//! Answers to requests that succeeded.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::OnceLock;

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap,
    HeaderValue, IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::Response;
use quotalog_domain::{Answer, Decided, DefaultPolicy, Outcome, Quota, Revision};
use serde::Serialize;

use crate::problem::Problem;
use crate::ratelimit;
use crate::wire::{self, JSON_BYTES_USUAL, QuotaBody};

/// Room for the fields of an answer that tells what is left, so that the map need not grow.
const FIELDS_USUAL: usize = 12;

/// Any body as JSON.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let mut bytes = Vec::with_capacity(JSON_BYTES_USUAL);
    serde_json::to_writer(&mut bytes, body).expect("plain structs serialise into a vector");
    json_bytes(status, bytes)
}

fn json_bytes(status: StatusCode, bytes: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.reserve(FIELDS_USUAL);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The answer without a body.
pub(crate) fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// What is the same for as long as the program is.
pub(crate) struct Unchanging {
    pub(crate) bytes: &'static [u8],
    content_type: &'static str,
    /// How the bytes are compressed, if they are.
    coding: Option<&'static str>,
    /// Made of the bytes when somebody first asks for them.
    tag: OnceLock<String>,
}

impl Unchanging {
    pub(crate) const fn new(content_type: &'static str, bytes: &'static [u8]) -> Self {
        Self::coded(content_type, None, bytes)
    }

    /// What `bytes` are when they are uncompressed by gzip.
    pub(crate) const fn gzipped(content_type: &'static str, bytes: &'static [u8]) -> Self {
        Self::coded(content_type, Some("gzip"), bytes)
    }

    const fn coded(
        content_type: &'static str,
        coding: Option<&'static str>,
        bytes: &'static [u8],
    ) -> Self {
        Self {
            bytes,
            content_type,
            coding,
            tag: OnceLock::new(),
        }
    }

    fn tag(&self) -> &str {
        self.tag.get_or_init(|| {
            let mut hasher = DefaultHasher::new();
            self.bytes.hash(&mut hasher);
            format!("\"{:016x}\"", hasher.finish())
        })
    }

    /// Answers with it, or that the client has it already (RFC 9110 section 13.1.2). Who keeps it asks each time,
    /// since the next version of the program answers something else under the same path.
    pub(crate) fn answer(&self, asked: &HeaderMap) -> Response {
        let tag = self.tag();
        let lines = asked.get_all(IF_NONE_MATCH).iter();
        let lines = lines.filter_map(|line| line.to_str().ok());
        let mut had = lines.flat_map(|line| line.split(',')).map(str::trim);
        let has_it = had.any(|had| had == "*" || had.trim_start_matches("W/") == tag);

        let mut response = Response::new(Body::empty());
        if has_it {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else {
            *response.body_mut() = Body::from(self.bytes);
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
            let coding = self.coding.map(HeaderValue::from_static);
            headers.extend(coding.map(|coding| (CONTENT_ENCODING, coding)));
        }
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        let tag = HeaderValue::try_from(tag).expect("hexadecimal digits are visible ASCII");
        headers.insert(ETAG, tag);
        response
    }

    /// Answers with it as a part of a page, of which `policy` says what it may load and run.
    pub(crate) fn answer_under(&self, policy: &'static str, asked: &HeaderMap) -> Response {
        let mut response = self.answer(asked);
        response.headers_mut().extend([
            (CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy)),
            (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        ]);
        response
    }
}

/// A quota with the fields that tell what is left.
pub(crate) fn quota_with_fields(quota: &Quota) -> Response {
    let mut bytes = Vec::with_capacity(JSON_BYTES_USUAL);
    QuotaBody::from(quota).write(&mut bytes);
    let mut response = json_bytes(StatusCode::OK, bytes);
    ratelimit::add_fields(quota, response.headers_mut());
    response
}

/// Adds the entity tag of the pair's own policy; a pair that a default serves has none.
pub(crate) fn add_etag(revision: impl Into<Option<Revision>>, response: &mut Response) {
    if let Some(revision) = revision.into() {
        let tag = HeaderValue::try_from(format!("\"{}\"", revision.as_str()))
            .expect("a revision is visible ASCII");
        response.headers_mut().insert(ETAG, tag);
    }
}

/// The answer to a change of one pair's usage; under a key perhaps that of an earlier request.
pub(crate) fn usage_changed(outcome: Outcome) -> Result<Response, Problem> {
    let Decided { answer, replayed } = outcome?;
    let response = quota_with_fields(&expect_quota(answer)?);
    Ok(marked(response, replayed))
}

/// The answer to a batch; under a key perhaps that of an earlier request.
pub(crate) fn batch_counted(Decided { answer, replayed }: Decided) -> Result<Response, Problem> {
    match answer {
        Answer::Quotas(quotas) => {
            let response = json_bytes(StatusCode::OK, wire::batch(&quotas));
            Ok(marked(response, replayed))
        }
        Answer::Quota(_) | Answer::Limits(_) | Answer::Default(_) | Answer::Deleted => Err(
            Problem::internal("a batch was not answered with its quotas"),
        ),
    }
}

/// The quota that every command on one pair is answered with, a deletion aside.
pub(crate) fn expect_quota(answer: Answer) -> Result<Quota, Problem> {
    match answer {
        Answer::Quota(quota) => Ok(quota),
        Answer::Quotas(_) | Answer::Limits(_) | Answer::Default(_) | Answer::Deleted => Err(
            Problem::internal("a command on one pair was not answered with its quota"),
        ),
    }
}

/// The default that setting it is answered with.
pub(crate) fn expect_default(answer: Answer) -> Result<DefaultPolicy, Problem> {
    match answer {
        Answer::Default(default) => Ok(default),
        Answer::Quota(_) | Answer::Quotas(_) | Answer::Limits(_) | Answer::Deleted => Err(
            Problem::internal("setting a default was not answered with it"),
        ),
    }
}

/// The answer, which says so if it is the kept one of an earlier request.
fn marked(mut response: Response, replayed: bool) -> Response {
    if replayed {
        let headers = response.headers_mut();
        headers.insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    response
}
