//! Faults of the database under load: answers that tell the truth meanwhile, and recovery without a restart.

use hyper::Method;
use quotalog_testkit::postgres::{Cluster, Setup, Stop};
use tokio::task::JoinSet;

use crate::postgres::nodes;
use crate::support::load::{Load, Tally};
use crate::support::server::{ADMIN, Connection, Server, Site, until};

const PATH: &str = "/quotas/u/r";
const CONSUME: &str = "/quotas/u/r/consume";

/// Checks that usage lies between what was granted and that with all whose outcome is unknown, and that
/// nothing but 200 and 503 was answered.
#[track_caller]
pub(crate) fn accounted_for(site: &Site, tally: &Tally) {
    assert!(tally.other.is_empty(), "{:?}", tally.other);
    assert_eq!(tally.denied, 0);
    let stored = site.stored("u", "r").into_values().sum::<u64>();
    let granted = tally.granted_in_all();
    let most = granted + tally.unknown;
    assert!((granted..=most).contains(&stored), "{stored}: {tally:?}");
    let log = site.log();
    assert!(!log.contains(" ERROR quotalog"), "{log}");
}

/// Asks every node for everything at once while the database does not answer. Each request gets its 503.
pub(crate) async fn answered_meanwhile(nodes: &[Server], tally: &mut Tally) {
    let mut asked = JoinSet::new();
    for node in nodes {
        for (method, path) in [
            (Method::POST, CONSUME),
            (Method::POST, CONSUME),
            (Method::GET, PATH),
            (Method::GET, "/readyz"),
        ] {
            let mut connection = node.connect().await;
            asked.spawn(async move {
                let answer = connection.call(method.clone(), path, ADMIN, "").await;
                (method, answer.unwrap().is(503))
            });
        }
    }
    for (method, answer) in asked.join_all().await {
        if method == Method::POST {
            tally.enter(&answer);
        } else {
            answer.problem(503, "unavailable");
        }
    }
}

/// Each node answers a consume with 200 again.
pub(crate) async fn recovered(nodes: &[Server], tally: &mut Tally) {
    for node in nodes {
        node.ready().await;
        until("a consume is granted", async || {
            let answer = node.call(Method::POST, CONSUME, "").await;
            tally.enter(&answer);
            answer.status == 200
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_under_load_is_a_503_and_then_a_200() {
    let Some(cluster) = Cluster::own(&Setup::new()) else {
        return;
    };
    let site = Site::on(&cluster.database());
    let nodes = nodes(&site, 2).await;
    let addresses = [nodes[0].address, nodes[1].address];
    nodes[0].set(PATH, "daily", 1_000_000).await;
    let mut tally = Tally::default();
    let ends: [fn(&Cluster); 3] = [
        |cluster| cluster.stop(Stop::Fast),
        |cluster| cluster.stop(Stop::Immediate),
        Cluster::kill,
    ];
    for end in ends {
        let load = Load::start(&addresses, 16, CONSUME);
        load.until_granted(100).await;
        tokio::task::block_in_place(|| end(&cluster));
        answered_meanwhile(&nodes, &mut tally).await;
        tokio::task::block_in_place(|| cluster.start());
        recovered(&nodes, &mut tally).await;
        let before = load.granted();
        load.until_granted(before + 100).await;
        tally += load.stop().await;
        accounted_for(&site, &tally);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freeze_under_load_is_a_503_and_then_a_200() {
    let Some(cluster) = Cluster::own(&Setup::new()) else {
        return;
    };
    let site = Site::on(&cluster.database());
    let nodes = nodes(&site, 2).await;
    let addresses = [nodes[0].address, nodes[1].address];
    nodes[0].set(PATH, "daily", 1_000_000).await;
    let mut tally = Tally::default();
    let load = Load::start(&addresses, 16, CONSUME);
    load.until_granted(100).await;
    cluster.freeze();
    answered_meanwhile(&nodes, &mut tally).await;
    cluster.thaw();
    recovered(&nodes, &mut tally).await;
    let before = load.granted();
    load.until_granted(before + 100).await;
    tally += load.stop().await;
    accounted_for(&site, &tally);
}

/// The administrator ends the sessions again and again, as a proxy or a firewall might.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_break_under_load_cost_no_more_than_their_batches() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let database = cluster.database();
    let site = Site::on(&database);
    let nodes = nodes(&site, 2).await;
    let addresses = [nodes[0].address, nodes[1].address];
    nodes[0].set(PATH, "daily", 1_000_000).await;
    let load = Load::start(&addresses, 16, CONSUME);
    for _ in 0..10 {
        let before = load.granted();
        load.until_granted(before + 50).await;
        tokio::task::block_in_place(|| {
            database.ask(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
        });
    }
    let before = load.granted();
    load.until_granted(before + 100).await;
    accounted_for(&site, &load.stop().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_used_up_are_a_503_at_worst() {
    let setup = Setup::new().setting("max_connections", "20");
    let Some(cluster) = Cluster::own(&setup) else {
        return;
    };
    let site = Site::on(&cluster.database());
    let wide = || {
        site.serve_with(|command| {
            command.args(["--database-lanes", "16", "--database-readers", "16"])
        })
    };
    let nodes = [wide(), wide(), wide()];
    for node in &nodes {
        node.ready().await;
    }
    nodes[0].set(PATH, "daily", 1_000_000).await;
    let addresses: Vec<_> = nodes.iter().map(|node| node.address).collect();
    let load = Load::start(&addresses, 200, CONSUME);
    // Checks want connections too, more than there are.
    let mut checks = JoinSet::new();
    for place in 0..60 {
        let mut connection = Connection::open(addresses[place % 3]).await.unwrap();
        checks.spawn(async move {
            for _ in 0..20 {
                let answer = connection.call(Method::GET, PATH, ADMIN, "").await;
                let answer = answer.unwrap();
                assert!(matches!(answer.status, 200 | 503), "{answer:?}");
            }
        });
    }
    checks.join_all().await;
    let before = load.granted();
    load.until_granted(before + 500).await;
    let mut tally = load.stop().await;
    recovered(&nodes, &mut tally).await;
    let full = "too many clients already";
    assert!(cluster.log().contains(full), "there was room for all");
    // Whoever looks wants a connection too.
    drop(nodes);
    accounted_for(&site, &tally);
}
