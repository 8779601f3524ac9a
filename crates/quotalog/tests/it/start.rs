//! The start: the first admin token, what is refused and how, which files come into being.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use http_body_util::Full;
use hyper::{Method, Request};
use rusqlite::Connection as Database;

use crate::cli::succeeds;
use crate::support::answer::Answer;
use crate::support::server::{
    ADMIN, Server, Site, quotalog, read_number, run_to_its_end, signal, skipped,
};

/// A start that may have to make the first token.
fn without_a_token(command: &mut Command) -> &mut Command {
    command.env_remove("QUOTALOG_ADMIN_TOKEN")
}

async fn ask(server: &Server, token: &str) -> Answer {
    let mut connection = server.connect().await;
    let answer = connection.call(Method::GET, "/quotas/u", token, "").await;
    answer.unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn tokens(site: &Site) -> i64 {
    read_number(&site.database(), "SELECT count(*) FROM quotalog_tokens")
}

#[tokio::test]
async fn without_a_terminal_the_first_token_is_in_a_file_of_its_owner_alone() {
    let site = Site::new();
    let file = site.folder.path().join("admin-token");
    let server = site.serve_with(without_a_token);
    assert_eq!(mode(&file), 0o600);
    let token = std::fs::read_to_string(&file).unwrap();
    let token = token.strip_suffix('\n').unwrap();
    assert!(token.starts_with("ql_") && token.len() == 46, "{token}");
    ask(&server, token).await.is(200);
    assert!(!server.printed.contains("ql_"), "{}", server.printed);
    assert!(!site.log().contains(token), "{}", site.log());
    let left: Vec<_> = std::fs::read_dir(site.folder.path()).unwrap().collect();
    let drafts = left.iter().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("admin-token.")
    });
    assert_eq!(drafts.count(), 0);

    // The second start finds it valid, and makes none.
    std::fs::remove_file(&file).unwrap();
    server.stop();
    let server = site.serve_with(without_a_token);
    ask(&server, token).await.is(200);
    assert!(!file.exists());
    assert_eq!(tokens(&site), 1);
}

#[tokio::test]
async fn a_start_without_a_valid_admin_token_makes_one() {
    let site = Site::new();
    let file = site.folder.path().join("the-token");
    let start = || {
        let _gone = std::fs::remove_file(&file);
        let server = site.serve_with(|command| {
            without_a_token(command).args(["--token-file", file.to_str().unwrap()])
        });
        let token = std::fs::read_to_string(&file).ok();
        (server, token.map(|token| token.trim().to_owned()))
    };
    // Tokens of other roles do not count.
    site.token(&["--role", "viewer"]);
    let (server, first) = start();
    let first = first.unwrap();
    ask(&server, &first).await.is(200);
    server.stop();

    // Revoked.
    let list = site.run(&["token", "list", "--json"]);
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    let admin = list["tokens"].as_array().unwrap();
    let admin = admin.iter().find(|token| token["role"] == "admin").unwrap();
    let revoked = site.run(&["token", "revoke", admin["id"].as_str().unwrap()]);
    succeeds(&revoked);
    let (server, second) = start();
    let second = second.unwrap();
    ask(&server, &first).await.problem(401, "unauthorized");
    ask(&server, &second).await.is(200);
    server.stop();

    // Expired.
    let database = Database::open(site.database()).unwrap();
    let expire =
        "UPDATE quotalog_tokens SET expires_at = '2020-01-01 00:00:00' WHERE role = 'admin'";
    database.execute(expire, []).unwrap();
    drop(database);
    let (server, third) = start();
    ask(&server, &second).await.problem(401, "unauthorized");
    ask(&server, &third.unwrap()).await.is(200);
    server.stop();

    let (_server, none) = start();
    assert_eq!(none, None);
}

#[test]
fn a_token_that_cannot_be_shown_is_not_stored() {
    for file in ["no/such/folder/token", "a-folder"] {
        let site = Site::new();
        let folder = site.folder.path().join("a-folder");
        std::fs::create_dir(&folder).unwrap();
        let file = site.folder.path().join(file);
        let (code, line) = site.refused(|command| {
            without_a_token(command).args(["--token-file", file.to_str().unwrap()])
        });
        assert_eq!(code, 1);
        for word in [
            file.to_str().unwrap(),
            "--token-file",
            "QUOTALOG_TOKEN_FILE",
        ] {
            assert!(line.contains(word), "{line}");
        }
        assert!(!line.contains("ql_"), "{line}");
        assert_eq!(tokens(&site), 0);
        let beside = std::fs::read_dir(site.folder.path()).unwrap();
        let drafts = beside.filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().contains("token")
        });
        assert_eq!(drafts.count(), 0);
    }
}

#[tokio::test]
async fn on_a_terminal_the_first_token_is_shown_once() {
    if Command::new("script").arg("--version").output().is_err() {
        return skipped("there is no program `script` that makes a terminal");
    }
    let site = Site::new();
    let log = site.folder.path().join("terminal.log");
    let serve = format!(
        "exec {} serve --listen 127.0.0.1:0 2>{}",
        env!("CARGO_BIN_EXE_quotalog"),
        log.display()
    );
    let start = || {
        let mut command = Command::new("script");
        command.args(["-qec", &format!("echo pid $$; {serve}"), "/dev/null"]);
        command.env("SHELL", "/bin/sh");
        command.env_remove("QUOTALOG_ADMIN_TOKEN");
        command.env(
            "QUOTALOG_DATABASE",
            format!("sqlite:{}", site.database().display()),
        );
        command.stdin(std::process::Stdio::null());
        let server = Server::start(&mut command);
        let pid = server
            .printed
            .lines()
            .find_map(|line| line.trim().strip_prefix("pid "));
        let pid: u32 = pid.unwrap().parse().unwrap();
        (server, pid)
    };

    let (server, pid) = start();
    assert_eq!(
        server.printed.matches("ql_").count(),
        1,
        "{}",
        server.printed
    );
    let token = server.printed.lines().map(str::trim);
    let token = token
        .clone()
        .find(|line| line.starts_with("ql_"))
        .unwrap()
        .to_owned();
    ask(&server, &token).await.is(200);
    assert!(!site.folder.path().join("admin-token").exists());
    let logged = std::fs::read_to_string(&log).unwrap();
    assert!(!logged.contains("ql_"), "{logged}");
    signal(pid, "INT");
    server.ended().await;

    let (server, pid) = start();
    assert!(!server.printed.contains("ql_"), "{}", server.printed);
    ask(&server, &token).await.is(200);
    signal(pid, "INT");
    server.ended().await;
}

#[tokio::test]
async fn the_token_of_the_environment_replaces_the_one_before() {
    let site = Site::new();
    let server = site.serve();
    ask(&server, ADMIN).await.is(200);
    assert!(!site.folder.path().join("admin-token").exists());
    assert_eq!(tokens(&site), 0);
    server.stop();
    let other = "another-token-of-the-environment-9876543210";
    let server = site.serve_with(|command| command.env("QUOTALOG_ADMIN_TOKEN", other));
    ask(&server, ADMIN).await.problem(401, "unauthorized");
    ask(&server, other).await.is(200);
}

#[test]
fn a_weak_token_of_the_environment_is_refused() {
    let site = Site::new();
    for token in [
        "",
        "short",
        &"x".repeat(31),
        &"x y ".repeat(20),
        &"é".repeat(40),
    ] {
        let (code, line) = site.refused(|command| command.env("QUOTALOG_ADMIN_TOKEN", token));
        assert_eq!(code, 2, "{token:?}");
        assert!(
            line.contains("QUOTALOG_ADMIN_TOKEN") && line.contains("32"),
            "{line}"
        );
        assert!(token.is_empty() || !line.contains(token), "{line}");
    }
    assert!(!site.database().exists());
}

#[test]
fn an_origin_that_no_browser_sends_is_refused() {
    let site = Site::new();
    let refused = |flag: &[&str], variable: Option<&str>| {
        let (code, line) = site.refused(|command| {
            let value = variable.map(|value| ("QUOTALOG_CORS_ORIGIN", value));
            command.args(flag).envs(value)
        });
        assert_eq!(code, 2, "{line}");
        for word in [
            "--cors-origin",
            "QUOTALOG_CORS_ORIGIN",
            "such as https://app.example",
        ] {
            assert!(line.contains(word), "{word} is not in: {line}");
        }
    };
    for origin in ["*", "null", "", "app.example", "https://app.example/"] {
        refused(&[&format!("--cors-origin={origin}")], None);
        refused(&[], Some(origin));
    }
    refused(
        &["--cors-origin=https://a.example", "--cors-origin=*"],
        None,
    );
    refused(&[], Some("https://a.example,https://b.example:443"));
    assert!(!site.database().exists());
}

#[tokio::test]
async fn pages_of_the_origins_that_are_named_may_use_the_server() {
    let site = Site::new();
    let flags = [
        "--cors-origin",
        "https://a.example",
        "--cors-origin=https://b.example",
    ];
    let by_flags = site.serve_with(|command| command.args(flags));
    let variable = (
        "QUOTALOG_CORS_ORIGIN",
        "https://a.example,https://b.example",
    );
    let by_variable = site.serve_with(|command| command.envs([variable]));
    for server in [by_flags, by_variable] {
        for (origin, is_named) in [
            ("https://a.example", true),
            ("https://b.example", true),
            ("https://c.example", false),
        ] {
            let request = Request::options("/quotas/u/r/consume")
                .header("host", "localhost")
                .header("origin", origin)
                .header("access-control-request-method", "POST");
            let request = request.body(Full::default()).unwrap();
            let mut connection = server.connect().await;
            let answer = connection.send(request).await.unwrap().is(204);
            let allowed = answer.header("access-control-allow-origin");
            assert_eq!(allowed, is_named.then_some(origin));
        }
    }
}

#[test]
fn a_wrong_setting_is_one_line_that_says_what_to_change() {
    let site = Site::new();
    let check = |flag: &str, value: &str, advice: &str| {
        let variable = flag
            .strip_prefix("--")
            .unwrap()
            .to_uppercase()
            .replace('-', "_");
        let variable = format!("QUOTALOG_{variable}");
        let by_flag = site.refused(|command| command.arg(format!("{flag}={value}")));
        // Without the flags that the harness gives.
        let mut command = quotalog();
        command.arg("serve").env(&variable, value);
        if flag != "--database" {
            command.env(
                "QUOTALOG_DATABASE",
                format!("sqlite:{}", site.database().display()),
            );
        }
        let output = run_to_its_end(&mut command);
        let by_variable = String::from_utf8(output.stderr).unwrap();
        assert_eq!(by_variable.trim_end(), by_flag.1);
        assert_eq!(
            (output.status.code(), by_flag.0),
            (Some(2), 2),
            "{flag} {value:?}"
        );
        for word in [flag, &variable, advice] {
            assert!(
                by_variable.contains(word),
                "{word} is not in: {by_variable}"
            );
        }
        assert!(!site.database().exists(), "{flag} {value:?}");
    };
    for database in [
        "",
        "quotalog.db",
        "sqlite:",
        "sqlite::memory:",
        "mysql://h/d",
        "postgres:d",
    ] {
        check("--database", database, "sqlite:quotalog.db");
    }
    let url = "postgres://u:s3cret@h/d";
    check("--database", &format!("{url}?colour=red"), "`colour`");
    check(
        "--database",
        &format!("{url}?sslmode=verify-ca"),
        "verify-full",
    );
    check("--database-lanes", "0", "1..=100");
    for listen in ["", "nowhere", "127.0.0.1", "8200", "127.0.0.1:65536"] {
        check_listen(&site, listen);
    }
    check("--usage-retention", "47h", "at least 2d");
    check("--usage-retention", "35", "90d");
    check("--usage-retention", "-35d", "90d");
    check("--idempotency-retention", "0s", "24h");
    check("--idempotency-retention", "1.5h", "36h");
    check("--shutdown-delay", "5", "30s");
    check("--shutdown-deadline", "", "30s");
    check("--head-timeout", "0s", "at least 1s");
    check("--head-timeout", "10", "30s");
    check("--idle-timeout", "0d", "at least 1s");
    check("--connections-max", "0", "--connections-max");
    check("--connections-max", "many", "--connections-max");
    check("--tls-cert", "cert.pem", "--tls-key (QUOTALOG_TLS_KEY)");
    check("--tls-key", "key.pem", "--tls-cert (QUOTALOG_TLS_CERT)");
    check("--log-level", "loud", "error, warn, info, debug, trace");
    check("--log-format", "xml", "text, json");
}

/// The harness gives the flag itself, so the variable alone is tried.
fn check_listen(site: &Site, listen: &str) {
    let mut command = site.command(&["serve"]);
    command
        .env("QUOTALOG_ADMIN_TOKEN", ADMIN)
        .env("QUOTALOG_LISTEN", listen);
    let output = run_to_its_end(&mut command);
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(line.contains("--listen (QUOTALOG_LISTEN)"), "{line}");
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let site = Site::new();
    let mut command = site.command(&["serve", "--listen", &address]);
    command.env("QUOTALOG_ADMIN_TOKEN", ADMIN);
    let output = run_to_its_end(&mut command);
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(
        line.contains(&address) && line.contains("--listen (QUOTALOG_LISTEN)"),
        "{line}"
    );
    assert_eq!(tokens(&site), 0);
}

/// The start is refused with one line that names the flag and the file, and the exit code.
#[track_caller]
fn database_refused(site: &Site, database: &str, code: i32, reason: &str) {
    let url = format!("sqlite:{database}");
    let (found, line) = site.refused(|command| command.args(["--database", &url]));
    assert_eq!(found, code, "{line}");
    for word in [database, reason, "--database (QUOTALOG_DATABASE)"] {
        assert!(line.contains(word), "{word} is not in: {line}");
    }
}

#[test]
fn a_file_that_is_no_database_of_ours_is_refused_and_left_alone() {
    let site = Site::new();
    let at = |name: &str| site.folder.path().join(name).to_str().unwrap().to_owned();
    let folder = site.folder.path().to_str().unwrap();
    database_refused(&site, folder, 2, "not a regular file");
    database_refused(&site, &at("no/folder.db"), 2, "folder");
    database_refused(&site, "file:x?mode=memory", 2, "memory");

    let text = "This is a letter, and no database at all. ".repeat(200);
    std::fs::write(at("letter"), &text).unwrap();
    database_refused(&site, &at("letter"), 2, "not a SQLite database");
    assert_eq!(std::fs::read_to_string(at("letter")).unwrap(), text);

    site.serve().stop();
    let database = Database::open(site.database()).unwrap();
    let newer = "INSERT INTO quotalog_schema_history SELECT 999, 'later', applied_on, checksum \
                 FROM quotalog_schema_history LIMIT 1";
    database.execute(newer, []).unwrap();
    drop(database);
    let own = site.database();
    database_refused(&site, own.to_str().unwrap(), 1, "newer version");
}

#[test]
fn a_folder_that_cannot_be_written_is_refused() {
    let site = Site::new();
    let folder = site.folder.path().join("closed");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o500)).unwrap();
    if std::fs::write(folder.join("try"), "").is_ok() {
        eprintln!("skipped: whoever runs this may write everywhere, as root may");
        return;
    }
    let database = folder.join("q.db");
    database_refused(&site, database.to_str().unwrap(), 1, "cannot be written");
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
}

#[test]
fn a_misspelt_variable_is_warned_of() {
    let site = Site::new();
    let server = site.serve_with(|command| {
        command
            .env("QUOTALOG_LISTN", "127.0.0.1:1")
            .env("QUOTALOG_LOG_LEVEL", "info")
    });
    let log = site.log();
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings.len(), 1, "{log}");
    assert!(warnings[0].contains("QUOTALOG_LISTN"), "{log}");
    server.kill();
}

#[test]
fn port_0_prints_the_port_it_got_and_nothing_else() {
    let site = Site::new();
    let server = site.serve();
    assert_ne!(server.address.port(), 0);
    let line = format!("quotalog listens on http://{}\n", server.address);
    assert_eq!(server.printed, line);
}

#[test]
fn files_belong_to_their_owner_alone_under_any_umask() {
    let site = Site::new();
    let mut command = Command::new("sh");
    let serve = format!(
        "umask 000; exec {} serve --listen 127.0.0.1:0 2>/dev/null",
        env!("CARGO_BIN_EXE_quotalog")
    );
    command
        .args(["-c", &serve])
        .env_remove("QUOTALOG_ADMIN_TOKEN");
    command.env(
        "QUOTALOG_DATABASE",
        format!("sqlite:{}", site.database().display()),
    );
    let server = Server::start(&mut command);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(site.folder.path()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{path:?}");
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    names.sort();
    let expected = [
        "admin-token",
        "quotalog.db",
        "quotalog.db-gate",
        "quotalog.db-shm",
        "quotalog.db-turn",
        "quotalog.db-wal",
    ];
    assert_eq!(names, expected);
    server.kill();
}

/// The two tables, to the letter, as another program makes them.
const FOREIGN: &str = "
CREATE TABLE IF NOT EXISTS quota_policies (
    id INTEGER PRIMARY KEY AUTOINCREMENT, user_id TEXT NOT NULL, resource TEXT NOT NULL,
    window TEXT NOT NULL DEFAULT 'hourly', limit_count INTEGER NOT NULL,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL, UNIQUE(user_id, resource));
CREATE TABLE IF NOT EXISTS quota_usage (
    id INTEGER PRIMARY KEY AUTOINCREMENT, user_id TEXT NOT NULL, resource TEXT NOT NULL,
    window_start TEXT NOT NULL, usage INTEGER NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL, UNIQUE(user_id, resource, window_start));
PRAGMA user_version = 77;";

fn foreign(site: &Site) -> Database {
    let database = Database::open(site.database()).unwrap();
    database.execute_batch(FOREIGN).unwrap();
    let policy = "INSERT INTO quota_policies \
         (user_id, resource, window, limit_count, created_at, updated_at) \
         VALUES (?1, ?2, ?3, ?4, '2026-01-02 03:04:05', '2026-02-03 04:05:06')";
    let long = "x".repeat(256);
    let rows: [(&str, &str, &str, i64); 6] = [
        ("u", "r", "daily", 3),
        ("u", "many", "hourly", 5_000_000_000),
        ("u", "odd", "weekly", 5),
        ("u", &long, "daily", 5),
        (&long, "r", "daily", 5),
        ("u", "zero", "daily", 0),
    ];
    for row in rows {
        database.execute(policy, row).unwrap();
    }
    database
}

#[tokio::test]
async fn a_database_of_another_program_opens_and_works() {
    let site = Site::new();
    let database = foreign(&site);
    // What was counted today counts; midnight may pass meanwhile, and then it does not.
    let usage = "INSERT INTO quota_usage \
         (user_id, resource, window_start, usage, created_at, updated_at) VALUES \
         ('u', 'r', strftime('%Y-%m-%d 00:00:00', 'now'), 1, datetime('now'), datetime('now')), \
         ('u', 's', 'yesterday', 1, datetime('now'), datetime('now')), \
         ('u', 'r', strftime('%Y-%m-%d 00:00:00', 'now', '-20 days'), 7, datetime('now'), datetime('now')) \
         RETURNING replace(window_start, ' ', 'T') || 'Z'";
    let today: String = database.query_row(usage, [], |row| row.get(0)).unwrap();
    drop(database);

    let server = site.serve();
    let check = server.call(Method::GET, "/quotas/u/r", "").await.is(200);
    assert_eq!(check.json()["created_at"], "2026-01-02T03:04:05Z");
    assert_eq!(check.usage(), u64::from(check.window_start() == today));
    let mut last = check;
    while last.status == 200 {
        last = server.call(Method::POST, "/quotas/u/r/consume", "").await;
    }
    assert_eq!((last.usage(), last.remaining()), (3, 0));

    // A limit above today's maximum is served as it is stored.
    let many = "/quotas/u/many/consume";
    let many = server.call(Method::POST, many, "").await.is(200);
    assert_eq!(many.json()["limit_count"], 5_000_000_000_u64);

    // What cannot be served is as if it were not there, and named in the log.
    for path in ["/quotas/u/odd", "/quotas/u/zero"] {
        server.call(Method::GET, path, "").await.is(404);
        let consume = format!("{path}/consume");
        server.call(Method::POST, &consume, "").await.is(404);
    }
    let list = server.call(Method::GET, "/quotas/u", "").await.is(200);
    let list = list.json();
    let served = list["quotas"].as_array().unwrap().iter();
    let served: Vec<_> = served
        .map(|quota| quota["resource"].as_str().unwrap())
        .collect();
    assert_eq!(served, ["many", "r"]);
    let log = site.log();
    let told = log.lines().find(|line| line.contains("adopted")).unwrap();
    assert!(told.contains("policies=4 usage=1"), "{told}");
    assert!(
        log.contains("a row of the database is passed over"),
        "{log}"
    );

    // A policy may take the bad row's place, and the other program's own version is left alone.
    server.set("/quotas/u/odd", "daily", 5).await;
    let consume = server.call(Method::POST, "/quotas/u/odd/consume", "").await;
    consume.is(200);
    server.stop();
    assert_eq!(read_number(&site.database(), "PRAGMA user_version"), 77);
    let kept = "SELECT count(*) FROM quota_usage WHERE resource = 'r' AND usage = 7";
    assert_eq!(read_number(&site.database(), kept), 1);
}

/// Whoever reads the log must find which version ran, where, on what, and that it ended well.
#[tokio::test]
async fn a_start_and_its_end_are_logged_without_secrets() {
    for format in ["text", "json"] {
        let site = Site::new();
        let server = site.serve_with(|command| {
            let beside = [
                "--metrics-listen",
                "127.0.0.1:0",
                "--rls-listen",
                "127.0.0.1:0",
            ];
            command
                .args(beside)
                .args(["--log-format", format, "--log-level", "debug"])
        });
        server.call(Method::GET, "/quotas/u/r", "").await.is(404);
        let address = server.address;
        assert!(server.stop().success());
        let log = site.log();
        let line = |message: &str| {
            let found = log.lines().find(|line| line.contains(message));
            found.unwrap_or_else(|| panic!("no {message} in {log}"))
        };
        let started = line("started");
        let (version, listens) = (env!("CARGO_PKG_VERSION"), format!("http://{address}"));
        let file = site.database().display().to_string();
        for told in [
            "INFO",
            version,
            &listens,
            "metrics_listen",
            "rls_listen",
            "sqlite",
            &file,
        ] {
            assert!(started.contains(told), "no {told} in {started}");
        }
        let answered = line("answered");
        for told in [
            "status",
            "404",
            "duration_us",
            "token_id",
            "environment",
            "request_id",
        ] {
            assert!(answered.contains(told), "no {told} in {answered}");
        }
        if format == "json" {
            let answered: serde_json::Value = serde_json::from_str(answered).unwrap();
            assert!(answered["duration_us"].is_u64(), "{answered}");
            assert_eq!(answered["route"], "/quotas/{user_id}/{resource}");
        }
        assert!(line("stopped").contains("INFO"));
        assert!(!log.contains(ADMIN));
    }
}

#[tokio::test]
async fn the_metrics_tell_the_version() {
    let site = Site::new();
    let server = site.serve();
    let metrics = server.call(Method::GET, "/metrics", "").await.is(200);
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    let line = format!(
        "quotalog_build_info{{version=\"{}\"}} 1",
        env!("CARGO_PKG_VERSION")
    );
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
}
