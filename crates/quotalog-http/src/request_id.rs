//! The id by which a request is found in the log.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::HeaderMap;
use axum::http::header::{HeaderName, HeaderValue};

/// The field that carries it, in requests and answers.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest id that is taken from a caller.
const LEN_MAX: usize = 128;

/// Makes ids: a text that is random for each process, and a count.
pub(crate) struct RequestIds {
    process: u64,
    next: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new() -> Self {
        Self {
            process: RandomState::new().hash_one(0_u8),
            next: AtomicU64::new(1),
        }
    }

    /// The caller's `X-Request-Id`, if it is one line of 1 to 128 visible ASCII characters; else a
    /// new one.
    pub(crate) fn of(&self, headers: &HeaderMap) -> HeaderValue {
        let mut lines = headers.get_all(X_REQUEST_ID).iter();
        match (lines.next(), lines.next()) {
            (Some(id), None) if is_sound(id) => id.clone(),
            (Some(_) | None, _) => self.make(),
        }
    }

    fn make(&self) -> HeaderValue {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        HeaderValue::try_from(format!("{:016x}-{count:x}", self.process))
            .expect("hexadecimal digits are visible ASCII")
    }
}

fn is_sound(id: &HeaderValue) -> bool {
    let id = id.as_bytes();
    (1..=LEN_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sound_id_is_kept_and_another_replaced() {
        let ids = RequestIds::new();
        let of = |lines: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("x-request-id", HeaderValue::from_bytes(line).unwrap());
            }
            ids.of(&headers)
        };
        for id in [&b"a"[..], b"7f-\"%{}", &[b'x'; 128]] {
            assert_eq!(of(&[id]).as_bytes(), id);
        }
        for id in [&b""[..], b"a b", b"\xc3\xa9", b"a\tb", &[b'x'; 129]] {
            assert_ne!(of(&[id]).as_bytes(), id);
        }
        assert_ne!(of(&[b"a", b"a"]), "a");
        assert_ne!(of(&[]), of(&[]));
    }
}
