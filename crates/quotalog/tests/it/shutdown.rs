//! An orderly end: every client has a whole answer or none, and what was answered is what is stored.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::Method;
use tokio::net::TcpStream;

use crate::support::raw::{RawConnection, request};
use crate::support::server::{ADMIN, Server, Site, until};

const CLIENTS: usize = 56;

#[tokio::test]
async fn a_stop_under_load_cuts_no_answer_and_loses_no_unit() {
    for signal in ["TERM", "INT"] {
        let site = Site::new();
        let server = site.serve();
        server.set("/quotas/u/r", "daily", 1_000_000).await;
        let answers = Arc::new(AtomicU64::new(0));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (address, answers) = (server.address, Arc::clone(&answers));
                std::thread::spawn(move || consume_until_closed(address, &answers))
            })
            .collect();
        until("answers", async || answers.load(Ordering::SeqCst) > 300).await;
        server.signal(signal);
        let status = server.ended().await;
        assert_eq!(status.code(), Some(0), "{signal}");

        let mut granted: BTreeMap<String, u64> = BTreeMap::new();
        for client in clients {
            for (window_start, units) in client.join().unwrap() {
                *granted.entry(window_start).or_default() += units;
            }
        }
        assert_eq!(site.stored("u", "r"), granted, "{signal}");
    }
}

/// Every answer must be a whole 200: reading fails at one that is cut.
fn consume_until_closed(address: SocketAddr, answers: &AtomicU64) -> BTreeMap<String, u64> {
    let mut granted: BTreeMap<String, u64> = BTreeMap::new();
    let mut connection = RawConnection::open(address);
    let consume = request("POST", "/quotas/u/r/consume", ADMIN, "");
    while connection.send(&consume) {
        let Some(answer) = connection.read() else {
            break;
        };
        let quota = answer.is(200).json();
        let window_start = quota["window_start"].as_str().unwrap().to_owned();
        *granted.entry(window_start).or_default() += 1;
        answers.fetch_add(1, Ordering::SeqCst);
    }
    granted
}

/// A delay that only a second signal can end within the time of a test.
fn with_a_long_delay(site: &Site) -> Server {
    site.serve_with(|command| command.env("QUOTALOG_SHUTDOWN_DELAY", "1d"))
}

#[tokio::test]
async fn during_the_delay_the_server_is_not_ready_but_serves_until_a_second_signal() {
    for second in ["TERM", "INT"] {
        let site = Site::new();
        let server = with_a_long_delay(&site);
        server.set("/quotas/u/r", "daily", 10).await;
        server.call(Method::GET, "/readyz", "").await.is(200);
        server.signal("TERM");
        until("not ready", async || {
            server.call(Method::GET, "/readyz", "").await.status == 503
        })
        .await;
        let not_ready = server.call(Method::GET, "/readyz", "").await;
        not_ready.problem(503, "unavailable");
        server.call(Method::GET, "/healthz", "").await.is(200);
        let consume = server.call(Method::POST, "/quotas/u/r/consume", "").await;
        consume.is(200);
        server.signal(second);
        assert_eq!(server.ended().await.code(), Some(0), "{second}");
    }
}

#[tokio::test]
async fn an_interrupt_from_the_keyboard_does_not_wait_for_the_delay() {
    let site = Site::new();
    let server = with_a_long_delay(&site);
    server.signal("INT");
    assert_eq!(server.ended().await.code(), Some(0));
}

/// Begins a consume of 3 units, of which the server reads the first bytes of the body.
fn half_a_consume(address: SocketAddr) -> RawConnection {
    let mut connection = RawConnection::open(address);
    let lines = "Content-Type: application/json\r\nContent-Length: 12\r\nExpect: 100-continue\r\n";
    connection.send(request("POST", "/quotas/u/r/consume", ADMIN, lines));
    // The server asks for the body, so it has the request in hand.
    assert_eq!(connection.read().unwrap().status, 100);
    connection.send("{\"amou");
    connection
}

#[tokio::test]
async fn a_request_in_flight_is_answered_after_the_signal() {
    let site = Site::new();
    let server = site.serve_with(|command| command.env("QUOTALOG_SHUTDOWN_DEADLINE", "1d"));
    server.set("/quotas/u/r", "daily", 10).await;
    let mut connection = half_a_consume(server.address);
    server.signal("TERM");
    until("no more connections", async || {
        TcpStream::connect(server.address).await.is_err()
    })
    .await;
    connection.send("nt\":3}");
    let answer = connection.read().unwrap().is(200);
    assert_eq!(answer.json()["usage"], 3);
    assert_eq!(answer.field("connection"), Some("close"));
    connection.is_closed();
    assert_eq!(server.ended().await.code(), Some(0));
}

#[tokio::test]
async fn the_deadline_cuts_a_request_that_does_not_end() {
    let site = Site::new();
    let server = site.serve_with(|command| command.env("QUOTALOG_SHUTDOWN_DEADLINE", "1s"));
    server.set("/quotas/u/r", "daily", 10).await;
    let mut connection = half_a_consume(server.address);
    server.signal("TERM");
    assert_eq!(server.ended().await.code(), Some(0));
    connection.is_closed();
    assert!(site.stored("u", "r").is_empty());
    assert!(site.log().contains("cut"), "{}", site.log());
}

#[tokio::test]
async fn after_a_stop_the_database_is_one_complete_file() {
    let site = Site::new();
    let server = site.serve();
    server.set("/quotas/u/r", "daily", 10).await;
    assert_eq!(server.stop().code(), Some(0));
    let log = site.folder.path().join("quotalog.db-wal");
    assert!(std::fs::metadata(log).map_or(0, |log| log.len()) == 0);
}
