//! The server: takes connections, sees to it that none stays for nothing, and drains them at the end.
//!
//! A connection is never closed on a request that it has in hand, other than by the deadline at the end. One
//! that waits for its client has its time, and makes room for others when there are too many.

mod activity;
mod connection;
mod connections;
mod sniffed;
mod tls;
mod watched;

use std::io;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, MissedTickBehavior};

pub use tls::{Tls, TlsError, TlsFiles};

use activity::Waits;
use connections::{Connections, RANKING_INTERVAL};

/// How often connections are looked over, and so how much later than its time one may be closed.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// How long to wait when the system has no more sockets to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often at most it is logged that connections cannot be accepted, or that there are too many.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);

/// How a server treats its connections.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The certificate, if connections are to be encrypted.
    pub tls: Option<Tls>,
    /// How long a client may take for the head of a request once it has begun it, and for a TLS handshake.
    pub head_timeout: Duration,
    /// How long a connection may idle before a request.
    pub idle_timeout: Duration,
    /// The most connections at once. One more takes the place of the one that has waited for its client the
    /// longest; if all have a request in hand, it waits.
    pub connections_max: usize,
    /// How long what is in hand may take at the end.
    pub drain_deadline: Duration,
}

/// Serves `router` until `shutdown`, then takes no more connections, and lets those there are
/// finish what is in hand. Returns how many were cut off by the deadline.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    settings: Settings,
    shutdown: impl Future<Output = ()>,
) -> usize {
    let waits = Waits {
        head: settings.head_timeout,
        idle: settings.idle_timeout,
    };
    let mut connections = Connections::new(waits, settings.connections_max);
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut refusals, mut floods) = (Complaints::default(), Complaints::default());
    let mut shutdown = std::pin::pin!(shutdown);
    let mut next: Option<TcpStream> = None;
    loop {
        if next.is_some() && connections.is_full() {
            let now = Instant::now();
            if floods.is_due(now) {
                let connections_max = settings.connections_max;
                tracing::warn!(
                    connections_max,
                    "there are too many connections; those that wait for their clients the longest are closed"
                );
            }
            connections.cut_one(now);
        }
        if !connections.is_full()
            && let Some(stream) = next.take()
        {
            let tls = settings.tls.as_ref().map(Tls::acceptor);
            connections.open(stream, tls, router.clone());
        }
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            // Ended connections are let go of as they end.
            () = connections.end_one() => {}
            _ = look.tick(), if !connections.is_empty() => connections.look_over(Instant::now()),
            stream = accept(&listener, &mut refusals), if next.is_none() => next = Some(stream),
            // None could be cut for it, so all are looked at again.
            () = tokio::time::sleep(RANKING_INTERVAL), if next.is_some() => {}
        }
    }
    drop((listener, next));
    drain(connections, look, settings.drain_deadline).await
}

async fn drain(
    mut connections: Connections,
    mut look: tokio::time::Interval,
    deadline: Duration,
) -> usize {
    connections.close_all();
    let drained = tokio::time::timeout(deadline, async {
        while !connections.is_empty() {
            tokio::select! {
                biased;
                () = connections.end_one() => {}
                _ = look.tick() => connections.look_over(Instant::now()),
            }
        }
    });
    // The caller is told how many are left, and says so.
    let _late = drained.await;
    connections.cut_all().await
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::{Notify, oneshot};

    use super::*;

    fn settings(connections_max: usize) -> Settings {
        Settings {
            tls: None,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            connections_max,
            drain_deadline: Duration::from_secs(30),
        }
    }

    async fn ask(address: SocketAddr) -> TcpStream {
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        client.write_all(request).await.unwrap();
        client
    }

    #[tokio::test(start_paused = true)]
    async fn where_all_have_requests_in_hand_a_new_one_waits() {
        let in_hand = Arc::new(Notify::new());
        let may_answer = Arc::new(Notify::new());
        let router = Router::new().route("/", {
            let (in_hand, may_answer) = (Arc::clone(&in_hand), Arc::clone(&may_answer));
            get(|| async move {
                in_hand.notify_one();
                may_answer.notified().await;
            })
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let server = tokio::spawn(serve(listener, router, settings(1), async move {
            // Its sender says by its end that this is the end.
            let _ended = ended.await;
        }));

        let mut clients = Vec::new();
        clients.push(ask(address).await);
        in_hand.notified().await;
        for _ in 0..2 {
            clients.push(ask(address).await);
            // The server looks at all connections again and again, and finds none to cut.
            tokio::time::sleep(Duration::from_secs(100)).await;
        }
        for mut client in clients {
            may_answer.notify_one();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            assert!(answer.starts_with(b"HTTP/1.1 200"));
        }
        drop(end);
        assert_eq!(server.await.unwrap(), 0);
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
