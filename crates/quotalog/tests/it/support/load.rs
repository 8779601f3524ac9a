//! Clients that consume as fast as they are answered, and what they were answered.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hyper::Method;
use tokio::task::JoinHandle;

use super::answer::Answer;
use super::server::{ADMIN, Connection, until};

/// What became of the requests of one pair.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Answered 200, by the start of the window that was answered.
    pub(crate) granted: BTreeMap<String, u64>,
    /// Answered 429.
    pub(crate) denied: u64,
    /// Answered 503 `unavailable`.
    pub(crate) unavailable: u64,
    /// Answered 503 `outcome-unknown`, or not at all.
    pub(crate) unknown: u64,
    /// Answered anything else: always a fault.
    pub(crate) other: Vec<String>,
}

/// Clients at work, each on a connection of its own.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    granted: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Tally>>,
}

impl Tally {
    /// Enters the answer to one consume.
    pub(crate) fn enter(&mut self, answer: &Answer) {
        match answer.status {
            200 => *self.granted.entry(answer.window_start()).or_default() += 1,
            429 => self.denied += 1,
            503 if answer.json()["type"] == "/problems/unavailable" => self.unavailable += 1,
            503 if answer.json()["type"] == "/problems/outcome-unknown" => self.unknown += 1,
            status => self.other.push(format!("{status} {:?}", answer.body)),
        }
    }

    /// The units granted in one window.
    pub(crate) fn granted_in(&self, window_start: &str) -> u64 {
        self.granted.get(window_start).copied().unwrap_or(0)
    }

    /// The units granted in all windows.
    pub(crate) fn granted_in_all(&self) -> u64 {
        self.granted.values().sum()
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        for (window_start, granted) in other.granted {
            *self.granted.entry(window_start).or_default() += granted;
        }
        self.denied += other.denied;
        self.unavailable += other.unavailable;
        self.unknown += other.unknown;
        self.other.extend(other.other);
    }
}

impl Load {
    /// Starts `connections` clients, dealt out to the addresses in turn.
    pub(crate) fn start(addresses: &[SocketAddr], connections: usize, path: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let granted = Arc::new(AtomicU64::new(0));
        let clients = (0..connections).map(|client| {
            let address = addresses[client % addresses.len()];
            let (stop, granted) = (Arc::clone(&stop), Arc::clone(&granted));
            tokio::spawn(consume(address, path.to_owned(), stop, granted))
        });
        Self {
            clients: clients.collect(),
            stop,
            granted,
        }
    }

    /// How many units were granted so far.
    pub(crate) fn granted(&self) -> u64 {
        self.granted.load(Ordering::SeqCst)
    }

    /// Waits until so many units were granted.
    pub(crate) async fn until_granted(&self, units: u64) {
        until("so many units granted", async || self.granted() >= units).await;
    }

    /// Lets every client read its last answer.
    pub(crate) async fn stop(self) -> Tally {
        self.stop.store(true, Ordering::SeqCst);
        self.broken().await
    }

    /// Waits until every client's connection is broken.
    pub(crate) async fn broken(self) -> Tally {
        let mut tally = Tally::default();
        for client in self.clients {
            tally += client.await.unwrap();
        }
        tally
    }
}

async fn consume(
    address: SocketAddr,
    path: String,
    stop: Arc<AtomicBool>,
    granted: Arc<AtomicU64>,
) -> Tally {
    let mut tally = Tally::default();
    // A server that is gone already was asked for nothing.
    let Ok(mut connection) = Connection::open(address).await else {
        return tally;
    };
    while !stop.load(Ordering::SeqCst) {
        let Ok(answer) = connection.call(Method::POST, &path, ADMIN, "").await else {
            tally.unknown += 1;
            break;
        };
        tally.enter(&answer);
        if answer.status == 200 {
            granted.fetch_add(1, Ordering::SeqCst);
        }
    }
    tally
}
