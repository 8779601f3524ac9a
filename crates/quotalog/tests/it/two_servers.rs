//! Several processes on one file: exact together, fair to each other, and open to the command line.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use hyper::Method;

use crate::cli::succeeds;
use crate::support::load::{Load, Tally};
use crate::support::server::{ADMIN, Connection, Server, Site, read_number, until};

const CONSUME: &str = "/quotas/u/r/consume";

async fn two(site: &Site) -> (Server, Server) {
    let (a, b) = (site.serve(), site.serve());
    a.ready().await;
    b.ready().await;
    (a, b)
}

/// Each of `clients` consumes once, all at the same time, over the addresses in turn. Returns the status,
/// window and usage of each answer.
pub(crate) async fn at_once(addresses: &[SocketAddr], clients: usize) -> Vec<(u16, String, u64)> {
    let mut calls = Vec::new();
    for client in 0..clients {
        let connection = Connection::open(addresses[client % addresses.len()]).await;
        let mut connection = connection.unwrap();
        calls.push(tokio::spawn(async move {
            let answer = connection.call(Method::POST, CONSUME, ADMIN, "").await;
            let answer = answer.unwrap();
            assert!(matches!(answer.status, 200 | 429), "{answer:?}");
            (answer.status, answer.window_start(), answer.usage())
        }));
    }
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap());
    }
    answers
}

/// Checks that the grants in each window used up the limit in steps of one, as far as they were asked for.
#[track_caller]
pub(crate) fn exact(answers: &[(u16, String, u64)], before: u64, limit: u64) {
    let windows: BTreeSet<_> = answers.iter().map(|(_, window, _)| window).collect();
    let first = windows.first().copied();
    for window_start in windows {
        // Usage from before belongs to the window that was first.
        let before = if first == Some(window_start) {
            before
        } else {
            0
        };
        let here = answers
            .iter()
            .filter(|(_, window, _)| window == window_start);
        let asked = u64::try_from(here.clone().count()).unwrap();
        let usages: BTreeSet<u64> = here
            .filter(|(status, ..)| *status == 200)
            .map(|(.., usage)| *usage)
            .collect();
        let granted = asked.min(limit - before);
        assert_eq!(usages, (before + 1..=before + granted).collect());
    }
    let granted = answers.iter().filter(|(status, ..)| *status == 200).count();
    let distinct: BTreeSet<_> = answers
        .iter()
        .filter(|(status, ..)| *status == 200)
        .collect();
    assert_eq!(granted, distinct.len(), "two grants were the same unit");
}

#[tokio::test]
async fn parallel_calls_over_both_use_the_limit_up_and_no_more() {
    parallel_calls(&Site::new()).await;
}

pub(crate) async fn parallel_calls(site: &Site) {
    let (a, b) = two(site).await;
    let both = [a.address, b.address];
    for round in 0..5 {
        a.set("/quotas/u/r", "daily", 10).await;
        let reset = a.call(Method::POST, "/quotas/u/r/reset", "").await;
        assert_eq!(reset.is(200).usage(), 0);
        if round % 2 == 0 {
            exact(&at_once(&both, 25).await, 0, 10);
        } else {
            // Primed to 9, ten race for the last unit.
            let primed = b.call(Method::POST, CONSUME, r#"{"amount":9}"#).await;
            let window_start = primed.is(200).window_start();
            let answers = at_once(&both, 10).await;
            if answers.iter().all(|(_, window, _)| *window == window_start) {
                exact(&answers, 9, 10);
            }
        }
    }
}

#[tokio::test]
async fn alternate_calls_share_one_limit() {
    alternate_calls(&Site::new()).await;
}

pub(crate) async fn alternate_calls(site: &Site) {
    let (a, b) = two(site).await;
    a.set("/quotas/u/r", "daily", 10).await;
    let mut answers = Vec::new();
    for call in 0..24 {
        let server = if call % 2 == 0 { &a } else { &b };
        let answer = server.call(Method::POST, CONSUME, "").await;
        answers.push((answer.status, answer.window_start(), answer.usage()));
    }
    exact(&answers, 0, 10);
    // A server that has just started knows it too.
    let c = site.serve();
    c.ready().await;
    let answer = c.call(Method::POST, CONSUME, "").await;
    answers.push((answer.status, answer.window_start(), answer.usage()));
    exact(&answers, 0, 10);
    b.kill();
    let (window_start, usage) = c.usage("/quotas/u/r").await;
    if let Some((.., last)) = answers
        .iter()
        .rfind(|(_, window, _)| *window == window_start)
    {
        assert_eq!(usage, *last);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_over_both_usage_is_the_number_of_grants() {
    let site = Site::new();
    let (a, b) = two(&site).await;
    a.set("/quotas/u/r", "daily", 1_000_000).await;
    let load = Load::start(&[a.address, b.address], 32, CONSUME);
    load.until_granted(3_000).await;
    let tally = load.stop().await;
    assert_eq!((tally.denied, tally.unavailable, tally.unknown), (0, 0, 0));
    assert!(tally.other.is_empty(), "{:?}", tally.other);
    assert_eq!(site.stored("u", "r"), tally.granted);
}

#[tokio::test]
async fn a_limit_changed_on_one_is_obeyed_by_the_very_next_call_on_the_other() {
    changed_limits(&Site::new()).await;
}

pub(crate) async fn changed_limits(site: &Site) {
    let (a, b) = two(site).await;
    // An amount that fits a limit or does not, whatever was used: no window's end changes the answers.
    for limit in 1..40 {
        a.set("/quotas/u/r", "daily", limit).await;
        a.call(Method::POST, "/quotas/u/r/reset", "").await.is(200);
        let all = format!(r#"{{"amount":{limit}}}"#);
        let answer = b.call(Method::POST, CONSUME, &all).await.is(200);
        assert_eq!(answer.json()["limit_count"], limit);
        let more = format!(r#"{{"amount":{}}}"#, limit + 1);
        let answer = b.call(Method::POST, CONSUME, &more).await;
        answer.faults(&["amount exceeds_limit"]);
    }
    a.call(Method::DELETE, "/quotas/u/r", "").await.is(204);
    b.call(Method::POST, CONSUME, "").await.is(404);
}

/// Commits are counted rather than time: while the other server is under full load, a single client waits
/// for a bounded number of its batches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_server_does_not_starve_the_other() {
    const CONNECTIONS: u64 = 32;
    const CALLS: u64 = 200;
    let site = Site::new();
    let (a, b) = two(&site).await;
    a.set("/quotas/u/r", "daily", 1_000_000).await;
    a.set("/quotas/u/s", "daily", 1_000_000).await;
    let load = Load::start(&[a.address], CONNECTIONS.try_into().unwrap(), CONSUME);
    load.until_granted(200).await;
    let before = load.granted();
    let mut connection = b.connect().await;
    let mut tally = Tally::default();
    for _ in 0..CALLS {
        let answer = connection
            .call(Method::POST, "/quotas/u/s/consume", ADMIN, "")
            .await;
        tally.enter(&answer.unwrap());
    }
    let meanwhile = load.granted() - before;
    assert_eq!(tally.granted_in_all(), CALLS, "{tally:?}");
    assert!(meanwhile > 0, "the other server stood still");
    // A batch holds one request of a connection at most. Without a line before the lock, a call waits for
    // a thousand batches and more.
    let batches = meanwhile.div_ceil(CONNECTIONS);
    assert!(batches < 100 * CALLS, "{batches} batches for {CALLS} calls");
    let busy = load.stop().await;
    assert_eq!((busy.unavailable, busy.unknown), (0, 0));
    assert_eq!(site.stored("u", "r"), busy.granted);
    assert_eq!(site.stored("u", "s"), tally.granted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_works_beside_busy_servers() {
    let site = Site::new();
    let (a, b) = two(&site).await;
    a.set("/quotas/u/r", "daily", 1_000_000).await;
    let load = Load::start(&[a.address, b.address], 32, CONSUME);
    load.until_granted(100).await;

    for _ in 0..5 {
        let token = site.token(&["--role", "user", "--user-id", "u", "--json"]);
        let token: serde_json::Value = serde_json::from_str(&token).unwrap();
        let (id, secret) = (token["id"].as_str().unwrap(), &token["token"]);
        let secret = secret.as_str().unwrap();
        for server in [&a, &b] {
            let mut connection = server.connect().await;
            let check = connection
                .call(Method::GET, "/quotas/u/r", secret, "")
                .await;
            check.unwrap().is(200);
        }
        let revoked = site.run(&["token", "revoke", id]);
        succeeds(&revoked);
        for server in [&a, &b] {
            let mut connection = server.connect().await;
            for (method, path) in [(Method::GET, "/quotas/u/r"), (Method::POST, CONSUME)] {
                let refused = connection.call(method, path, secret, "").await;
                refused.unwrap().problem(401, "unauthorized");
            }
        }
    }

    old_rows(&site, 4_000);
    let pruned = site.run(&["prune"]);
    succeeds(&pruned);
    let old = "SELECT count(*) FROM quota_usage WHERE window_start < '2021'";
    assert_eq!(read_number(&site.database(), old), 0);

    let tally = load.stop().await;
    assert_eq!((tally.denied, tally.unavailable, tally.unknown), (0, 0, 0));
    assert!(tally.other.is_empty(), "{:?}", tally.other);
    assert_eq!(site.stored("u", "r"), tally.granted);
}

/// Stores usage of 2020, as if it had been counted then.
fn old_rows(site: &Site, rows: u32) {
    let connection = rusqlite::Connection::open(site.database()).unwrap();
    connection
        .busy_timeout(std::time::Duration::from_secs(60))
        .unwrap();
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
               INSERT INTO quota_usage (user_id, resource, window_start, usage, created_at, updated_at) \
               SELECT 'old' || i, 'r', '2020-01-01 00:00:00', 1, '2020-01-01 00:00:00', \
               '2020-01-01 00:00:00' FROM n";
    connection.execute(sql, [rows]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_servers_that_start_at_once_on_a_new_file_make_one_token() {
    let site = std::sync::Arc::new(Site::new());
    let starting: Vec<_> = (0..8)
        .map(|_| {
            let site = std::sync::Arc::clone(&site);
            std::thread::spawn(move || {
                site.serve_with(|command| command.env_remove("QUOTALOG_ADMIN_TOKEN"))
            })
        })
        .collect();
    let servers: Vec<_> = starting
        .into_iter()
        .map(|starting| starting.join().unwrap())
        .collect();
    let admins = "SELECT count(*) FROM quotalog_tokens WHERE role = 'admin'";
    assert_eq!(read_number(&site.database(), admins), 1);
    let token = std::fs::read_to_string(site.folder.path().join("admin-token")).unwrap();
    let log = site.log();
    assert_eq!(
        log.matches("made the first admin token").count(),
        1,
        "{log}"
    );
    assert!(!log.contains(" ERROR quotalog"), "{log}");
    for server in &servers {
        until("ready", async || {
            server.call(Method::GET, "/readyz", "").await.status == 200
        })
        .await;
        let mut connection = server.connect().await;
        let body = r#"{"window":"daily","limit_count":100}"#;
        let put = connection.call(Method::PUT, "/quotas/u/r", token.trim(), body);
        put.await.unwrap().is(200);
    }
    let mut granted: BTreeMap<String, u64> = BTreeMap::new();
    for server in &servers {
        let mut connection = server.connect().await;
        let consume = connection.call(Method::POST, CONSUME, token.trim(), "");
        *granted
            .entry(consume.await.unwrap().is(200).window_start())
            .or_default() += 1;
    }
    assert_eq!(site.stored("u", "r"), granted);
}
