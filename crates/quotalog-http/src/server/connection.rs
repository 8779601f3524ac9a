//! One connection, from its first byte to its last: TLS, the choice of the protocol, the requests.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::Request;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use super::activity::{Activity, Arriving, Cut};
use super::sniffed::Sniffed;
use super::watched::Watched;

/// The largest head of a request; a larger one is answered 431 by the connection itself.
const HEAD_BYTES_MAX: u32 = 64 * 1024;

/// The largest head of a request of HTTP/2, of which a connection may have a hundred at once.
const LIST_BYTES_MAX: u32 = 32 * 1024;

/// How many requests an HTTP/2 connection may have at once; what RFC 9113 section 6.5.2 asks for at least.
const STREAMS_MAX: u32 = 100;

/// How many requests of an HTTP/2 connection may be given up by their client before they are begun, before it is taken for
/// an attack and closed, with all else that is under way on it. A proxy that waits for 20 ms gives up all that it asked
/// whenever this machine stands still for longer, and asks anew at once; of that, one turn reads less than this, but for
/// requests without any fields.
const RESETS_PENDING_MAX: usize = 1_000;

/// The most bytes of bodies that an HTTP/2 client may have sent without anybody having read them, over all its
/// requests at once: two batches of the largest size.
const UNREAD_BYTES_MAX: u32 = 256 * 1024;

/// After how long a silence an HTTP/2 client is asked whether it is still there, and how long it may take to
/// say so. This alone notices, while a request is in hand, that the other machine is gone.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PONG_WAIT_MAX: Duration = Duration::from_secs(20);

/// What is never sent: the end of the channel says it all.
#[derive(Debug)]
pub(super) enum Never {}

/// Serves one client until it is done, fails, or the other end of `closing` is dropped.
pub(super) async fn serve<S>(
    stream: S,
    tls: Option<TlsAcceptor>,
    router: Router,
    activity: Arc<Activity>,
    closing: oneshot::Receiver<Never>,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let serving = begin(stream, tls, router, Arc::clone(&activity), closing);
    let mut serving = std::pin::pin!(serving);
    std::future::poll_fn(|context| {
        activity.begins_turn();
        serving.as_mut().poll(context)
    })
    .await;
}

/// Begins with TLS, if that is to be spoken.
async fn begin<S>(
    stream: S,
    tls: Option<TlsAcceptor>,
    router: Router,
    activity: Arc<Activity>,
    mut closing: oneshot::Receiver<Never>,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stream = Watched::new(stream, Arc::clone(&activity));
    let Some(tls) = tls else {
        return speak(stream, router, activity, closing).await;
    };
    let shaking_hands = tokio::select! {
        shook_hands = tls.accept(stream) => shook_hands,
        _ = &mut closing => return,
    };
    match shaking_hands {
        Ok(stream) => {
            activity.shook_hands();
            // Its own allocation, since it is far larger than what a connection without TLS needs.
            Box::pin(speak(stream, router, activity, closing)).await;
        }
        Err(error) => ended_early(&error),
    }
}

/// Serves requests in the protocol that the client speaks.
async fn speak<S>(
    stream: S,
    router: Router,
    activity: Arc<Activity>,
    mut closing: oneshot::Receiver<Never>,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut stream = Sniffed::new(stream);
    let sniffed = tokio::select! {
        sniffed = stream.is_http2() => sniffed,
        _ = &mut closing => return,
    };
    let is_http2 = match sniffed {
        Ok(is_http2) => is_http2,
        Err(error) => return ended_early(&error),
    };
    if is_http2 {
        activity.speaks_http2();
    }
    let stream = TokioIo::new(stream);
    let service = service_fn(move |request| answer(&router, &activity, request));
    let ended = if is_http2 {
        let serving = of_http2().serve_connection(stream, service);
        until_closed(serving, http2::Connection::graceful_shutdown, closing).await
    } else {
        let serving = of_http1().serve_connection(stream, service);
        until_closed(serving, http1::Connection::graceful_shutdown, closing).await
    };
    if let Err(error) = ended {
        ended_early(&error);
    }
}

fn of_http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        // Whoever looks the connections over does this, without a timer for each request.
        .header_read_timeout(None)
        .max_buf_size(HEAD_BYTES_MAX as usize);
    builder
}

fn of_http2() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PONG_WAIT_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESETS_PENDING_MAX)
        .initial_connection_window_size(UNREAD_BYTES_MAX)
        .initial_stream_window_size(UNREAD_BYTES_MAX)
        .max_header_list_size(LIST_BYTES_MAX);
    builder
}

/// Serves to the end, which comes sooner once `closing` is over: what is in hand is answered, and no more.
async fn until_closed<C>(
    serving: C,
    close: impl FnOnce(Pin<&mut C>),
    closing: oneshot::Receiver<Never>,
) -> hyper::Result<()>
where
    C: Future<Output = hyper::Result<()>>,
{
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        biased;
        ended = serving.as_mut() => ended,
        _ = closing => {
            close(serving.as_mut());
            serving.await
        }
    }
}

/// Answers one request, and notes for how long it is in hand.
fn answer(
    router: &Router,
    activity: &Arc<Activity>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response, Cut>> + use<> {
    let answering = activity.begin().map(|in_hand| {
        let request = request.map(|incoming| {
            // Most requests have no body, and then none is boxed.
            if incoming.is_end_stream() {
                return Body::empty();
            }
            Body::new(ArrivingBody {
                incoming,
                activity: Arc::clone(activity),
                arriving: None,
            })
        });
        (in_hand, router.clone().call(request))
    });
    async move {
        let (in_hand, answering) = answering?;
        let answered = answering.await;
        drop(in_hand);
        answered.map_err(|never| match never {})
    }
}

/// A body on its way. The client is waited for from when somebody first reads it until nobody will any more.
struct ArrivingBody {
    incoming: Incoming,
    activity: Arc<Activity>,
    arriving: Option<Arriving>,
}

impl HttpBody for ArrivingBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let body = &mut *self;
        body.arriving
            .get_or_insert_with(|| body.activity.awaits_body());
        Pin::new(&mut body.incoming).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// Clients leave as they please; only who looks for it wants to know.
fn ended_early(error: &(dyn std::error::Error + 'static)) {
    tracing::debug!(error, "a connection ended early");
}

#[cfg(test)]
mod tests {
    use axum::routing::{get, post};
    use http_body_util::Empty;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::sync::Notify;
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    use super::*;
    use crate::server::activity::{Verdict, Waits};

    const WAITS: Waits = Waits {
        head: Duration::from_secs(10),
        idle: Duration::from_secs(75),
    };

    /// The bytes that fit between the server and a client that does not read.
    const PIPE_BYTES: usize = 64;

    /// A connection without a socket, whose clock stands still but for `pass`.
    struct Served {
        client: DuplexStream,
        activity: Arc<Activity>,
        closer: Option<oneshot::Sender<Never>>,
        task: JoinHandle<()>,
    }

    impl Served {
        fn with(router: Router) -> Self {
            let (client, stream) = tokio::io::duplex(PIPE_BYTES);
            let activity = Arc::new(Activity::idle());
            let (closer, closing) = oneshot::channel();
            let serving = serve(stream, None, router, Arc::clone(&activity), closing);
            Self {
                client,
                activity,
                closer: Some(closer),
                task: tokio::spawn(serving),
            }
        }

        async fn send(&mut self, bytes: &str) {
            self.client.write_all(bytes.as_bytes()).await.unwrap();
            self.settle().await;
        }

        /// Lets the server do all it can without anybody else.
        async fn settle(&self) {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        }

        async fn pass(&self, seconds: u64) -> Verdict {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            self.activity.judge(WAITS, Instant::now())
        }

        async fn answer(&mut self) -> String {
            let mut answer = Vec::new();
            while !answer.ends_with(b"\r\n\r\n") {
                answer.push(self.client.read_u8().await.unwrap());
            }
            String::from_utf8(answer).unwrap()
        }

        /// Tells it to close, and checks that it does, without another byte.
        async fn says_goodbye(mut self) {
            self.closer = None;
            let mut rest = Vec::new();
            self.client.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, b"");
            self.task.await.unwrap();
        }
    }

    fn router() -> Router {
        let large = || async { "x".repeat(100_000) };
        let echo = |body: Bytes| async move { body.len().to_string() };
        Router::new()
            .route("/", get(|| async {}))
            .route("/large", get(large))
            .route("/", post(echo))
    }

    #[tokio::test(start_paused = true)]
    async fn before_and_between_requests_a_connection_may_idle() {
        let mut served = Served::with(router());
        served.settle().await;
        assert_eq!(served.pass(74).await, Verdict::Keep);
        for _ in 0..2 {
            served.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
            assert!(served.answer().await.starts_with("HTTP/1.1 200"));
            assert_eq!(served.pass(74).await, Verdict::Keep);
        }
        assert_eq!(served.pass(1).await, Verdict::Close);
        served.says_goodbye().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_in_pieces_has_its_time_as_a_whole() {
        for (first, then) in [
            ("G", "ET / HTTP/1.1\r\n"),
            ("PRI * HTT", "P/2.0\r\n\r\nS"),
            ("GET / HTTP/1.1\r\n", "Host: x\r\n"),
        ] {
            let mut served = Served::with(router());
            served.send(first).await;
            assert_eq!(served.pass(9).await, Verdict::Keep);
            served.send(then).await;
            assert_eq!(served.pass(1).await, Verdict::Cut, "{first:?}");
        }
        // The second one of a connection as well.
        let mut served = Served::with(router());
        served.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        served.answer().await;
        assert_eq!(served.pass(50).await, Verdict::Keep);
        served.send("GET").await;
        assert_eq!(served.pass(10).await, Verdict::Cut);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_cut_answers_no_request() {
        let mut served = Served::with(router());
        served.send("GET / HTTP/1.1\r\n").await;
        assert_eq!(served.pass(10).await, Verdict::Cut);
        served.send("Host: x\r\n\r\n").await;
        let mut answer = Vec::new();
        served.client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_waited_for_until_it_is_there_and_its_answer_is_not() {
        let may_answer = Arc::new(Notify::new());
        let answering = Arc::clone(&may_answer);
        let slow = move |body: Bytes| async move {
            answering.notified().await;
            body.len().to_string()
        };
        let mut served = Served::with(Router::new().route("/", post(slow)));
        let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n";
        served.send(head).await;
        served.send("ab").await;
        assert!(served.activity.waiting_since().is_some());
        served.send("c").await;
        assert_eq!(served.activity.waiting_since(), None);
        assert_eq!(served.pass(1_000).await, Verdict::Keep);
        may_answer.notify_one();
        assert!(served.answer().await.starts_with("HTTP/1.1 200"));
        served.settle().await;
        assert!(served.activity.waiting_since().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_nobody_reads_yet_is_not_waited_for() {
        let may_read = Arc::new(Notify::new());
        let reading = Arc::clone(&may_read);
        let late = move |body: Body| async move {
            reading.notified().await;
            let bytes = axum::body::to_bytes(body, 3).await.unwrap();
            bytes.len().to_string()
        };
        let mut served = Served::with(Router::new().route("/", post(late)));
        let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n";
        served.send(head).await;
        served.send("ab").await;
        assert_eq!(served.activity.waiting_since(), None);
        may_read.notify_one();
        served.settle().await;
        assert_eq!(served.activity.waiting_since(), Some(Instant::now()));
        served.send("c").await;
        assert!(served.answer().await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_its_answer_is_cut() {
        let mut served = Served::with(router());
        served.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await;
        // Slow is not too slow, even if the whole takes long.
        for _ in 0..10 {
            assert_eq!(served.pass(29).await, Verdict::Keep);
            served
                .client
                .read_exact(&mut [0; PIPE_BYTES])
                .await
                .unwrap();
            served.settle().await;
        }
        assert_eq!(served.pass(30).await, Verdict::Cut);
    }

    #[tokio::test(start_paused = true)]
    async fn http_2_idles_by_its_requests_and_says_goodbye() {
        let Served {
            client,
            activity,
            closer,
            task,
        } = Served::with(router());
        let (mut sender, speaking) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(client))
                .await
                .unwrap();
        let speaking = tokio::spawn(speaking);
        for _ in 0..2 {
            let request = Request::get("http://x/")
                .body(Empty::<Bytes>::new())
                .unwrap();
            sender.ready().await.unwrap();
            assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
        }
        let answered_at = Instant::now();
        let after = |seconds| activity.judge(WAITS, answered_at + Duration::from_secs(seconds));
        assert_eq!(after(74), Verdict::Keep);
        assert_eq!(after(75), Verdict::Close);
        drop(closer);
        task.await.unwrap();
        speaking.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_client_that_leaves_at_any_point_ends_its_connection() {
        for sent in [
            "",
            "PRI",
            "GET / HTTP/1.1\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc",
            "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        ] {
            let mut served = Served::with(router());
            served.send(sent).await;
            drop(served.client);
            served.task.await.unwrap();
        }
    }
}
