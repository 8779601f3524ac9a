//! A server of PostgreSQL that is lost, and its synchronous standby in its place: nothing that was answered is lost.

use hyper::Method;
use quotalog_testkit::postgres::{Cluster, Database, Setup, Stop};

use crate::postgres_recovery::{accounted_for, answered_meanwhile, recovered};
use crate::retries::Clients;
use crate::support::chance::Chance;
use crate::support::load::{Load, Tally};
use crate::support::server::{Server, Site};

const PATH: &str = "/quotas/u/r";
const CONSUME: &str = "/quotas/u/r/consume";
const LIMIT: u64 = 1_000_000;

/// A server, its standby, and a database that is on both.
struct Pair {
    primary: Cluster,
    standby: Cluster,
    database: Database,
}

impl Pair {
    fn new() -> Option<Self> {
        let primary = Cluster::own(&Setup::new())?;
        let database = primary.database();
        Some(Self {
            standby: primary.standby(),
            primary,
            database,
        })
    }

    /// A node that finds the one of both that writes.
    fn serve(&self, site: &Site) -> Server {
        let host = format!(",127.0.0.1:{}/", self.standby.port());
        let (server, name) = (self.database.url(), self.database.name());
        let server = server.strip_suffix(&format!("/{name}")).unwrap();
        let url = format!("{server}{host}{name}?target_session_attrs=read-write");
        site.serve_with(|command| command.env("QUOTALOG_DATABASE", url))
    }

    /// Loses the server. The standby takes its place.
    fn fail_over(&self) {
        self.primary.kill();
        self.standby.promote();
    }

    /// Looks at what the standby holds.
    fn after(&self) -> Site {
        Site::on(&self.standby.named_as(&self.database))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nodes_carry_on_at_the_standby_and_lose_nothing() {
    let Some(pair) = tokio::task::block_in_place(Pair::new) else {
        return;
    };
    let site = Site::on(&pair.database);
    let nodes = [pair.serve(&site), pair.serve(&site)];
    for node in &nodes {
        node.ready().await;
    }
    nodes[0].set(PATH, "daily", LIMIT).await;
    let mut tally = Tally::default();
    let load = Load::start(&[nodes[0].address, nodes[1].address], 16, CONSUME);
    load.until_granted(300).await;
    tokio::task::block_in_place(|| pair.primary.kill());
    // Nobody writes now: the standby only follows.
    answered_meanwhile(&nodes, &mut tally).await;
    tokio::task::block_in_place(|| pair.standby.promote());
    recovered(&nodes, &mut tally).await;
    let before = load.granted();
    load.until_granted(before + 100).await;
    tally += load.stop().await;
    let after = pair.after();
    accounted_for(&after, &tally);
    assert!(!site.log().contains(" ERROR quotalog"), "{}", site.log());

    // What is left of the limit is granted, and not a unit more.
    let remaining = loop {
        let remaining = nodes[0].call(Method::GET, PATH, "").await.remaining();
        let body = format!(r#"{{"amount":{remaining}}}"#);
        let rest = nodes[0].call(Method::POST, CONSUME, &body).await;
        if rest.status == 200 {
            break rest.remaining();
        }
        // Midnight has brought a new window; the older one's rest is nobody's.
        rest.is(422);
    };
    assert_eq!(remaining, 0);
    let stored = after.stored("u", "r");
    assert!(stored.values().all(|units| *units <= LIMIT), "{stored:?}");
    assert!(stored.values().any(|units| *units == LIMIT), "{stored:?}");
}

/// A node that has one host alone, a name behind which the hosts change, meets a standby for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_starts_on_a_standby_waits_until_it_is_promoted() {
    let Some(pair) = tokio::task::block_in_place(Pair::new) else {
        return;
    };
    let site = Site::on(&pair.database);
    let server = site.serve();
    server.ready().await;
    server.set(PATH, "daily", LIMIT).await;
    let after = pair.after();
    let server = after.serve();
    let readiness = server.call(Method::GET, "/readyz", "").await;
    readiness.problem(503, "unavailable");
    tokio::task::block_in_place(|| pair.fail_over());
    server.ready().await;
    server.call(Method::POST, CONSUME, "").await.is(200);
}

/// Clients that insist on each keyed consume, over nodes, servers and connections that end in every way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumes_that_are_repeated_over_two_nodes_count_once_whatever_fails() {
    const FAULTS: usize = 10;
    let mut chance = Chance::new();
    let Some(pair) = tokio::task::block_in_place(Pair::new) else {
        return;
    };
    let site = Site::on(&pair.database);
    let mut nodes = [pair.serve(&site), pair.serve(&site)];
    for node in &nodes {
        node.ready().await;
    }
    nodes[0].set("/quotas/u/retries", "daily", LIMIT).await;
    let clients = Clients::start(&mut chance, nodes.each_ref().map(|node| node.address));
    for fault in 1..=FAULTS {
        clients.until_answered(fault, FAULTS).await;
        match fault {
            FAULTS => tokio::task::block_in_place(|| pair.fail_over()),
            2 | 6 => tokio::task::block_in_place(|| {
                pair.primary.stop(Stop::Immediate);
                pair.primary.start();
            }),
            4 | 8 => drop(tokio::task::block_in_place(|| {
                pair.database.ask(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                     WHERE datname = current_database() AND pid <> pg_backend_pid()",
                )
            })),
            _ => {
                let place = chance.below(nodes.len());
                let next = pair.serve(&site);
                std::mem::replace(&mut nodes[place], next).kill();
                clients.go_to(nodes.each_ref().map(|node| node.address));
            }
        }
    }
    clients.have_counted_once_each(&pair.after()).await;
    assert!(!site.log().contains(" ERROR quotalog"), "{}", site.log());
}
