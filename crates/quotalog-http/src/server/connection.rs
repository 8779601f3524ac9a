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

/// How many requests an HTTP/2 connection may have at once; what RFC 9113 section 6.5.2 asks for at least.
const STREAMS_MAX: u32 = 100;

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
        .max_header_list_size(HEAD_BYTES_MAX);
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
    // Most requests have no body, and then none is boxed.
    let begun = activity.begin(!request.body().is_end_stream());
    let answering = begun.map(|(in_hand, arriving)| {
        let request = request.map(|incoming| match arriving {
            Some(arriving) => Body::new(ArrivingBody { incoming, arriving }),
            None => Body::empty(),
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

/// A body on its way, for as long as somebody reads it.
struct ArrivingBody {
    incoming: Incoming,
    #[expect(
        dead_code,
        reason = "says by its end that the body is no longer waited for"
    )]
    arriving: Arriving,
}

impl HttpBody for ArrivingBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.incoming).poll_frame(context)
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
