//! What HTTP/1 asks of a message beyond what the connection itself has judged (RFC 9112).
//!
//! A message that a proxy might read otherwise is refused, never guessed at.

use axum::http::header::{HOST, HeaderMap, TRANSFER_ENCODING};
use axum::http::{HeaderValue, Version};

/// What is wrong with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageFault {
    /// HTTP/1.1 without `Host`, or more than one of them (section 3.2).
    Host,
    /// A coding other than `chunked` alone (section 6.1).
    TransferEncoding,
}

/// Judges the head of a message. HTTP/2 names the host elsewhere and knows no transfer codings.
pub(crate) fn check(version: Version, headers: &HeaderMap) -> Result<(), MessageFault> {
    if version >= Version::HTTP_2 {
        return Ok(());
    }
    let mut hosts = headers.get_all(HOST).iter();
    let may_lack_host = version < Version::HTTP_11;
    if hosts.next().is_none() && !may_lack_host || hosts.next().is_some() {
        return Err(MessageFault::Host);
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_sound = codings.next().is_none_or(is_chunked) && codings.next().is_none();
    is_sound.then_some(()).ok_or(MessageFault::TransferEncoding)
}

fn is_chunked(coding: &HeaderValue) -> bool {
    coding.as_bytes().eq_ignore_ascii_case(b"chunked")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(version: Version, lines: &[(&'static str, &'static str)]) -> Option<MessageFault> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        super::check(version, &headers).err()
    }

    #[test]
    fn http_1_1_has_one_host() {
        let fault = Some(MessageFault::Host);
        let (one, two) = ([("host", "a")], [("host", "a"), ("host", "a")]);
        assert_eq!(check(Version::HTTP_11, &[]), fault);
        assert_eq!(check(Version::HTTP_11, &one), None);
        assert_eq!(check(Version::HTTP_11, &[("host", "")]), None);
        assert_eq!(check(Version::HTTP_11, &two), fault);
        assert_eq!(check(Version::HTTP_10, &[]), None);
        assert_eq!(check(Version::HTTP_10, &one), None);
        assert_eq!(check(Version::HTTP_10, &two), fault);
        assert_eq!(check(Version::HTTP_2, &[]), None);
    }

    #[test]
    fn chunked_is_the_only_coding() {
        let coded = |coding| {
            check(
                Version::HTTP_11,
                &[("host", "a"), ("transfer-encoding", coding)],
            )
        };
        assert_eq!(coded("chunked"), None);
        assert_eq!(coded("Chunked"), None);
        for coding in [
            "gzip, chunked",
            "identity",
            "chunked, chunked",
            "xchunked",
            "",
        ] {
            assert_eq!(
                coded(coding),
                Some(MessageFault::TransferEncoding),
                "{coding}"
            );
        }
        let chunked = ("transfer-encoding", "chunked");
        let twice = check(Version::HTTP_11, &[("host", "a"), chunked, chunked]);
        assert_eq!(twice, Some(MessageFault::TransferEncoding));
    }
}
