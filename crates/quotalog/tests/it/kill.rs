//! A crash at any moment: what was answered is kept, and nothing is counted that nobody asked for.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request};
use tokio::sync::watch;

use crate::support::load::{Load, Tally};
use crate::support::server::{ADMIN, Connection, Site, read_number, until};

const CONNECTIONS: usize = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_granted_unit_is_lost_by_a_crash_and_no_other_is_counted() {
    let site = Site::new();
    let mut server = site.serve();
    server.set("/quotas/u/r", "daily", 1_000_000).await;
    let mut tally = Tally::default();
    for round in 0..20 {
        let load = Load::start(&[server.address], CONNECTIONS, "/quotas/u/r/consume");
        // Each time at another point of the load.
        load.until_granted(20 + 61 * round % 240).await;
        server.kill();
        tally += load.broken().await;

        server = site.serve();
        let (window_start, usage) = server.usage("/quotas/u/r").await;
        let granted = tally.granted_in(&window_start);
        assert!(usage >= granted, "lost: {usage} of {granted}");
        assert!(usage <= granted + tally.unknown, "too many: {usage}");
    }
    assert!(tally.unknown <= 20 * u64::try_from(CONNECTIONS).unwrap());
    assert_eq!((tally.denied, tally.unavailable), (0, 0));
    assert!(tally.other.is_empty(), "{:?}", tally.other);
}

#[tokio::test]
async fn a_limit_holds_across_a_crash() {
    let site = Site::new();
    let server = site.serve();
    server.set("/quotas/u/r", "daily", 10).await;
    let mut asked: BTreeMap<String, u64> = BTreeMap::new();
    let mut granted: BTreeMap<String, u64> = BTreeMap::new();
    let mut server = Some(server);
    for call in 0..14 {
        if call == 4 {
            server.take().unwrap().kill();
            server = Some(site.serve());
        }
        let running = server.as_ref().unwrap();
        let answer = running.call(Method::POST, "/quotas/u/r/consume", "").await;
        *asked.entry(answer.window_start()).or_default() += 1;
        *granted.entry(answer.window_start()).or_default() += u64::from(answer.status == 200);
    }
    for (window_start, asked) in asked {
        assert_eq!(granted[&window_start], asked.min(10));
    }
}

/// Each of these clients repeats a consume under its key until it is answered, over all crashes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keyed_consume_that_a_crash_cut_off_counts_once() {
    let site = Site::new();
    let mut server = site.serve();
    server.set("/quotas/u/r", "daily", 1_000_000).await;
    let (address, addresses) = watch::channel(server.address);
    let (answered, answers) = watch::channel(0_u64);
    let (last, is_last) = watch::channel(false);
    let clients: Vec<_> = (0..32)
        .map(|client| {
            let (addresses, is_last) = (addresses.clone(), is_last.clone());
            tokio::spawn(insist(client, addresses, answered.clone(), is_last))
        })
        .collect();
    for round in 1..=6_u64 {
        until("answers", async || *answers.borrow() >= 97 * round).await;
        server.kill();
        server = site.serve();
        address.send(server.address).unwrap();
    }
    last.send(true).unwrap();

    let mut tally: BTreeMap<String, u64> = BTreeMap::new();
    let mut cut_off = 0;
    for client in clients {
        let (windows, repeats) = client.await.unwrap();
        for window_start in windows {
            *tally.entry(window_start).or_default() += 1;
        }
        cut_off += repeats;
    }
    assert!(cut_off > 0, "no kill met a request");
    assert_eq!(site.stored("u", "r"), tally);
}

/// Consumes under one key after another. Returns the window of each answer, and how many requests were
/// cut off and sent again.
async fn insist(
    client: u64,
    mut addresses: watch::Receiver<SocketAddr>,
    answered: watch::Sender<u64>,
    is_last: watch::Receiver<bool>,
) -> (Vec<String>, u64) {
    let mut windows = Vec::new();
    let mut cut_off = 0;
    let mut connection: Option<Connection> = None;
    while !*is_last.borrow() || windows.is_empty() {
        let key = format!("{client}-{}", windows.len());
        loop {
            let address = *addresses.borrow_and_update();
            let open = match connection.take() {
                Some(open) => Ok(open),
                None => Connection::open(address).await,
            };
            if let Ok(mut open) = open
                && let Ok(answer) = open.send(keyed_consume(&key)).await
            {
                windows.push(answer.is(200).window_start());
                answered.send_modify(|answers| *answers += 1);
                connection = Some(open);
                break;
            }
            cut_off += 1;
            // Until the next server is there.
            if *addresses.borrow() == address {
                addresses.changed().await.unwrap();
            }
        }
    }
    (windows, cut_off)
}

fn keyed_consume(key: &str) -> Request<Full<Bytes>> {
    Request::post("/quotas/u/r/consume")
        .header("host", "localhost")
        .header("authorization", format!("Bearer {ADMIN}"))
        .header("idempotency-key", key)
        .body(Full::default())
        .unwrap()
}

/// An erasure goes on when its client has left, and after a crash in the middle of it.
#[tokio::test]
async fn an_erasure_is_finished_whatever_happens() {
    const ROWS: i64 = 100_000;
    let site = Site::new();
    let server = site.serve();
    server.set("/quotas/u/r", "daily", 10).await;
    assert!(server.stop().success());
    let fill = format!(
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {ROWS}) \
         INSERT INTO quota_usage (user_id, resource, window_start, usage, created_at, updated_at) \
         SELECT 'u', 'r', strftime('%Y-%m-%d %H:00:00', 'now', '-2 days', '-' || (n % 500) || ' hours'), 1, \
         '2026-01-01 00:00:00', '2026-01-01 00:00:00' FROM n WHERE n <= 500 \
         UNION ALL SELECT 'u', 'r' || n, strftime('%Y-%m-%d 00:00:00', 'now', '-3 days'), 1, \
         '2026-01-01 00:00:00', '2026-01-01 00:00:00' FROM n WHERE n > 500"
    );
    let database = rusqlite::Connection::open(site.database()).unwrap();
    database.execute_batch(&fill).unwrap();
    drop(database);
    let left = || read_number(&site.database(), "SELECT count(*) FROM quota_usage");
    assert_eq!(left(), ROWS);

    let server = site.serve();
    let address = server.address;
    let client = tokio::spawn(async move {
        let mut connection = Connection::open(address).await.unwrap();
        let _left = connection
            .call(Method::DELETE, "/quotas/u", ADMIN, "")
            .await;
    });
    // Whoever holds the write lock has the erasure stand still, however long it takes to look and to kill.
    let database = rusqlite::Connection::open(site.database()).unwrap();
    database
        .busy_timeout(std::time::Duration::from_secs(60))
        .unwrap();
    until("the erasure has begun", async || {
        database.execute_batch("BEGIN IMMEDIATE").unwrap();
        let has_begun = left() < ROWS;
        if !has_begun {
            database.execute_batch("ROLLBACK").unwrap();
        }
        has_begun
    })
    .await;
    client.abort();
    server.kill();
    let at_crash = left();
    assert!(at_crash > 0, "the crash came too late to show anything");
    drop(database);

    let server = site.serve();
    until("the erasure is finished", async || left() == 0).await;
    let unfinished = "SELECT count(*) FROM quotalog_erasures";
    until("nothing is left of it", async || {
        read_number(&site.database(), unfinished) == 0
    })
    .await;
    let audit = server
        .call(Method::GET, "/audit?user_id=u&limit=1", "")
        .await;
    assert_eq!(audit.is(200).json()["entries"][0]["action"], "user.erase");
}

/// Where the file keeps what was deleted, it keeps nothing of an erased user, and neither does its log.
#[tokio::test]
async fn no_byte_of_an_erased_user_is_left_but_in_the_audit() {
    const USER: &str = "somebody-who-wants-to-be-forgotten";
    let site = Site::new();
    let server = site.serve();
    for resource in 0..300 {
        let path = format!("/quotas/{USER}/r{resource}");
        server.set(&path, "daily", 1_000).await;
        let consume = format!("{path}/consume");
        server.call(Method::POST, &consume, "").await.is(200);
        // Others come in between, so that pages are split and shared.
        server
            .set(&format!("/quotas/other-{resource}/r"), "daily", 10)
            .await;
    }
    let erased = server
        .call(Method::DELETE, &format!("/quotas/{USER}"), "")
        .await;
    erased.is(204);
    assert!(server.stop().success());
    let file = rusqlite::Connection::open(site.database()).unwrap();
    let forget = "DELETE FROM quotalog_audit; PRAGMA wal_checkpoint(TRUNCATE)";
    // What the audit held is the one thing that is overwritten only from here on.
    file.execute_batch(&format!("PRAGMA secure_delete = ON; {forget}"))
        .unwrap();
    drop(file);
    let bytes = std::fs::read(site.database()).unwrap();
    let found = bytes
        .windows(USER.len())
        .filter(|bytes| *bytes == USER.as_bytes());
    assert_eq!(found.count(), 0);
    assert!(!site.folder.path().join("quotalog.db-wal").exists());
}
