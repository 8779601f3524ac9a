//! The real binary, on both stores.

use std::time::Duration;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code::{Ok, OverLimit};
use hyper::Method;
use hyper_util::rt::TokioIo;
use quotalog_testkit::postgres::{Cluster, Setup};
use tokio::task::JoinSet;
use tokio_rustls::rustls::version::TLS13;
use tonic::transport::Endpoint;
use tonic::{Code, Request};
use tower::service_fn;

use crate::support::rls::{Rls, bearer, call, of_pair, with_addend};
use crate::support::server::{ADMIN, Server, Site, skipped, until, with_rls};
use crate::support::tls::{Pair, with_tls};

const A: (&str, &str) = ("a", "r");
const B: (&str, &str) = ("b", "r");

fn on_postgres() -> Option<Site> {
    Some(Site::on(&Cluster::shared()?.database()))
}

async fn client(server: &Server) -> Rls {
    Rls::connect(server.rls_address(), ADMIN).await
}

fn total(site: &Site, user_id: &str) -> u64 {
    site.stored(user_id, "r").values().sum()
}

/// A hundred calls of each order at once, over the servers in turn, each on one of a few connections.
async fn opposite_orders(site: &Site, servers: &[Server]) {
    for server in servers {
        server.ready().await;
    }
    servers[0].set("/quotas/a/r", "daily", 1_000_000).await;
    servers[0].set("/quotas/b/r", "daily", 1_000_000).await;
    let mut clients = Vec::new();
    for place in 0..8 {
        clients.push(client(&servers[place % servers.len()]).await);
    }
    let mut calls = JoinSet::new();
    for place in 0..200 {
        let rls = clients[place % clients.len()].clone();
        let pairs = if place % 2 == 0 { [A, B] } else { [B, A] };
        calls.spawn(async move { rls.ask(&pairs).await });
    }
    for verdict in calls.join_all().await {
        assert_eq!(verdict, (Ok, vec![Ok, Ok]));
    }
    assert_eq!((total(site, "a"), total(site, "b")), (200, 200));
    assert!(!site.log().contains("ERROR"), "{}", site.log());
}

#[tokio::test]
async fn calls_in_opposite_orders_stop_nobody_on_sqlite() {
    let site = Site::new();
    let servers = [site.serve_rls(), site.serve_rls()];
    opposite_orders(&site, &servers).await;
}

#[tokio::test]
async fn calls_in_opposite_orders_stop_nobody_on_postgres() {
    let Some(site) = on_postgres() else { return };
    let servers = [site.serve_rls(), site.serve_rls()];
    opposite_orders(&site, &servers).await;
}

/// 300 calls of two pairs at once, of which one has room for 100.
async fn the_limit_exactly(site: &Site) {
    let servers = [site.serve_rls(), site.serve_rls()];
    for server in &servers {
        server.ready().await;
    }
    servers[0].set("/quotas/a/r", "daily", 100).await;
    servers[0].set("/quotas/b/r", "daily", 1_000_000).await;
    let clients = [client(&servers[0]).await, client(&servers[1]).await];
    let mut calls = JoinSet::new();
    for place in 0..300 {
        let rls = clients[place % 2].clone();
        calls.spawn(async move { rls.ask(&[A, B]).await });
    }
    let mut granted = 0;
    for (overall, each) in calls.join_all().await {
        // B has room for all of them.
        assert_eq!(each, [overall, Ok]);
        granted += u64::from(overall == Ok);
    }
    let windows = site.stored("a", "r");
    assert!(windows.values().all(|units| *units <= 100), "{windows:?}");
    if windows.len() == 1 {
        assert_eq!(granted, 100);
    }
    assert_eq!((total(site, "a"), total(site, "b")), (granted, granted));
}

#[tokio::test]
async fn parallel_calls_use_the_limit_up_and_no_more_on_sqlite() {
    the_limit_exactly(&Site::new()).await;
}

#[tokio::test]
async fn parallel_calls_use_the_limit_up_and_no_more_on_postgres() {
    let Some(site) = on_postgres() else { return };
    the_limit_exactly(&site).await;
}

#[tokio::test]
async fn edge_cases_are_the_same_on_postgres() {
    let Some(site) = on_postgres() else { return };
    let server = site.serve_rls();
    server.ready().await;
    let rls = client(&server).await;
    // Nothing limits them, and nothing is stored.
    assert_eq!(rls.ask(&[A, B]).await, (Ok, vec![Ok, Ok]));
    let listed = server.call(Method::GET, "/quotas", "").await.is(200);
    assert_eq!(listed.json()["quotas"], serde_json::json!([]));
    assert_eq!((total(&site, "a"), total(&site, "b")), (0, 0));

    server.set("/quotas/a/r", "daily", 1).await;
    server.set("/quotas/b/r", "daily", 6).await;
    assert_eq!(rls.ask(&[A, B]).await, (Ok, vec![Ok, Ok]));
    assert_eq!(rls.ask(&[A, B]).await, (OverLimit, vec![OverLimit, Ok]));
    assert_eq!(rls.ask(&[B, A]).await, (OverLimit, vec![Ok, OverLimit]));
    assert_eq!((total(&site, "a"), total(&site, "b")), (1, 1));
    assert_eq!(rls.ask(&[B, B]).await.0, Ok);
    assert_eq!(rls.ask(&[B, B]).await.0, Ok);
    assert_eq!(rls.ask(&[B, B]).await.0, OverLimit);
    assert_eq!(total(&site, "b"), 5);
    let status = rls.send(call(vec![])).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn the_same_descriptor_twice_is_two_units_at_every_fill_on_postgres() {
    let Some(site) = on_postgres() else { return };
    let servers = [site.serve_rls(), site.serve_rls()];
    for server in &servers {
        server.ready().await;
    }
    let clients = [client(&servers[0]).await, client(&servers[1]).await];
    for used in 0..=5 {
        let user = format!("u{used}");
        let pair = (&*user, "r");
        let path = format!("/quotas/{user}/r");
        servers[0].set(&path, "daily", 5).await;
        if used > 0 {
            let body = format!(r#"{{"amount":{used}}}"#);
            let consume = format!("{path}/consume");
            let consumed = servers[1].call(Method::POST, &consume, &body).await;
            consumed.is(200);
        }
        let twice = clients[usize::from(used % 2 == 0)].ask(&[pair, pair]).await;
        let fits = used <= 3;
        let verdict = if fits { Ok } else { OverLimit };
        assert_eq!(twice, (verdict, vec![verdict, verdict]), "{used} of 5");
        assert_eq!(total(&site, &user), if fits { used + 2 } else { used });
    }
    // Many large ones overflow nothing.
    let hundred = vec![with_addend(of_pair("u0", "r"), 1_000_000); 100];
    let response = clients[0].send(call(hundred)).await.unwrap();
    assert_eq!(response.overall_code(), OverLimit);
    assert_eq!(total(&site, "u0"), 2);
}

/// A call of A that gives up after a few seconds.
async fn hurried(rls: &Rls) -> Code {
    let mut request = Request::new(call(vec![of_pair(A.0, A.1)]));
    request.set_timeout(Duration::from_secs(3));
    request
        .metadata_mut()
        .insert("authorization", bearer(ADMIN));
    match rls.send_as_it_is(request).await {
        Result::Ok(_answer) => Code::Ok,
        Err(status) => status.code(),
    }
}

#[tokio::test]
async fn a_frozen_database_is_unavailable_and_no_verdict() {
    let Some(cluster) = Cluster::own(&Setup::new()) else {
        return skipped("there is no PostgreSQL");
    };
    let site = Site::on(&cluster.database());
    let server = site.serve_rls();
    server.ready().await;
    server.set("/quotas/a/r", "daily", 5).await;
    let rls = client(&server).await;
    assert_eq!(rls.ask(&[A]).await.0, Ok);
    cluster.freeze();
    for _ in 0..3 {
        assert_eq!(hurried(&rls).await, Code::Unavailable);
    }
    cluster.thaw();
    until("it is served again", async || {
        hurried(&rls).await == Code::Ok
    })
    .await;
}

#[tokio::test]
async fn a_locked_file_is_unavailable_and_no_verdict() {
    let site = Site::new();
    let server = site.serve_rls();
    server.set("/quotas/a/r", "daily", 5).await;
    let rls = client(&server).await;
    let other = rusqlite::Connection::open(site.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(hurried(&rls).await, Code::Unavailable);
    other.execute_batch("COMMIT").unwrap();
    until("it is served again", async || {
        hurried(&rls).await == Code::Ok
    })
    .await;
    // The call that nobody waited for was withdrawn.
    assert_eq!(total(&site, "a"), 1);
}

#[tokio::test]
async fn the_service_has_the_certificate_of_the_server_and_the_new_one_too() {
    let (site, first) = (Site::new(), Pair::new());
    let folder = site.folder.path().join("tls");
    first.lay(&folder);
    let server = site.serve_with(|command| with_tls(with_rls(command), &folder));
    assert!(server.printed.contains("listens on grpcs://"));
    let address = server.rls_address();
    let connect = async |pair: &Pair| {
        let stream = pair.connect_with(address, &[&TLS13], &["h2"]).await?;
        std::io::Result::Ok(TokioIo::new(stream))
    };
    let stream = connect(&first).await.unwrap();
    let mut stream = Some(stream);
    let channel = Endpoint::from_static("http://localhost")
        .connect_with_connector(service_fn(move |_uri| {
            let stream = stream.take().ok_or(std::io::ErrorKind::NotConnected);
            async { stream.map_err(std::io::Error::from) }
        }))
        .await;
    let rls = Rls::over(channel.unwrap(), ADMIN);
    assert_eq!(rls.ask(&[A]).await.0, Ok);

    let second = Pair::new();
    second.lay(&folder);
    server.signal("HUP");
    until("the second", async || connect(&second).await.is_ok()).await;
    assert!(connect(&first).await.is_err());
    assert_eq!(rls.ask(&[A]).await.0, Ok);
}

#[tokio::test]
async fn calls_are_measured_without_a_word_of_the_callers() {
    let site = Site::new();
    let server = site.serve_rls();
    server.set("/quotas/a/r", "daily", 5).await;
    let rls = client(&server).await;
    for _ in 0..3 {
        assert_eq!(rls.ask(&[A, A]).await.1.len(), 2);
    }
    // Nothing limits it, so its unit is not counted.
    assert_eq!(rls.ask(&[B]).await.0, Ok);
    assert!(rls.send(call(vec![])).await.is_err());
    let metrics = server.call(Method::GET, "/metrics", "").await.is(200);
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    for line in [
        "quotalog_rate_limit_calls_total{code=\"OK\"} 3",
        "quotalog_rate_limit_calls_total{code=\"OVER_LIMIT\"} 1",
        "quotalog_rate_limit_calls_total{code=\"INVALID_ARGUMENT\"} 1",
        "quotalog_rate_limit_calls_total{code=\"UNAVAILABLE\"} 0",
        "quotalog_rate_limit_call_duration_seconds_count 5",
        "quotalog_consumes_total{outcome=\"granted\"} 3",
        "quotalog_consumes_total{outcome=\"exhausted\"} 1",
        "quotalog_consumed_units_total 4",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn a_stop_under_load_cuts_no_answer_and_loses_no_unit() {
    let site = Site::new();
    let server = site.serve_rls();
    server.set("/quotas/a/r", "daily", 1_000_000).await;
    let mut clients = JoinSet::new();
    for _ in 0..16 {
        let rls = client(&server).await;
        clients.spawn(async move {
            let mut granted = 0_u64;
            while rls.send(call(vec![of_pair(A.0, A.1)])).await.is_ok() {
                granted += 1;
            }
            granted
        });
    }
    until("some are counted", async || total(&site, "a") > 300).await;
    server.signal("TERM");
    assert_eq!(server.ended().await.code(), Some(0));
    let granted: u64 = clients.join_all().await.into_iter().sum();
    assert_eq!(total(&site, "a"), granted);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let site = Site::new();
    for (name, value) in [
        ("QUOTALOG_RLS_LISTEN", "nowhere"),
        ("QUOTALOG_RLS_USER_KEY", ""),
        ("QUOTALOG_RLS_RESOURCE_KEY", ""),
        ("QUOTALOG_RLS_RESOURCE_KEY", "user_id"),
    ] {
        let (code, line) = site.refused(|command| command.env(name, value));
        assert_eq!(code, 2, "{line}");
        assert!(line.contains(name), "{line}");
    }
}
