//! Clients that are slow, silent or too many: none keeps a good one out, and none stays for ever.

use std::process::Command;

use hyper::Method;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::raw::{RawConnection, request};
use crate::support::server::{ADMIN, PATIENCE, Server, Site};
use crate::support::tls::{Pair, with_tls};

const CONSUME: &str = "/quotas/u/r/consume";

/// No connection is closed for its slowness, so that only others can take its room.
fn patient(command: &mut Command) -> &mut Command {
    command
        .env("QUOTALOG_HEAD_TIMEOUT", "1d")
        .env("QUOTALOG_IDLE_TIMEOUT", "1d")
}

/// Allows this process as many files as the system does, since the clients are all in it.
fn allow_many_files() {
    let allowed = getrlimit(Resource::Nofile);
    let current = allowed.maximum;
    setrlimit(Resource::Nofile, Rlimit { current, ..allowed }).unwrap();
}

/// What clients send and then no more: nothing, pieces of a head, pieces of a body, whole requests.
fn beginnings() -> [String; 6] {
    let body = "Content-Type: application/json\r\nContent-Length: 12\r\n";
    let begun = request("POST", CONSUME, ADMIN, body);
    [
        String::new(),
        "P".to_owned(),
        "PRI * HTTP/2.0\r\n".to_owned(),
        begun[..40].to_owned(),
        begun + "{\"amo",
        request("GET", "/healthz", ADMIN, ""),
    ]
}

fn open(server: &Server, sent: &str) -> RawConnection {
    let mut connection = RawConnection::open(server.address);
    connection.send(sent);
    connection
}

/// A good client's unit, on a connection of its own.
async fn consume(server: &Server) {
    let answering = server.call(Method::POST, CONSUME, "");
    let answer = tokio::time::timeout(PATIENCE, answering).await;
    answer.expect("a good client is kept out").is(200);
}

#[tokio::test]
async fn a_head_that_does_not_end_closes_its_connection() {
    let site = Site::new();
    let server = site.serve_with(|command| patient(command).env("QUOTALOG_HEAD_TIMEOUT", "1s"));
    for sent in [
        "P",
        "PRI * HTTP/2.0\r\n",
        "GET /healthz HTTP/1.1\r\nHost: x\r\n",
    ] {
        assert_eq!(open(&server, sent).ends(), b"", "{sent}");
    }
    // The second one of a connection too.
    let mut connection = open(&server, &request("GET", "/healthz", ADMIN, ""));
    connection.read().unwrap().is(200);
    connection.send("GET");
    assert_eq!(connection.ends(), b"");
    server.call(Method::GET, "/readyz", "").await.is(200);
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_is_not_waited_for() {
    let site = Site::new();
    let server = site.serve_with(|command| patient(command).env("QUOTALOG_HEAD_TIMEOUT", "1s"));
    let mut connection = open(&server, "GET /healthz HTTP/1.1\r\nX-Slow: ");
    // Its bytes have no end, so the server's patience has one.
    let sending = tokio::task::spawn_blocking(move || while connection.send("x") {});
    sending.await.unwrap();
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let site = Site::new();
    let server = site.serve_with(|command| patient(command).env("QUOTALOG_IDLE_TIMEOUT", "1s"));
    assert_eq!(open(&server, "").ends(), b"");
    let mut connection = open(&server, &request("GET", "/healthz", ADMIN, ""));
    connection.read().unwrap().is(200);
    connection.is_closed();
}

#[tokio::test]
async fn at_the_bound_slow_clients_make_room_for_good_ones() {
    allow_many_files();
    let site = Site::new();
    let server = site.serve_with(|command| patient(command).env("QUOTALOG_CONNECTIONS_MAX", "50"));
    server.set("/quotas/u/r", "daily", 1_000_000).await;
    let mut slow = Vec::new();
    for sent in beginnings() {
        for _ in 0..10 {
            slow.extend((0..10).map(|_| open(&server, &sent)));
            consume(&server).await;
        }
    }
    assert_eq!(site.stored("u", "r").values().sum::<u64>(), 60);
    // The first ones were closed, without an answer to what they had only begun.
    for connection in &mut slow[..500] {
        assert_eq!(connection.ends(), b"");
    }
    let told = site.log().matches("too many connections").count();
    assert!(told >= 1, "{}", site.log());
    assert!(!site.log().contains(" ERROR quotalog"), "{}", site.log());
    assert_eq!(server.stop().code(), Some(0));
}

#[tokio::test]
async fn at_the_bound_slow_handshakes_make_room_for_good_ones() {
    allow_many_files();
    let (site, pair) = (Site::new(), Pair::new());
    let folder = site.folder.path().join("tls");
    pair.lay(&folder);
    let server = site.serve_with(|command| {
        patient(with_tls(command, &folder)).env("QUOTALOG_CONNECTIONS_MAX", "20")
    });
    let mut slow = Vec::new();
    for _ in 0..10 {
        slow.extend((0..10).map(|_| open(&server, "\x16")));
        pair.connect(server.address).await.unwrap();
    }
    for connection in &mut slow[..50] {
        assert_eq!(connection.ends(), b"");
    }
}

#[tokio::test]
async fn a_thousand_slow_clients_at_once_harm_no_good_one() {
    allow_many_files();
    let site = Site::new();
    let server = site.serve_with(patient);
    server.set("/quotas/u/r", "daily", 1_000_000).await;
    let beginnings = beginnings();
    let mut slow: Vec<_> = (0..1_000)
        .map(|client| open(&server, &beginnings[client % beginnings.len()]))
        .collect();
    for _ in 0..20 {
        consume(&server).await;
    }
    // Half of them say that nothing more will come, and those end.
    for connection in &mut slow[..500] {
        connection.send_no_more();
    }
    for connection in &mut slow[..500] {
        connection.ends();
    }
    consume(&server).await;
    assert_eq!(site.stored("u", "r").values().sum::<u64>(), 21);
    assert!(!site.log().contains(" ERROR quotalog"), "{}", site.log());
    // The rest do not hold up the end, other than those that are in the middle of a request.
    drop(slow);
    assert_eq!(server.stop().code(), Some(0));
}

/// The same server, after `ulimit` was given these words.
fn limited<'a>(command: &'a mut Command, ulimit: &str) -> &'a mut Command {
    let script = format!("ulimit {ulimit} && exec \"$0\" \"$@\"");
    let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let variables: Vec<_> = command
        .get_envs()
        .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)))
        .collect();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &script])
        .arg(command.get_program())
        .args(arguments);
    for (name, value) in variables {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    *command = shell;
    command
}

#[tokio::test]
async fn few_files_mean_few_connections_and_that_is_told() {
    allow_many_files();
    let site = Site::new();
    let log = std::fs::File::create(site.folder.path().join("quotalog.log")).unwrap();
    let server = site.serve_with(|command| limited(patient(command), "-n 100").stderr(log));
    assert!(site.log().contains("connections_max=50"), "{}", site.log());
    server.set("/quotas/u/r", "daily", 1_000_000).await;
    let mut slow = Vec::new();
    for _ in 0..20 {
        slow.extend((0..10).map(|_| open(&server, "GET")));
        consume(&server).await;
    }
    assert!(!site.log().contains("cannot accept"), "{}", site.log());
}

#[tokio::test]
async fn a_low_limit_that_may_be_raised_is_raised() {
    allow_many_files();
    let site = Site::new();
    let log = std::fs::File::create(site.folder.path().join("quotalog.log")).unwrap();
    let server = site.serve_with(|command| {
        limited(command, "-Sn 100")
            .env("QUOTALOG_CONNECTIONS_MAX", "300")
            .stderr(log)
    });
    let mut slow: Vec<_> = (0..250).map(|_| open(&server, "")).collect();
    for connection in &mut slow {
        connection.send(request("GET", "/healthz", ADMIN, ""));
        connection.read().unwrap().is(200);
    }
    assert!(!site.log().contains("connections_max"), "{}", site.log());
}
