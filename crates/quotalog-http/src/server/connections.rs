//! All connections that are open: begun, looked over, and closed when their time is over, when another needs
//! the room, or when the server ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::{self, AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::activity::{Activity, Verdict, Waits};
use super::connection::{self, Never};

/// How long a connection is left to wait for its client even when another needs the room. What was just
/// answered is written by then.
const UNDISTURBED: Duration = Duration::from_millis(100);

/// How long it takes at least until connections are ranked again, since that looks at all of them.
pub(super) const RANKING_INTERVAL: Duration = Duration::from_millis(20);

/// The open connections.
pub(super) struct Connections {
    waits: Waits,
    len_max: usize,
    tasks: JoinSet<()>,
    /// Those that are not cut. What is cut ends at once, and counts no more.
    open: HashMap<task::Id, Open>,
    /// Those that waited for their clients when they were ranked, the longest wait last.
    ranked: Vec<(Instant, task::Id)>,
    ranked_at: Option<Instant>,
}

struct Open {
    activity: Arc<Activity>,
    /// Its end tells the connection to close. One sender for all would have every connection take the same
    /// lock each time it is polled.
    closer: Option<oneshot::Sender<Never>>,
    task: AbortHandle,
}

impl Connections {
    pub(super) fn new(waits: Waits, len_max: usize) -> Self {
        Self {
            waits,
            len_max,
            tasks: JoinSet::new(),
            open: HashMap::new(),
            ranked: Vec::new(),
            ranked_at: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.open.len() >= self.len_max
    }

    pub(super) fn open(&mut self, stream: TcpStream, tls: Option<TlsAcceptor>, router: Router) {
        if let Err(error) = stream.set_nodelay(true) {
            let error: &dyn std::error::Error = &error;
            tracing::debug!(error, "a connection was gone at once");
            return;
        }
        let activity = Arc::new(match tls {
            Some(_) => Activity::in_handshake(),
            None => Activity::idle(),
        });
        let (closer, closing) = oneshot::channel();
        let serving = connection::serve(stream, tls, router, Arc::clone(&activity), closing);
        let task = self.tasks.spawn(serving);
        let open = Open {
            activity,
            closer: Some(closer),
            task,
        };
        self.open.insert(open.task.id(), open);
    }

    /// Waits for one connection to end, and lets go of it; for ever if there is none.
    pub(super) async fn end_one(&mut self) {
        let (id, ended) = match self.tasks.join_next_with_id().await {
            None => return std::future::pending().await,
            Some(Ok((id, ()))) => (id, Ok(())),
            Some(Err(error)) => (error.id(), Err(error)),
        };
        self.open.remove(&id);
        if let Err(error) = ended
            && !error.is_cancelled()
        {
            let error: &dyn std::error::Error = &error;
            tracing::error!(error, "a connection's task failed");
        }
    }

    /// Closes what has waited for its client for too long.
    pub(super) fn look_over(&mut self, now: Instant) {
        let waits = self.waits;
        self.open
            .retain(|_, open| match open.activity.judge(waits, now) {
                Verdict::Keep => true,
                Verdict::Close => {
                    open.close();
                    true
                }
                Verdict::Cut => {
                    open.task.abort();
                    false
                }
            });
    }

    /// Cuts the connection that has waited for its client the longest, if there is one that may be cut.
    pub(super) fn cut_one(&mut self, now: Instant) {
        while !self.ranked.is_empty() || self.rank(now) {
            let Some((since, id)) = self.ranked.pop() else {
                return;
            };
            // It may have ended or gone on since.
            if let Some(open) = self.open.get(&id)
                && open.activity.cut_if_waiting_since(since)
            {
                open.task.abort();
                self.open.remove(&id);
                return;
            }
        }
    }

    /// Ranks those that wait for their clients; `false` if there are none, or if it was done just now.
    fn rank(&mut self, now: Instant) -> bool {
        let just_now = |at: Instant| now.saturating_duration_since(at) < RANKING_INTERVAL;
        if self.ranked_at.is_some_and(just_now) {
            return false;
        }
        self.ranked_at = Some(now);
        let waiting = self.open.iter().filter_map(|(id, open)| {
            let since = open.activity.waiting_since()?;
            (now.saturating_duration_since(since) >= UNDISTURBED).then_some((since, *id))
        });
        self.ranked.extend(waiting);
        self.ranked
            .sort_unstable_by_key(|(since, _)| std::cmp::Reverse(*since));
        !self.ranked.is_empty()
    }

    /// Has all connections finish what is in hand.
    pub(super) fn close_all(&mut self) {
        self.open.values_mut().for_each(Open::close);
    }

    /// Cuts all that is left, and returns how many connections that are.
    pub(super) async fn cut_all(mut self) -> usize {
        let len = self.open.len();
        self.tasks.shutdown().await;
        len
    }
}

impl Open {
    fn close(&mut self) {
        if self.closer.take().is_some() {
            self.activity.told();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::*;

    const WAITS: Waits = Waits {
        head: Duration::from_secs(10),
        idle: Duration::from_secs(75),
    };

    async fn open(connections: &mut Connections) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (accepted, _peer) = listener.accept().await.unwrap();
        connections.open(accepted, None, Router::new());
        client.unwrap()
    }

    async fn pass(time: Duration) {
        tokio::time::advance(time).await;
    }

    async fn is_closed(mut client: TcpStream) {
        // The clock stands still, so this passes at once when there is nothing else to wait for.
        let read = tokio::time::timeout(WAITS.idle, client.read(&mut [0])).await;
        assert!(matches!(read, Ok(Ok(0) | Err(_))), "{read:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_wait_makes_room_and_a_short_one_does_not() {
        let mut connections = Connections::new(WAITS, 3);
        let mut clients = Vec::new();
        for _ in 0..3 {
            assert!(!connections.is_full());
            clients.push(open(&mut connections).await);
            pass(UNDISTURBED).await;
        }
        clients.push(open(&mut connections).await);
        for client in clients.drain(..3) {
            connections.cut_one(Instant::now());
            is_closed(client).await;
            connections.end_one().await;
        }
        // The last one has only just come.
        pass(RANKING_INTERVAL).await;
        connections.cut_one(Instant::now());
        assert_eq!(connections.open.len(), 1);
        pass(UNDISTURBED).await;
        connections.cut_one(Instant::now());
        assert_eq!(connections.open.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_waited_too_long_is_closed_and_the_others_are_not() {
        let mut connections = Connections::new(WAITS, 10);
        let first = open(&mut connections).await;
        pass(WAITS.idle / 2).await;
        let _second = open(&mut connections).await;
        pass(WAITS.idle / 2).await;
        connections.look_over(Instant::now());
        is_closed(first).await;
        connections.end_one().await;
        assert_eq!(connections.open.len(), 1);
        assert_eq!(connections.cut_all().await, 1);
    }
}
