//! The header fields that tell a client what is left (draft-ietf-httpapi-ratelimit-headers-10,
//! RFC 9651 lists) and when to come back (RFC 9110 section 10.2.3).
//!
//! Nothing of a caller's choosing is written here: the window's name is ours, the rest is numbers.

use std::ops::Range;

use axum::http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use bytes::Bytes;
use quotalog_domain::Quota;

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The largest integer of a structured field (RFC 9651 section 3.3.1). A limit of an older store
/// may lie above it.
const FIELD_INTEGER_MAX: u64 = 999_999_999_999_999;

/// Adds the fields of `quota`, each once.
pub(crate) fn add_fields(quota: &Quota, headers: &mut HeaderMap) {
    let window = quota.window();
    let limit = quota.limit().get();
    let remaining = quota.remaining();
    let mut fields = Fields::new();
    let policy = fields.add(|field| {
        field.quoted(window.as_str());
        field.parameter("q", limit.min(FIELD_INTEGER_MAX));
        field.parameter("w", window.length_s());
    });
    let left = fields.add(|field| {
        field.quoted(window.as_str());
        field.parameter("r", remaining.min(FIELD_INTEGER_MAX));
        field.parameter("t", quota.reset_in_s());
    });
    let x_limit = fields.add(|field| field.integer(limit));
    let x_remaining = fields.add(|field| field.integer(remaining));
    let x_reset = fields.add(|field| field.integer(quota.span().reset_at.unix_s()));
    let value = fields.finish();
    headers.insert(RATELIMIT_POLICY, value(policy));
    headers.insert(RATELIMIT, value(left));
    headers.insert(X_RATELIMIT_LIMIT, value(x_limit));
    headers.insert(X_RATELIMIT_REMAINING, value(x_remaining));
    headers.insert(X_RATELIMIT_RESET, value(x_reset));
}

/// Adds the seconds after which it is worth trying again.
pub(crate) fn add_retry_after(seconds: u64, headers: &mut HeaderMap) {
    headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
}

/// Several values written into one allocation, of which each header holds a part.
struct Fields(Vec<u8>);

impl Fields {
    /// Fits the fields of one quota.
    const LEN_USUAL: usize = 128;

    fn new() -> Self {
        Self(Vec::with_capacity(Self::LEN_USUAL))
    }

    fn add(&mut self, write: impl FnOnce(&mut Self)) -> Range<usize> {
        let start = self.0.len();
        write(self);
        start..self.0.len()
    }

    fn quoted(&mut self, text: &str) {
        self.0.push(b'"');
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(b'"');
    }

    fn parameter(&mut self, name: &str, value: impl itoa::Integer) {
        self.0.push(b';');
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'=');
        self.integer(value);
    }

    fn integer(&mut self, value: impl itoa::Integer) {
        let mut digits = itoa::Buffer::new();
        self.0.extend_from_slice(digits.format(value).as_bytes());
    }

    fn finish(self) -> impl Fn(Range<usize>) -> HeaderValue {
        let bytes = Bytes::from(self.0);
        move |range| {
            HeaderValue::from_maybe_shared(bytes.slice(range))
                .expect("names of windows and numbers are visible ASCII")
        }
    }
}

#[cfg(test)]
mod tests {
    use quotalog_domain::{
        Limit, Pair, Policy, Quota, Resource, Source, Timestamp, Usage, UserId, Window,
    };

    use super::*;

    fn headers(limit: i64, used: u64, at_us: i64) -> HeaderMap {
        let at = Timestamp::from_unix_us(at_us);
        let pair = Pair {
            user_id: UserId::try_from("alice").unwrap(),
            resource: Resource::try_from("api-calls").unwrap(),
        };
        let policy = Policy {
            window: Window::Hourly,
            limit: Limit::stored(limit).unwrap(),
            created_at: at,
            updated_at: at,
        };
        let mut usage = Usage::default();
        usage.load(policy.window.span_at(at).start, used);
        let quota = Quota::check(pair, policy, Source::Policy, &usage, at);
        let mut headers = HeaderMap::new();
        add_fields(&quota, &mut headers);
        headers
    }

    #[test]
    fn the_fields_are_those_of_the_draft() {
        let headers = headers(100, 42, 1_796_063_940_000_000);
        assert_eq!(headers["ratelimit-policy"], "\"hourly\";q=100;w=3600");
        assert_eq!(headers["ratelimit"], "\"hourly\";r=58;t=1260");
        assert_eq!(headers["x-ratelimit-limit"], "100");
        assert_eq!(headers["x-ratelimit-remaining"], "58");
        assert_eq!(headers["x-ratelimit-reset"], "1796065200");
        assert_eq!(headers.len(), 5);
    }

    #[test]
    fn a_wait_is_rounded_up_and_an_old_limit_capped_to_what_a_field_holds() {
        let headers = headers(i64::MAX, 0, 1_796_065_199_400_000);
        assert_eq!(headers["ratelimit"], "\"hourly\";r=999999999999999;t=1");
        assert_eq!(headers["x-ratelimit-limit"], "9223372036854775807");
        let mut headers = HeaderMap::new();
        add_retry_after(0, &mut headers);
        assert_eq!(headers[RETRY_AFTER], "1");
    }
}
