//! Bodies: on their way until a handler asks for one, which it does when the caller is known and may do what it
//! wants. So nobody without a token has us keep any of a body.
//!
//! An answer that leaves while the client still sends may meet a reset instead of a reader, so what nobody has
//! read by then is read, up to a bound, and thrown away piece by piece.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT};
use axum::http::request::Parts;
use bytes::BytesMut;
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use crate::exchange::Exchange;
use crate::json::Object;
use crate::problem::Problem;
use crate::router::App;
use quotalog_front::{Admission, Overloaded, Room};

/// Where a batch is sent: the one path that takes a larger body.
const BATCH_PATH: &str = "/consume";

/// The largest body of a request; a larger one is answered 413.
const KEPT_BYTES_MAX: u64 = 16 * 1024;

/// The largest body of a batch.
const BATCH_BYTES_MAX: u64 = 128 * 1024;

/// How much of a body that nobody wants is read and thrown away, so that its sender reads the answer. What is
/// larger is cut off: the connection closes with the answer.
const DISCARDED_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// How long a body may take. One that takes longer is not waited for: the connection closes.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// What nobody has read of a request's body.
pub(crate) struct Unread(Mutex<State>);

struct State {
    rest: Rest,
    /// How long the client was waited for.
    waited: Duration,
}

enum Rest {
    /// All was read, or there was no body.
    Nothing,
    /// A body that may be read on.
    Arriving(Arriving),
    /// One that may not: somebody reads it, or the client stopped in the middle or took too long.
    Lost,
}

/// A body on its way.
struct Arriving {
    body: Body,
    read_bytes: u64,
    /// Whether the client does not begin unless it is asked to, as reading does (RFC 9110 section 10.1.1).
    asks_first: bool,
}

/// What became of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyEnd {
    /// Whether nothing of it is still on its way.
    pub(crate) was_read_whole: bool,
    /// How long the client was waited for.
    pub(crate) waited: Duration,
}

/// Why a body is not had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyFault {
    /// There is more of it than is read.
    TooLarge,
    /// The client stopped in the middle.
    Incomplete,
    /// It did not come in time.
    TooSlow,
}

/// The body as a handler gets it: read when it asks, after the caller's permission.
pub(crate) struct Payload {
    exchange: Exchange,
    /// What is known of it beforehand; none without a body.
    declared: Option<Declared>,
    bytes: BytesMut,
    /// Held for as long as the bytes are.
    room: Option<Room>,
}

struct Declared {
    is_json: bool,
    admission: Admission,
}

impl Payload {
    /// The fields of the body; none if there is no body.
    pub(crate) async fn object(&mut self) -> Result<Object<'_>, Problem> {
        let Some(Declared { is_json, admission }) = self.declared.take() else {
            return Ok(Object::default());
        };
        let unread = self.exchange.unread();
        let bytes_max = bytes_max(self.exchange.raw_path());
        let announced_bytes = unread.announced_bytes().unwrap_or(bytes_max);
        // What is larger, or of another type, is not kept.
        if is_json && announced_bytes <= bytes_max {
            let asker = self.exchange.asker();
            let asker = asker.ok_or_else(|| Problem::internal("a body before its caller"))?;
            let room = admission.room(asker, announced_bytes).await;
            self.room = Some(room.map_err(|Overloaded| Problem::unavailable())?);
        }
        let mut is_empty = true;
        let bytes = &mut self.bytes;
        let reading = unread.read(bytes_max, |piece| {
            is_empty &= piece.is_empty();
            if is_json {
                bytes.extend_from_slice(piece);
            }
        });
        reading.await?;
        if is_empty {
            return Ok(Object::default());
        }
        if !is_json {
            return Err(Problem::unsupported_media_type());
        }
        Object::parse(&self.bytes).map_err(|_malformed| {
            let detail = "The body is not valid JSON, or not an object, or has a field twice.";
            Problem::malformed(detail)
        })
    }
}

impl FromRequestParts<App> for Payload {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let exchange = Exchange::of(parts)?;
        let declared = exchange.unread().is_something().then(|| Declared {
            is_json: is_json(&parts.headers),
            admission: app.admission.clone(),
        });
        Ok(Self {
            exchange,
            declared,
            bytes: BytesMut::new(),
            room: None,
        })
    }
}

impl Unread {
    /// The body of a request, none of which was read.
    pub(crate) fn of(headers: &HeaderMap, body: Body) -> Self {
        let rest = if body.is_end_stream() {
            Rest::Nothing
        } else {
            Rest::Arriving(Arriving {
                body,
                read_bytes: 0,
                asks_first: headers.contains_key(EXPECT),
            })
        };
        let waited = Duration::ZERO;
        Self(Mutex::new(State { rest, waited }))
    }

    /// Reads and throws away what is left, so that the client reads its answer. One that asks first is told by
    /// the answer itself that nobody wants its body.
    pub(crate) async fn discard(&self) -> BodyEnd {
        let asks_first = match &self.state().rest {
            Rest::Arriving(arriving) => arriving.asks_first,
            Rest::Nothing | Rest::Lost => true,
        };
        if !asks_first {
            // What comes of it stands in the state.
            let _ = self.read(DISCARDED_BYTES_MAX, |_piece| {}).await;
        }
        let state = self.state();
        BodyEnd {
            was_read_whole: matches!(state.rest, Rest::Nothing),
            waited: state.waited,
        }
    }

    /// How long the client was waited for.
    pub(crate) fn waited(&self) -> Duration {
        self.state().waited
    }

    fn is_something(&self) -> bool {
        !matches!(self.state().rest, Rest::Nothing)
    }

    /// How many bytes are still to come, if the client has told.
    fn announced_bytes(&self) -> Option<u64> {
        match &self.state().rest {
            Rest::Arriving(arriving) => arriving.body.size_hint().exact(),
            Rest::Nothing | Rest::Lost => None,
        }
    }

    /// Reads it to its end, if that comes before so many bytes are exceeded.
    async fn read(&self, bytes_max: u64, keep: impl FnMut(&[u8])) -> Result<(), BodyFault> {
        let mut arriving = match std::mem::replace(&mut self.state().rest, Rest::Lost) {
            Rest::Arriving(arriving) => arriving,
            Rest::Nothing => {
                self.state().rest = Rest::Nothing;
                return Ok(());
            }
            Rest::Lost => return Err(BodyFault::Incomplete),
        };
        let began_at = Instant::now();
        let read = arriving.read(bytes_max, keep).await;
        let mut state = self.state();
        state.waited += began_at.elapsed();
        state.rest = match read {
            Ok(()) => Rest::Nothing,
            Err(BodyFault::TooLarge) => Rest::Arriving(arriving),
            Err(BodyFault::Incomplete | BodyFault::TooSlow) => Rest::Lost,
        };
        read
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is whole in itself.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arriving {
    async fn read(&mut self, bytes_max: u64, mut keep: impl FnMut(&[u8])) -> Result<(), BodyFault> {
        let announced_bytes = self.body.size_hint().lower();
        if self.read_bytes.saturating_add(announced_bytes) > bytes_max {
            return Err(BodyFault::TooLarge);
        }
        self.asks_first = false;
        let reading = async {
            while let Some(frame) = self.body.frame().await {
                let frame = frame.map_err(|_broken| BodyFault::Incomplete)?;
                let Ok(piece) = frame.into_data() else {
                    continue;
                };
                let piece_bytes = u64::try_from(piece.len()).unwrap_or(u64::MAX);
                self.read_bytes = self.read_bytes.saturating_add(piece_bytes);
                if self.read_bytes > bytes_max {
                    return Err(BodyFault::TooLarge);
                }
                keep(&piece);
            }
            Ok(())
        };
        let read = tokio::time::timeout(WAIT_MAX, reading).await;
        read.unwrap_or(Err(BodyFault::TooSlow))
    }
}

impl From<BodyFault> for Problem {
    fn from(fault: BodyFault) -> Self {
        match fault {
            BodyFault::TooLarge => Self::content_too_large(),
            BodyFault::Incomplete => Self::malformed("The body did not arrive whole."),
            BodyFault::TooSlow => Self::request_timeout(),
        }
    }
}

/// The largest body that a path takes. The routes match paths as they are sent, so another spelling
/// of the batch's leads nowhere.
fn bytes_max(path: &str) -> u64 {
    if path == BATCH_PATH {
        BATCH_BYTES_MAX
    } else {
        KEPT_BYTES_MAX
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
    use bytes::Bytes;
    use hyper::body::{Body as HttpBody, Frame};
    use quotalog_auth::{Caller, Credential, Generation, Role, TokenId};

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

    /// A body that never comes.
    struct Silence;

    impl HttpBody for Silence {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
            Poll::Pending
        }
    }

    fn in_pieces(len: usize, piece_len: usize) -> Body {
        let bytes = vec![b' '; len];
        let pieces = bytes
            .chunks(piece_len)
            .map(|piece| Ok(Bytes::copy_from_slice(piece)));
        Body::new(Pieces(pieces.collect()))
    }

    const CONSUME: &str = "/quotas/u/r/consume";
    const JSON: (&str, &str) = ("content-type", "application/json");

    fn caller() -> Caller {
        Caller {
            role: Role::Admin,
            credential: Credential::Token {
                id: TokenId::named("admin"),
                expires_at: None,
                generation: Generation(1),
            },
        }
    }

    fn payload_of(path: &str, lines: &[(&'static str, &'static str)], body: Body) -> Payload {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let unread = Unread::of(&headers, body);
        let exchange = Exchange::new(path.parse().unwrap(), None, unread, Instant::now());
        exchange.authenticated(caller());
        let declared = exchange.unread().is_something().then(|| Declared {
            is_json: is_json(&headers),
            admission: Admission::new(1),
        });
        Payload {
            exchange,
            declared,
            bytes: BytesMut::new(),
            room: None,
        }
    }

    /// The status that a body is answered, 200 if nothing is wrong with it; and whether it was read whole in
    /// the end.
    async fn judged(path: &str, lines: &[(&'static str, &'static str)], body: Body) -> (u16, bool) {
        let mut payload = payload_of(path, lines, body);
        let status = match payload.object().await {
            Ok(_object) => 200,
            Err(problem) => problem.answer(path).status().as_u16(),
        };
        (
            status,
            payload.exchange.unread().discard().await.was_read_whole,
        )
    }

    /// As much white space as makes an empty object so long.
    fn padded(len: usize, piece_len: usize) -> Body {
        let bytes = format!("{{{}}}", " ".repeat(len - 2)).into_bytes();
        let pieces = bytes
            .chunks(piece_len)
            .map(|piece| Ok(Bytes::copy_from_slice(piece)));
        Body::new(Pieces(pieces.collect()))
    }

    #[tokio::test]
    async fn no_bytes_are_no_body_whatever_their_type() {
        let text = [("content-type", "text/plain"), ("content-encoding", "gzip")];
        for lines in [&[][..], &[JSON], &text] {
            for body in [Body::empty(), in_pieces(0, 1)] {
                assert_eq!(judged(CONSUME, lines, body).await, (200, true));
            }
        }
    }

    #[tokio::test]
    async fn a_body_is_kept_up_to_16_kib() {
        for piece_len in [1, 1_000, 100_000] {
            let (most, more) = (
                padded(16 * 1024, piece_len),
                padded(16 * 1024 + 1, piece_len),
            );
            assert_eq!(judged(CONSUME, &[JSON], most).await, (200, true));
            assert_eq!(judged(CONSUME, &[JSON], more).await, (413, true));
        }
        let endless = in_pieces(9 * 1024 * 1024, 100_000);
        assert_eq!(judged(CONSUME, &[JSON], endless).await, (413, false));
        let announced = Body::from(vec![b' '; 9 * 1024 * 1024]);
        assert_eq!(judged(CONSUME, &[JSON], announced).await, (413, false));
    }

    #[tokio::test]
    async fn a_batch_is_kept_up_to_128_kib() {
        let len = 128 * 1024;
        assert_eq!(
            judged("/consume", &[JSON], padded(len, 1_000)).await,
            (200, true)
        );
        assert_eq!(
            judged("/consume", &[JSON], padded(len + 1, 1_000)).await,
            (413, true)
        );
        for path in ["/consume/", "/%63onsume", "/Consume", "/tokens"] {
            let body = padded(len, 1_000);
            assert_eq!(judged(path, &[JSON], body).await, (413, true), "{path}");
        }
    }

    #[tokio::test]
    async fn what_no_handler_asks_for_is_read_and_thrown_away() {
        for (len, was_read_whole) in [(3_000_000, true), (9 * 1024 * 1024, false)] {
            for body in [in_pieces(len, 100_000), Body::from(vec![b' '; len])] {
                let unread = Unread::of(&HeaderMap::new(), body);
                assert_eq!(unread.discard().await.was_read_whole, was_read_whole);
            }
        }
    }

    #[tokio::test]
    async fn a_client_that_asks_before_it_sends_in_vain_is_answered_at_once() {
        let expect = [JSON, ("expect", "100-continue")];
        let large = Body::from(vec![b' '; 20_000]);
        assert_eq!(judged(CONSUME, &expect, large).await, (413, false));
        assert_eq!(
            judged(CONSUME, &expect, Body::from("{}")).await,
            (200, true)
        );
        // Nobody asks for this one, so that it never begins.
        let payload = payload_of(CONSUME, &expect, Body::new(Silence));
        let end = payload.exchange.unread().discard().await;
        assert!(!end.was_read_whole);
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_incomplete() {
        let pieces = [Ok(Bytes::from_static(b"{")), Err(io::Error::other("gone"))];
        let body = Body::new(Pieces(pieces.into()));
        assert_eq!(judged(CONSUME, &[JSON], body).await, (400, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_not_waited_for() {
        let body = Body::new(Silence);
        assert_eq!(judged(CONSUME, &[JSON], body).await, (408, false));
        let unread = Unread::of(&HeaderMap::new(), Body::new(Silence));
        assert!(!unread.discard().await.was_read_whole);
    }

    /// What a client takes for its body is not taken from the time that its request may wait.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_slowly_leaves_the_request_its_time() {
        let mut payload = payload_of(CONSUME, &[JSON], Body::new(Silence));
        let before = payload.exchange.deadline();
        let began_at = Instant::now();
        assert!(payload.object().await.is_err());
        let after = payload.exchange.deadline();
        assert_eq!(after.wait_until(), before.wait_until() + began_at.elapsed());
        assert_eq!(began_at.elapsed(), WAIT_MAX);
    }

    #[tokio::test]
    async fn only_plain_json_is_json() {
        let check = async |lines: &[(&'static str, &'static str)], json: bool| {
            let status = if json { 200 } else { 415 };
            let judged = judged(CONSUME, lines, Body::from("{}")).await;
            assert_eq!(judged, (status, true), "{lines:?}");
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
