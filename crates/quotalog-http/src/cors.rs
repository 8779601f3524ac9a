//! Use from the pages of other origins (CORS, in the Fetch standard): for those that the operator names, and off
//! without any.
//!
//! Written here rather than taken from a layer around the router, since the outermost layer writes the problem
//! documents, and since a request that is no preflight is to meet the router as ever.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD,
    HeaderMap, HeaderValue, ORIGIN, VARY,
};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;

/// Every method that some route knows.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, PUT, POST, DELETE");
/// Every field that some route reads, beside those that browsers send unasked.
const READ: HeaderValue = HeaderValue::from_static(
    "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, X-Request-Id",
);
/// Every field of an answer that tells a client what to do.
const TOLD: HeaderValue = HeaderValue::from_static(
    "ETag, Idempotency-Replayed, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-RateLimit-Limit, \
     X-RateLimit-Remaining, X-RateLimit-Reset, X-Request-Id",
);
/// For how many seconds a browser need not ask again, and may go on although its origin was taken off the list.
const KEPT_S: HeaderValue = HeaderValue::from_static("600");

/// An origin as browsers write it: a scheme, a host and, unless it is the scheme's own, a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(HeaderValue);

/// Why a text is no origin that a browser would send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// It would name every origin.
    #[error("is every origin, which is more than a list of your own pages")]
    Every,
    /// It names a port that browsers leave out.
    #[error("has the port that its scheme stands for, which browsers leave out")]
    UsualPort,
    /// It has another form.
    #[error("is not an origin as browsers send it, in small letters and without a path")]
    Form,
}

/// The origins whose pages may use the server. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Cors {
    origins: Arc<[Origin]>,
}

impl TryFrom<&str> for Origin {
    type Error = OriginError;

    fn try_from(text: &str) -> Result<Self, OriginError> {
        if text == "*" {
            return Err(OriginError::Every);
        }
        let (scheme, authority) = text.split_once("://").ok_or(OriginError::Form)?;
        let (host, port) = match authority.rsplit_once(':') {
            // The colons of an IPv6 address lie within brackets.
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            Some(_) | None => (authority, None),
        };
        if !is_scheme(scheme) || !is_host(host) || !port.is_none_or(is_port) {
            return Err(OriginError::Form);
        }
        if matches!(
            (scheme, port),
            ("http", Some("80")) | ("https", Some("443"))
        ) {
            return Err(OriginError::UsualPort);
        }
        HeaderValue::from_str(text)
            .map(Self)
            .map_err(|_not_ascii| OriginError::Form)
    }
}

fn is_scheme(text: &str) -> bool {
    let begins = text.starts_with(|first: char| first.is_ascii_lowercase());
    let goes_on =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
    begins && text.bytes().all(goes_on)
}

/// A name, whose letters beyond ASCII browsers write as Punycode, or an address.
fn is_host(text: &str) -> bool {
    let (bytes, others) = match text.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
        Some(None) => return false,
        Some(Some(address)) => (address, &b":."[..]),
        None => (text, &b"-._"[..]),
    };
    let known =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || others.contains(&byte);
    !bytes.is_empty() && bytes.bytes().all(known)
}

fn is_port(text: &str) -> bool {
    let is_usual = !text.starts_with(['0', '+']);
    is_usual && text.parse::<u16>().is_ok()
}

impl Cors {
    /// For the pages of `origins`; off if there are none.
    #[must_use]
    pub fn of(origins: Vec<Origin>) -> Self {
        Self {
            origins: origins.into(),
        }
    }

    /// The answer to a browser that asks whether it may send a request. Whose it is does not matter: the request
    /// itself brings the token.
    pub(crate) fn preflight(&self, parts: &Parts) -> Option<Response> {
        let asks = parts.method == Method::OPTIONS
            && parts.headers.contains_key(ORIGIN)
            && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        if self.is_off() || !asks {
            return None;
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        if self.allowed(&parts.headers).is_some() {
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, READ);
            headers.insert(ACCESS_CONTROL_MAX_AGE, KEPT_S);
        }
        Some(response)
    }

    /// The one origin of a request, if it is one of these.
    pub(crate) fn allowed(&self, request: &HeaderMap) -> Option<HeaderValue> {
        if self.is_off() {
            return None;
        }
        let mut lines = request.get_all(ORIGIN).iter();
        let (origin, None) = (lines.next()?, lines.next()) else {
            return None;
        };
        let mut origins = self.origins.iter();
        origins
            .find(|Origin(known)| known == origin)
            .map(|Origin(known)| known.clone())
    }

    /// Adds to an answer who may read it. It differs with the origin, also where there is none.
    pub(crate) fn add_fields(&self, allowed: Option<HeaderValue>, headers: &mut HeaderMap) {
        if self.is_off() {
            return;
        }
        headers.append(VARY, HeaderValue::from_static("Origin"));
        if let Some(origin) = allowed {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, TOLD);
        }
    }

    fn is_off(&self) -> bool {
        self.origins.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_what_browsers_send() {
        for text in [
            "https://app.example",
            "http://localhost:3000",
            "http://127.0.0.1:8200",
            "http://[::1]:8200",
            "https://[2001:db8::1]",
            "https://xn--bcher-kva.example",
            "http://a_b.example:443",
            "tauri://localhost",
            "chrome-extension://abcdefghijklmnop",
        ] {
            assert!(Origin::try_from(text).is_ok(), "{text}");
        }
        let check = |text: &str, error: OriginError| {
            assert_eq!(Origin::try_from(text), Err(error), "{text}");
        };
        check("*", OriginError::Every);
        check("https://app.example:443", OriginError::UsualPort);
        check("http://app.example:80", OriginError::UsualPort);
        for text in [
            "",
            "null",
            "app.example",
            "https://",
            "://app.example",
            "https://app.example/",
            "https://app.example/path",
            "https://*.app.example",
            "https://App.example",
            "HTTPS://app.example",
            "https://user@app.example",
            "https://app.example:",
            "https://app.example:0",
            "https://app.example:080",
            "https://app.example:65536",
            "https://app.example:+1",
            "https://app.example,https://b.example",
            "https://app.example ",
            "https://b\u{fc}cher.example",
            "http://[::1",
            "http://::1",
            "http://[]",
        ] {
            check(text, OriginError::Form);
        }
    }
}
