//! The connections: accepted, served over HTTP/1.1 or HTTP/2, and drained at the end.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::Service as _;

/// How long a client may take for the head of a request, and a connection may idle before one.
const HEAD_WAIT_MAX: Duration = Duration::from_secs(75);

/// The largest head of a request; a larger one is answered 431 by the connection itself.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// How long to wait when the system has no more sockets to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `router` until `shutdown`, then takes no more connections, and lets those there are
/// finish what is in flight for as long as `drain_deadline`. Returns how many were cut off after
/// that.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()>,
    drain_deadline: Duration,
) -> usize {
    let (close, closing) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            // Ended connections are let go of as they end.
            Some(ended) = connections.join_next() => report(ended),
            stream = accept(&listener) => {
                connections.spawn(connection(stream, router.clone(), closing.clone()));
            }
        }
    }
    drop(listener);
    // No connection that is still there could miss it: each holds a receiver.
    let _ = close.send(());
    let drained = tokio::time::timeout(drain_deadline, async {
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
    });
    if drained.await.is_err() {
        tracing::warn!(connections = connections.len(), "connections were cut off");
    }
    let cut_off = connections.len();
    connections.shutdown().await;
    cut_off
}

/// The next connection. An error of one, or a lack of sockets, is no reason to stop.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _peer)) => return stream,
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot accept connections"
                );
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    let kind = error.kind();
    kind == io::ErrorKind::ConnectionAborted
        || kind == io::ErrorKind::ConnectionReset
        || kind == io::ErrorKind::ConnectionRefused
}

async fn connection(stream: TcpStream, router: Router, mut closing: watch::Receiver<()>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "a connection was gone at once"
        );
        return;
    }
    // Which protocol is spoken shows in the first bytes, and nothing below limits the wait for
    // them.
    tokio::select! {
        first = tokio::time::timeout(HEAD_WAIT_MAX, stream.readable()) => match first {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        },
        _ = closing.changed() => return,
    }

    let service = service_fn(move |request: Request<Incoming>| {
        // Most requests have no body, and then none is boxed.
        let request = request.map(|body| {
            if body.is_end_stream() {
                Body::empty()
            } else {
                Body::new(body)
            }
        });
        router.clone().call(request)
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(HEAD_WAIT_MAX);
    let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        _ = closing.changed() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = &*error, "a connection ended early");
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "a connection's task failed"
        );
    }
}
