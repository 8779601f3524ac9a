//! `quotalog import`: what comes back, what is refused, and what is left of an import that is broken off.
//!
//! The size is that of a quick test; `IMPORT_POLICIES=1000000 cargo test -p quotalog --test it import::` takes minutes.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use hyper::Method;
use quotalog_testkit::postgres::{Cluster, Database};

use crate::cli::{fails, succeeds, text};
use crate::export::{exported, sites};
use crate::support::server::{Server, Site, quotalog, read_number, skipped, until};

/// How many policies make a large file.
fn many() -> usize {
    let set = std::env::var("IMPORT_POLICIES");
    set.map_or(20_000, |many| many.parse().unwrap())
}

fn file(site: &Site, name: &str, content: &str) -> String {
    let path: PathBuf = site.folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

fn import(site: &Site, what: &str, name: &str, content: &str, more: &[&str]) -> Output {
    let file = file(site, name, content);
    site.run(&[&["import", "--what", what, &file], more].concat())
}

#[track_caller]
fn imported(site: &Site, what: &str, name: &str, content: &str, counts: [u64; 3]) {
    let output = import(site, what, name, content, &["--json"]);
    succeeds(&output);
    assert!(output.stderr.is_empty(), "{output:?}");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let said = ["created", "changed", "unchanged"].map(|name| said[name].as_u64().unwrap());
    assert_eq!(said, counts, "{content:.200}");
}

/// The faults that are named, without the file's name, and the exit code.
#[track_caller]
fn faults(site: &Site, what: &str, name: &str, content: &str) -> Vec<String> {
    let output = import(site, what, name, content, &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let lines = text(&output.stderr).lines();
    let said = lines.map(|line| {
        line.rsplit_once(&format!("{name}:"))
            .map_or(line, |(_, rest)| rest)
    });
    let mut said: Vec<String> = said.map(str::to_owned).collect();
    let last = said.pop().unwrap();
    assert!(
        last.starts_with("quotalog: nothing is imported: "),
        "{last}"
    );
    said
}

fn policies(count: usize) -> String {
    let mut content = String::from("user_id,resource,window,limit_count\n");
    for number in 0..count {
        let place = number * 7_919 % count;
        writeln!(content, "user-{place},r,daily,{}", number % 1_000 + 1).unwrap();
    }
    content
}

async fn audit(server: &Server) -> Vec<serde_json::Value> {
    let answer = server.call(Method::GET, "/audit?limit=1000", "").await;
    answer.is(200).json()["entries"].as_array().unwrap().clone()
}

/// The ids that some layer on the way might take for something else.
const ODD: [&str; 16] = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "'=1",
    "''",
    "'tis",
    "\u{ff1d}1",
    "a,\"b\";c",
    "\\N",
    "\u{2028}",
    "日本語",
    " a ",
    "007",
    "NULL",
    "\u{feff}x",
];

#[test]
fn what_was_exported_comes_back_to_the_byte_in_either_form_and_store() {
    for format in ["csv", "jsonl"] {
        let [sites, others] = [sites(), sites()];
        // From each store into the other one.
        for (site, other) in sites.iter().zip(others.iter().rev()) {
            let mut policies = String::new();
            let mut usage = String::new();
            for (place, id) in ODD.iter().enumerate() {
                let id = serde_json::Value::from(*id);
                writeln!(
                    policies,
                    r#"{{"user_id":{id},"resource":{id},"window":"daily","limit_count":{}}}"#,
                    place + 1
                )
                .unwrap();
                writeln!(usage, r#"{{"user_id":{id},"resource":{id},"window_start":"2026-11-30T18:00:00Z","usage":{place}}}"#).unwrap();
            }
            let defaults = "{\"resource\":\"=r\",\"window\":\"hourly\",\"limit_count\":9}\n";
            for (what, content) in [
                ("policies", &*policies),
                ("usage", &usage),
                ("defaults", defaults),
            ] {
                let count = u64::try_from(content.lines().count()).unwrap();
                imported(site, what, "first.jsonl", content, [count, 0, 0]);
                let written = exported(site, what, format);
                let name = format!("again.{format}");
                imported(site, what, &name, &written, [0, 0, count]);
                imported(other, what, &name, &written, [count, 0, 0]);
                let sorted = |site| {
                    let mut lines: Vec<String> = exported(site, what, "jsonl")
                        .lines()
                        .map(str::to_owned)
                        .collect();
                    lines.sort_unstable();
                    lines
                };
                let mut expected: Vec<&str> = content.lines().collect();
                expected.sort_unstable();
                assert_eq!(sorted(site), expected);
                assert_eq!(sorted(other), expected);
            }
        }
    }
}

#[tokio::test]
async fn policies_are_set_as_by_a_put_and_the_audit_tells_of_each_change() {
    for site in sites() {
        let server = site.serve();
        server.ready().await;
        server.set("/quotas/same/r", "daily", 5).await;
        server.set("/quotas/other/r", "daily", 5).await;
        server.set("/quotas/not-named/r", "daily", 5).await;
        let before = audit(&server).await.len();
        let of = async |user: &str| {
            server
                .call(Method::GET, &format!("/quotas/{user}/r"), "")
                .await
                .is(200)
        };
        let same = of("same").await.body;
        let file = "user_id,resource,window,limit_count\nsame,r,daily,5\nother,r,hourly,6\nnew,r,daily,7\n";

        let output = import(&site, "policies", "p.csv", file, &["--dry-run"]);
        succeeds(&output);
        let said = "would import 3 policies: 1 would be created, 1 changed, 1 unchanged\n";
        assert_eq!(text(&output.stdout), said);
        assert_eq!(audit(&server).await.len(), before);
        server.call(Method::GET, "/quotas/new/r", "").await.is(404);

        imported(&site, "policies", "p.csv", file, [1, 1, 1]);
        assert_eq!(of("same").await.body, same);
        assert_eq!(of("new").await.json()["limit_count"], 7);
        assert_eq!(of("other").await.json()["window"], "hourly");
        assert_eq!(of("not-named").await.json()["limit_count"], 5);
        let entries = audit(&server).await;
        assert_eq!(entries.len(), before + 2);
        for (entry, (user, limit)) in entries.iter().zip([("other", Some(5)), ("new", None)]) {
            assert_eq!(entry["action"], "policy.set");
            assert_eq!(entry["user_id"], user);
            assert_eq!(entry["actor"]["kind"], "command-line");
            assert_eq!(entry["before"]["limit_count"].as_u64(), limit);
            assert!(entry["after"]["limit_count"].is_u64(), "{entry}");
        }
        imported(&site, "policies", "p.csv", file, [0, 0, 3]);
        assert_eq!(audit(&server).await.len(), before + 2);
    }
}

#[tokio::test]
async fn usage_becomes_the_number_of_the_file_and_a_running_server_obeys_it() {
    for site in sites() {
        let server = site.serve();
        server.ready().await;
        server.set("/defaults/r", "daily", 10).await;
        let consume = "/quotas/u/r/consume";
        let counted = server
            .call(Method::POST, consume, r#"{"amount":4}"#)
            .await
            .is(200);
        let start = counted.window_start();
        let row = |user: &str, usage: u64| {
            format!(
                r#"{{"user_id":"{user}","resource":"r","window_start":"{start}","usage":{usage}}}"#
            )
        };
        let file = [row("u", 9), row("v", 10)].join("\n");
        imported(&site, "usage", "u.jsonl", &file, [1, 1, 0]);
        let usage = async |user: &str| server.usage(&format!("/quotas/{user}/r")).await;
        assert_eq!(usage("u").await, (start.clone(), 9));
        server
            .call(Method::POST, "/quotas/v/r/consume", "")
            .await
            .is(429);
        server.call(Method::POST, consume, "").await.is(200);
        server.call(Method::POST, consume, "").await.is(429);
        let entries = audit(&server).await;
        let changed = entries
            .iter()
            .find(|entry| entry["user_id"] == "u")
            .unwrap();
        assert_eq!(changed["action"], "quota.reset");
        assert_eq!(changed["before"]["usage"], 4);
        assert_eq!(changed["after"]["usage"], 9);
        imported(&site, "usage", "u.jsonl", &row("u", 0), [0, 1, 0]);
        server
            .call(Method::POST, consume, r#"{"amount":10}"#)
            .await
            .is(200);
    }
}

#[test]
fn every_fault_is_named_and_nothing_is_written() {
    for site in sites() {
        let file = "user_id,resource,window,limit_count\na,r,daily,1\nb,r,weekly,0\na,r,hourly,2\n,r,daily,1\nc,r,daily,1\n";
        let expected = [
            "3: limit_count must be a positive integer.",
            "3: window must be one of: hourly, daily.",
            "4: user_id and resource are those of line 2.",
            "5: user_id must not be empty.",
        ];
        assert_eq!(faults(&site, "policies", "p.csv", file), expected);
        assert_eq!(exported(&site, "policies", "jsonl"), "");
        let usage = "user_id,resource,window_start,usage\n\
             u,r,2026-11-30T18:00:00Z,1\nu,r,2026-11-30T19:00:00Z,1\nu,r,2026-11-30T18:00:00Z,1\n";
        let expected = ["4: user_id, resource and window_start are those of line 2."];
        assert_eq!(faults(&site, "usage", "u.csv", usage), expected);
        assert_eq!(exported(&site, "usage", "jsonl"), "");

        let bad = "x,r,daily,0\n".repeat(50);
        let output = import(
            &site,
            "policies",
            "p.csv",
            &format!("user_id,resource,window,limit_count\n{bad}"),
            &[],
        );
        let said = text(&output.stderr);
        assert_eq!(said.lines().count(), 21, "{said}");
        assert!(
            said.contains("has 50 faults, of which the first 20 are named"),
            "{said}"
        );
        assert_eq!(output.status.code(), Some(2));
    }
    let site = Site::new();
    site.token(&["--role", "admin"]);
    let run =
        |arguments: &[&str]| site.run(&[&["import", "--what", "policies"], arguments].concat());
    fails(
        &run(&["/nowhere/p.csv"]),
        5,
        "/nowhere/p.csv cannot be read",
    );
    fails(&run(&["--format", "csv", "/"]), 2, "it is a folder");
    fails(&run(&["p.txt"]), 2, "--format is needed");
    let nowhere = file(&site, "p.csv", "");
    let mut elsewhere = quotalog();
    elsewhere.args(["import", "--what", "policies", &nowhere]);
    let unreachable = elsewhere
        .env("QUOTALOG_DATABASE", "postgres://u@127.0.0.1:1/d")
        .output();
    fails(&unreachable.unwrap(), 6, "127.0.0.1:1");
    let missing = elsewhere
        .env("QUOTALOG_DATABASE", "sqlite:/nowhere.db")
        .output();
    fails(&missing.unwrap(), 5, "there is no database");
}

#[test]
fn a_limit_above_what_may_be_set_comes_back_where_it_is() {
    let site = Site::new();
    site.token(&["--role", "admin"]);
    let database = rusqlite::Connection::open(site.database()).unwrap();
    database
        .execute_batch(
            "INSERT INTO quota_policies (user_id, resource, window, limit_count, created_at, updated_at)
                 VALUES ('big', 'r', 'daily', 5000000, '2026-01-01 00:00:00', '2026-01-01 00:00:00')",
        )
        .unwrap();
    let written = exported(&site, "policies", "csv");
    imported(
        &site,
        "policies",
        "p.csv",
        &format!("{written}new,r,daily,1\n"),
        [1, 0, 1],
    );
    let above = ["2: limit_count must not exceed 1000000. It may stay, and is not there."];
    assert_eq!(
        faults(&site, "policies", "p.csv", &written.replace("big", "other")),
        above
    );
    assert_eq!(
        faults(
            &site,
            "policies",
            "p.csv",
            &written.replace("5000000", "5000001")
        ),
        above
    );
    assert_eq!(
        read_number(&site.database(), "SELECT count(*) FROM quota_policies"),
        2
    );
}

#[test]
fn a_large_file_is_imported_and_a_bad_line_near_its_end_leaves_nothing() {
    let count = many();
    let sound = policies(count);
    let last = sound.lines().count();
    let bad = sound.replacen(
        sound.lines().nth(last - 2).unwrap(),
        "user-x,r,daily,1000001x",
        1,
    );
    let count = u64::try_from(count).unwrap();
    for site in sites() {
        let fault = [format!(
            "{}: limit_count must be a positive integer.",
            last - 1
        )];
        assert_eq!(faults(&site, "policies", "p.csv", &bad), fault);
        assert_eq!(exported(&site, "policies", "jsonl"), "");
        let begun = std::time::Instant::now();
        imported(&site, "policies", "p.csv", &sound, [count, 0, 0]);
        println!("{count} policies were imported in {:?}", begun.elapsed());
        assert_eq!(exported(&site, "policies", "csv").lines().count(), last);
        imported(&site, "policies", "p.csv", &sound, [0, 0, count]);
    }
}

/// Whether an import holds the lock for which others wait.
fn is_saving(site: &Site) -> bool {
    let turn = std::fs::File::open(site.folder.path().join("quotalog.db-turn")).unwrap();
    matches!(turn.try_lock(), Err(std::fs::TryLockError::WouldBlock))
}

fn is_saving_on(database: &Database) -> bool {
    let saving = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                  AND pid <> pg_backend_pid() AND query LIKE 'INSERT INTO quota%'";
    database.ask(saving) != "0"
}

#[track_caller]
fn killed(site: &Site, file: &str, mut now: impl FnMut() -> bool) {
    let mut command = site.command(&["import", "--what", "policies", file]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    while !now() {
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
}

#[test]
fn an_import_that_is_killed_leaves_nothing_and_is_begun_anew() {
    let content = policies(20_000);
    let site = Site::new();
    site.token(&["--role", "admin"]);
    let path = file(&site, "p.csv", &content);
    // It has the lock for a moment when it opens the file too.
    let mut seen = 0;
    killed(&site, &path, || {
        seen = if is_saving(&site) { seen + 1 } else { 0 };
        seen == 25
    });
    assert_eq!(exported(&site, "policies", "jsonl"), "");
    let entries = "SELECT count(*) FROM quotalog_audit WHERE action = 'policy.set'";
    assert_eq!(read_number(&site.database(), entries), 0);
    let left = "SELECT count(*) FROM sqlite_schema WHERE name LIKE '%import%'";
    assert_eq!(read_number(&site.database(), left), 0);
    imported(&site, "policies", "p.csv", &content, [20_000, 0, 0]);

    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let database = cluster.database();
    let site = Site::on(&database);
    site.token(&["--role", "admin"]);
    let path = file(&site, "p.csv", &content);
    killed(&site, &path, || is_saving_on(&database));
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    while database.ask(others) != "0" {}
    assert_eq!(database.ask("SELECT count(*) FROM quota_policies"), "0");
    assert_eq!(database.ask(entries), "0");
    let left = "SELECT count(*) FROM pg_class WHERE relname LIKE '%import%'";
    assert_eq!(database.ask(left), "0");
    imported(&site, "policies", "p.csv", &content, [20_000, 0, 0]);
}

#[test]
fn an_import_that_fails_on_the_way_leaves_nothing() {
    for site in sites() {
        let exit = match &site.postgres {
            Some(database) => {
                database.ask(
                    "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS \
                     $$ BEGIN IF new.user_id = 'user-2999' THEN RAISE 'no'; END IF; RETURN new; END $$; \
                     CREATE TRIGGER fail BEFORE UPDATE ON quota_policies FOR EACH ROW EXECUTE FUNCTION fail()",
                );
                1
            }
            None => {
                // No more than a thousand places are left in the audit.
                let database = rusqlite::Connection::open(site.database()).unwrap();
                let few = "UPDATE sqlite_sequence SET seq = 9223372036854774807 WHERE name = 'quotalog_audit'";
                database.execute_batch(few).unwrap();
                6
            }
        };
        fails(
            &import(&site, "policies", "p.csv", &policies(3_000), &[]),
            exit,
            "",
        );
        assert_eq!(exported(&site, "policies", "jsonl"), "");
    }
}

/// Before the file's end nobody knows whether it is sound, and nobody waits.
#[tokio::test]
async fn a_server_counts_while_a_file_is_read() {
    for site in sites() {
        let server = site.serve();
        server.ready().await;
        server.set("/quotas/user-0/r", "hourly", 1_000).await;
        let mut command = site.command(&["import", "--what", "policies", "--format", "csv", "-"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let content = policies(3_000);
        input.write_all(content.as_bytes()).unwrap();
        server.set("/quotas/user-1/r", "hourly", 5).await;
        server
            .call(Method::POST, "/quotas/user-0/r/consume", "")
            .await
            .is(200);
        drop(input);
        until("the import ends", async || {
            child.try_wait().unwrap().is_some()
        })
        .await;
        let output = child.wait_with_output().unwrap();
        succeeds(&output);
        let said = "imported 3000 rows: 2998 created, 2 changed, 0 unchanged\n";
        assert_eq!(text(&output.stdout), said.replace("rows", "policies"));
        let answer = server
            .call(Method::GET, "/quotas/user-0/r", "")
            .await
            .is(200);
        assert_eq!(
            (answer.usage(), answer.json()["window"].as_str()),
            (1, Some("daily"))
        );
    }
}

/// Pairs of the file are counted while it is saved: each unit that was answered is there, and no request is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_exact_beside_an_import() {
    for site in sites() {
        let server = site.serve();
        server.ready().await;
        server.set("/defaults/r", "daily", 1_000_000).await;
        let path = file(&site, "p.csv", &policies(5_000));
        let mut command = site.command(&["import", "--what", "policies", &path]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut counted = 0;
        while child.try_wait().unwrap().is_none() {
            let path = format!("/quotas/user-{}/r/consume", counted * 997 % 5_000);
            let answer = server.call(Method::POST, &path, "").await;
            match answer.status {
                200 => counted += 1,
                429 | 503 => {}
                status => panic!("{status}"),
            }
        }
        let output = child.wait_with_output().unwrap();
        succeeds(&output);
        let usage = exported(&site, "usage", "csv");
        let units = usage
            .lines()
            .skip(1)
            .map(|line| line.rsplit(',').next().unwrap().parse::<u64>().unwrap());
        assert_eq!(units.sum::<u64>(), counted);
    }
}

#[test]
fn a_pooler_is_refused_and_the_server_itself_named() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let database = cluster.database();
    let site = Site::on(&database);
    site.token(&["--role", "admin"]);
    let path = file(&site, "p.csv", &policies(1));
    let url = database.url();
    let mark = if url.contains('?') { '&' } else { '?' };
    let mut command = quotalog();
    command.args(["import", "--what", "policies", &path]);
    let output = command
        .env(
            "QUOTALOG_DATABASE",
            format!("{url}{mark}pooler=transaction"),
        )
        .output();
    fails(&output.unwrap(), 2, "a session of its own");
}

#[test]
fn on_a_terminal_a_bar_tells_how_far_it_is() {
    let site = Site::new();
    site.token(&["--role", "admin"]);
    let path = file(&site, "p.csv", &policies(20_000));
    let line = format!(
        "{} import --what policies --database sqlite:{} {path}",
        env!("CARGO_BIN_EXE_quotalog"),
        site.database().display()
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
    assert!(said.contains("saving") && said.contains(" %, "), "{said:?}");
}
