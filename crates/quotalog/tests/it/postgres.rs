//! Several nodes on one database of PostgreSQL: exact together, whatever they do at once.

use std::collections::BTreeMap;
use std::process::Command;

use hyper::Method;
use quotalog_testkit::postgres::Cluster;
use tokio::task::JoinSet;

use crate::faults::{at_another_time, other_clocks};
use crate::support::answer::Answer;
use crate::support::load::{Load, Tally};
use crate::support::server::{ADMIN, Connection, Server, Site, skipped};
use crate::two_servers::{alternate_calls, at_once, changed_limits, exact, parallel_calls};

const PATH: &str = "/quotas/u/r";
const CONSUME: &str = "/quotas/u/r/consume";

/// A folder on a fresh database of the server that all share; `None`, said aloud, where there is none.
pub(crate) fn site() -> Option<Site> {
    Some(Site::on(&Cluster::shared()?.database()))
}

/// So many nodes on the site's database, all of them ready.
pub(crate) async fn nodes(site: &Site, count: usize) -> Vec<Server> {
    let nodes: Vec<_> = (0..count).map(|_| site.serve()).collect();
    for node in &nodes {
        node.ready().await;
    }
    nodes
}

/// Sends all requests at the same time, over the nodes in turn. The answers are in their order.
async fn race(nodes: &[Server], requests: Vec<(Method, String, String)>) -> Vec<Answer> {
    let mut calls = JoinSet::new();
    for (place, (method, path, body)) in requests.into_iter().enumerate() {
        let connection = Connection::open(nodes[place % nodes.len()].address).await;
        let mut connection = connection.unwrap();
        calls.spawn(async move {
            let answer = connection.call(method, &path, ADMIN, &body).await;
            (place, answer.unwrap())
        });
    }
    let answers: BTreeMap<_, _> = calls.join_all().await.into_iter().collect();
    answers.into_values().collect()
}

fn amounts(path: &str, amounts: impl IntoIterator<Item = u64>) -> Vec<(Method, String, String)> {
    let request = |amount| {
        let body = format!(r#"{{"amount":{amount}}}"#);
        (Method::POST, path.to_owned(), body)
    };
    amounts.into_iter().map(request).collect()
}

#[tokio::test]
async fn parallel_calls_over_two_nodes_use_the_limit_up_and_no_more() {
    let Some(site) = site() else { return };
    parallel_calls(&site).await;
}

#[tokio::test]
async fn parallel_calls_over_three_nodes_use_the_limit_up_and_no_more() {
    let Some(site) = site() else { return };
    let nodes = nodes(&site, 3).await;
    let addresses: Vec<_> = nodes.iter().map(|node| node.address).collect();
    for round in 0..5 {
        let node = &nodes[round % nodes.len()];
        node.set(PATH, "daily", 10).await;
        let reset = node.call(Method::POST, "/quotas/u/r/reset", "").await;
        assert_eq!(reset.is(200).usage(), 0);
        exact(&at_once(&addresses, 25).await, 0, 10);
    }
}

#[tokio::test]
async fn alternate_calls_share_one_limit_that_a_cold_node_knows() {
    let Some(site) = site() else { return };
    alternate_calls(&site).await;
}

#[tokio::test]
async fn a_limit_changed_on_one_node_is_obeyed_by_the_very_next_call_on_the_other() {
    let Some(site) = site() else { return };
    changed_limits(&site).await;
}

#[tokio::test]
async fn the_first_use_of_a_window_from_all_nodes_at_once_collides_with_nothing() {
    let Some(site) = site() else { return };
    let nodes = nodes(&site, 2).await;
    for round in 0..5 {
        let path = format!("/quotas/u/r{round}");
        nodes[0].set(&path, "hourly", 1_000).await;
        let consume = format!("{path}/consume");
        let mut granted: BTreeMap<String, u64> = BTreeMap::new();
        for answer in race(&nodes, amounts(&consume, [1; 50])).await {
            *granted.entry(answer.is(200).window_start()).or_default() += 1;
        }
        assert_eq!(granted.values().sum::<u64>(), 50);
        assert_eq!(site.stored("u", &format!("r{round}")), granted);
    }
}

#[tokio::test]
async fn amounts_that_race_fill_the_limit_as_far_as_they_fit() {
    let Some(site) = site() else { return };
    let nodes = nodes(&site, 3).await;
    for round in 0..5 {
        let path = format!("/quotas/u/r{round}");
        nodes[0].set(&path, "daily", 100).await;
        let asked: Vec<u64> = (0..60).map(|place| 1 + place % 7).collect();
        let consume = format!("{path}/consume");
        let answers = race(&nodes, amounts(&consume, asked.clone())).await;
        let mut granted: BTreeMap<String, u64> = BTreeMap::new();
        for (amount, answer) in asked.iter().zip(&answers) {
            match answer.status {
                200 => *granted.entry(answer.window_start()).or_default() += amount,
                429 => assert!(answer.remaining() < *amount, "{answer:?}"),
                _ => panic!("{answer:?}"),
            }
        }
        // What is left, a unit at a time.
        let window_start = loop {
            let answer = nodes[1].call(Method::POST, &consume, "").await;
            let window_start = answer.window_start();
            if answer.status == 429 {
                break window_start;
            }
            *granted.entry(answer.is(200).window_start()).or_default() += 1;
        };
        assert_eq!(granted[&window_start], 100);
        assert!(granted.values().all(|units| *units <= 100), "{granted:?}");
        assert_eq!(site.stored("u", &format!("r{round}")), granted);
    }
}

#[tokio::test]
async fn the_first_use_of_a_default_from_all_nodes_at_once_is_exact() {
    let Some(site) = site() else { return };
    let nodes = nodes(&site, 3).await;
    let body = r#"{"window":"daily","limit_count":10}"#;
    let put = nodes[0].call(Method::PUT, "/defaults/r", body).await;
    put.is(200);
    for round in 0..5 {
        let consume = format!("/quotas/u{round}/r/consume");
        let answers = race(&nodes, amounts(&consume, [1; 30])).await;
        let answers: Vec<_> = answers
            .iter()
            .map(|answer| (answer.status, answer.window_start(), answer.usage()))
            .collect();
        exact(&answers, 0, 10);
    }
}

#[tokio::test]
async fn a_policy_that_comes_during_the_first_use_of_a_default_is_obeyed() {
    let Some(site) = site() else { return };
    let nodes = nodes(&site, 2).await;
    let body = r#"{"window":"daily","limit_count":20}"#;
    let put = nodes[0].call(Method::PUT, "/defaults/r", body).await;
    put.is(200);
    for round in 0..20 {
        let path = format!("/quotas/u{round}/r");
        let mut requests = amounts(&format!("{path}/consume"), [1; 30]);
        let own = r#"{"window":"daily","limit_count":10}"#;
        requests.insert(10, (Method::PUT, path.clone(), own.to_owned()));
        let mut answers = race(&nodes, requests).await;
        let put = answers.remove(10).is(200);
        let mut granted: BTreeMap<String, u64> = BTreeMap::new();
        for answer in &answers {
            match answer.status {
                200 => *granted.entry(answer.window_start()).or_default() += 1,
                429 => {}
                _ => panic!("{answer:?}"),
            }
        }
        assert_eq!(site.stored(&format!("u{round}"), "r"), granted);
        // What the default had granted by then stays; the rest goes by the policy, to its end.
        let most = put.usage().max(10);
        if granted.len() == 1 && granted.contains_key(&put.window_start()) {
            assert_eq!(granted[&put.window_start()], most);
        }
    }
}

#[tokio::test]
async fn keyed_twins_on_two_nodes_count_once_and_get_one_answer() {
    let Some(site) = site() else { return };
    let nodes = nodes(&site, 2).await;
    nodes[0].set(PATH, "daily", 1_000).await;
    for round in 0..5 {
        let mut calls = JoinSet::new();
        for place in 0..20 {
            let mut connection = nodes[place % 2].connect().await;
            let request = hyper::Request::post(CONSUME)
                .header("host", "localhost")
                .header("authorization", format!("Bearer {ADMIN}"))
                .header("idempotency-key", format!("twin-{round}"))
                .body(http_body_util::Full::default())
                .unwrap();
            calls.spawn(async move { connection.send(request).await.unwrap().is(200) });
        }
        let answers = calls.join_all().await;
        let first = &answers[0].body;
        assert!(answers.iter().all(|answer| answer.body == *first));
        let replayed = |answer: &&Answer| answer.header("idempotency-replayed").is_some();
        assert_eq!(answers.iter().filter(replayed).count(), 19);
    }
    assert_eq!(site.stored("u", "r").values().sum::<u64>(), 5);
}

#[tokio::test]
async fn batches_in_opposite_orders_wait_for_each_other_without_one_failure() {
    let Some(site) = site() else { return };
    let nodes = nodes(&site, 2).await;
    for resource in ["a", "b"] {
        let path = format!("/quotas/u/{resource}");
        nodes[0].set(&path, "daily", 1_000_000).await;
    }
    let item = |resource| format!(r#"{{"user_id":"u","resource":"{resource}"}}"#);
    let batch = |first, second| {
        let body = format!(r#"{{"items":[{},{}]}}"#, item(first), item(second));
        (Method::POST, "/consume".to_owned(), body)
    };
    let requests = (0..200).map(|place| {
        // Both nodes get both orders.
        if place / 2 % 2 == 0 {
            batch("a", "b")
        } else {
            batch("b", "a")
        }
    });
    for answer in race(&nodes, requests.collect()).await {
        answer.is(200);
    }
    for resource in ["a", "b"] {
        assert_eq!(site.stored("u", resource).values().sum::<u64>(), 200);
    }
    assert!(!site.log().contains(" ERROR quotalog"), "{}", site.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_over_two_nodes_usage_is_the_number_of_grants() {
    let Some(site) = site() else { return };
    let nodes = nodes(&site, 2).await;
    nodes[0].set(PATH, "daily", 1_000_000).await;
    let load = Load::start(&[nodes[0].address, nodes[1].address], 32, CONSUME);
    load.until_granted(3_000).await;
    // A node that is killed takes with it only what it has not answered.
    let mut nodes = nodes.into_iter();
    nodes.next().unwrap().kill();
    let before = load.granted();
    load.until_granted(before + 500).await;
    let tally = load.stop().await;
    assert!(tally.other.is_empty(), "{:?}", tally.other);
    assert_eq!((tally.denied, tally.unavailable), (0, 0));
    let stored = site.stored("u", "r").into_values().sum::<u64>();
    let granted = tally.granted_in_all();
    assert!((granted..=granted + tally.unknown).contains(&stored));
}

#[tokio::test]
async fn a_token_revoked_on_one_node_is_refused_by_the_very_next_request_on_the_other() {
    let Some(site) = site() else { return };
    let nodes = nodes(&site, 2).await;
    nodes[0].set(PATH, "daily", 1_000).await;
    let calls = [(Method::GET, PATH), (Method::POST, CONSUME)];
    for round in 0..10 {
        let body = r#"{"role":"user","user_id":"u"}"#;
        let made = nodes[round % 2].call(Method::POST, "/tokens", body).await;
        let made = made.is(201).json();
        let (id, secret) = (made["id"].as_str().unwrap(), &made["token"]);
        let secret = secret.as_str().unwrap();
        let mut connection = nodes[1].connect().await;
        for (method, path) in &calls {
            let answer = connection.call(method.clone(), path, secret, "").await;
            answer.unwrap().is(200);
        }
        let revoke = format!("/tokens/{id}");
        nodes[0].call(Method::DELETE, &revoke, "").await.is(204);
        for (method, path) in &calls {
            let answer = connection.call(method.clone(), path, secret, "").await;
            answer.unwrap().problem(401, "unauthorized");
        }
    }
    assert_eq!(site.stored("u", "r").values().sum::<u64>(), 10);
}

/// Roles of different zones, a zone of the database, and one in the URL.
#[tokio::test]
async fn sessions_of_different_time_zones_count_in_one_window() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let database = cluster.database();
    let (site, name) = (Site::on(&database), database.name());
    let server = site.serve();
    server.ready().await;
    database.ask(&format!(
        "ALTER DATABASE {name} SET timezone = 'Asia/Kathmandu';
         CREATE ROLE {name}_east LOGIN PASSWORD 'east'; CREATE ROLE {name}_west LOGIN PASSWORD 'west';
         ALTER ROLE {name}_east SET timezone = 'Pacific/Kiritimati';
         ALTER ROLE {name}_west SET timezone = 'Pacific/Pago_Pago';
         GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}_east, {name}_west"
    ));
    let port = cluster.port();
    let at = |user: &str, more: &str| {
        let url = format!("postgres://{user}@127.0.0.1:{port}/{name}{more}");
        site.serve_with(|command: &mut Command| command.env("QUOTALOG_DATABASE", url))
    };
    let nodes = [
        server,
        site.serve(),
        at(&format!("{name}_east:east"), ""),
        at(&format!("{name}_west:west"), ""),
        at("postgres", "?options=-c%20TimeZone%3DAmerica/St_Johns"),
    ];
    for node in &nodes {
        node.ready().await;
    }
    for (resource, window) in [("day", "daily"), ("hour", "hourly")] {
        let path = format!("/quotas/u/{resource}");
        nodes[2].set(&path, window, 1_000).await;
        let answers = race(&nodes, amounts(&format!("{path}/consume"), [1; 40])).await;
        let mut tally = Tally::default();
        for answer in answers {
            tally.enter(&answer.is(200));
        }
        // A window may end once, but for all of them.
        assert!(tally.granted.len() <= 2, "{tally:?}");
        assert_eq!(site.stored("u", resource), tally.granted);
        for node in &nodes {
            let (window_start, usage) = node.usage(&path).await;
            assert!(window_start.ends_with(if window == "daily" {
                "T00:00:00Z"
            } else {
                ":00:00Z"
            }));
            let counted = tally.granted.get(&window_start).copied().unwrap_or(0);
            assert_eq!(usage, counted);
        }
    }
}

#[tokio::test]
async fn a_node_whose_clock_is_a_day_off_counts_in_the_window_of_the_others() {
    let Some(library) = other_clocks() else {
        return skipped("there is no libfaketime (package faketime)");
    };
    let Some(site) = site() else { return };
    let at = |offset: &'static str| {
        site.serve_with(|command: &mut Command| {
            at_another_time(command, &library, offset).env("TZ", "Asia/Kathmandu")
        })
    };
    let nodes = [site.serve(), at("+1d"), at("-1d")];
    for node in &nodes {
        node.ready().await;
    }
    nodes[1].set(PATH, "daily", 30).await;
    let mut tally = Tally::default();
    for call in 0..24 {
        let answer = nodes[call % 3].call(Method::POST, CONSUME, "").await;
        tally.enter(&answer.is(200));
    }
    // Midnight may pass once, but never for one node alone.
    assert!(tally.granted.len() <= 2, "{tally:?}");
    assert_eq!(site.stored("u", "r"), tally.granted);
}
