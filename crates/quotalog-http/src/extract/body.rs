//! Bodies: taken in whole before a request is judged, kept only as far as they may be needed.
//!
//! An answer that leaves while the client still sends may meet a reset instead of a reader, so even
//! a body that nobody wants is read, up to a bound, and thrown away.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT};
use axum::http::request::Parts;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;

use crate::exchange::Exchange;
use crate::json::Object;
use crate::problem::Problem;

/// Where a batch is sent: the one path that takes a larger body.
const BATCH_PATH: &str = "/consume";

/// The largest body of a request; a larger one is answered 413.
const KEPT_BYTES_MAX: u64 = 16 * 1024;

/// The largest body of a batch.
const BATCH_BYTES_MAX: u64 = 128 * 1024;

/// How much of a body that is too large is read and thrown away, so that its sender reads the
/// answer. What is larger is cut off: the connection closes with the answer.
const DISCARDED_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// How long a body may take. One that takes longer is not waited for: the connection closes.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// What came as a body.
#[derive(Debug)]
pub(crate) enum TakenBody {
    /// No bytes at all.
    Empty,
    /// Bytes that are declared as JSON.
    Json(Bytes),
    /// Bytes that are not.
    NotJson,
    /// More than is kept; whether it was read to its end.
    TooLarge { read_whole: bool },
    /// The client stopped in the middle, or took too long.
    Incomplete,
}

/// The body as a handler gets it: judged only when it asks, after the caller's permission.
pub(crate) struct Payload(Exchange);

impl Payload {
    /// The fields of the body; none if there is no body.
    pub(crate) fn object(&self) -> Result<Object<'_>, Problem> {
        match self.0.body() {
            TakenBody::Empty => Ok(Object::default()),
            TakenBody::Json(bytes) => Object::parse(bytes).map_err(|_malformed| {
                Problem::malformed(
                    "The body is not valid JSON, or not an object, or has a field twice.",
                )
            }),
            TakenBody::NotJson => Err(Problem::unsupported_media_type()),
            TakenBody::TooLarge { .. } => Err(Problem::content_too_large()),
            TakenBody::Incomplete => Err(Problem::malformed("The body did not arrive whole.")),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Payload {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        Exchange::of(parts).map(Self)
    }
}

impl TakenBody {
    /// Takes in the body of a request for `path`, as it was sent.
    pub(crate) async fn take(path: &str, headers: &HeaderMap, body: Body) -> Self {
        if body.is_end_stream() {
            return Self::Empty;
        }
        // A client that asks before it sends is spared the sending, one that announces too much the
        // waiting. Neither body is begun, so no "100 Continue" goes out.
        let kept_bytes_max = kept_bytes_max(path);
        let announced_bytes = body.size_hint().lower();
        if announced_bytes > DISCARDED_BYTES_MAX
            || announced_bytes > kept_bytes_max && headers.contains_key(EXPECT)
        {
            return Self::TooLarge { read_whole: false };
        }
        match tokio::time::timeout(WAIT_MAX, read(body, kept_bytes_max)).await {
            Ok(Self::Json(_)) if !is_json(headers) => Self::NotJson,
            Ok(taken) => taken,
            Err(_elapsed) => Self::Incomplete,
        }
    }

    /// Whether nothing of the body is still on its way.
    pub(crate) fn was_read_whole(&self) -> bool {
        match self {
            Self::Empty | Self::Json(_) | Self::NotJson => true,
            Self::TooLarge { read_whole } => *read_whole,
            Self::Incomplete => false,
        }
    }
}

/// The largest body that a path takes. The routes match paths as they are sent, so another spelling
/// of the batch's leads nowhere.
fn kept_bytes_max(path: &str) -> u64 {
    if path == BATCH_PATH {
        BATCH_BYTES_MAX
    } else {
        KEPT_BYTES_MAX
    }
}

async fn read(mut body: Body, kept_bytes_max: u64) -> TakenBody {
    let mut kept = BytesMut::new();
    let mut read_bytes: u64 = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return TakenBody::Incomplete;
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let data_bytes = u64::try_from(data.len()).unwrap_or(u64::MAX);
        read_bytes = read_bytes.saturating_add(data_bytes);
        if read_bytes > DISCARDED_BYTES_MAX {
            return TakenBody::TooLarge { read_whole: false };
        }
        if read_bytes <= kept_bytes_max {
            kept.extend_from_slice(&data);
        }
    }
    match read_bytes {
        0 => TakenBody::Empty,
        len if len <= kept_bytes_max => TakenBody::Json(kept.freeze()),
        _ => TakenBody::TooLarge { read_whole: true },
    }
}

/// Whether the body is declared as JSON without a content coding.
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(media_type), None) = (types.next(), types.next()) else {
        return false;
    };
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    let essence = media_type.as_bytes().split(|byte| *byte == b';').next();
    essence.is_some_and(|essence| {
        essence
            .trim_ascii()
            .eq_ignore_ascii_case(b"application/json")
    }) && codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use axum::http::HeaderValue;
    use hyper::body::{Body as HttpBody, Frame};

    use super::*;

    /// A body that comes in pieces, its length not known beforehand.
    struct Pieces(VecDeque<io::Result<Bytes>>);

    impl HttpBody for Pieces {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
            Poll::Ready(self.0.pop_front().map(|piece| piece.map(Frame::data)))
        }
    }

    fn in_pieces(len: usize, piece_len: usize) -> Body {
        let bytes = vec![b' '; len];
        let pieces = bytes
            .chunks(piece_len)
            .map(|piece| Ok(Bytes::copy_from_slice(piece)));
        Body::new(Pieces(pieces.collect()))
    }

    async fn take(lines: &[(&'static str, &'static str)], body: Body) -> TakenBody {
        take_for("/quotas/u/r/consume", lines, body).await
    }

    async fn take_for(path: &str, lines: &[(&'static str, &'static str)], body: Body) -> TakenBody {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        TakenBody::take(path, &headers, body).await
    }

    const JSON: (&str, &str) = ("content-type", "application/json");

    #[tokio::test]
    async fn no_bytes_are_no_body_whatever_their_type() {
        assert!(matches!(take(&[], Body::empty()).await, TakenBody::Empty));
        assert!(matches!(
            take(&[JSON], in_pieces(0, 1)).await,
            TakenBody::Empty
        ));
        let text = [("content-type", "text/plain"), ("content-encoding", "gzip")];
        assert!(matches!(
            take(&text, in_pieces(0, 1)).await,
            TakenBody::Empty
        ));
    }

    #[tokio::test]
    async fn a_body_is_kept_up_to_16_kib() {
        for piece_len in [1, 1_000, 100_000] {
            let taken = take(&[JSON], in_pieces(16 * 1024, piece_len)).await;
            assert!(matches!(taken, TakenBody::Json(bytes) if bytes.len() == 16 * 1024));
            let taken = take(&[JSON], in_pieces(16 * 1024 + 1, piece_len)).await;
            assert!(matches!(taken, TakenBody::TooLarge { read_whole: true }));
        }
        let taken = take(&[JSON], in_pieces(9 * 1024 * 1024, 100_000)).await;
        assert!(matches!(taken, TakenBody::TooLarge { read_whole: false }));
    }

    #[tokio::test]
    async fn a_batch_is_kept_up_to_128_kib() {
        let (len, piece_len) = (128 * 1024, 1_000);
        let taken = take_for("/consume", &[JSON], in_pieces(len, piece_len)).await;
        assert!(matches!(taken, TakenBody::Json(bytes) if bytes.len() == len));
        let taken = take_for("/consume", &[JSON], in_pieces(len + 1, piece_len)).await;
        assert!(matches!(taken, TakenBody::TooLarge { read_whole: true }));
        for path in ["/consume/", "/%63onsume", "/Consume", "/tokens"] {
            let taken = take_for(path, &[JSON], in_pieces(len, piece_len)).await;
            assert!(matches!(taken, TakenBody::TooLarge { .. }), "{path}");
        }
    }

    #[tokio::test]
    async fn a_client_that_asks_before_it_sends_too_much_is_answered_at_once() {
        let expect = [JSON, ("expect", "100-continue")];
        let taken = take(&expect, Body::from(vec![b' '; 20_000])).await;
        assert!(matches!(taken, TakenBody::TooLarge { read_whole: false }));
        let taken = take(&expect, Body::from(" ")).await;
        assert!(matches!(taken, TakenBody::Json(_)));
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_incomplete() {
        let pieces = [Ok(Bytes::from_static(b"{")), Err(io::Error::other("gone"))];
        let taken = take(&[JSON], Body::new(Pieces(pieces.into()))).await;
        assert!(matches!(taken, TakenBody::Incomplete));
    }

    #[tokio::test]
    async fn only_plain_json_is_json() {
        let check = async |lines: &[(&'static str, &'static str)], json: bool| {
            let taken = take(lines, Body::from("{}")).await;
            assert_eq!(matches!(taken, TakenBody::Json(_)), json, "{lines:?}");
        };
        check(&[JSON], true).await;
        check(
            &[("content-type", "Application/JSON ; charset=utf-8")],
            true,
        )
        .await;
        check(&[JSON, ("content-encoding", "Identity")], true).await;
        check(&[], false).await;
        check(&[("content-type", "")], false).await;
        check(&[("content-type", "text/plain")], false).await;
        check(&[("content-type", "application/json5")], false).await;
        check(&[("content-type", "application/problem+json")], false).await;
        check(&[("content-type", "application/json, text/plain")], false).await;
        check(&[JSON, JSON], false).await;
        check(&[JSON, ("content-encoding", "gzip")], false).await;
        check(
            &[
                JSON,
                ("content-encoding", "identity"),
                ("content-encoding", "br"),
            ],
            false,
        )
        .await;
    }
}
