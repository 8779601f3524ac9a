//! The command line as a client of a running server.

use std::process::Output;

use hyper::Method;
use serde_json::Value;

use crate::cli::{fails, text};
use crate::support::server::{ADMIN, Server, Site, quotalog, skipped};
use crate::support::tls::{Pair, with_tls};

/// Runs a command that asks `server` with the admin token.
fn ask(server: &Server, arguments: &[&str]) -> Output {
    ask_with(server, ADMIN, arguments)
}

fn ask_with(server: &Server, token: &str, arguments: &[&str]) -> Output {
    quotalog()
        .args(arguments)
        .env("QUOTALOG_URL", format!("http://{}", server.address))
        .env("QUOTALOG_TOKEN", token)
        .output()
        .unwrap()
}

#[track_caller]
fn done(output: &Output) -> &str {
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[track_caller]
fn json(output: &Output) -> Value {
    serde_json::from_str(done(output)).unwrap()
}

#[test]
fn a_quota_is_set_counted_given_back_reset_and_removed() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    let run = |arguments: &str| ask(&server, &arguments.split(' ').collect::<Vec<_>>());
    let usage = |arguments: &str| json(&run(&format!("{arguments} --json")))["usage"].clone();

    fails(&run("quota get u r"), 5, "Neither a policy");
    assert_eq!(usage("quota set u r --daily 10"), 0);
    assert_eq!(usage("quota consume u r"), 1);
    assert_eq!(usage("quota consume u r --amount 5"), 6);
    assert_eq!(usage("quota consume u r --amount 2 --idempotency-key k"), 8);
    assert_eq!(usage("quota consume u r --amount 2 --idempotency-key k"), 8);
    let mismatch = run("quota consume u r --amount 1 --idempotency-key k");
    fails(&mismatch, 2, "new key");
    fails(&run("quota consume u r --amount 3"), 3, "try again in");
    fails(&run("quota consume u r --amount 11"), 2, "amount");
    fails(&run("quota consume u r --amount 0"), 2, "amount");
    assert_eq!(usage("quota refund u r --amount 3"), 5);
    assert_eq!(usage("quota refund u r"), 4);
    assert_eq!(usage("quota get u r"), 4);
    assert_eq!(usage("quota reset u r"), 0);
    assert_eq!(
        json(&run("quota set u r --hourly 7 --json"))["limit_count"],
        7
    );
    fails(&run("quota set u r --hourly 0"), 2, "limit_count");
    fails(&run("quota set u r --hourly 1000001"), 2, "limit_count");
    assert_eq!(done(&run("quota delete u r")), "");
    fails(&run("quota delete u r"), 5, "no policy of their own");
}

#[test]
fn a_default_is_set_shown_and_removed() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    let run = |arguments: &str| ask(&server, &arguments.split(' ').collect::<Vec<_>>());
    fails(&run("default get r"), 5, "no default");
    assert_eq!(
        json(&run("default set r --hourly 3 --json"))["limit_count"],
        3
    );
    assert_eq!(json(&run("default get r --json"))["window"], "hourly");
    let listed = json(&run("default list --json"));
    assert_eq!(listed["defaults"][0]["resource"], "r");
    assert!(listed["next_cursor"].is_null());
    let table = run("default list");
    let mut lines = done(&table).lines();
    assert_eq!(lines.next(), Some("RESOURCE  WINDOW  LIMIT  UPDATED"));
    assert!(
        lines
            .next()
            .unwrap()
            .starts_with("r         hourly  3      ")
    );
    assert_eq!(json(&run("quota get u r --json"))["source"], "default");
    assert_eq!(done(&run("default delete r")), "");
    fails(&run("default delete r"), 5, "no default");
}

#[tokio::test]
async fn json_is_the_servers_own_and_a_table_is_for_people() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    server.set("/quotas/u/r", "daily", 5).await;
    // The window may end between two of these.
    let before = server.call(Method::GET, "/quotas/u/r", "").await;
    let output = ask(&server, &["quota", "get", "u", "r", "--json"]);
    let after = server.call(Method::GET, "/quotas/u/r", "").await;
    let shown = done(&output).strip_suffix('\n').unwrap().as_bytes();
    assert!(shown == before.body || shown == after.body, "{output:?}");

    let output = ask(&server, &["quota", "get", "u", "r"]);
    let lines: Vec<Vec<&str>> = done(&output)
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let titles = [
        "USER",
        "RESOURCE",
        "WINDOW",
        "LIMIT",
        "USED",
        "REMAINING",
        "RESETS",
        "SOURCE",
    ];
    assert_eq!(lines[0], titles);
    assert_eq!(lines[1][..6], ["u", "r", "daily", "5", "0", "5"]);
    assert!(lines[1][6].ends_with("T00:00:00Z"));
    assert_eq!(lines[1][7..], ["policy"]);
}

#[test]
fn ids_of_any_printable_text_survive() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    let ids = [
        "a b",
        " a ",
        "50%",
        "%41",
        "a+b",
        "zoë",
        "日本語",
        "it's \"quoted\"",
        "'; DROP TABLE quota_policies; --",
        "-dash",
        "--hourly",
        "a?b#c&d=e",
        "back\\slash",
        "system::admin",
        "...",
    ];
    for (limit, id) in (1..).zip(ids) {
        let limit = limit.to_string();
        let set = ["quota", "set", "--daily", &limit, "--json", "--", id, id];
        let set = json(&ask(&server, &set));
        assert_eq!(
            (set["user_id"].as_str(), set["resource"].as_str()),
            (Some(id), Some(id))
        );
        let consume = ["quota", "consume", "--json", "--", id, id];
        assert_eq!(json(&ask(&server, &consume))["usage"], 1, "{id}");
        let list = json(&ask(&server, &["quota", "list", "--json", "--", id]));
        assert_eq!(list["quotas"].as_array().unwrap().len(), 1, "{id}");
        assert_eq!(list["quotas"][0]["limit_count"].to_string(), limit);
        let flag = format!("--resource={id}");
        let list = json(&ask(&server, &["quota", "list", "--json", &flag]));
        assert_eq!(list["quotas"][0]["user_id"], id);
        let set = ["default", "set", "--daily", &limit, "--json", "--", id];
        assert_eq!(json(&ask(&server, &set))["resource"], id);
    }
    for id in ["", ".", "..", "a/b", "a\nb", &"x".repeat(256)] {
        fails(&ask(&server, &["quota", "get", "--", id, "r"]), 2, "USER");
        fails(
            &ask(&server, &["quota", "consume", "--", "u", id]),
            2,
            "RESOURCE",
        );
        fails(&ask(&server, &["default", "get", "--", id]), 2, "RESOURCE");
        fails(&ask(&server, &["quota", "list", "--", id]), 2, "USER");
    }
}

#[test]
fn a_list_goes_on_to_its_end_unless_it_is_limited() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    let database = rusqlite::Connection::open(site.database()).unwrap();
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) \
                INSERT INTO quota_policies (user_id, resource, window, limit_count, created_at, \
                updated_at) SELECT printf('u%04d', i % 2), printf('r%04d', i), 'daily', 10, \
                datetime('now'), datetime('now') FROM n";
    database.execute(many, []).unwrap();
    let count = |arguments: &[&str]| {
        let listed = json(&ask(
            &server,
            &[&["quota", "list", "--json"], arguments].concat(),
        ));
        listed["quotas"].as_array().unwrap().len()
    };
    assert_eq!(count(&[]), 2500);
    assert_eq!(count(&["u0001"]), 1250);
    assert_eq!(count(&["nobody"]), 0);
    assert_eq!(count(&["--limit", "7"]), 7);
    assert_eq!(count(&["--limit", "1500"]), 1500);
    assert_eq!(count(&["u0001", "--limit", "1100"]), 1100);
    assert_eq!(count(&["--resource", "r0001"]), 1);
    let table = ask(&server, &["quota", "list", "--limit", "3"]);
    assert_eq!(done(&table).lines().count(), 4);

    json(&ask(
        &server,
        &[
            "quota", "consume", "u0001", "r0003", "--amount", "9", "--json",
        ],
    ));
    json(&ask(
        &server,
        &[
            "quota", "consume", "u0000", "r0004", "--amount", "5", "--json",
        ],
    ));
    assert_eq!(count(&["--min-used-percent", "50"]), 2);
    let fullest = [
        "quota",
        "list",
        "--sort",
        "used-percent",
        "--limit",
        "1",
        "--json",
    ];
    assert_eq!(
        json(&ask(&server, &fullest))["quotas"][0]["resource"],
        "r0003"
    );
    assert_eq!(count(&["--sort", "used-percent"]), 100);

    for wrong in [
        &["--limit", "0"][..],
        &["--min-used-percent", "101"],
        &["--sort", "size"],
        &["u", "--resource", "r"],
        &["u", "--sort", "used-percent"],
        &["--sort", "used-percent", "--limit", "1001"],
    ] {
        let output = ask(&server, &[&["quota", "list"], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn who_may_not_is_told_so_and_a_token_may_lie_in_a_file() {
    let site = Site::new();
    let viewer = site.token(&["--role", "viewer"]);
    let server = site.serve_in_a_morning();
    let consume = ["quota", "consume", "u", "r"];
    fails(
        &ask_with(&server, &viewer, &consume),
        4,
        "quotalog: the token is of a role that may not do this, or not for this user; `quotalog token create`",
    );
    fails(
        &ask_with(&server, "wrong", &consume),
        4,
        "quotalog: the token is unknown, revoked or expired; QUOTALOG_TOKEN or --token-file",
    );
    fails(
        &ask_with(&server, "two words", &consume),
        2,
        "QUOTALOG_TOKEN",
    );
    let mut without = quotalog();
    without
        .args(consume)
        .env("QUOTALOG_URL", format!("http://{}", server.address));
    fails(
        &without.output().unwrap(),
        4,
        "quotalog: a token is needed; set QUOTALOG_TOKEN",
    );

    let file = site.folder.path().join("token");
    std::fs::write(&file, format!("{ADMIN}\n")).unwrap();
    let file = file.to_str().unwrap();
    let list = ["quota", "list", "--json", "--token-file", file];
    assert_eq!(
        json(&ask_with(&server, "wrong", &list))["quotas"],
        Value::Array(vec![])
    );
    fails(
        &ask(&server, &["quota", "list", "--token-file", "/no/file"]),
        2,
        "--token-file",
    );
    std::fs::write(file, "").unwrap();
    fails(&ask_with(&server, "wrong", &list), 2, "--token-file");
}

#[test]
fn a_server_out_of_reach_is_told_with_its_url() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let ask = |url: &str| {
        let mut command = quotalog();
        command
            .args(["quota", "get", "u", "r", "--url", url])
            .output()
            .unwrap()
    };
    fails(&ask(&url), 6, &url);
    fails(&ask("localhost:8200"), 2, "--url");
    fails(&ask("http://user:pa55word@localhost"), 2, "--url");
}

#[test]
fn a_server_with_a_certificate_of_its_own_is_asked_over_tls() {
    let (site, pair) = (Site::new(), Pair::new());
    let folder = site.folder.path().join("tls");
    pair.lay(&folder);
    let server = site.serve_with(|command| with_tls(command, &folder));
    let url = format!("https://localhost:{}", server.address.port());
    let ask = |arguments: &[&str]| {
        let mut command = quotalog();
        command.args(["quota", "list", "--json", "--url", &url]);
        command
            .args(arguments)
            .env("QUOTALOG_TOKEN", ADMIN)
            .output()
            .unwrap()
    };
    let own = folder.join("cert.pem");
    json(&ask(&["--ca-file", own.to_str().unwrap()]));
    let other = site.folder.path().join("other.pem");
    std::fs::write(&other, Pair::new().certificate).unwrap();
    fails(
        &ask(&["--ca-file", other.to_str().unwrap()]),
        6,
        "certificate",
    );
    std::fs::write(&other, "no PEM").unwrap();
    fails(
        &ask(&["--ca-file", other.to_str().unwrap()]),
        2,
        "--ca-file",
    );
}

#[test]
fn wrong_commands_exit_with_2() {
    for arguments in [
        &["quota"][..],
        &["quota", "get", "u"],
        &["quota", "set", "u", "r"],
        &["quota", "set", "u", "r", "--hourly", "1", "--daily", "1"],
        &["quota", "set", "u", "r", "--hourly", "x"],
        &["quota", "consume", "u", "r", "--amount", "-1"],
        &["quota", "consume", "u", "r", "--token", "secret"],
        &["default", "set", "r"],
        &["default", "get"],
        &["completions"],
        &["completions", "tcsh"],
    ] {
        let output = quotalog().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}

#[test]
fn a_wrong_number_is_named_with_the_way_out() {
    let whole = "write a whole number, without a sign";
    let consume: &[&str] = &["quota", "consume", "u", "r", "--amount"];
    let list: &[&str] = &["quota", "list", "--limit"];
    let hourly: &[&str] = &["quota", "set", "u", "r", "--hourly"];
    let daily: &[&str] = &["default", "set", "r", "--daily"];
    for (command, value, advice) in [
        (consume, "-1", whole),
        (consume, "1.5", whole),
        (consume, "", whole),
        (consume, "99999999999999999999", "write a smaller number"),
        (list, "x", whole),
        (hourly, "-1", whole),
        (daily, "1_000", whole),
    ] {
        let output = quotalog().args(command).arg(value).output().unwrap();
        let flag = command.last().unwrap();
        fails(&output, 2, &format!("{flag} is {value:?}: {advice}"));
    }
}

#[test]
fn shells_take_their_completions() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let output = quotalog().args(["completions", shell]).output().unwrap();
        let script = done(&output);
        for word in ["consume", "min-used-percent", "token-file"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        let file = folder.path().join(shell);
        std::fs::write(&file, script).unwrap();
        match std::process::Command::new(shell)
            .arg("-n")
            .arg(&file)
            .output()
        {
            Ok(read) => assert!(read.status.success(), "{shell}: {}", text(&read.stderr)),
            // Only bash is everywhere.
            Err(error) if shell == "bash" => skipped(&error.to_string()),
            Err(_) => {}
        }
    }
}
