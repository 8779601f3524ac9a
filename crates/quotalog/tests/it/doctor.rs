//! `quotalog doctor`: what it finds in a sound database and in others, and that it changes none.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use quotalog_testkit::postgres::{Cluster, Database, Setup, Stop};
use serde_json::Value;

use crate::cli::fails;
use crate::support::server::{ADMIN, Site};

/// The findings of one examination, each as `grade subject`, and all their text.
struct Report {
    output: Output,
    findings: Vec<String>,
    text: String,
}

fn examine(site: &Site, more: &[&str]) -> Report {
    let output = site.run(&[&["doctor", "--json"], more].concat());
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let findings: Value = serde_json::from_str(&text).unwrap();
    let findings = findings.as_array().unwrap().iter().map(|finding| {
        let member = |name: &str| finding[name].as_str().unwrap().to_owned();
        assert!(!member("detail").is_empty());
        format!("{} {}", member("grade"), member("subject"))
    });
    Report {
        findings: findings.collect(),
        output,
        text,
    }
}

impl Report {
    /// What is not as it should be, and the exit code.
    #[track_caller]
    fn finds(&self, odd: &[&str], code: i32) {
        let found: Vec<&str> = self.findings.iter().map(String::as_str).collect();
        let found: Vec<&str> = found
            .into_iter()
            .filter(|f| !f.starts_with("ok "))
            .collect();
        assert_eq!(found, odd, "{}", self.text);
        assert_eq!(self.output.status.code(), Some(code), "{:?}", self.output);
    }
}

/// A site whose database has an admin's token.
fn filled() -> Site {
    let site = Site::new();
    site.token(&["--role", "admin"]);
    site
}

fn sql(site: &Site, sql: &str) {
    let database = rusqlite::Connection::open(site.database()).unwrap();
    database.execute_batch(sql).unwrap();
}

#[test]
fn a_sound_database_is_told_line_by_line_and_left_as_it_is() {
    let site = filled();
    let before = fs::read(site.database()).unwrap();
    let report = examine(&site, &[]);
    report.finds(&[], 0);
    for subject in [
        "settings",
        "folder",
        "schema",
        "file",
        "quota_policies",
        "clock",
    ] {
        let line = format!("ok {subject}");
        assert!(report.findings.contains(&line), "no {line}");
    }
    assert_eq!(fs::read(site.database()).unwrap(), before);

    let output = site.run(&["doctor"]);
    assert!(output.status.success() && output.stderr.is_empty());
    let lines = String::from_utf8(output.stdout).unwrap();
    assert!(lines.lines().all(|line| line.starts_with("ok ")), "{lines}");
}

#[test]
fn it_works_beside_a_running_server() {
    let site = filled();
    let server = site.serve();
    examine(&site, &[]).finds(&[], 0);
    assert!(server.stop().success());
}

#[test]
fn a_listener_that_others_reach_without_tls_is_warned_of() {
    let site = filled();
    let check = |more: &[&str], warned: &[&str]| {
        let report = examine(&site, more);
        report.finds(&vec!["warning listen"; warned.len()], 0);
        for flag in warned {
            assert!(report.text.contains(flag), "{flag}: {}", report.text);
        }
    };
    check(&["--listen", "localhost:0"], &[]);
    check(&["--listen", "[::1]:8200"], &[]);
    check(&["--listen", "0.0.0.0:8200"], &["--listen 0.0.0.0:8200"]);
    check(&["--listen", "[::]:8200"], &["--listen [::]:8200"]);
    // A private network is none of ours to trust with tokens, but good enough for metrics.
    check(&["--listen", "10.0.0.1:80"], &["--listen 10.0.0.1:80"]);
    check(&["--metrics-listen", "10.0.0.1:9100"], &[]);
    check(&["--metrics-listen", "[fd00::1]:9100"], &[]);
    check(
        &["--metrics-listen", "203.0.113.1:9100"],
        &["--metrics-listen"],
    );
    check(&["--metrics-listen", "0.0.0.0:9100"], &["--metrics-listen"]);
    check(&["--rls-listen", "127.0.0.1:8201"], &[]);
    check(
        &[
            "--listen",
            "0.0.0.0:1",
            "--rls-listen",
            "0.0.0.0:2",
            "--metrics-listen",
            "[::]:3",
        ],
        &[
            "--listen 0.0.0.0:1",
            "--rls-listen 0.0.0.0:2",
            "--metrics-listen [::]:3",
        ],
    );
    let report = examine(&site, &["--listen", "no-such-host.invalid:8200"]);
    report.finds(&["problem listen"], 1);
}

#[test]
fn a_folder_that_is_not_there_is_told_as_such() {
    let site = Site::new();
    let url = format!("sqlite:{}/none/q.db", site.folder.path().display());
    let report = examine(&site, &["--database", &url]);
    report.finds(&["problem folder", "warning database"], 1);
    assert!(
        report.text.contains("is not there; make it"),
        "{}",
        report.text
    );
}

#[test]
fn no_database_yet_is_no_problem() {
    let site = Site::new();
    examine(&site, &[]).finds(&["warning database"], 0);
    assert!(!site.database().exists());
}

#[test]
fn rows_that_quotalog_cannot_hold_are_counted_and_named() {
    let site = filled();
    sql(
        &site,
        "INSERT INTO quota_policies (user_id, resource, window, limit_count, created_at, updated_at)
         VALUES ('u', 'sound', 'daily', 5, '2026-12-01 00:00:00', '2026-12-01 00:00:00'),
                ('u', 'odd', 'weekly', 5, '2026-12-01 00:00:00', '2026-12-01 00:00:00');",
    );
    let report = examine(&site, &[]);
    report.finds(&["warning quota_policies"], 0);
    assert!(report.text.contains("1 of 2 rows"), "{}", report.text);
    assert!(
        report.text.contains("id 2: the window is unknown"),
        "{}",
        report.text
    );
    sql(
        &site,
        "INSERT INTO quotalog_tokens (id, hash, role, created_at)
         VALUES ('x', x'00', 'root', '2026-12-01 00:00:00');",
    );
    let odd = ["warning quota_policies", "warning quotalog_tokens"];
    examine(&site, &[]).finds(&odd, 0);
}

#[test]
fn an_open_file_a_wrong_clock_and_no_admin_are_warnings() {
    let site = filled();
    fs::set_permissions(site.database(), fs::Permissions::from_mode(0o644)).unwrap();
    sql(
        &site,
        "DELETE FROM quotalog_tokens; UPDATE quotalog_clock SET seen_at = '2001-01-01 00:00:00';",
    );
    let odd = ["warning file mode", "warning clock", "warning admin token"];
    examine(&site, &[]).finds(&odd, 0);
    let mut command = site.command(&["doctor"]);
    let output = command.env("QUOTALOG_ADMIN_TOKEN", ADMIN).output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    assert!(lines.contains("QUOTALOG_ADMIN_TOKEN is set"), "{lines}");
    assert!(!lines.contains("there is none"), "{lines}");
    sql(
        &site,
        "UPDATE quotalog_clock SET seen_at = '9001-01-01 00:00:00';",
    );
    let report = examine(&site, &[]);
    report.finds(&odd, 0);
    assert!(report.text.contains("behind"), "{}", report.text);
}

#[test]
fn what_would_stop_the_start_is_a_problem() {
    let site = filled();
    sql(
        &site,
        "UPDATE quotalog_schema_history SET version = 9999 WHERE version = 2;",
    );
    let report = examine(&site, &[]);
    report.finds(&["problem database"], 1);
    assert!(report.text.contains("schema 9999"), "{}", report.text);

    let site = Site::new();
    fs::write(site.database(), "no database at all ".repeat(100)).unwrap();
    examine(&site, &[]).finds(&["problem database"], 1);

    let site = filled();
    sql(
        &site,
        "CREATE TRIGGER t AFTER UPDATE ON quota_usage BEGIN SELECT 1; END;",
    );
    let report = examine(&site, &[]);
    report.finds(&["problem database"], 1);
    assert!(report.text.contains("trigger"), "{}", report.text);
}

#[test]
fn settings_are_judged_as_at_the_start() {
    let site = filled();
    let output = site.run(&["doctor", "--usage-retention", "1d"]);
    fails(&output, 2, "--usage-retention");
    let missing = site.folder.path().join("missing.pem");
    let missing = missing.to_str().unwrap();
    let report = examine(&site, &["--tls-cert", missing, "--tls-key", missing]);
    report.finds(&["problem certificate"], 1);
    let mut command = site.command(&["doctor"]);
    let output = command
        .env("QUOTALOG_ADMIN_TOKEN", &ADMIN[..8])
        .output()
        .unwrap();
    fails(&output, 2, "QUOTALOG_ADMIN_TOKEN");
}

/// A database on a server whose settings are sound, with an admin's token.
fn on_postgres() -> Option<(Cluster, Database, Site)> {
    let cluster = Cluster::own(&Setup::new().setting("fsync", "on"))?;
    let database = cluster.database();
    let site = Site::on(&database);
    site.token(&["--role", "admin"]);
    Some((cluster, database, site))
}

#[test]
fn a_sound_database_of_postgresql_is_told_line_by_line() {
    let Some((_cluster, database, site)) = on_postgres() else {
        return;
    };
    let report = examine(&site, &[]);
    report.finds(&[], 0);
    for subject in [
        "server",
        "durability",
        "schema",
        "role",
        "quota_usage",
        "clock",
        "admin token",
    ] {
        let line = format!("ok {subject}");
        assert!(report.findings.contains(&line), "no {line}");
    }
    database.ask(
        "INSERT INTO quota_policies VALUES ('u', 'odd', 'weekly', 5, now(), now()); \
         INSERT INTO quota_policies (user_id, resource) VALUES ('u', 'none'); \
         DELETE FROM quotalog_tokens; UPDATE quotalog_clock SET seen_at = '9001-01-01'",
    );
    let report = examine(&site, &[]);
    let odd = [
        "warning quota_policies",
        "warning clock",
        "warning admin token",
    ];
    report.finds(&odd, 0);
    assert!(report.text.contains("1 of 1 row,"), "{}", report.text);
    assert!(report.text.contains("odd"), "{}", report.text);
}

#[test]
fn what_would_harm_or_stop_a_node_on_postgresql_is_a_problem() {
    let Some((cluster, database, site)) = on_postgres() else {
        return;
    };
    database.ask("CREATE ROLE reader LOGIN PASSWORD 'secret'; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader");
    let url = database.url().replace("postgres@", "reader:secret@");
    examine(&site, &["--database", &url]).finds(&["problem role"], 1);

    database.ask("UPDATE quotalog_schema_history SET version = 9999");
    let report = examine(&site, &[]);
    report.finds(&["problem database"], 1);
    assert!(report.text.contains("schema 9999"), "{}", report.text);

    let empty = cluster.database();
    let report = examine(&site, &["--database", &empty.url()]);
    report.finds(&[], 0);
    assert!(report.text.contains("empty"), "{}", report.text);
    let url = empty.url().replace("postgres@", "reader:secret@");
    examine(&site, &["--database", &url]).finds(&["problem schema"], 1);

    cluster.stop(Stop::Fast);
    let report = examine(&site, &[]);
    report.finds(&["problem database"], 1);
    assert!(report.text.contains("reached"), "{}", report.text);
}

#[test]
fn a_server_of_postgresql_that_forgets_at_a_crash_is_a_problem() {
    // The one that tests share is set so, since no test needs its data after a crash.
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let site = Site::on(&cluster.database());
    site.token(&["--role", "admin"]);
    examine(&site, &[]).finds(&["problem durability"], 1);
}
