//! The header fields that tell a client what is left, and when to come back (RFC 9110 section 10.2.3).

use axum::http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use quotalog_domain::Quota;
use quotalog_front::ratelimit;

const NAMES: [HeaderName; 5] = [
    HeaderName::from_static(ratelimit::NAMES[0]),
    HeaderName::from_static(ratelimit::NAMES[1]),
    HeaderName::from_static(ratelimit::NAMES[2]),
    HeaderName::from_static(ratelimit::NAMES[3]),
    HeaderName::from_static(ratelimit::NAMES[4]),
];

/// Adds the fields of `quota`, each once.
pub(crate) fn add_fields(quota: &Quota, headers: &mut HeaderMap) {
    for (name, value) in NAMES.into_iter().zip(ratelimit::values(quota)) {
        let value = HeaderValue::from_maybe_shared(value);
        headers.insert(name, value.expect("all values are visible ASCII"));
    }
}

/// Adds the seconds after which it is worth trying again.
pub(crate) fn add_retry_after(seconds: u64, headers: &mut HeaderMap) {
    headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
}
