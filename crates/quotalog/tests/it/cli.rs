//! The command line: help texts, exit codes, and what the commands print.
//!
//! Help is a contract that others read, so each text is kept under `tests/it/help/` and compared byte for
//! byte. After an intended change, write them anew and read the difference:
//! `RENEW_HELP=1 cargo test -p quotalog --test it cli::`.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::support::server::{Site, quotalog, read_number};

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Checks the exit code, and that there is just one line on standard error.
#[track_caller]
pub(crate) fn fails(output: &Output, code: i32, word: &str) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(
        error.starts_with("quotalog: ") && error.contains(word),
        "{error}"
    );
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
}

/// The command did what it was told.
#[track_caller]
pub(crate) fn succeeds(output: &Output) {
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn help_is_as_it_is_kept() {
    let commands: &[&[&str]] = &[
        &[],
        &["serve"],
        &["token"],
        &["token", "create"],
        &["token", "list"],
        &["token", "revoke"],
        &["quota"],
        &["quota", "set"],
        &["quota", "get"],
        &["quota", "list"],
        &["quota", "consume"],
        &["quota", "reset"],
        &["quota", "refund"],
        &["quota", "delete"],
        &["default"],
        &["default", "set"],
        &["default", "get"],
        &["default", "list"],
        &["default", "delete"],
        &["prune"],
        &["backup"],
        &["copy"],
        &["export"],
        &["import"],
        &["doctor"],
        &["completions"],
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/help");
    let renew = std::env::var_os("RENEW_HELP").is_some();
    for &command in commands {
        let output = quotalog()
            .args(command)
            .arg("--help")
            .env("COLUMNS", "100")
            .output()
            .unwrap();
        succeeds(&output);
        assert!(output.stderr.is_empty());
        let name = [&["quotalog"], command].concat().join("-");
        let file = folder.join(format!("{name}.txt"));
        if renew {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&file, &output.stdout).unwrap();
        }
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(text(&output.stdout), kept, "{}", file.display());
        assert!(kept.lines().all(|line| line.chars().count() <= 100));
    }
}

#[test]
fn every_command_is_in_the_help_that_is_kept() {
    // So that a new command cannot be forgotten above.
    let listed = |arguments: &[&str]| {
        let output = quotalog().args(arguments).arg("--help").output().unwrap();
        let help = text(&output.stdout).to_owned();
        let commands = help.split("Commands:\n").nth(1).unwrap();
        let commands = commands.lines().take_while(|line| !line.is_empty());
        let names = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names = names.filter_map(|line| line.split_whitespace().next());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let commands = [
        "serve",
        "token",
        "quota",
        "default",
        "prune",
        "backup",
        "copy",
        "export",
        "import",
        "doctor",
        "completions",
        "help",
    ];
    assert_eq!(listed(&[]), commands);
    assert_eq!(listed(&["token"]), ["create", "list", "revoke", "help"]);
    let quota = [
        "set", "get", "list", "consume", "reset", "refund", "delete", "help",
    ];
    assert_eq!(listed(&["quota"]), quota);
    assert_eq!(
        listed(&["default"]),
        ["set", "get", "list", "delete", "help"]
    );
}

#[test]
fn help_shows_no_value_of_the_environment_that_may_be_secret() {
    let secret = "postgres://user:pa55word@host/quotas";
    let output = quotalog()
        .args(["serve", "--help"])
        .env("QUOTALOG_DATABASE", secret)
        .env("QUOTALOG_ADMIN_TOKEN", secret)
        .output()
        .unwrap();
    assert!(!text(&output.stdout).contains("pa55word"));
}

#[test]
fn wrong_arguments_exit_with_2() {
    let site = Site::new();
    for arguments in [
        &[][..],
        &["unknown"],
        &["serve", "--unknown"],
        &["serve", "extra"],
        &["token"],
        &["token", "create"],
        &["token", "revoke"],
        &["token", "list", "--role", "admin"],
        &["prune", "--json"],
        &["backup"],
        &["backup", ""],
        &["copy"],
        &["copy", "--from", "sqlite:a.db"],
        &["copy", "--from", "a.db", "--to", "sqlite:b.db"],
    ] {
        let output = site.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{arguments:?}"
        );
    }
    let created = |arguments: &[&str]| site.run(&[&["token", "create"], arguments].concat());
    fails(&created(&["--role", "root"]), 2, "--role");
    fails(&created(&["--role", "Admin"]), 2, "--role");
    fails(&created(&["--role", "user"]), 2, "--user-id");
    let secret = format!("ql_{}", "A".repeat(43));
    let named = created(&["--role", "viewer", "--name", &secret]);
    fails(&named, 2, "--name must not be a token");
    assert!(!text(&named.stderr).contains(&secret));
    fails(
        &created(&["--role", "viewer", "--user-id", "u"]),
        2,
        "--user-id",
    );
    fails(
        &created(&["--role", "user", "--user-id", "a/b"]),
        2,
        "--user-id",
    );
    fails(
        &created(&["--role", "user", "--user-id", ".."]),
        2,
        "--user-id",
    );
    fails(
        &created(&["--role", "user", "--user-id", &"x".repeat(256)]),
        2,
        "--user-id",
    );
    fails(&created(&["--role", "admin", "--name", ""]), 2, "--name");
    fails(
        &created(&["--role", "admin", "--name", "a\nb"]),
        2,
        "--name",
    );
    fails(
        &created(&["--role", "admin", "--expires-at", "tomorrow"]),
        2,
        "--expires-at",
    );
    drop(site.serve());
    let past = ["--role", "admin", "--expires-at", "2020-01-01T00:00:00Z"];
    fails(&created(&past), 2, "--expires-at");
    let list = site.run(&["token", "list", "--json"]);
    assert_eq!(text(&list.stdout), "{\"tokens\":[]}\n");
}

#[test]
fn a_database_that_is_not_there_is_not_made() {
    let site = Site::new();
    let name = site.database();
    let name = name.to_str().unwrap();
    fails(&site.run(&["token", "create", "--role", "admin"]), 5, name);
    fails(&site.run(&["token", "list"]), 5, name);
    fails(&site.run(&["token", "list", "--json"]), 5, name);
    fails(&site.run(&["token", "revoke", "0123456789abcdef"]), 5, name);
    fails(&site.run(&["prune"]), 5, "--database (QUOTALOG_DATABASE)");
    let copy = site.folder.path().join("copy.db");
    fails(&site.run(&["backup", copy.to_str().unwrap()]), 5, name);
    assert_eq!(std::fs::read_dir(site.folder.path()).unwrap().count(), 0);
}

#[test]
fn a_new_token_is_the_only_thing_on_standard_output() {
    let site = Site::new();
    drop(site.serve());
    let output = site.run(&["token", "create", "--role", "admin"]);
    succeeds(&output);
    let token = text(&output.stdout).strip_suffix('\n').unwrap();
    assert!(token.starts_with("ql_") && token.len() == 46, "{token}");
    let note = text(&output.stderr);
    assert!(note.contains("admin") && !note.contains(token), "{note}");
    assert!(note.starts_with("Made token "), "{note}");
    assert_eq!(note.lines().count(), 1);
}

#[test]
fn a_list_shows_what_was_made_without_its_secret() {
    let site = Site::new();
    let end = "2999-01-02T03:04:05Z";
    let created = site.token(&[
        "--role",
        "user",
        "--user-id",
        "zoë",
        "--name",
        "build server",
        "--expires-at",
        end,
        "--json",
    ]);
    let mut created: Value = serde_json::from_str(&created).unwrap();
    let secret = created["token"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("ql_"));
    for (member, value) in [
        ("role", "user"),
        ("user_id", "zoë"),
        ("name", "build server"),
        ("expires_at", end),
    ] {
        assert_eq!(created[member], value);
    }
    site.token(&["--role", "service"]);

    let listed = site.run(&["token", "list", "--json"]);
    assert!(listed.status.success() && listed.stderr.is_empty());
    assert!(!text(&listed.stdout).contains("ql_"));
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    created.as_object_mut().unwrap().remove("token");
    assert_eq!(listed["tokens"][0], created);
    let service = &listed["tokens"][1];
    assert_eq!(service["role"], "service");
    for member in ["user_id", "name", "expires_at"] {
        assert!(service[member].is_null(), "{member}");
    }
}

#[test]
fn without_json_tokens_are_a_table() {
    let site = Site::new();
    let end = "2999-01-02T03:04:05Z";
    site.token(&[
        "--role",
        "user",
        "--user-id",
        "zoë",
        "--name",
        "build server",
        "--expires-at",
        end,
    ]);
    site.token(&["--role", "service"]);
    let listed = site.run(&["token", "list", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let member =
        |token: usize, name: &str| listed["tokens"][token][name].as_str().unwrap().to_owned();
    let [id, service_id] = [0, 1].map(|token| member(token, "id"));
    let [created_at, service_at] = [0, 1].map(|token| member(token, "created_at"));

    let table = site.run(&["token", "list"]);
    let lines: Vec<Vec<&str>> = text(&table.stdout)
        .lines()
        .map(|line| {
            let cells = line.split("  ").map(str::trim);
            cells.filter(|cell| !cell.is_empty()).collect()
        })
        .collect();
    let titles = ["ID", "ROLE", "USER", "CREATED", "EXPIRES", "NAME"];
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0], titles);
    assert_eq!(
        lines[1],
        [&id, "user", "zoë", &created_at, end, "build server"]
    );
    assert_eq!(
        lines[2],
        [&service_id, "service", "-", &service_at, "never", "-"]
    );
    for line in text(&table.stdout).lines() {
        assert_eq!(line.trim_end(), line);
    }
}

#[test]
fn a_token_is_revoked_by_its_id() {
    let site = Site::new();
    let created = site.token(&["--role", "viewer", "--json"]);
    let created: Value = serde_json::from_str(&created).unwrap();
    let id = created["id"].as_str().unwrap();
    let revoked = site.run(&["token", "revoke", id]);
    succeeds(&revoked);
    assert!(revoked.stdout.is_empty() && revoked.stderr.is_empty());
    fails(&site.run(&["token", "revoke", id]), 5, id);
    fails(&site.run(&["token", "revoke", "no\nsuch"]), 5, "no\\nsuch");
    fails(&site.run(&["token", "revoke", "--", "-1"]), 5, "-1");
    let listed = site.run(&["token", "list", "--json"]);
    assert_eq!(text(&listed.stdout), "{\"tokens\":[]}\n");
}

#[test]
fn a_list_longer_than_a_page_is_whole() {
    let site = Site::new();
    site.token(&["--role", "viewer"]);
    let database = rusqlite::Connection::open(site.database()).unwrap();
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) \
                INSERT INTO quotalog_tokens (id, hash, role, created_at) \
                SELECT printf('%016x', i), randomblob(32), 'viewer', '2026-01-01 00:00:00' FROM n";
    database.execute(many, []).unwrap();
    drop(database);
    let listed = site.run(&["token", "list", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let mut ids: Vec<_> = listed["tokens"].as_array().unwrap().iter().collect();
    assert_eq!(ids.len(), 2501);
    ids.sort_by_key(|token| token["id"].as_str());
    ids.dedup_by_key(|token| token["id"].as_str());
    assert_eq!(ids.len(), 2501);
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let site = Site::new();
    site.token(&["--role", "viewer"]);
    let mut command = std::process::Command::new("sh");
    let list = format!(
        "{} token list | true; echo done",
        env!("CARGO_BIN_EXE_quotalog")
    );
    command.args(["-c", &list]);
    command.env(
        "QUOTALOG_DATABASE",
        format!("sqlite:{}", site.database().display()),
    );
    let output = command.output().unwrap();
    assert_eq!(text(&output.stdout), "done\n");
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn what_a_full_disk_does_not_take_is_a_failure() {
    let site = Site::new();
    site.token(&["--role", "viewer"]);
    for arguments in [
        &["token", "create", "--role", "admin", "--json"][..],
        &["token", "list"],
        &["token", "list", "--json"],
        &["doctor"],
        &["prune"],
        &["completions", "bash"],
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let mut command = site.command(arguments);
        let output = command.stdout(full.unwrap()).output().unwrap();
        fails(&output, 1, "standard output cannot be written");
    }
}

#[test]
fn prune_deletes_what_is_older_than_its_retention_and_says_how_much() {
    let site = Site::new();
    site.token(&["--role", "viewer"]);
    let database = rusqlite::Connection::open(site.database()).unwrap();
    let old = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200) \
               INSERT INTO quota_usage \
               (user_id, resource, window_start, usage, created_at, updated_at) \
               SELECT 'u' || i, 'r', datetime('now', 'start of day', '-36 days'), 1, \
               datetime('now'), datetime('now') FROM n";
    database.execute(old, []).unwrap();
    let young = "INSERT INTO quota_usage \
                 (user_id, resource, window_start, usage, created_at, updated_at) \
                 VALUES ('u', 'r', datetime('now', 'start of day', '-20 days'), 1, \
                 datetime('now'), datetime('now'))";
    database.execute(young, []).unwrap();
    drop(database);
    let prune = |arguments: &[&str], said: &str| {
        let output = site.run(&[&["prune"], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), said);
    };
    prune(&["--usage-retention", "90d"], "deleted 0 rows\n");
    prune(&[], "deleted 1200 rows\n");
    prune(&[], "deleted 0 rows\n");
    prune(&["--usage-retention", "2d"], "deleted 1 row\n");
    assert_eq!(
        read_number(&site.database(), "SELECT count(*) FROM quota_usage"),
        0
    );
    fails(
        &site.run(&["prune", "--usage-retention", "1d"]),
        2,
        "--usage-retention",
    );
}

#[test]
fn a_database_that_another_program_holds_is_unavailable() {
    let site = Site::new();
    site.token(&["--role", "viewer"]);
    let database = rusqlite::Connection::open(site.database()).unwrap();
    database.execute_batch("BEGIN EXCLUSIVE").unwrap();
    fails(&site.run(&["token", "create", "--role", "viewer"]), 6, "");
    database.execute_batch("COMMIT").unwrap();
    site.token(&["--role", "viewer"]);
}

#[test]
fn the_version_is_printed() {
    let output = quotalog().arg("--version").output().unwrap();
    assert_eq!(
        text(&output.stdout),
        concat!("quotalog ", env!("CARGO_PKG_VERSION"), "\n")
    );
}
