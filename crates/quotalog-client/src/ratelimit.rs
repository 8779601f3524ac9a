//! The header fields that tell what is left, as the server wrote them.

use http::{HeaderMap, HeaderName, HeaderValue};

const NAMES: [HeaderName; 5] = [
    HeaderName::from_static("ratelimit-policy"),
    HeaderName::from_static("ratelimit"),
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// `RateLimit`, `RateLimit-Policy` and `X-RateLimit-*` of an answer, to be passed on to a client of one's own.
///
/// They are kept rather than made anew: only the server's clock knows how long the window still lasts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RateLimitFields(Vec<(HeaderName, HeaderValue)>);

impl RateLimitFields {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let fields = NAMES
            .into_iter()
            .filter_map(|name| headers.get(&name).cloned().map(|value| (name, value)));
        Self(fields.collect())
    }

    /// Their names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// Adds those to `headers` that are not there yet.
    pub fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in self.iter() {
            headers.entry(name).or_insert_with(|| value.clone());
        }
    }
}
