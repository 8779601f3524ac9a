//! Old rows of PostgreSQL go while the nodes count: in bounded batches, by one node at a time, and whatever fails
//! meanwhile. Nothing is timed: a trigger notes each batch where it happens.

use std::process::Stdio;

use hyper::Method;
use quotalog_testkit::postgres::{Cluster, Database};
use tokio::task::JoinSet;

use crate::cli::succeeds;
use crate::support::load::{Load, Tally};
use crate::support::server::{ADMIN, Server, Site, until};

const OLD: &str = "SELECT count(*) FROM quota_usage WHERE window_start < '2021-01-01Z'";

/// The lock of whoever prunes.
const LOCK: u64 = 8_148_427_718_541_895;

/// Notes of each statement that deletes usage how many rows it deletes, whether somebody else has the lock, how long
/// a statement may take, and what was counted for one pair by then.
const NOTES: &str = "
CREATE TABLE steps (place bigint GENERATED ALWAYS AS IDENTITY, pid integer, rows bigint, others bigint,
    timeout text, counted bigint);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$ BEGIN
    INSERT INTO steps (pid, rows, others, timeout, counted) SELECT pg_backend_pid(), (SELECT count(*) FROM gone),
        (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()
            AND classid::bigint << 32 | objid::bigint = LOCK
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())),
        current_setting('statement_timeout'),
        (SELECT coalesce(sum(usage), 0) FROM quota_usage WHERE user_id = 'u1' AND window_start > '2021-01-01Z');
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER DELETE ON quota_usage REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION note()";

/// Fails each statement that deletes more than `most` rows of usage.
fn fail_above(database: &Database, most: u32, code: &str) {
    database.ask(&format!(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF (SELECT count(*) FROM gone) > {most} THEN RAISE 'not so' USING ERRCODE = '{code}'; END IF;
             RETURN NULL;
         END $$;
         CREATE TRIGGER fail AFTER DELETE ON quota_usage REFERENCING OLD TABLE AS gone
             FOR EACH STATEMENT EXECUTE FUNCTION fail()"
    ));
}

/// A database with a default for `r`, under which `users` were counted in each of so many hours of 2020.
async fn of_old_rows(users: u32, hours: u32) -> Option<(Database, Site)> {
    let database = Cluster::shared()?.database();
    let site = Site::on(&database);
    let server = site.serve();
    server.ready().await;
    let limit = r#"{"window":"daily","limit_count":1000000}"#;
    server.call(Method::PUT, "/defaults/r", limit).await.is(200);
    server.stop();
    database.ask(&format!(
        "INSERT INTO quota_policies (user_id, resource) SELECT 'u' || i, 'r' FROM generate_series(1, {users}) i;
         INSERT INTO quota_usage SELECT 'u' || i, 'r', t, 1, t, t FROM generate_series(1, {users}) i,
             generate_series('2020-01-01Z'::timestamptz, '2020-01-01Z'::timestamptz + interval '1 hour' * ({hours} - 1),
                 interval '1 hour') t;
         ANALYZE quota_usage, quota_policies"
    ));
    Some((database, site))
}

/// One number of the node's metrics.
async fn metric(server: &Server, name: &str) -> u64 {
    let metrics = server.call(Method::GET, "/metrics", "").await.is(200);
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap().parse().unwrap()
}

async fn sum(nodes: &[Server], name: &str) -> u64 {
    let mut sum = 0;
    for node in nodes {
        sum += metric(node, name).await;
    }
    sum
}

/// How many hundreds of old rows go under load: few enough for every day, unless `PRUNED_ROWS` says how many.
fn hundreds() -> u32 {
    let rows = std::env::var("PRUNED_ROWS").map_or(200_000, |rows| rows.parse().unwrap());
    rows / 100
}

const ROWS: &str = "quotalog_pruned_rows_total";
const DONE: &str = "quotalog_prune_runs_total{outcome=\"done\"}";
const FAILED: &str = "quotalog_prune_runs_total{outcome=\"failed\"}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_old_rows_go_under_load_and_stop_nobody() {
    let hundreds = hundreds();
    let rows = u64::from(hundreds) * 100;
    let Some((database, site)) = of_old_rows(100, hundreds).await else {
        return;
    };
    database.ask(&NOTES.replace("LOCK", &LOCK.to_string()));
    let nodes = [site.serve(), site.serve()];
    let addresses = [nodes[0].address, nodes[1].address];
    for node in &nodes {
        node.ready().await;
    }
    // Each step has the row of this pair, for it has old usage in every hour.
    let load = Load::start(&addresses, 4, "/quotas/u1/r/consume");
    // As long as they become fewer, there is time.
    for gone in (0..=rows).step_by(20_000) {
        until("more old rows are gone", async || {
            sum(&nodes, ROWS).await >= gone
        })
        .await;
    }
    until("a round is done", async || sum(&nodes, DONE).await > 0).await;
    let tally = load.stop().await;
    assert_eq!((tally.denied, tally.unavailable, tally.unknown), (0, 0, 0));
    assert!(tally.other.is_empty(), "{:?}", tally.other);
    assert_eq!(site.stored("u1", "r"), tally.granted);
    assert_eq!(sum(&nodes, ROWS).await, rows);
    assert_eq!(sum(&nodes, FAILED).await, 0);

    assert_eq!(database.ask(OLD), "0");
    let steps = "SELECT sum(rows), max(rows), max(others), min(timeout), max(timeout) FROM steps";
    assert_eq!(database.ask(steps), format!("{rows}|500|0|1s|1s"));
    // The pair was counted again and again between its steps: it waited for one, not for many.
    let still =
        "SELECT max(n) FROM (SELECT count(*) n FROM steps WHERE rows > 0 GROUP BY counted) s";
    let still: u64 = database.ask(still).parse().unwrap();
    assert!(still < 50, "{still} steps while nobody was counted");
    // Nobody but the pair that was counted is left.
    let left = database.ask("SELECT user_id FROM quota_policies");
    assert_eq!(left, "u1");
    let log = site.log();
    assert!(!log.contains(" WARN ") && !log.contains(" ERROR "), "{log}");
}

#[tokio::test]
async fn steps_that_meet_a_timeout_become_smaller_until_they_get_through() {
    let Some((database, site)) = of_old_rows(300, 1).await else {
        return;
    };
    database.ask(&NOTES.replace("LOCK", &LOCK.to_string()));
    // As the server says it of a statement that took too long.
    fail_above(&database, 40, "57014");
    let node = site.serve();
    node.ready().await;
    until("a round is done", async || metric(&node, DONE).await > 0).await;
    assert_eq!(metric(&node, ROWS).await, 300);
    assert_eq!(metric(&node, FAILED).await, 0);
    assert_eq!(database.ask(OLD), "0");
    assert_eq!(
        database.ask("SELECT sum(rows), max(rows) <= 40 FROM steps"),
        "300|t"
    );
}

#[tokio::test]
async fn a_failure_is_told_and_tried_again() {
    let Some((database, site)) = of_old_rows(300, 1).await else {
        return;
    };
    fail_above(&database, 0, "P0001");
    let node = site.serve();
    node.ready().await;
    until("it failed twice", async || metric(&node, FAILED).await > 1).await;
    let log = site.log();
    let told = log.lines().find(|line| line.contains("could not prune"));
    let told = told.unwrap();
    assert!(told.contains(" WARN ") && told.contains("not so"), "{told}");
    assert_eq!(database.ask(OLD), "300");
    node.call(Method::POST, "/quotas/u1/r/consume", "")
        .await
        .is(200);

    database.ask("DROP TRIGGER fail ON quota_usage");
    until("a round is done", async || metric(&node, DONE).await > 0).await;
    assert_eq!(metric(&node, ROWS).await, 300);
    assert_eq!(database.ask(OLD), "0");
}

#[tokio::test]
async fn a_node_leaves_it_to_whoever_prunes_and_a_command_waits_for_its_end() {
    let Some((database, site)) = of_old_rows(300, 1).await else {
        return;
    };
    let mut other = database.session();
    other.run(&format!("SELECT pg_advisory_lock({LOCK})"));
    let node = site.serve();
    node.ready().await;
    let left = "quotalog_prune_runs_total{outcome=\"left\"}";
    until("it was left", async || metric(&node, left).await == 1).await;
    let mut command = site.command(&["prune"]);
    let url = format!("{}?application_name=command", database.url());
    command.env("QUOTALOG_DATABASE", url).stdout(Stdio::piped());
    let command = command.spawn().unwrap();
    // It ends each step that it leaves with a rollback, and comes again.
    let waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() \
                 AND application_name = 'command' AND query = 'ROLLBACK'";
    until("it waits", async || database.ask(waits) == "t").await;
    assert_eq!(database.ask(OLD), "300");
    drop(other);
    let output = command.wait_with_output().unwrap();
    succeeds(&output);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, "deleted 300 rows; another process was pruning too\n");
    assert_eq!(database.ask(OLD), "0");
}

/// Checks, consumes and changes of four quotas by 32 clients, while a command prunes as the nodes do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mixed_load_meets_no_fault_while_old_rows_go() {
    let Some((database, site)) = of_old_rows(100, 60).await else {
        return;
    };
    let nodes = [site.serve(), site.serve()];
    for node in &nodes {
        node.ready().await;
    }
    for quota in 0..4 {
        let path = format!("/quotas/mixed/r{quota}");
        nodes[0].set(&path, "daily", 1_000_000).await;
    }
    let mut prune = site.command(&["prune"]);
    let prune = prune.stdout(Stdio::piped()).spawn().unwrap();
    let mut clients = JoinSet::new();
    for client in 0..32_usize {
        let mut connection = nodes[client % 2].connect().await;
        clients.spawn(async move {
            let mut tallies: [Tally; 4] = Default::default();
            for call in 0..60 {
                let quota = (client + call) % 4;
                let path = format!("/quotas/mixed/r{quota}");
                let limit = 999_000 + call;
                let policy = format!(r#"{{"window":"daily","limit_count":{limit}}}"#);
                let (method, path, body) = match (client / 4 + call) % 3 {
                    0 => (Method::GET, path, ""),
                    1 => (Method::PUT, path, &*policy),
                    _ => (Method::POST, format!("{path}/consume"), ""),
                };
                let answer = connection.call(method.clone(), &path, ADMIN, body).await;
                let answer = answer.unwrap().is(200);
                if method == Method::POST {
                    tallies[quota].enter(&answer);
                }
            }
            tallies
        });
    }
    let mut sums: [Tally; 4] = Default::default();
    for tallies in clients.join_all().await {
        for (sum, tally) in sums.iter_mut().zip(tallies) {
            *sum += tally;
        }
    }
    let prune = prune.wait_with_output().unwrap();
    succeeds(&prune);
    assert_eq!(database.ask(OLD), "0");
    for (quota, tally) in sums.iter().enumerate() {
        assert!(tally.granted_in_all() > 100, "{tally:?}");
        assert_eq!(site.stored("mixed", &format!("r{quota}")), tally.granted);
    }
    let log = site.log();
    assert!(
        !log.contains(" ERROR ") && !log.contains("could not prune"),
        "{log}"
    );
}
