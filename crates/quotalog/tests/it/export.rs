//! `quotalog export`: what stands in the file, what is passed over, and what is never overwritten.

use std::os::unix::fs::PermissionsExt as _;

use quotalog_testkit::postgres::Cluster;

use crate::cli::{fails, succeeds, text};
use crate::support::server::Site;

/// A file, and a database of PostgreSQL where there is one; a server has made the tables of each.
pub(crate) fn sites() -> Vec<Site> {
    let mut sites = vec![Site::new()];
    if let Some(cluster) = Cluster::shared() {
        sites.push(Site::on(&cluster.database()));
    }
    for site in &sites {
        if !site.database().exists() {
            site.token(&["--role", "admin"]);
        }
    }
    sites
}

/// What an export writes on standard output.
#[track_caller]
pub(crate) fn exported(site: &Site, what: &str, format: &str) -> String {
    let output = site.run(&["export", "--what", what, "--format", format, "-"]);
    succeeds(&output);
    assert!(output.stderr.is_empty(), "{output:?}");
    text(&output.stdout).to_owned()
}

#[tokio::test]
async fn what_a_server_holds_is_in_the_file_while_it_runs() {
    for site in sites() {
        let server = site.serve();
        server.ready().await;
        server.set("/quotas/%3D1+1/r", "hourly", 5).await;
        server
            .set("/quotas/a%22%2C/%E2%80%A8", "daily", 1_000_000)
            .await;
        server.set("/defaults/-r", "daily", 7).await;
        let body = r#"{"amount":3}"#;
        let counted = server
            .call(hyper::Method::POST, "/quotas/%3D1+1/r/consume", body)
            .await
            .is(200);
        let start = counted.window_start();

        let policies = exported(&site, "policies", "csv");
        let mut lines: Vec<&str> = policies.lines().collect();
        lines[1..].sort_unstable();
        let quoted = "\"a\"\",\",\u{2028},daily,1000000";
        let columns = "user_id,resource,window,limit_count";
        assert_eq!(lines, [columns, quoted, "'=1+1,r,hourly,5"]);
        assert_eq!(
            exported(&site, "defaults", "csv"),
            "resource,window,limit_count\n'-r,daily,7\n"
        );
        assert_eq!(
            exported(&site, "usage", "csv"),
            format!("user_id,resource,window_start,usage\n'=1+1,r,{start},3\n")
        );
        let json = exported(&site, "policies", "jsonl");
        let mut lines: Vec<&str> = json.lines().collect();
        lines.sort_unstable();
        let expected = [
            r#"{"user_id":"=1+1","resource":"r","window":"hourly","limit_count":5}"#,
            "{\"user_id\":\"a\\\",\",\"resource\":\"\u{2028}\",\"window\":\"daily\",\"limit_count\":1000000}",
        ];
        assert_eq!(lines, expected);
    }
}

#[test]
fn a_file_is_its_owners_and_is_not_overwritten() {
    let site = Site::new();
    site.token(&["--role", "admin"]);
    let file = site.folder.path().join("policies.csv");
    let name = file.to_str().unwrap();
    let output = site.run(&["export", "--what", "policies", name]);
    succeeds(&output);
    assert_eq!(
        text(&output.stdout),
        format!("wrote 0 policies to {name}\n")
    );
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!(written, "user_id,resource,window,limit_count\n");
    let beside = std::fs::read_dir(site.folder.path()).unwrap();
    let names = beside.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.into_iter().all(|name| !name.ends_with(".draft")));

    std::fs::write(&file, "mine").unwrap();
    let again = site.run(&["export", "--what", "policies", name]);
    fails(&again, 2, "is there already and is not overwritten");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    let nowhere = site.run(&["export", "--what", "usage", "/nowhere/usage.csv"]);
    fails(&nowhere, 1, "cannot be written");
    let untold = site.run(&["export", "--what", "usage", "usage.txt"]);
    fails(&untold, 2, "--format is needed");
    let full = site.run(&["export", "--what", "usage", "--format", "csv", "/dev/full"]);
    fails(&full, 2, "/dev/full is there already");
    let mut command = site.command(&["export", "--what", "usage", "--format", "csv", "-"]);
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = command.stdout(full).output().unwrap();
    fails(&output, 1, "the file cannot be written");
}

#[test]
fn rows_that_cannot_be_held_are_passed_over_and_told() {
    let site = Site::new();
    site.token(&["--role", "admin"]);
    let database = rusqlite::Connection::open(site.database()).unwrap();
    database
        .execute_batch(
            "INSERT INTO quota_policies (user_id, resource, window, limit_count, created_at, updated_at) VALUES
                 ('u', 'a', 'weekly', 5, '2026-01-01 00:00:00', '2026-01-01 00:00:00'),
                 ('u', 'b', 'daily', 5000000, '2026-01-01 00:00:00', '2026-01-01 00:00:00'),
                 ('u' || char(10), 'c', 'daily', 5, '2026-01-01 00:00:00', '2026-01-01 00:00:00')",
        )
        .unwrap();
    let output = site.run(&["export", "--what", "policies", "--format", "jsonl", "-"]);
    succeeds(&output);
    let row = r#"{"user_id":"u","resource":"b","window":"daily","limit_count":5000000}"#;
    assert_eq!(text(&output.stdout), format!("{row}\n"));
    let told = text(&output.stderr);
    assert_eq!(told.lines().count(), 3, "{told}");
    assert!(told.contains("id 1: its window cannot be held"), "{told}");
    assert!(told.contains("rows=2"), "{told}");
}
