//! The connections: accepted, served over HTTP/1.1 or HTTP/2, and drained at the end.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{self, JoinSet};
use tower::Service as _;

/// How long a client may take for the head of a request, and a connection may idle before one.
const HEAD_WAIT_MAX: Duration = Duration::from_secs(75);

/// The longest pause before another look at bytes that may yet become HTTP/2's preface.
const PREFACE_PAUSE_MAX: Duration = Duration::from_secs(1);

/// What an HTTP/2 connection begins with (RFC 9113 section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest head of a request; a larger one is answered 431 by the connection itself.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// How long to wait when the system has no more sockets to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often at most it is logged that connections cannot be accepted.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);

/// Serves `router` until `shutdown`, then takes no more connections, and lets those there are
/// finish what is in flight for as long as `drain_deadline`. Returns how many were cut off after
/// that.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()>,
    drain_deadline: Duration,
) -> usize {
    let mut connections = Connections::default();
    let mut complaints = Complaints::default();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            // Ended connections are let go of as they end.
            () = connections.end_one() => {}
            stream = accept(&listener, &mut complaints) => connections.open(stream, router.clone()),
        }
    }
    drop(listener);
    connections.close(drain_deadline).await
}

/// The connections that are open, each with the sender whose end tells it to close. One sender for all
/// would have every connection take the same lock each time it is polled.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    closers: HashMap<task::Id, oneshot::Sender<Never>>,
}

/// What is never sent: the end of the channel says it all.
enum Never {}

impl Connections {
    fn open(&mut self, stream: TcpStream, router: Router) {
        let (closer, closing) = oneshot::channel();
        let task = self.tasks.spawn(connection(stream, router, closing));
        self.closers.insert(task.id(), closer);
    }

    /// Waits for one connection to end, and lets go of it; for ever if there is none.
    async fn end_one(&mut self) {
        let (id, ended) = match self.tasks.join_next_with_id().await {
            None => return std::future::pending().await,
            Some(Ok((id, ()))) => (id, Ok(())),
            Some(Err(error)) => (error.id(), Err(error)),
        };
        self.closers.remove(&id);
        if let Err(error) = ended {
            let error: &dyn std::error::Error = &error;
            tracing::error!(error, "a connection's task failed");
        }
    }

    /// Has all connections finish what is in flight, and returns how many were cut off.
    async fn close(mut self, deadline: Duration) -> usize {
        self.closers.clear();
        let drained = tokio::time::timeout(deadline, async {
            while !self.tasks.is_empty() {
                self.end_one().await;
            }
        });
        // The caller is told how many are left, and says so.
        let _late = drained.await;
        let cut_off = self.tasks.len();
        self.tasks.shutdown().await;
        cut_off
    }
}

/// The next connection. An error of one, or a lack of sockets, is no reason to stop.
async fn accept(listener: &TcpListener, complaints: &mut Complaints) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _peer)) => return stream,
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                if complaints.is_due(Instant::now()) {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "cannot accept connections");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// When it was last logged that connections cannot be accepted.
#[derive(Default)]
struct Complaints(Option<Instant>);

impl Complaints {
    /// Whether to log it `now`, and if so, notes that.
    fn is_due(&mut self, now: Instant) -> bool {
        let due = self
            .0
            .is_none_or(|last| now.saturating_duration_since(last) >= COMPLAINT_INTERVAL);
        if due {
            self.0 = Some(now);
        }
        due
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    let kind = error.kind();
    kind == io::ErrorKind::ConnectionAborted
        || kind == io::ErrorKind::ConnectionReset
        || kind == io::ErrorKind::ConnectionRefused
}

async fn connection(stream: TcpStream, router: Router, mut closing: oneshot::Receiver<Never>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "a connection was gone at once"
        );
        return;
    }
    // Nothing below limits the wait for the bytes that tell which protocol is spoken.
    tokio::select! {
        begun = tokio::time::timeout(HEAD_WAIT_MAX, begun(&stream)) => match begun {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        },
        _ = &mut closing => return,
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
        biased;
        ended = serving.as_mut() => ended,
        _ = closing => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = &*error, "a connection ended early");
    }
}

/// Waits until the first bytes tell HTTP/1 from HTTP/2, or the client sends no more. They stay unread.
async fn begun(stream: &TcpStream) -> io::Result<()> {
    let mut first = [0; PREFACE.len()];
    let mut pause = Duration::from_millis(1);
    loop {
        let length = stream.peek(&mut first).await?;
        if length == 0 || length == PREFACE.len() || first[..length] != PREFACE[..length] {
            return Ok(());
        }
        // Unread bytes keep the stream readable, so there is no event to wait for.
        tokio::time::sleep(pause).await;
        pause = PREFACE_PAUSE_MAX.min(pause * 2);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        (client.unwrap(), accepted.unwrap().0)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_does_not_say_what_it_speaks_is_closed() {
        for first in [&b""[..], b"P", &PREFACE[..23]] {
            let (mut client, stream) = pair().await;
            client.write_all(first).await.unwrap();
            let (_closer, closing) = oneshot::channel();
            // Ends by itself: its wait is over as soon as nothing else is to be done.
            connection(stream, Router::new(), closing).await;
            // Closed with bytes unread is closed by a reset.
            assert!(matches!(client.read(&mut [0]).await, Ok(0) | Err(_)));
        }
    }

    #[tokio::test]
    async fn what_is_spoken_shows_in_the_first_bytes() {
        for first in [&b"G"[..], b"PUT", b"PRI * HTTP/1", PREFACE] {
            let (mut client, stream) = pair().await;
            for byte in first {
                client.write_all(&[*byte]).await.unwrap();
            }
            begun(&stream).await.unwrap();
            let mut unread = vec![0; first.len()];
            let (mut stream, _writer) = (stream, client);
            stream.read_exact(&mut unread).await.unwrap();
            assert_eq!(unread, first);
        }
    }

    #[tokio::test]
    async fn a_client_that_leaves_is_not_waited_for() {
        let (client, stream) = pair().await;
        drop(client);
        begun(&stream).await.unwrap();
    }

    #[test]
    fn a_lack_of_sockets_is_logged_now_and_then() {
        let mut complaints = Complaints::default();
        let start = Instant::now();
        let due =
            [0, 1, 9, 10, 11, 19, 20].map(|s| complaints.is_due(start + Duration::from_secs(s)));
        assert_eq!(due, [true, false, false, true, false, false, true]);
    }
}
