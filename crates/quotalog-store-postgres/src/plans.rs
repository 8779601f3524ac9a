//! How PostgreSQL goes about our statements: each seeks in an index, by the whole of what it is asked for. None
//! reads a table through, and none makes a hash of one; on tables that are empty, full, and full and analysed.

use quotalog_testkit::postgres::{Cluster, Database};
use tokio_postgres::SimpleQueryMessage;

use crate::connection::{Connection, Connector};
use crate::{PostgresClock, PostgresConfig, TlsMode};
use crate::{audit, batch, erase, list, prune, quota, schema, token};

const POLICIES: u32 = 1_000_000;

/// The statements, and what of their keys each index of theirs is to be asked for.
const STATEMENTS: &[(&str, &[&[&str]])] = &[
    (batch::LOCK, &[&PAIR]),
    (batch::FIND_KEPT, &[&KEY]),
    (batch::SAVE_POLICIES, &[]),
    (batch::SAVE_USAGE, &[]),
    (batch::SAVE_KEPT, &[]),
    (batch::DROP_ANCHORS, &[&PAIR, &PAIR]),
    (batch::DELETE_EXPIRED, &[&KEY]),
    (batch::DELETE_DEFAULTS, &[&["resource"]]),
    (quota::FIND, &[&ONE, &["id"], &PAIR, &["resource"], &ROW]),
    (quota::FIND_USAGE, &[&ROW]),
    (quota::FIND_DEFAULTS, &[&["resource"]]),
    (quota::FIND_DEFAULT, &[&ONE, &["id"], &["resource"]]),
    (token::CONFIRM, &[&ONE, &["id"]]),
    (token::FIND, &[&ONE, &["hash"]]),
    (token::FIND_BY_ID, &[&["id"]]),
    (token::EXISTING, &[&["id"]]),
    (token::DELETE, &[&["id"]]),
    (token::DELETE_OF_USER, &[&["user_id"]]),
    (token::PAGE, &[&["place"]]),
    (list::PAIRS, &[&PAIR, &["resource"], &PAIR]),
    (list::PAIRS_OF_USER, &[&PAIR, &["resource"], &PAIR]),
    (list::PAIRS_OF_RESOURCE, &[&PAIR, &["resource"], &PAIR]),
    (list::PAIRS_NAMED, &[&PAIR, &["resource"], &PAIR]),
    (list::USAGE, &[&ROW]),
    (list::DEFAULTS, &[&["resource"]]),
    (audit::PAGE, &[&["id"]]),
    (prune::PRUNE_USAGE, &[&["window_start"]]),
    (prune::PRUNE_KEPT, &[&["kept_at"]]),
    (prune::PRUNE_TOKENS, &[&["expires_at"]]),
    (prune::ENTRIES, &[&["id"]]),
    (prune::DELETE_ENTRIES, &[&["id"]]),
    (prune::LOCK_ANCHORS, &[&PAIR]),
    (erase::LOCK, &[&["user_id"]]),
    (erase::DELETE_POLICIES, &[&["user_id"]]),
    (erase::DELETE_PRESENT_USAGE, &[&["user_id"]]),
    (erase::DELETE_PAST_USAGE, &[&["user_id"]]),
    (erase::DELETE_KEPT, &[&["user_id"]]),
    (erase::DELETE_KEPT_ONE, &[&KEY]),
    (erase::KEPT_FOR_CALLERS, &[&KEY]),
    (erase::OLDEST_FREE, &[]),
    (erase::OLDEST, &[]),
    (erase::GO_ON_AFTER, &[&["id"]]),
    (erase::DELETE, &[&["id"]]),
];
const PAIR: [&str; 2] = ["user_id", "resource"];
const ROW: [&str; 3] = ["user_id", "resource", "window_start"];
const KEY: [&str; 5] = ["user_id", "resource", "operation", "caller", "key"];
const ONE: [&str; 1] = ["id"];

/// Fills the tables as a large server's are, in the way of none of our statements.
fn fill(database: &Database) {
    database.ask(&format!(
        "INSERT INTO quota_policies SELECT 'u' || n / 4, 'r' || n % 4, 'hourly', 100, now(), now() \
         FROM generate_series(1, {POLICIES}) n; \
         INSERT INTO quota_usage SELECT 'u' || n / 4, 'r' || n % 4, \
         date_trunc('hour', now()) - n % 3 * interval '1 hour', 1, now(), now() \
         FROM generate_series(1, {POLICIES}) n; \
         INSERT INTO quotalog_idempotency_keys SELECT 'u' || n, 'r', 'consume', '', 'k', now(), '' \
         FROM generate_series(1, 100000) n; \
         INSERT INTO quotalog_audit (at, actor_kind, actor_id, action, user_id, resource) \
         SELECT now(), 'token', 't', 'policy.set', 'u' || n % 1000, 'r' || n % 4 \
         FROM generate_series(1, 100000) n; \
         INSERT INTO quotalog_tokens (id, hash, role, user_id, created_at) \
         SELECT 't' || n, n::text::bytea, 'user', 'u' || n, now() FROM generate_series(1, 100000) n; \
         INSERT INTO quotalog_defaults SELECT 'r' || n, 'daily', 9, now(), now() \
         FROM generate_series(1, 1000) n"
    ));
}

async fn connect(database: &Database) -> Connection {
    let config = PostgresConfig {
        url: database.url().parse().expect("a URL"),
        tls: TlsMode::Disable,
        is_pooled: false,
        lanes: 1,
        readers: 1,
        idempotency_retention_s: 1,
        clock: PostgresClock::Database,
    };
    let connector = Connector::new(&config).expect("a configuration");
    let prepared = schema::prepare(&connector, &config.clock).await;
    prepared.expect("the migrations run")
}

/// The plan that is kept for the statement, whatever its values are.
async fn plan(connection: &mut Connection, sql: &'static str) -> Vec<String> {
    let statement = connection.client().prepare(sql).await.expect("a statement");
    let nulls = vec!["NULL"; statement.params().len()].join(", ");
    let ask = format!(
        "DEALLOCATE ALL; PREPARE asked AS {sql}; EXPLAIN (COSTS OFF) EXECUTE asked{}",
        if nulls.is_empty() {
            nulls
        } else {
            format!("({nulls})")
        }
    );
    let told = connection.client_mut().simple_query(&ask).await;
    let told = told.expect("the statement has a plan");
    let lines = told.iter().filter_map(|message| {
        if let SimpleQueryMessage::Row(row) = message {
            return row.get(0).map(str::to_owned);
        }
        None
    });
    lines.collect()
}

fn check(sql: &str, keys: &[&[&str]], plan: &[String], state: &str) {
    let shown = plan.join("\n");
    for through in [
        "Seq Scan",
        "Hash",
        "Merge",
        "Bitmap",
        "Materialize",
        "Memoize",
    ] {
        assert!(
            !shown.contains(through),
            "{state}: {through}\n{sql}\n{shown}"
        );
    }
    let mut conditions: Vec<&String> = plan
        .iter()
        .filter(|line| line.contains("Index Cond:"))
        .collect();
    for columns in keys {
        let found = conditions
            .iter()
            .position(|line| columns.iter().all(|column| line.contains(column)));
        let Some(found) = found else {
            panic!("{state}: no seek by {columns:?}\n{sql}\n{shown}");
        };
        conditions.remove(found);
    }
    assert_eq!(
        conditions.len(),
        0,
        "{state}: one more seek\n{sql}\n{shown}"
    );
}

#[tokio::test]
async fn every_statement_seeks_in_an_index() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let database = cluster.database();
    for state in ["new", "empty", "full", "analysed"] {
        let mut connection = connect(&database).await;
        match state {
            // From then on the planner knows that there is nothing.
            "empty" => drop(database.ask("VACUUM ANALYZE")),
            "full" => fill(&database),
            "analysed" => drop(database.ask("VACUUM ANALYZE")),
            _ => {}
        }
        for (sql, keys) in STATEMENTS {
            let plan = plan(&mut connection, sql).await;
            check(sql, keys, &plan, state);
        }
        connection.close().await;
    }
}
