//! The clients in `clients/`, as they are, against the real server and over ways on which answers get lost.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::becomes::rows;
use crate::support::ids::printable;
use crate::support::npm::from_npm;
use crate::support::server::{ADMIN, Server, Site, skipped};
use crate::support::way::{
    BAD_GATEWAY, TOO_MANY, Turn, UNAVAILABLE, UNAVAILABLE_FOR_A_SECOND, UNAVAILABLE_FOR_AN_HOUR,
    Way,
};

const CLIENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients");
const DRIVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/clients");

/// A Python that has `requests`.
pub(crate) static PYTHON: LazyLock<Option<&str>> = LazyLock::new(|| {
    let mut known = ["python3", "/usr/bin/python3"].into_iter();
    known.find(|python| succeeds(Command::new(python).args(["-c", "import requests"])))
});

/// Where the compiler of TypeScript is, and the types of the oldest Node that is looked after.
static COMPILER: LazyLock<io::Result<PathBuf>> = LazyLock::new(|| {
    let tools = from_npm(Path::new(DRIVERS), "typescript")?;
    Ok(tools.join("node_modules"))
});

/// Compiles the TypeScript client and its driver, with every check, into a folder.
fn compile(modules: &Path, folder: &Path) {
    for (source, name) in [
        (format!("{CLIENTS}/typescript"), "quotalog.ts"),
        (DRIVERS.to_owned(), "driver.ts"),
    ] {
        std::fs::copy(Path::new(&source).join(name), folder.join(name)).unwrap();
    }
    std::fs::write(folder.join("package.json"), r#"{"type":"module"}"#).unwrap();
    let mut compile = Command::new(modules.join(".bin/tsc"));
    compile.current_dir(folder);
    compile.args([
        "--strict",
        "--exactOptionalPropertyTypes",
        "--noUncheckedIndexedAccess",
    ]);
    compile.args(["--noUnusedLocals", "--noUnusedParameters", "--skipLibCheck"]);
    // What is not erasable cannot be run where types are only stripped.
    compile.arg("--erasableSyntaxOnly");
    compile.args([
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--types",
        "node",
        "--typeRoots",
    ]);
    compile.arg(modules.join("@types"));
    let compiled = compile.args(["quotalog.ts", "driver.ts"]).output().unwrap();
    let said = String::from_utf8_lossy(&compiled.stdout);
    assert!(compiled.status.success(), "{said}");
}

fn succeeds(command: &mut Command) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[derive(Debug, Clone, Copy)]
enum Language {
    Python,
    TypeScript,
}

/// What runs a client in some language.
#[derive(Debug, Clone)]
enum Program {
    Python(&'static str),
    /// With the folder of what was compiled.
    Node(PathBuf),
}

/// A client; each run makes a new one.
struct Driver {
    program: Program,
    url: String,
    token: String,
    deadline_s: f64,
}

impl Program {
    fn client(&self, server: SocketAddr) -> Driver {
        Driver {
            program: self.clone(),
            url: format!("http://{server}/"),
            token: ADMIN.to_owned(),
            // Longer than any test; those that meet their deadline have one of their own.
            deadline_s: 60.0,
        }
    }

    fn command(&self) -> Command {
        match self {
            Self::Python(python) => {
                let mut command = Command::new(python);
                command.arg("-B").arg(format!("{DRIVERS}/driver.py"));
                command.env("PYTHONPATH", format!("{CLIENTS}/python"));
                command
            }
            Self::Node(folder) => {
                let mut command = Command::new("node");
                command.arg(folder.join("driver.js"));
                command
            }
        }
    }
}

impl Driver {
    /// What becomes of some calls, one after another.
    async fn calls(&self, calls: &[impl Display]) -> Vec<Value> {
        let mut command = self.program.command();
        command.args([&self.url, &self.token, &self.deadline_s.to_string()]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let lines: String = calls.iter().map(|call| format!("{call}\n")).collect();
        // The server that it asks may be one of the test's own tasks.
        let run = tokio::task::spawn_blocking(move || {
            let mut child = command.spawn().unwrap();
            child
                .stdin
                .take()
                .unwrap()
                .write_all(lines.as_bytes())
                .unwrap();
            child.wait_with_output().unwrap()
        });
        let output = run.await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let outcomes = output.stdout.split(|byte| *byte == b'\n');
        let outcomes = outcomes.filter(|line| !line.is_empty());
        let outcomes: Vec<_> = outcomes
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        assert_eq!(outcomes.len(), calls.len());
        outcomes
    }

    async fn call(&self, call: impl Display) -> Value {
        self.calls(&[call]).await.remove(0)
    }
}

fn call(name: &str, arguments: Value, options: Value) -> Value {
    json!({"call": name, "arguments": arguments, "options": options})
}

fn consume(user: &str, amount: u64) -> Value {
    call("consume", json!([user, "r", amount]), json!({}))
}

/// The units that the store holds for a pair.
fn counted(site: &Site, user_id: &str, resource: &str) -> u64 {
    site.stored(user_id, resource).values().sum()
}

/// No scene, since this machine cannot run the client.
#[track_caller]
fn none<T>(why: &str) -> Option<T> {
    skipped(why);
    None
}

/// A server with two quotas, and what runs a client; `None`, where it cannot be had.
async fn scene(language: Language) -> Option<(Site, Server, Program)> {
    let site = Site::new();
    let program = match language {
        Language::Python => match *PYTHON {
            Some(python) => Program::Python(python),
            None => return none("no Python has requests"),
        },
        Language::TypeScript => match &*COMPILER {
            Ok(modules) => {
                compile(modules, site.folder.path());
                Program::Node(site.folder.path().to_owned())
            }
            Err(error) => return none(&format!("no TypeScript can be compiled: {error}")),
        },
    };
    let server = site.serve_in_a_morning();
    server.set("/quotas/u/r", "daily", 10).await;
    server.set("/quotas/u/s", "daily", 1).await;
    Some((site, server, program))
}

async fn units_are_counted_checked_and_given_back(language: Language) {
    let Some((site, server, program)) = scene(language).await else {
        return;
    };
    let items = json!([[{"user_id": "u", "resource": "r", "amount": 3}, {"user_id": "u", "resource": "s"}]]);
    let keyed = call("consume", json!(["u", "r", 2]), json!({"key": "mine"}));
    let mismatch = call("consume", json!(["u", "r", 1]), json!({"key": "mine"}));
    let calls = [
        consume("u", 4),
        keyed.clone(),
        keyed,
        mismatch,
        call("refund", json!(["u", "r", 1]), json!({})),
        call("check", json!(["u", "r"]), json!({})),
        call("batch", items.clone(), json!({})),
        call("batch", items, json!({})),
        consume("u", 3),
        consume("u", 11),
        consume("nobody", 1),
        call("consume", json!(["u", "r", 1]), json!({"key": "a b"})),
    ];
    let outcomes = program.client(server.address).calls(&calls).await;
    let usages = outcomes[..6]
        .iter()
        .map(|outcome| &outcome["answer"]["usage"]);
    assert_eq!(
        usages.collect::<Vec<_>>(),
        [
            &json!(4),
            &json!(6),
            &json!(6),
            &Value::Null,
            &json!(5),
            &json!(5)
        ]
    );
    assert_eq!(
        (&outcomes[3]["error"], &outcomes[3]["status"]),
        (&json!("Invalid"), &json!(422))
    );
    assert_eq!(outcomes[5]["answer"]["user_id"], "u");
    assert_eq!(outcomes[6]["answer"][0]["usage"], 8);
    assert_eq!(outcomes[6]["answer"][1]["remaining"], 0);

    let denied = &outcomes[7];
    assert_eq!(denied["error"], "Exhausted");
    assert_eq!(denied["allowed"], json!([false, false]));
    let denied = &outcomes[8];
    let wait_s = denied["retry_after"].as_u64().unwrap();
    assert!((1..=86_400).contains(&wait_s));
    let reset_at = &outcomes[5]["answer"]["reset_at"];
    let expected = json!({
        "error": "Exhausted", "status": 429, "retry_after": wait_s, "allowed": [false],
        "resource": "r", "remaining": 2, "reset_at": reset_at,
    });
    assert_eq!(*denied, expected);
    let errors = outcomes[9..].iter().map(|outcome| &outcome["error"]);
    assert_eq!(
        errors.collect::<Vec<_>>(),
        ["Invalid", "NotFound", "Invalid"]
    );
    assert_eq!((counted(&site, "u", "r"), counted(&site, "u", "s")), (8, 1));
}

async fn ids_of_any_printable_text_survive(language: Language) {
    let Some((site, server, program)) = scene(language).await else {
        return;
    };
    server.set("/defaults/r", "daily", 5).await;
    let ids = printable();
    let calls: Vec<_> = ids.iter().map(|id| consume(id, 2)).collect();
    let outcomes = program.client(server.address).calls(&calls).await;
    for (id, outcome) in ids.iter().zip(outcomes) {
        assert_eq!(outcome["answer"]["user_id"], **id, "{outcome}");
        if !id.contains('\'') {
            assert_eq!(counted(&site, id, "r"), 2, "{id}");
        }
    }
    let unfit = ["", ".", "..", "a/b", "/", "../u"];
    let calls: Vec<_> = unfit.iter().map(|id| consume(id, 1)).collect();
    for outcome in program.client(server.address).calls(&calls).await {
        assert_eq!(
            outcome,
            json!({"error": "Invalid", "status": null, "retry_after": null})
        );
    }
}

async fn what_is_repeated_over_cut_connections_counts_once(language: Language) {
    let Some((site, server, program)) = scene(language).await else {
        return;
    };
    let turns = [
        Turn::CutAnswer,
        Turn::CutInside,
        UNAVAILABLE,
        BAD_GATEWAY,
        Turn::CutAnswer,
    ];
    let items = json!([[{"user_id": "u", "resource": "r", "amount": 3}]]);
    for (change, usage) in [
        (consume("u", 3), 3),
        (call("batch", items, json!({})), 6),
        (
            call("consume", json!(["u", "r", 3]), json!({"key": "mine"})),
            9,
        ),
        (call("refund", json!(["u", "r", 2]), json!({})), 7),
    ] {
        let way = Way::to(server.address, &turns).await;
        let outcome = program.client(way.address).call(change.clone()).await;
        assert!(outcome.get("answer").is_some(), "{change}: {outcome}");
        assert_eq!(
            (way.seen(), counted(&site, "u", "r")),
            ((6, 1), usage),
            "{change}"
        );
    }
    let way = Way::to(server.address, &turns).await;
    let check = call("check", json!(["u", "r"]), json!({}));
    let outcome = program.client(way.address).call(check).await;
    assert_eq!(
        (way.seen(), &outcome["answer"]["usage"]),
        ((6, 0), &json!(7))
    );
    // What the server asks for is waited for, and the key is still the same.
    let way = Way::to(server.address, &[UNAVAILABLE_FOR_A_SECOND]).await;
    let outcome = program.client(way.address).call(consume("u", 1)).await;
    assert_eq!(
        (way.seen(), &outcome["answer"]["usage"]),
        ((2, 1), &json!(8))
    );
}

async fn what_was_decided_is_not_repeated_and_an_outage_is_told(language: Language) {
    let Some((site, server, program)) = scene(language).await else {
        return;
    };
    let once = async |turns: &[Turn], request: Value, error: &str, attempts: usize| {
        let way = Way::to(server.address, turns).await;
        let outcome = program.client(way.address).call(request).await;
        assert_eq!(
            (&outcome["error"], way.seen().0),
            (&json!(error), attempts),
            "{outcome}"
        );
        outcome
    };
    server.set("/quotas/u/r", "daily", 2).await;
    once(&[Turn::Pass, Turn::Pass], consume("v", 1), "NotFound", 1).await;
    let waiting = call("consume", json!(["u", "s", 1]), json!({"wait": true}));
    program
        .client(server.address)
        .call(call("consume", json!(["u", "s", 1]), json!({})))
        .await;
    // The window's end is further away than the deadline.
    once(&[], waiting.clone(), "Exhausted", 1).await;
    once(&[TOO_MANY], consume("u", 1), "Unexpected", 1).await;
    let later = once(&[UNAVAILABLE_FOR_AN_HOUR], consume("u", 1), "Outage", 1).await;
    assert_eq!(
        (&later["status"], &later["retry_after"]),
        (&json!(503), &json!(3600))
    );
    // Once it may have counted, a later "nothing was counted" does not take that back.
    let turns = [Turn::CutAnswer, UNAVAILABLE_FOR_AN_HOUR];
    once(&turns, consume("u", 1), "OutcomeUnknown", 2).await;
    assert_eq!(counted(&site, "u", "r"), 1);
    once(
        &[Turn::CutAnswer, Turn::Answer(UNAUTHORIZED)],
        consume("u", 1),
        "OutcomeUnknown",
        2,
    )
    .await;
    assert_eq!(counted(&site, "u", "r"), 2);
    // An exhausted quota settles what was unknown.
    once(
        &[UNAVAILABLE, Turn::Answer(UNKNOWN)],
        consume("u", 1),
        "Exhausted",
        3,
    )
    .await;
    // A 429 whose wait is short enough is waited for, if the caller says so.
    server.set("/quotas/u/s", "daily", 2).await;
    let way = Way::to(server.address, &[Turn::Answer(EXHAUSTED_FOR_A_SECOND)]).await;
    let granted = program.client(way.address).call(waiting).await;
    assert_eq!(
        (way.seen(), &granted["answer"]["usage"]),
        ((2, 1), &json!(2))
    );

    let mut stranger = program.client(server.address);
    stranger.token = "wrong".to_owned();
    let refused = stranger.call(consume("u", 1)).await;
    assert_eq!(
        (&refused["error"], &refused["status"]),
        (&json!("Denied"), &json!(401))
    );

    // Nobody listens, or somebody who says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut nobody = program.client(listener.local_addr().unwrap());
    nobody.deadline_s = 0.2;
    let silent = nobody.call(consume("u", 1)).await;
    assert_eq!(silent["error"], "OutcomeUnknown");
    drop(listener);
    // What begins just before the deadline might be given up before it is refused.
    nobody.deadline_s = 60.0;
    assert_eq!(nobody.call(consume("u", 1)).await["error"], "Outage");
}

/// A call with half a character in place of the letters `half`, which no text of Rust's can hold.
fn halved(call: &Value) -> String {
    call.to_string().replace("half", r"\ud83d")
}

async fn what_can_never_be_taken_is_told_without_an_attempt_in_vain(language: Language) {
    let Some((site, server, program)) = scene(language).await else {
        return;
    };
    let way = Way::to(server.address, &[]).await;
    let of_batch = |item: Value| call("batch", json!([[item]]), json!({}));
    let calls = [
        halved(&consume("half", 1)),
        halved(&consume("a half b", 1)),
        halved(&call("check", json!(["u", "half"]), json!({}))),
        halved(&of_batch(json!({"user_id": "u", "resource": "half"}))),
        of_batch(json!({"user_id": "u".repeat(200_000), "resource": "r"})).to_string(),
    ];
    for (call, outcome) in calls
        .iter()
        .zip(program.client(way.address).calls(&calls).await)
    {
        let call = &call[..call.len().min(100)];
        assert_eq!(outcome["error"], "Invalid", "{call}: {outcome}");
    }
    // The two of a batch may be for the server to judge, and are judged once.
    assert!(way.seen().0 <= 2, "{:?}", way.seen());

    // What the server takes is let through, however long it is as JSON: four bytes of UTF-8 for each letter.
    let long = "\u{1f600}".repeat(63);
    server.set("/defaults/r", "daily", 5).await;
    let items: Vec<_> = (0..100)
        .map(|number| json!({"user_id": format!("{number}{long}"), "resource": long}))
        .collect();
    let path = format!("/defaults/{}", "%F0%9F%98%80".repeat(63));
    server.set(&path, "daily", 5).await;
    let batch = call("batch", json!([items]), json!({}));
    let outcome = program.client(way.address).call(batch).await;
    assert_eq!(outcome["answer"][99]["usage"], 1, "{outcome}");
    assert_eq!(counted(&site, &format!("99{long}"), &long), 1);
}

async fn a_url_or_a_token_that_is_none_is_refused_at_once(language: Language) {
    let Some((_site, server, program)) = scene(language).await else {
        return;
    };
    let way = Way::to(server.address, &[]).await;
    let refused = async |url: &str, token: &str| {
        let mut driver = program.client(way.address);
        driver.url = url.replace("HOST", &way.address.to_string());
        driver.token = token.to_owned();
        let outcome = driver.call(consume("u", 1)).await;
        let expected = json!({"error": "Invalid", "status": null, "retry_after": null});
        assert_eq!(outcome, expected, "{url} {token:?}");
    };
    for url in [
        "",
        "HOST",
        "//HOST",
        "http:HOST",
        "http://",
        "http:///quotas",
        "ftp://HOST",
        "http://[",
        "http://u:p@HOST",
        "http://HOST/a b",
        "http://HOST\\x",
        "http://[::1]x",
        "http://%zz",
        "http://127.0.0.1:0",
        "http://127.0.0.1:x",
        "http://127.0.0.1:99999",
        "http://HOST/?q",
        "http://HOST/#f",
    ] {
        refused(url, ADMIN).await;
    }
    // The drivers look for any part of it in what the error shows.
    for token in [
        "",
        "secret\nother",
        "secret\r\nother: x",
        "secret other",
        "secret\n",
        "sécret",
    ] {
        refused("http://HOST/", token).await;
    }
    assert_eq!(way.seen().0, 0);
    // One of a path is a URL, and one whose host cannot be is only not to be reached.
    let mut driver = program.client(way.address);
    driver.url = format!("HTTP://{}//", way.address);
    assert_eq!(driver.call(consume("u", 1)).await["answer"]["usage"], 1);
    driver.url = "http://a..b/".to_owned();
    driver.deadline_s = 1.0;
    assert_eq!(driver.call(consume("u", 1)).await["error"], "Outage");
}

async fn a_wait_is_a_number_or_a_date_and_bounded(language: Language) {
    let Some((site, server, program)) = scene(language).await else {
        return;
    };
    let unavailable_for = |wait: &str| {
        let answer = format!(
            "HTTP/1.1 503 x\r\ncontent-type: application/problem+json\r\ncontent-length: 32\r\n\
             retry-after: {wait}\r\nconnection: close\r\n\r\n{{\"type\":\"/problems/unavailable\"}}"
        );
        Turn::Answer(answer.leak())
    };
    let many_digits = "9".repeat(5_000);
    // Beyond the deadline, and told to the caller.
    for wait in [
        "9999999999",
        "18446744073709551616",
        &many_digits,
        "Wed, 01 Jan 2200 00:00:00 GMT",
    ] {
        let way = Way::to(server.address, &[unavailable_for(wait)]).await;
        let outcome = program.client(way.address).call(consume("u", 1)).await;
        let expected = json!({"error": "Outage", "status": 503, "retry_after": 2_000_000});
        assert_eq!((outcome, way.seen()), (expected, (1, 1)), "{wait}");
    }
    // Over, or no wait.
    let mut usage = 0;
    for wait in [
        "0",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "soon",
        "-1",
        "3600.5",
        "\u{663}600",
    ] {
        let way = Way::to(server.address, &[unavailable_for(wait)]).await;
        let outcome = program.client(way.address).call(consume("u", 1)).await;
        usage += 1;
        assert_eq!(outcome["answer"]["usage"], usage, "{wait}: {outcome}");
        assert_eq!(way.seen(), (2, 1), "{wait}");
    }
    assert_eq!(counted(&site, "u", "r"), usage);
}

async fn an_answer_that_drips_is_given_up_at_the_deadline(language: Language) {
    let Some((site, server, program)) = scene(language).await else {
        return;
    };
    // The whole answer takes longer than the deadline, though no byte does.
    for (from, usage) in [("HTTP/1.1", 1), ("\r\n\r\n", 2)] {
        for (request, error) in [
            (consume("u", 1), "OutcomeUnknown"),
            (call("check", json!(["u", "r"]), json!({})), "Outage"),
        ] {
            let way = Way::to(server.address, &[Turn::DripFrom(from)]).await;
            let mut hurried = program.client(way.address);
            hurried.deadline_s = 0.5;
            let outcome = hurried.call(request).await;
            assert_eq!((&outcome["error"], way.seen().0), (&json!(error), 1));
            assert_eq!(counted(&site, "u", "r"), usage);
        }
    }
    // With the time it takes, it is an answer.
    let way = Way::to(server.address, &[Turn::DripFrom("HTTP/1.1")]).await;
    let outcome = program.client(way.address).call(consume("u", 1)).await;
    // An attempt has a bound of its own; whatever became of the first, it counted once.
    assert_eq!(outcome["answer"]["usage"], 3, "{outcome}");
}

async fn each_answer_becomes_what_the_documentation_says(language: Language) {
    let Some((_site, server, program)) = scene(language).await else {
        return;
    };
    server.set("/quotas/u/r", "daily", 1000).await;
    // What it is called is seen where it wants an hour's wait, and whether it is asked again where it wants none.
    let (mut calls, mut fates, mut hour, mut now) = (vec![], vec![], vec![], vec![]);
    for row in rows() {
        let check = call("check", json!(["u", "r"]), json!({}));
        for (call, fate) in [(consume("u", 1), row.of_change), (check, row.of_question)] {
            calls.push(call);
            hour.push(row.answer(true));
            now.push(row.answer(false));
            if fate.is_asked_again {
                now.push(Turn::Pass);
            }
            fates.push((fate, format!("{} {}", row.status, row.problem)));
        }
    }
    let way = Way::to(server.address, &hour).await;
    let outcomes = program.client(way.address).calls(&calls).await;
    for ((fate, answer), outcome) in fates.iter().zip(outcomes) {
        assert_eq!(outcome["error"], fate.error, "{answer}: {outcome}");
    }
    assert_eq!(way.seen().0, hour.len());
    let way = Way::to(server.address, &now).await;
    let outcomes = program.client(way.address).calls(&calls).await;
    for ((fate, answer), outcome) in fates.iter().zip(outcomes) {
        let is_answer = outcome.get("answer").is_some();
        assert_eq!(is_answer, fate.is_asked_again, "{answer}: {outcome}");
    }
    // Each consume has one key, however often it is asked.
    assert_eq!(way.seen(), (now.len(), calls.len() / 2));
}

async fn an_answer_of_another_is_none_of_quotalogs(language: Language) {
    let Some((_site, server, program)) = scene(language).await else {
        return;
    };
    let deep = "[".repeat(100_000);
    let calls = [
        consume("u", 1),
        call("check", json!(["u", "r"]), json!({})),
        call(
            "batch",
            json!([[{"user_id": "u", "resource": "r"}]]),
            json!({}),
        ),
    ];
    for (status, body) in [
        (200, "{}"),
        (200, "[]"),
        (200, "null"),
        (200, "<p>Welcome to this hotel's network.</p>"),
        (200, "{\"remaining"),
        (200, &deep),
        (204, ""),
        (302, ""),
        (409, "{}"),
        (429, "{\"type\":\"#quota-exceeded\",\"items\":[]}"),
    ] {
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status} x\r\nlocation: /\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        let answer = Turn::Answer(answer.leak());
        let way = Way::to(server.address, &[answer; 3]).await;
        let outcomes = program.client(way.address).calls(&calls).await;
        let body = &body[..length.min(100)];
        for outcome in outcomes {
            assert_eq!(outcome["error"], "Unexpected", "{status} {body}: {outcome}");
        }
        assert_eq!(way.seen().0, 3, "{status} {body}");
    }
}

const UNAUTHORIZED: &str = "HTTP/1.1 401 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const UNKNOWN: &str = "HTTP/1.1 503 x\r\ncontent-type: application/problem+json\r\n\
     content-length: 36\r\nconnection: close\r\n\r\n{\"type\":\"/problems/outcome-unknown\"}";
const EXHAUSTED_FOR_A_SECOND: &str = "HTTP/1.1 429 x\r\ncontent-type: application/problem+json\r\n\
     content-length: 87\r\nretry-after: 1\r\nconnection: close\r\n\r\n\
     {\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\"remaining\":0}";

macro_rules! tests {
    ($($module:ident $language:ident;)*) => {$(
        mod $module {
            use super::Language;

            #[tokio::test]
            async fn units_are_counted_checked_and_given_back() {
                super::units_are_counted_checked_and_given_back(Language::$language).await;
            }

            #[tokio::test]
            async fn ids_of_any_printable_text_survive() {
                super::ids_of_any_printable_text_survive(Language::$language).await;
            }

            #[tokio::test]
            async fn what_is_repeated_over_cut_connections_counts_once() {
                super::what_is_repeated_over_cut_connections_counts_once(Language::$language).await;
            }

            #[tokio::test]
            async fn what_was_decided_is_not_repeated_and_an_outage_is_told() {
                super::what_was_decided_is_not_repeated_and_an_outage_is_told(Language::$language)
                    .await;
            }

            #[tokio::test]
            async fn what_can_never_be_taken_is_told_without_an_attempt_in_vain() {
                super::what_can_never_be_taken_is_told_without_an_attempt_in_vain(Language::$language).await;
            }

            #[tokio::test]
            async fn a_url_or_a_token_that_is_none_is_refused_at_once() {
                super::a_url_or_a_token_that_is_none_is_refused_at_once(Language::$language).await;
            }

            #[tokio::test]
            async fn a_wait_is_a_number_or_a_date_and_bounded() {
                super::a_wait_is_a_number_or_a_date_and_bounded(Language::$language).await;
            }

            #[tokio::test]
            async fn an_answer_that_drips_is_given_up_at_the_deadline() {
                super::an_answer_that_drips_is_given_up_at_the_deadline(Language::$language).await;
            }

            #[tokio::test]
            async fn each_answer_becomes_what_the_documentation_says() {
                super::each_answer_becomes_what_the_documentation_says(Language::$language).await;
            }

            #[tokio::test]
            async fn an_answer_of_another_is_none_of_quotalogs() {
                super::an_answer_of_another_is_none_of_quotalogs(Language::$language).await;
            }
        }
    )*};
}

tests! {
    python Python;
    typescript TypeScript;
}
