//! Servers behind PgBouncer in transaction mode: exact, and back by themselves when it was gone.

use hyper::Method;
use quotalog_testkit::postgres::{Cluster, Database, Pooler, Setup, Stop};

use crate::cli::succeeds;
use crate::postgres_recovery::{accounted_for, answered_meanwhile, recovered};
use crate::support::load::{Load, Tally};
use crate::support::server::{Server, Site, until};
use crate::two_servers::{at_once, exact};

const PATH: &str = "/quotas/u/r";
const CONSUME: &str = "/quotas/u/r/consume";

/// A database with its tables, which are not made through a pooler.
fn prepared(cluster: &Cluster) -> (Database, Site) {
    let database = cluster.database();
    let site = Site::on(&database);
    let listed = site.run(&["token", "list"]);
    succeeds(&listed);
    (database, site)
}

fn serve(site: &Site, url: &str) -> Server {
    site.serve_with(|command| command.env("QUOTALOG_DATABASE", url))
}

/// Two nodes, each with more connections than the pooler has sessions.
async fn two(site: &Site, url: &str) -> Vec<Server> {
    let nodes = vec![serve(site, url), serve(site, url)];
    for node in &nodes {
        node.ready().await;
    }
    nodes
}

#[tokio::test]
async fn parallel_calls_behind_a_pooler_use_the_limit_up_and_no_more() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let Some(pooler) = Pooler::before(cluster, 2) else {
        return;
    };
    let (database, site) = prepared(cluster);
    let nodes = two(&site, &pooler.url(&database)).await;
    let both = [nodes[0].address, nodes[1].address];
    for _ in 0..5 {
        nodes[0].set(PATH, "daily", 10).await;
        let reset = nodes[1].call(Method::POST, "/quotas/u/r/reset", "").await;
        assert_eq!(reset.is(200).usage(), 0);
        exact(&at_once(&both, 25).await, 0, 10);
    }
    // What one node makes, the other knows.
    let body = r#"{"role":"user","user_id":"u"}"#;
    let made = nodes[0].call(Method::POST, "/tokens", body).await.is(201);
    let made = made.json();
    let (id, secret) = (&made["id"], made["token"].as_str().unwrap());
    let mut connection = nodes[1].connect().await;
    let mut asked = async |status| {
        let answer = connection.call(Method::GET, PATH, secret, "").await;
        assert_eq!(answer.unwrap().status, status);
    };
    asked(200).await;
    let revoke = format!("/tokens/{}", id.as_str().unwrap());
    nodes[0].call(Method::DELETE, &revoke, "").await.is(204);
    asked(401).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_or_a_server_that_restarts_under_load_is_a_503_and_then_a_200() {
    let Some(cluster) = Cluster::own(&Setup::new()) else {
        return;
    };
    let Some(pooler) = Pooler::before(&cluster, 3) else {
        return;
    };
    let (database, site) = prepared(&cluster);
    let nodes = two(&site, &pooler.url(&database)).await;
    let addresses = [nodes[0].address, nodes[1].address];
    nodes[0].set(PATH, "daily", 1_000_000).await;
    let mut tally = Tally::default();
    for is_pooler in [true, false, true] {
        let load = Load::start(&addresses, 16, CONSUME);
        load.until_granted(100).await;
        tokio::task::block_in_place(|| {
            if is_pooler {
                pooler.stop();
            } else {
                cluster.stop(Stop::Immediate);
            }
        });
        answered_meanwhile(&nodes, &mut tally).await;
        tokio::task::block_in_place(|| {
            if is_pooler {
                pooler.start();
            } else {
                cluster.start();
            }
        });
        recovered(&nodes, &mut tally).await;
        let before = load.granted();
        load.until_granted(before + 100).await;
        tally += load.stop().await;
        accounted_for(&site, &tally);
    }
}

/// A pooler does not try again at once where it was refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stays_away_behind_a_pooler_is_a_503_that_counts_nothing_and_then_a_200() {
    let Some(cluster) = Cluster::own(&Setup::new()) else {
        return;
    };
    let Some(pooler) = Pooler::before(&cluster, 3) else {
        return;
    };
    let (database, site) = prepared(&cluster);
    let nodes = two(&site, &pooler.url(&database)).await;
    nodes[0].set(PATH, "daily", 1_000_000).await;
    let mut tally = Tally::default();
    recovered(&nodes, &mut tally).await;
    tokio::task::block_in_place(|| cluster.stop(Stop::Immediate));
    until(
        "the server has refused the pooler time and again",
        async || {
            answered_meanwhile(&nodes, &mut tally).await;
            pooler.log().matches("connect failed").count() >= 3
        },
    )
    .await;
    tokio::task::block_in_place(|| cluster.start());
    recovered(&nodes, &mut tally).await;
    // No write was under way, so that no outcome is unknown.
    assert_eq!(tally.unknown, 0, "{tally:?}");
    accounted_for(&site, &tally);
}

#[tokio::test]
async fn a_node_behind_a_pooler_waits_until_somebody_has_made_the_tables() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let Some(pooler) = Pooler::before(cluster, 2) else {
        return;
    };
    let database = cluster.database();
    let site = Site::on(&database);
    let node = serve(&site, &pooler.url(&database));
    let answer = node.call(Method::GET, "/readyz", "").await;
    assert_eq!(answer.status, 503);
    node.call(Method::GET, "/healthz", "").await.is(200);
    until("it says what it waits for", async || {
        site.log().contains("without pooler=transaction")
    })
    .await;
    succeeds(&site.run(&["token", "list"]));
    node.ready().await;
    node.set(PATH, "daily", 10).await;
}

#[test]
fn commands_work_through_a_pooler_too() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let Some(pooler) = Pooler::before(cluster, 2) else {
        return;
    };
    let (database, site) = prepared(cluster);
    let url = pooler.url(&database);
    let run = |arguments: &[&str]| {
        let mut command = site.command(arguments);
        let output = command.env("QUOTALOG_DATABASE", &url).output().unwrap();
        succeeds(&output);
    };
    let file = format!("sqlite:{}", site.folder.path().join("copy.db").display());
    let origin = Site::new();
    origin.token(&["--role", "admin"]);
    let from = format!("sqlite:{}", origin.database().display());
    run(&["copy", "--from", &from, "--to", &url]);
    run(&["token", "create", "--role", "viewer"]);
    run(&["prune"]);
    run(&["copy", "--from", &url, "--to", &file]);
    assert_eq!(database.ask("SELECT count(*) FROM quotalog_tokens"), "2");
}
