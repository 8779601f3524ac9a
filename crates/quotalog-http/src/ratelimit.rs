//! The header fields that tell a client what is left (draft-ietf-httpapi-ratelimit-headers-10,
//! RFC 9651 lists) and when to come back (RFC 9110 section 10.2.3).
//!
//! Nothing of a caller's choosing is written here: the window's name is ours, the rest is numbers.

use std::fmt::Write as _;

use axum::http::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use bytes::Bytes;
use quotalog_domain::Quota;

/// The largest integer of a structured field (RFC 9651 section 3.3.1). A limit of an older store
/// may lie above it.
const FIELD_INTEGER_MAX: u64 = 999_999_999_999_999;

/// Adds the fields of `quota`, each once.
pub(crate) fn add_fields(quota: &Quota, headers: &mut HeaderMap) {
    let window = quota.window();
    let limit = quota.limit().get();
    let remaining = quota.remaining();
    let (q, r) = (
        limit.min(FIELD_INTEGER_MAX),
        remaining.min(FIELD_INTEGER_MAX),
    );
    let mut fields = Fields::default();
    let policy = fields.add(format_args!(
        "\"{}\";q={q};w={}",
        window.as_str(),
        window.length_s()
    ));
    let left = fields.add(format_args!(
        "\"{}\";r={r};t={}",
        window.as_str(),
        quota.reset_in_s()
    ));
    let x_limit = fields.add(format_args!("{limit}"));
    let x_remaining = fields.add(format_args!("{remaining}"));
    let x_reset = fields.add(format_args!("{}", quota.span().reset_at.unix_s()));
    let value = fields.finish();
    headers.insert("ratelimit-policy", value(policy));
    headers.insert("ratelimit", value(left));
    headers.insert("x-ratelimit-limit", value(x_limit));
    headers.insert("x-ratelimit-remaining", value(x_remaining));
    headers.insert("x-ratelimit-reset", value(x_reset));
}

/// Adds the seconds after which it is worth trying again.
pub(crate) fn add_retry_after(seconds: u64, headers: &mut HeaderMap) {
    headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
}

/// Several values written into one allocation, of which each header holds a part.
#[derive(Default)]
struct Fields(String);

impl Fields {
    fn add(&mut self, value: std::fmt::Arguments<'_>) -> std::ops::Range<usize> {
        let start = self.0.len();
        // Writing to a string does not fail.
        let _ = self.0.write_fmt(value);
        start..self.0.len()
    }

    fn finish(self) -> impl Fn(std::ops::Range<usize>) -> HeaderValue {
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
