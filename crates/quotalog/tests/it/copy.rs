//! `quotalog copy`: what arrives on the other side, what it refuses, and what a broken-off copy leaves.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Output, Stdio};

use hyper::{Method, Request};
use quotalog_testkit::postgres::{Cluster, Database, Setup, Stop};
use rusqlite::types::Value;

use crate::cli::{fails, succeeds, text};
use crate::faults::unshare;
use crate::support::server::{ADMIN, Server, Site, quotalog, run_to_its_end, skipped};

fn copy(from: &str, to: &str, more: &[&str]) -> Output {
    let mut command = quotalog();
    command
        .args(["copy", "--from", from, "--to", to])
        .args(more);
    run_to_its_end(&mut command)
}

#[track_caller]
fn copied(from: &str, to: &str) -> String {
    let output = copy(from, to, &[]);
    succeeds(&output);
    assert!(
        output.stderr.is_empty(),
        "no bar without a terminal: {output:?}"
    );
    text(&output.stdout).to_owned()
}

fn file_url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

/// Ids that some layer on the way might take for something else.
fn odd_ids() -> Vec<String> {
    let ids = [
        "api'; DROP TABLE quota_policies; --",
        "\"double\" and \\back\\slash",
        "100%_of*it",
        "\\N",
        "\\.",
        "日本語",
        "e\u{301} is not é",
        "Alice",
        "alice",
        " a space before and after ",
        "007",
        "7",
        "NULL",
        "{a,b}",
    ];
    let long = ["x".repeat(255), "語".repeat(85)];
    ids.into_iter().map(str::to_owned).chain(long).collect()
}

fn encoded(id: &str) -> String {
    id.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Sends a consume of one unit with a key.
async fn keyed(
    server: &Server,
    path: &str,
    token: &str,
    key: &str,
) -> crate::support::answer::Answer {
    let request = Request::post(path)
        .header("host", "localhost")
        .header("authorization", format!("Bearer {token}"))
        .header("idempotency-key", key)
        .body(http_body_util::Full::default())
        .unwrap();
    server.connect().await.send(request).await.unwrap()
}

/// A site with something of everything, and the tokens of an admin and of alice.
async fn filled() -> (Site, String, String) {
    let site = Site::new();
    let admin = site.token(&["--role", "admin", "--name", "the first"]);
    let alice = site.token(&["--role", "user", "--user-id", "alice"]);
    let ended = site.token(&["--role", "viewer", "--expires-at", "9999-01-01T00:00:00Z"]);
    let server = site.serve();
    server.set("/defaults/by-default", "daily", 1_000_000).await;
    for (place, id) in odd_ids().iter().enumerate() {
        let id = encoded(id);
        let window = if place % 2 == 0 { "daily" } else { "hourly" };
        let path = format!("/quotas/{id}/{id}");
        server.set(&path, window, 1_000).await;
        let consume = format!("{path}/consume");
        let body = format!(r#"{{"amount":{}}}"#, place + 1);
        server.call(Method::POST, &consume, &body).await.is(200);
        // Counted, and served by nobody's own policy.
        let consume = format!("/quotas/{id}/by-default/consume");
        server.call(Method::POST, &consume, "").await.is(200);
    }
    server.set("/quotas/alice/r", "daily", 10).await;
    server.set("/quotas/gone/r", "daily", 10).await;
    server
        .call(Method::POST, "/quotas/gone/r/consume", "")
        .await
        .is(200);
    server
        .call(Method::DELETE, "/quotas/gone/r", "")
        .await
        .is(204);
    keyed(&server, "/quotas/alice/r/consume", &alice, "k")
        .await
        .is(200);
    let items = r#"{"items":[{"user_id":"carol","resource":"by-default"},{"user_id":"bob","resource":"by-default"}]}"#;
    let batch = Request::post("/consume")
        .header("host", "localhost")
        .header("authorization", format!("Bearer {ADMIN}"))
        .header("content-type", "application/json")
        .header("idempotency-key", "of-a-batch")
        .body(http_body_util::Full::from(items))
        .unwrap();
    server.connect().await.send(batch).await.unwrap().is(200);
    assert_eq!(server.stop().code(), Some(0));
    let listed = site.run(&["token", "list", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let viewer = listed["tokens"].as_array().unwrap().iter();
    let mut viewer = viewer.filter(|token| token["role"] == "viewer");
    let id = viewer.next().unwrap()["id"].as_str().unwrap().to_owned();
    succeeds(&site.run(&["token", "revoke", &id]));
    assert!(ended.starts_with("ql_"));
    // Another program's rows: a limit above today's, usage of long ago with instants that nobody reads.
    let database = rusqlite::Connection::open(site.database()).unwrap();
    database
        .execute_batch(
            "INSERT INTO quota_policies (user_id, resource, window, limit_count, created_at, updated_at)
                 VALUES ('big', 'r', 'daily', 9223372036854775807, '0001-01-01 00:00:00', '9999-12-30 23:59:59');
             INSERT INTO quota_usage (user_id, resource, window_start, usage, created_at, updated_at)
                 VALUES ('big', 'r', '1969-12-31 23:00:00', 9223372036854775807, 'yesterday', x'00');",
        )
        .unwrap();
    (site, admin, alice)
}

/// Every row of every table but its number, by the table's name.
fn contents(file: &Path) -> BTreeMap<&'static str, Vec<Vec<Value>>> {
    let database = rusqlite::Connection::open(file).unwrap();
    let tables = [
        (
            "policies",
            "SELECT user_id, resource, window, limit_count, created_at, updated_at FROM quota_policies",
        ),
        (
            "usage",
            "SELECT user_id, resource, window_start, usage, created_at, updated_at FROM quota_usage",
        ),
        (
            "defaults",
            "SELECT resource, window, limit_count, created_at, updated_at FROM quotalog_defaults",
        ),
        (
            "tokens",
            "SELECT place, id, hash, role, user_id, name, created_at, expires_at FROM quotalog_tokens",
        ),
        ("kept", "SELECT * FROM quotalog_idempotency_keys"),
        ("audit", "SELECT * FROM quotalog_audit"),
        ("clock", "SELECT seen_at, leapt_at FROM quotalog_clock"),
    ];
    let read = |sql: &str| {
        let mut statement = database
            .prepare(&format!("{sql} ORDER BY 1, 2, 3"))
            .unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| (0..columns).map(|at| row.get(at)).collect());
        rows.unwrap().map(Result::unwrap).collect()
    };
    tables
        .map(|(name, sql)| {
            (
                name,
                read(&sql.replace(" FROM quotalog_clock", ", 1 FROM quotalog_clock")),
            )
        })
        .into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_arrives_on_postgresql_and_comes_back_to_the_byte() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let database = cluster.database();
    let (site, admin, alice) = filled().await;
    let said = copied(&file_url(&site.database()), &database.url());
    assert!(said.contains("both sides are equal"), "{said}");

    let back = site.folder.path().join("back.db");
    copied(&database.url(), &file_url(&back));
    let (mut before, after) = (contents(&site.database()), contents(&back));
    // What nobody reads of another program's row is made readable.
    let start = Value::Text("1969-12-31 23:00:00".to_owned());
    let of_big = before.get_mut("usage").unwrap().iter_mut();
    let mut of_big = of_big.filter(|row| row[0] == Value::Text("big".to_owned()));
    of_big.next().unwrap()[4..].fill(start);
    assert!(before.values().all(|rows| !rows.is_empty()), "{before:?}");
    assert_eq!(before, after);

    // A server on the other side goes on where the first one ended.
    let origin = site.serve();
    let there = Site::on(&database).serve();
    there.ready().await;
    let lists = [
        "/quotas?limit=1000",
        "/audit?limit=1000",
        "/tokens",
        "/defaults",
        "/quotas/alice/r/usage",
    ];
    for path in lists {
        let mut answers = Vec::new();
        for server in [&origin, &there] {
            let mut connection = server.connect().await;
            let answer = connection
                .call(Method::GET, path, &admin, "")
                .await
                .unwrap();
            answers.push(answer.is(200).body);
        }
        assert_eq!(answers[0], answers[1], "{path}");
    }
    let replayed = keyed(&there, "/quotas/alice/r/consume", &alice, "k")
        .await
        .is(200);
    assert!(replayed.header("idempotency-replayed").is_some());
    assert_eq!((replayed.usage(), replayed.remaining()), (1, 9));

    // New rows come after those that were copied.
    let body = r#"{"role":"viewer"}"#;
    there.call(Method::POST, "/tokens", body).await.is(201);
    let audit = there
        .call(Method::GET, "/audit?limit=2", "")
        .await
        .is(200)
        .json();
    let id = |place: usize| audit["entries"][place]["id"].as_i64().unwrap();
    assert_eq!(id(0), id(1) + 1);
    let tokens = "SELECT count(*) = max(place) - 1 FROM quotalog_tokens";
    assert_eq!(
        database.ask(tokens),
        "t",
        "the place of the revoked token is given again"
    );
    let again = keyed(&there, "/quotas/alice/r/consume", &alice, "l")
        .await
        .is(200);
    assert_eq!(again.usage(), 2);
}

#[tokio::test]
async fn the_token_of_a_server_that_runs_on_the_target_is_known_to_it_at_once() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let database = cluster.database();
    let (site, admin, _) = filled().await;
    let there = Site::on(&database).serve();
    there.ready().await;
    let mut connection = there.connect().await;
    let mut asked = async |status| {
        let answer = connection.call(Method::GET, "/tokens", &admin, "").await;
        assert_eq!(answer.unwrap().status, status);
    };
    asked(401).await;
    copied(&file_url(&site.database()), &database.url());
    asked(200).await;
}

#[test]
fn from_file_to_file_and_from_server_to_server() {
    let site = Site::new();
    let token = site.token(&["--role", "admin"]);
    assert!(token.starts_with("ql_"));
    let second = site.folder.path().join("second.db");
    copied(&file_url(&site.database()), &file_url(&second));
    assert_eq!(contents(&site.database()), contents(&second));
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let databases = [cluster.database(), cluster.database()];
    copied(&file_url(&second), &databases[0].url());
    copied(&databases[0].url(), &databases[1].url());
    let third = site.folder.path().join("third.db");
    copied(&databases[1].url(), &file_url(&third));
    assert_eq!(contents(&second), contents(&third));
}

#[test]
fn a_target_that_is_not_empty_is_refused_and_left_as_it_is() {
    let [site, other] = [Site::new(), Site::new()];
    for site in [&site, &other] {
        site.token(&["--role", "admin"]);
    }
    let (from, to) = (file_url(&site.database()), file_url(&other.database()));
    let before = contents(&other.database());
    fails(
        &copy(&from, &to, &[]),
        2,
        "--to is not empty (tokens: 1, audit entries: 1)",
    );
    assert_eq!(contents(&other.database()), before);

    // A user who is being erased must not live on in the copy.
    let file = rusqlite::Connection::open(site.database()).unwrap();
    let unfinished = "INSERT INTO quotalog_erasures \
                      (user_id, day_start, kept_to, after_operation, after_caller, after_key) \
                      VALUES ('u', '2026-11-30 00:00:00', 0, '', '', '')";
    file.execute_batch(unfinished).unwrap();
    let new = file_url(&site.folder.path().join("new.db"));
    fails(&copy(&from, &new, &[]), 1, "quotalog_erasing");
    file.execute_batch("DELETE FROM quotalog_erasures").unwrap();

    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let database = cluster.database();
    let site = Site::on(&database);
    site.token(&["--role", "admin"]);
    fails(&copy(&from, &database.url(), &[]), 2, "--to is not empty");
    assert_eq!(database.ask("SELECT count(*) FROM quotalog_tokens"), "1");
}

#[test]
fn a_database_is_not_copied_into_itself_under_whatever_name() {
    let site = Site::new();
    site.token(&["--role", "admin"]);
    let link = site.folder.path().join("link.db");
    std::os::unix::fs::symlink(site.database(), &link).unwrap();
    let from = file_url(&site.database());
    fails(
        &copy(&from, &from, &[]),
        2,
        "--to names the same file as --from",
    );
    fails(
        &copy(&from, &file_url(&link), &[]),
        2,
        "--to names the same file as --from",
    );

    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let database = cluster.database();
    succeeds(&Site::on(&database).run(&["token", "list"]));
    let renamed = database.url().replace("127.0.0.1", "localhost");
    fails(
        &copy(&database.url(), &renamed, &[]),
        2,
        "cannot be copied into itself",
    );
}

#[test]
fn what_is_no_source_is_told_in_one_line() {
    let site = Site::new();
    let target = file_url(&site.folder.path().join("target.db"));
    fails(&copy("sqlite:not-there.db", &target, &[]), 5, "--from");
    let nobody = "postgres://u@127.0.0.1:1/d";
    fails(&copy(nobody, &target, &[]), 6, "--from: 127.0.0.1:1/d");
    fails(&copy("mysql://u@h/d", &target, &[]), 2, "--from");
    let empty = site.folder.path().join("empty.db");
    std::fs::write(&empty, "").unwrap();
    fails(&copy(&file_url(&empty), &target, &[]), 1, "holds no quotas");
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    fails(
        &copy(&cluster.database().url(), &target, &[]),
        2,
        "no tables of quotalog",
    );
    assert!(!site.folder.path().join("target.db").exists());
}

#[test]
fn rows_that_cannot_be_held_are_named_and_stay_behind_only_if_they_may() {
    let site = Site::new();
    let file = site.folder.path().join("of-another-program.db");
    let database = rusqlite::Connection::open(&file).unwrap();
    database
        .execute_batch(
            "CREATE TABLE quota_policies (id INTEGER PRIMARY KEY AUTOINCREMENT, user_id TEXT NOT NULL, resource TEXT NOT NULL,
                 window TEXT NOT NULL DEFAULT 'hourly', limit_count INTEGER NOT NULL,
                 created_at TEXT NOT NULL, updated_at TEXT NOT NULL, UNIQUE(user_id, resource));
             CREATE TABLE quota_usage (id INTEGER PRIMARY KEY AUTOINCREMENT, user_id TEXT NOT NULL, resource TEXT NOT NULL,
                 window_start TEXT NOT NULL, usage INTEGER NOT NULL DEFAULT 0,
                 created_at TEXT NOT NULL, updated_at TEXT NOT NULL, UNIQUE(user_id, resource, window_start));
             INSERT INTO quota_policies (user_id, resource, window, limit_count, created_at, updated_at) VALUES
                 ('u', 'held', 'daily', 5, '2026-01-01 00:00:00', '2026-01-01 00:00:00'),
                 ('u', 'weekly', 'weekly', 5, '2026-01-01 00:00:00', '2026-01-01 00:00:00'),
                 ('u', 'nul' || char(0), 'daily', 5, '2026-01-01 00:00:00', '2026-01-01 00:00:00'),
                 (x'75', 'blob', 'daily', 5, '2026-01-01 00:00:00', '2026-01-01 00:00:00'),
                 ('u', 'T', 'daily', 5, '2026-01-01T00:00:00', '2026-01-01 00:00:00'),
                 (printf('%256d', 0), 'long', 'daily', 5, '2026-01-01 00:00:00', '2026-01-01 00:00:00'),
                 ('u', 'zero', 'daily', 0, '2026-01-01 00:00:00', '2026-01-01 00:00:00');
             INSERT INTO quota_usage (user_id, resource, window_start, usage, created_at, updated_at) VALUES
                 ('u', 'held', '2026-01-01 00:00:00', 3, '', ''),
                 ('u', 'held', '2026-01-01 01:00:00', -3, '', ''),
                 ('u', 'held', '2026-01-01 02:00:00', 'many', '', '');",
        )
        .unwrap();
    drop(database);
    let before = std::fs::read(&file).unwrap();
    let target = site.folder.path().join("target.db");
    let output = copy(&file_url(&file), &file_url(&target), &[]);
    fails(&output, 1, "8 of the rows cannot be held");
    let said = text(&output.stderr);
    assert!(
        said.contains("quota_policies id 2: its window cannot be held"),
        "{said}"
    );
    assert!(
        said.contains("quota_usage id 3: its usage cannot be held"),
        "{said}"
    );
    assert!(
        said.contains("and more") && said.contains("--leave-behind"),
        "{said}"
    );

    let targets = [
        Some(file_url(&target)),
        Cluster::shared().map(|cluster| cluster.database().url()),
    ];
    for target in targets.into_iter().flatten() {
        let output = copy(&file_url(&file), &target, &["--leave-behind", "--json"]);
        succeeds(&output);
        assert_eq!(text(&output.stderr).lines().count(), 7, "{output:?}");
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let of = |place: usize| {
            let table = &said["tables"][place];
            (
                table["rows"].as_u64().unwrap(),
                table["left_behind"].as_u64().unwrap(),
            )
        };
        assert_eq!((of(0), of(1), of(2)), ((1, 6), (1, 2), (0, 0)));
    }
    assert_eq!(
        std::fs::read(&file).unwrap(),
        before,
        "the source is only read"
    );
}

/// Enough that a copy takes a while.
fn many(site: &Site) {
    site.token(&["--role", "admin"]);
    let database = rusqlite::Connection::open(site.database()).unwrap();
    database
        .execute_batch(
            "INSERT INTO quota_usage (user_id, resource, window_start, usage, created_at, updated_at)
                 WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
                 SELECT 'user-' || i, 'r', '2026-12-02 00:00:00', 7, '2026-12-02 00:00:00', '2026-12-02 00:00:00' FROM n",
        )
        .unwrap();
}

/// Starts a copy and kills it when `is_under_way` says so.
#[track_caller]
fn killed(from: &str, to: &str, mut is_under_way: impl FnMut() -> bool) {
    let mut command = quotalog();
    command.args(["copy", "--from", from, "--to", to]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    while !is_under_way() {
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
}

#[test]
fn a_copy_that_is_killed_leaves_nothing_and_is_begun_anew() {
    let site = Site::new();
    many(&site);
    let from = file_url(&site.database());
    let file = site.folder.path().join("target.db");
    let log = site.folder.path().join("target.db-wal");
    let grown = || log.metadata().is_ok_and(|log| log.len() > 1_000_000);
    killed(&from, &file_url(&file), grown);
    let usage = "SELECT count(*) FROM quota_usage";
    assert_eq!(crate::support::server::read_number(&file, usage), 0);
    copied(&from, &file_url(&file));
    assert_eq!(contents(&site.database()), contents(&file));

    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let database = cluster.database();
    let is_copying = format!(
        "SELECT count(*) FROM pg_stat_progress_copy WHERE datname = '{0}' \
         UNION ALL SELECT count(*) FROM pg_stat_activity WHERE datname = '{0}' AND query LIKE 'COPY%'",
        database.name()
    );
    killed(&from, &database.url(), || {
        database.ask(&is_copying) != "0\n0"
    });
    let gone = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    while database.ask(gone) != "0" {}
    assert_eq!(database.ask("SELECT count(*) FROM quota_usage"), "0");
    copied(&from, &database.url());
    assert_eq!(
        database.ask("SELECT count(*), sum(usage) FROM quota_usage"),
        "60001|420007"
    );
    let anchors = "SELECT count(*) FROM quota_policies WHERE \"window\" IS NULL";
    assert_eq!(database.ask(anchors), "60001");
}

#[test]
fn a_target_that_fails_on_the_way_is_told_and_left_empty() {
    let site = Site::new();
    many(&site);
    let from = file_url(&site.database());
    if let Some(mut command) = unshare() {
        let disk = site.folder.path().join("disk");
        std::fs::create_dir(&disk).unwrap();
        let script = r#"mount -t tmpfs -o size=2m none "$0" && exec "$1" copy --from "$2" --to "sqlite:$0/t.db""#;
        let output = command
            .args(["sh", "-c", script])
            .arg(&disk)
            .arg(env!("CARGO_BIN_EXE_quotalog"))
            .arg(&from)
            .output();
        fails(&output.unwrap(), 6, "full");
    } else {
        skipped("no small disk can be mounted here");
    }

    let Some(cluster) = Cluster::own(&Setup::new()) else {
        return;
    };
    let database: Database = cluster.database();
    let mut command = quotalog();
    command.args(["copy", "--from", &from, "--to", &database.url()]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let copying = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY quota_usage%'";
    while database.ask(copying) == "0" {}
    cluster.stop(Stop::Immediate);
    fails(&child.wait_with_output().unwrap(), 6, "");
    cluster.start();
    assert_eq!(database.ask("SELECT count(*) FROM quota_usage"), "0");
    copied(&from, &database.url());
}

/// What is changed on the way between writing and reading back.
#[test]
fn what_is_not_equal_in_the_end_is_not_there() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let database = cluster.database();
    let site = Site::new();
    many(&site);
    succeeds(&Site::on(&database).run(&["token", "list"]));
    database.ask(
        "CREATE FUNCTION less() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN IF new.user_id = 'user-5' THEN new.usage = 6; END IF; RETURN new; END $$; \
         CREATE TRIGGER less BEFORE INSERT ON quota_usage FOR EACH ROW EXECUTE FUNCTION less()",
    );
    let output = copy(&file_url(&site.database()), &database.url(), &[]);
    fails(
        &output,
        1,
        "what was read back is not what was written (usage: 60001 rows",
    );
    assert_eq!(database.ask("SELECT count(*) FROM quota_usage"), "0");
}

#[test]
fn on_a_terminal_a_bar_tells_how_far_it_is() {
    let site = Site::new();
    many(&site);
    let target = site.folder.path().join("target.db");
    let line = format!(
        "{} copy --from {} --to {}",
        env!("CARGO_BIN_EXE_quotalog"),
        file_url(&site.database()),
        file_url(&target)
    );
    let output = std::process::Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env("TERM", "xterm")
        .output();
    let Ok(output) = output else {
        return skipped("there is no program that gives a terminal (script, package bsdutils)");
    };
    succeeds(&output);
    let said = text(&output.stdout);
    assert!(
        said.contains("copying usage") && said.contains(" %, "),
        "{said:?}"
    );
}
