//! What callers make up costs a server nothing that lasts: no memory, and no row.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::support::raw::request;
use crate::support::server::{ADMIN, Server, Site, read_number, skipped};
use crate::support::stream::Stream;

const CONNECTIONS: usize = 32;
/// How many requests a client sends before it reads their answers.
const PIPELINED: usize = 50;

/// What memory may grow by over [`ALL`] requests of each kind.
const GROWTH_BYTES_MAX: usize = 50 * 1024 * 1024;
const ALL: usize = 200_000;
/// How many a server has answered before its memory is looked at, of each kind: what it keeps for as long as it runs
/// is there by then.
const FIRST: usize = 5_000;
/// How far the memory of a server wanders by itself.
const WANDERING_BYTES: usize = 2 * 1024 * 1024;

/// How many of each kind: enough to show what grows, and [`ALL`] where there is time for them.
fn requests() -> usize {
    std::env::var("BOUNDS_REQUESTS").map_or(5_000, |requests| {
        requests.parse().expect("BOUNDS_REQUESTS is a number")
    })
}

/// The `n`th request of a kind.
type Make = fn(n: usize) -> String;

/// Checks and consumes of pairs that nobody has made, each another.
fn unknown_pair(n: usize) -> String {
    let path = format!("/quotas/nobody-{n}/r");
    match n % 3 {
        0 => request("GET", &path, ADMIN, ""),
        1 => request("POST", &format!("{path}/consume"), ADMIN, ""),
        _ => request("GET", &format!("/quotas/u/nothing-{n}"), ADMIN, ""),
    }
}

/// Tokens that nobody has made, most of them in the form of ours.
fn wrong_token(n: usize) -> String {
    let token = match n % 4 {
        0 => format!("nonsense-{n}"),
        _ => format!("ql_{n:043}"),
    };
    match n % 3 {
        0 => request("GET", "/quotas/u/r", &token, ""),
        1 => request("POST", "/quotas/u/r/consume", &token, ""),
        _ => request("PUT", "/quotas/u/r", &token, ""),
    }
}

/// Keys on requests that fail, each in its own way.
fn key_on_a_failing_request(n: usize) -> String {
    let amount = |amount: &str| {
        let body = format!(r#"{{"amount":{amount}}}"#);
        let bytes = body.len();
        format!("Content-Type: application/json\r\nContent-Length: {bytes}\r\n\r\n{body}")
    };
    let (path, rest) = match n % 5 {
        // There is no such pair, nothing is left, it never fits, and it is no amount.
        0 => (format!("/quotas/nobody-{n}/r/consume"), "\r\n".to_owned()),
        1 | 2 => ("/quotas/u/r/consume".to_owned(), "\r\n".to_owned()),
        3 => ("/quotas/u/r/consume".to_owned(), amount("3")),
        _ => ("/quotas/u/r/consume".to_owned(), amount("0")),
    };
    let key = format!("Idempotency-Key: key-{n}\r\n");
    let mut text = request("POST", &path, ADMIN, &key);
    text.truncate(text.len() - 2);
    text + &rest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_callers_make_up_takes_no_memory_and_no_row() {
    let site = Site::new();
    let server = site.serve();
    server.set("/quotas/u/r", "daily", 2).await;
    let all = r#"{"amount":2}"#;
    server
        .call(Method::POST, "/quotas/u/r/consume", all)
        .await
        .is(200);
    let kinds: [(Make, &[u16]); 3] = [
        (unknown_pair, &[404]),
        (wrong_token, &[401]),
        // Two units are granted if a day ends meanwhile.
        (key_on_a_failing_request, &[404, 422, 429, 200]),
    ];
    let rows_before = rows(&site.database());
    let mut granted = 0;
    let mut send = async |which: Range<usize>| {
        for (make, expected) in kinds {
            let mut statuses = send_all(&server, make, which.clone()).await;
            granted += statuses.get(&200).copied().unwrap_or(0);
            statuses.retain(|status, _| !expected.contains(status));
            assert!(statuses.is_empty(), "{statuses:?}");
        }
    };
    send(0..FIRST).await;
    let memory_before = resident_bytes(&server);
    let requests = requests();
    send(FIRST..FIRST + requests).await;

    let rows_after = rows(&site.database());
    if granted == 0 {
        assert_eq!(rows_after, rows_before);
    } else {
        // Each has its key, and their window has a row.
        let sum = |rows: BTreeMap<String, i64>| rows.into_values().sum::<i64>();
        assert_eq!(sum(rows_after), sum(rows_before) + granted + 1);
    }
    match memory_before.zip(resident_bytes(&server)) {
        Some((before, after)) => {
            let grown = after.saturating_sub(before);
            let most = WANDERING_BYTES.max(GROWTH_BYTES_MAX / ALL * requests);
            assert!(grown < most, "{grown} bytes from {before}");
        }
        None => skipped("this system does not tell how much memory a process holds"),
    }
}

/// Sends those requests of a kind over many connections. Returns how often each status was answered.
async fn send_all(server: &Server, make: Make, which: Range<usize>) -> BTreeMap<u16, i64> {
    let address = server.address;
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|client| {
            let own: Vec<_> = which.clone().skip(client).step_by(CONNECTIONS).collect();
            tokio::spawn(async move {
                let mut connection = Stream::open(address).await.unwrap();
                let mut statuses = Vec::new();
                for some in own.chunks(PIPELINED) {
                    let text: String = some.iter().map(|n| make(*n)).collect();
                    connection.send(text).await.unwrap();
                    for _ in some {
                        statuses.push(connection.read().await.unwrap().status);
                    }
                }
                statuses
            })
        })
        .collect();
    let mut times = BTreeMap::new();
    for client in clients {
        for status in client.await.unwrap() {
            *times.entry(status).or_default() += 1;
        }
    }
    times
}

/// How many rows each table has.
fn rows(database: &Path) -> BTreeMap<String, i64> {
    let connection = rusqlite::Connection::open(database).unwrap();
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table'";
    let mut tables = connection.prepare(sql).unwrap();
    let tables = tables.query_map([], |row| row.get::<_, String>(0)).unwrap();
    tables
        .map(|table| {
            let table = table.unwrap();
            let count = format!("SELECT count(*) FROM \"{table}\"");
            (table, read_number(database, &count))
        })
        .collect()
}

/// How many connections of HTTP/2 send bodies, each so many at once, of so many bytes.
const BODY_CONNECTIONS: usize = 12;
const BODIES: usize = 100;
const BODY_BYTES: usize = 127 * 1024;

/// A batch's body whose last byte is held back until somebody opens the gate.
struct HeldBack {
    sent: usize,
    gate: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl HeldBack {
    fn behind(mut gate: watch::Receiver<bool>) -> Self {
        Self {
            sent: 0,
            gate: Box::pin(async move {
                // The gate's owner outlives this.
                let _opened = gate.wait_for(|open| *open).await;
            }),
        }
    }
}

impl Body for HeldBack {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match self.sent {
            0 => {
                let mut bytes = br#"{"items":["#.to_vec();
                bytes.resize(BODY_BYTES, b' ');
                bytes
            }
            BODY_BYTES => {
                if self.gate.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                b"]}".to_vec()
            }
            _ => return Poll::Ready(None),
        };
        self.sent += bytes.len();
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(bytes)))))
    }
}

/// Sends batches whose bodies are all under way at once. Returns how often each status was answered.
async fn send_bodies(server: &Server, token: &str) -> BTreeMap<u16, i64> {
    let (open, gate) = watch::channel(false);
    let mut calls = Vec::new();
    for _ in 0..BODY_CONNECTIONS {
        let stream = TcpStream::connect(server.address).await.unwrap();
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        for _ in 0..BODIES {
            let request = Request::post("http://localhost/consume")
                .header("authorization", format!("Bearer {token}"))
                .header("content-type", "application/json")
                .body(HeldBack::behind(gate.clone()));
            let mut sender = sender.clone();
            calls.push(tokio::spawn(async move {
                let response = sender.send_request(request.unwrap()).await;
                response.unwrap().status().as_u16()
            }));
        }
    }
    // The server is as far as it gets without the ends of the bodies when it answers this.
    server.call(Method::GET, "/readyz", "").await.is(200);
    open.send_replace(true);
    let mut times = BTreeMap::new();
    for call in calls {
        *times.entry(call.await.unwrap()).or_default() += 1;
    }
    times
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_take_no_memory_without_a_token_and_little_with_one() {
    let site = Site::new();
    let server = site.serve();
    server.ready().await;
    for (token, expected, grown_max) in [
        // A third of what the bodies are; what 1200 streams take without them varies.
        ("ql_unknown", [401, 401], 48 * 1024 * 1024),
        // What has room is judged: it has no items.
        (ADMIN, [422, 503], 64 * 1024 * 1024),
    ] {
        let before = peak_bytes(&server);
        let statuses = send_bodies(&server, token).await;
        assert!(
            statuses.keys().all(|status| expected.contains(status)),
            "{statuses:?}"
        );
        match before.zip(peak_bytes(&server)) {
            Some((before, after)) => {
                let grown = after.saturating_sub(before);
                assert!(grown < grown_max, "{grown} bytes from {before}");
            }
            None => skipped("this system does not tell how much memory a process holds"),
        }
    }
}

/// The memory that a server holds; none where the system does not tell.
fn resident_bytes(server: &Server) -> Option<usize> {
    memory(server, "VmRSS:")
}

/// The most that it ever held.
fn peak_bytes(server: &Server) -> Option<usize> {
    memory(server, "VmHWM:")
}

fn memory(server: &Server, name: &str) -> Option<usize> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).ok()?;
    let line = status.lines().find(|line| line.starts_with(name))?;
    let kilobytes: usize = line.split_whitespace().nth(1)?.parse().unwrap();
    Some(kilobytes * 1024)
}
