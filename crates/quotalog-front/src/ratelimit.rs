//! The header fields that tell a client what is left (draft-ietf-httpapi-ratelimit-headers-10,
//! RFC 9651 lists) and when to come back (RFC 9110 section 10.2.3).
//!
//! Nothing of a caller's choosing is written here: the window's name is ours, the rest is numbers.

use std::ops::Range;

use bytes::Bytes;
use quotalog_domain::Quota;

/// The names of the fields.
pub const NAMES: [&str; 5] = [
    "ratelimit-policy",
    "ratelimit",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

/// The field that only a denial carries.
pub const RETRY_AFTER: &str = "retry-after";

/// The largest integer of a structured field (RFC 9651 section 3.3.1). A limit of an older store
/// may lie above it.
const FIELD_INTEGER_MAX: u64 = 999_999_999_999_999;

/// The values of the fields of `quota`, in the order of [`NAMES`]. All are visible ASCII.
#[must_use]
pub fn values(quota: &Quota) -> [Bytes; 5] {
    let window = quota.window();
    let limit = quota.limit().get();
    let remaining = quota.remaining();
    let mut fields = Fields::new();
    let ranges = [
        fields.add(|field| {
            field.quoted(window.as_str());
            field.parameter("q", limit.min(FIELD_INTEGER_MAX));
            field.parameter("w", window.length_s());
        }),
        fields.add(|field| {
            field.quoted(window.as_str());
            field.parameter("r", remaining.min(FIELD_INTEGER_MAX));
            field.parameter("t", quota.reset_in_s());
        }),
        fields.add(|field| field.integer(limit)),
        fields.add(|field| field.integer(remaining)),
        fields.add(|field| field.integer(quota.span().reset_at.unix_s())),
    ];
    let bytes = Bytes::from(fields.0);
    ranges.map(|range| bytes.slice(range))
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
}

#[cfg(test)]
mod tests {
    use quotalog_domain::{
        Limit, Pair, Policy, Quota, Resource, Source, Timestamp, Usage, UserId, Window,
    };

    use super::*;

    fn fields(limit: i64, used: u64, at_us: i64) -> [String; 5] {
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
        values(&quota).map(|value| String::from_utf8(value.to_vec()).unwrap())
    }

    #[test]
    fn the_fields_are_those_of_the_draft() {
        let expected = [
            "\"hourly\";q=100;w=3600",
            "\"hourly\";r=58;t=1260",
            "100",
            "58",
            "1796065200",
        ];
        assert_eq!(fields(100, 42, 1_796_063_940_000_000), expected);
    }

    #[test]
    fn a_wait_is_rounded_up_and_an_old_limit_capped_to_what_a_field_holds() {
        let fields = fields(i64::MAX, 0, 1_796_065_199_400_000);
        assert_eq!(fields[1], "\"hourly\";r=999999999999999;t=1");
        assert_eq!(fields[2], "9223372036854775807");
    }
}
