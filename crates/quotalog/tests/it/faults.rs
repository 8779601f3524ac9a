//! What goes wrong around a server: a full disk, a locked file, odd clocks and time zones, a log that grows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::Method;

use crate::cli::succeeds;
use crate::support::load::{Load, Tally};
use crate::support::server::{ADMIN, Server, Site, skipped, until};
use crate::support::tls::put;

const CONSUME: &str = "/quotas/u/r/consume";

async fn consume(server: &Server, tally: &mut Tally) -> u16 {
    let answer = server.call(Method::POST, CONSUME, "").await;
    tally.enter(&answer);
    assert!(tally.other.is_empty(), "{:?}", tally.other);
    answer.status
}

/// A command in a name space of its own, which may mount there: as root, or as root of that space.
pub(crate) fn unshare() -> Option<Command> {
    for flags in ["-m", "-Urm"] {
        let works = |command: &mut Command| command.output().is_ok_and(|out| out.status.success());
        let folder = tempfile::tempdir().unwrap();
        let mut try_it = Command::new("unshare");
        try_it.args([flags, "mount", "-t", "tmpfs", "none"]);
        if works(try_it.arg(folder.path())) {
            let mut command = Command::new("unshare");
            command.arg(flags);
            return Some(command);
        }
    }
    None
}

/// A server on a disk of 6 MB that is nearly full, and its ballast, whose removal makes room.
fn on_a_small_disk(site: &Site, mut command: Command) -> (Server, PathBuf) {
    let disk = site.folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let script = r#"mount -t tmpfs -o size=6m,mode=700 none "$0" &&
        head -c 4500000 /dev/zero > "$0/ballast" &&
        exec "$1" serve --listen 127.0.0.1:0 --database "sqlite:$0/q.db" 2>"$2""#;
    let log = site.folder.path().join("quotalog.log");
    command.args(["sh", "-c", script]);
    command
        .arg(&disk)
        .arg(env!("CARGO_BIN_EXE_quotalog"))
        .arg(log);
    command.env("QUOTALOG_ADMIN_TOKEN", ADMIN);
    let server = Server::start(&mut command);
    // The disk is mounted for the server alone, so we look with its eyes.
    let root = PathBuf::from(format!("/proc/{}/root", server.pid()));
    let ballast = root.join(disk.strip_prefix("/").unwrap()).join("ballast");
    (server, ballast)
}

#[tokio::test]
async fn a_full_disk_refuses_consumes_until_there_is_room_and_miscounts_none() {
    let Some(command) = unshare() else {
        return skipped("no small disk can be mounted here");
    };
    let site = Site::new();
    let (server, ballast) = on_a_small_disk(&site, command);
    server.set("/quotas/u/r", "daily", 1_000_000).await;
    // The database must grow before its log can be moved into it; else it would be emptied and filled again.
    for number in 0..30 {
        let path = format!("/quotas/{}-{number}/r", "x".repeat(200));
        server.set(&path, "daily", 1).await;
    }
    let mut tally = Tally::default();
    while consume(&server, &mut tally).await == 200 {}
    for _ in 0..20 {
        let refused = server.call(Method::POST, CONSUME, "").await;
        tally.enter(&refused);
        refused.problem(503, "unavailable");
    }
    let policy = r#"{"window":"daily","limit_count":5}"#;
    let refused = server.call(Method::PUT, "/quotas/u/r", policy).await;
    refused.problem(503, "unavailable");
    let (window_start, usage) = server.usage("/quotas/u/r").await;
    assert_eq!(usage, tally.granted_in(&window_start));
    server.call(Method::GET, "/quotas/u", "").await.is(200);
    server.call(Method::GET, "/healthz", "").await.is(200);

    std::fs::remove_file(ballast).unwrap();
    until("room", async || consume(&server, &mut tally).await == 200).await;
    for _ in 0..50 {
        assert_eq!(consume(&server, &mut tally).await, 200);
    }
    assert_eq!(tally.unknown, 0);
    let (window_start, usage) = server.usage("/quotas/u/r").await;
    assert_eq!(usage, tally.granted_in(&window_start));
    // A state that lasts is told when it begins and when it ends, not with every request.
    let log = site.log();
    assert_eq!(log.matches("takes no writes").count(), 1, "{log}");
    assert_eq!(log.matches("takes writes again").count(), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_another_program_locks_loses_nothing() {
    let site = Site::new();
    let server = Arc::new(site.serve());
    server.set("/quotas/u/r", "daily", 1_000_000).await;
    let other = rusqlite::Connection::open(site.database()).unwrap();
    let mut tally = Tally::default();

    // For so long that the consumes are given up.
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let load = Load::start(&[server.address], 8, CONSUME);
    let (_, usage) = server.usage("/quotas/u/r").await;
    assert_eq!(usage, 0);
    let refused = server.call(Method::POST, CONSUME, "").await;
    refused.problem(503, "unavailable");
    other.execute_batch("COMMIT").unwrap();
    load.until_granted(50).await;
    tally += load.stop().await;
    assert!(tally.unavailable > 0);

    // Again and again for a moment, under load.
    let load = Load::start(&[server.address], 8, CONSUME);
    for _ in 0..20 {
        let granted = load.granted();
        other
            .busy_timeout(std::time::Duration::from_secs(60))
            .unwrap();
        other.execute_batch("BEGIN IMMEDIATE; COMMIT").unwrap();
        load.until_granted(granted + 5).await;
    }
    tally += load.stop().await;
    assert_eq!((tally.denied, tally.unknown), (0, 0));
    assert!(tally.other.is_empty(), "{:?}", tally.other);
    assert_eq!(site.stored("u", "r"), tally.granted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_write_ahead_log_stays_bounded_over_many_consumes() {
    const BYTES_MAX: u64 = 40 * 1024 * 1024;
    let site = Site::new();
    let server = site.serve();
    let log = site.folder.path().join("quotalog.db-wal");
    let mut loads = Vec::new();
    for pair in 0..16 {
        let path = format!("/quotas/u/r{pair}");
        server.set(&path, "daily", 1_000_000).await;
        let path = format!("{path}/consume");
        loads.push(Load::start(&[server.address], 4, &path));
    }
    let granted = || loads.iter().map(Load::granted).sum::<u64>();
    // Meanwhile a list is walked over and over, page by page.
    let mut connection = server.connect().await;
    let mut path = "/quotas/u?limit=1".to_owned();
    while granted() < 50_000 {
        let page = connection.call(Method::GET, &path, ADMIN, "").await;
        let page = page.unwrap().is(200).json();
        path = page["next_cursor"].as_str().map_or_else(
            || "/quotas/u?limit=1".to_owned(),
            |cursor| format!("/quotas/u?limit=1&cursor={cursor}"),
        );
        let bytes = std::fs::metadata(&log).unwrap().len();
        assert!(bytes <= BYTES_MAX, "{bytes}");
    }
    for (pair, load) in loads.into_iter().enumerate() {
        let tally = load.stop().await;
        assert_eq!((tally.unavailable, tally.unknown), (0, 0));
        assert_eq!(site.stored("u", &format!("r{pair}")), tally.granted);
    }
    let bytes = std::fs::metadata(&log).unwrap().len();
    assert!(bytes <= BYTES_MAX, "{bytes}");
}

#[tokio::test]
async fn the_time_zone_of_the_process_moves_no_window() {
    let site = Site::new();
    let zones = [
        "UTC",
        "Asia/Kathmandu",
        "America/St_Johns",
        "Europe/Berlin",
        "XYZ-13:45",
    ];
    let servers: Vec<_> = zones
        .iter()
        .map(|zone| site.serve_with(|command| command.env("TZ", zone)))
        .collect();
    for window in ["hourly", "daily"] {
        servers[0].set("/quotas/u/r", window, 5).await;
        let mut compared = false;
        // Once more if a window ends between the first answer and the last.
        while !compared {
            let mut answers = Vec::new();
            for server in servers.iter().chain([&servers[0]]) {
                answers.push(
                    server
                        .call(Method::GET, "/quotas/u/r", "")
                        .await
                        .is(200)
                        .json(),
                );
            }
            if answers.first() == answers.last() {
                assert!(
                    answers.iter().all(|answer| *answer == answers[0]),
                    "{answers:?}"
                );
                let start = answers[0]["window_start"].as_str().unwrap();
                let on_the_mark = if window == "daily" {
                    "T00:00:00Z"
                } else {
                    ":00:00Z"
                };
                assert!(start.ends_with(on_the_mark), "{start}");
                compared = true;
            }
        }
    }
}

/// Every client asks, counts and saves policies at random pairs, while old rows are pruned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_counting_saving_and_pruning_at_once_fails_none() {
    let site = Arc::new(Site::new());
    let server = Arc::new(site.serve());
    for pair in 0..4 {
        server
            .set(&format!("/quotas/u/r{pair}"), "daily", 500_000)
            .await;
    }
    let done = Arc::new(AtomicBool::new(false));
    let pruning = {
        let (site, done) = (Arc::clone(&site), Arc::clone(&done));
        std::thread::spawn(move || {
            while !done.load(Ordering::SeqCst) {
                let pruned = site.run(&["prune"]);
                succeeds(&pruned);
            }
        })
    };
    let clients: Vec<_> = (0..32_usize)
        .map(|client| {
            let server = Arc::clone(&server);
            tokio::spawn(async move { mixed_calls(&server, client).await })
        })
        .collect();
    let mut granted: [BTreeMap<String, u64>; 4] = Default::default();
    for client in clients {
        for (sum, own) in granted.iter_mut().zip(client.await.unwrap()) {
            for (window_start, units) in own {
                *sum.entry(window_start).or_default() += units;
            }
        }
    }
    done.store(true, Ordering::SeqCst);
    pruning.join().unwrap();
    for (pair, granted) in granted.into_iter().enumerate() {
        assert_eq!(site.stored("u", &format!("r{pair}")), granted);
    }
}

async fn mixed_calls(server: &Server, client: usize) -> [BTreeMap<String, u64>; 4] {
    let mut granted: [BTreeMap<String, u64>; 4] = Default::default();
    let mut connection = server.connect().await;
    for call in 0..120 {
        let pair = (client + call) % 4;
        let path = format!("/quotas/u/r{pair}");
        let limit = 500_000 + call;
        let policy = format!(r#"{{"window":"daily","limit_count":{limit}}}"#);
        let answer = match (client + call / 4) % 3 {
            0 => connection.call(Method::GET, &path, ADMIN, "").await,
            1 => connection.call(Method::PUT, &path, ADMIN, &policy).await,
            _ => {
                let path = format!("{path}/consume");
                let answer = connection
                    .call(Method::POST, &path, ADMIN, "")
                    .await
                    .unwrap();
                *granted[pair].entry(answer.window_start()).or_default() += 1;
                Ok(answer)
            }
        };
        answer.unwrap().is(200);
    }
    granted
}

/// The library that gives a program another clock (libfaketime), where it is installed.
pub(crate) fn other_clocks() -> Option<PathBuf> {
    let mut folders = vec![PathBuf::from("/usr/lib"), PathBuf::from("/usr/local/lib")];
    if let Ok(libraries) = std::fs::read_dir("/usr/lib") {
        folders.extend(libraries.filter_map(|entry| Some(entry.ok()?.path())));
    }
    folders
        .iter()
        .flat_map(|folder| ["", "faketime"].map(|inner| folder.join(inner)))
        .map(|folder| folder.join("libfaketimeMT.so.1"))
        .find(|library| library.is_file())
}

pub(crate) fn at_another_time<'a>(
    command: &'a mut Command,
    library: &Path,
    offset: &str,
) -> &'a mut Command {
    command
        .env("LD_PRELOAD", library)
        .env("FAKETIME", offset)
        // Only the time of day is another one; waits are as long as ever.
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("DONT_FAKE_MONOTONIC", "1")
}

#[tokio::test]
async fn a_clock_that_steps_returns_to_the_count_of_its_own_window() {
    let Some(library) = other_clocks() else {
        return skipped("there is no libfaketime (package faketime)");
    };
    let site = Site::new();
    let server = site.serve();
    server.set("/quotas/u/r", "daily", 5).await;
    let (present, _) = server.usage("/quotas/u/r").await;
    server.stop();

    let mut granted: BTreeMap<String, u64> = BTreeMap::new();
    // Never so far apart that a window's rows are older than the retention.
    for offset in [
        "+0d", "+1d", "-1d", "+0d", "+1d", "-1d", "+30d", "-30d", "+0d",
    ] {
        let server = site.serve_with(|command| at_another_time(command, &library, offset));
        let (window_start, usage) = server.usage("/quotas/u/r").await;
        // Midnight may have passed since the test began.
        match offset {
            "+0d" => assert!(window_start >= present),
            "-1d" | "-30d" => assert!(window_start <= present, "{window_start}"),
            _ => assert!(window_start > present, "{window_start}"),
        }
        assert_eq!(usage, granted.get(&window_start).copied().unwrap_or(0));
        two_more_of_five(&server, &mut granted).await;
        assert_eq!(server.stop().code(), Some(0));
    }
}

/// Consumes twice of a pair whose limit is 5, of which so much was granted in each window.
async fn two_more_of_five(server: &Server, granted: &mut BTreeMap<String, u64>) {
    for _ in 0..2 {
        let answer = server.call(Method::POST, CONSUME, "").await;
        let own = granted.entry(answer.window_start()).or_default();
        assert_eq!(answer.status, if *own == 5 { 429 } else { 200 });
        *own = 5.min(*own + 1);
        assert_eq!(answer.usage(), *own);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_steps_under_a_running_server_fails_none_and_moves_no_count() {
    let Some(library) = other_clocks() else {
        return skipped("there is no libfaketime (package faketime)");
    };
    let site = Site::new();
    let clock = site.folder.path().join("clock");
    put(&clock, "+0d");
    let server = site.serve_with(|command| {
        at_another_time(command, &library, "")
            .env_remove("FAKETIME")
            .env("FAKETIME_TIMESTAMP_FILE", &clock)
            .env("FAKETIME_NO_CACHE", "1")
    });
    server.set("/quotas/u/r", "daily", 5).await;
    server.set("/quotas/u/busy", "daily", 1_000_000).await;
    let load = Load::start(&[server.address], 8, "/quotas/u/busy/consume");
    let mut granted: BTreeMap<String, u64> = BTreeMap::new();
    for offset in [
        "+0d", "+1d", "+0d", "-1d", "+1d", "+400d", "-30d", "-400d", "+0d", "+400d", "+0d",
    ] {
        put(&clock, offset);
        two_more_of_five(&server, &mut granted).await;
        load.until_granted(load.granted() + 50).await;
    }
    // Five offsets other than none, and none; midnight may have passed since.
    assert!(granted.len() >= 6, "the clock did not step: {granted:?}");
    let busy = load.stop().await;
    assert_eq!((busy.denied, busy.unavailable, busy.unknown), (0, 0, 0));
    assert!(busy.other.is_empty(), "{:?}", busy.other);
    assert_eq!(site.stored("u", "busy"), busy.granted);
    assert_eq!(site.stored("u", "r"), granted);
    assert_eq!(server.stop().code(), Some(0));
}

#[tokio::test]
async fn the_calendar_is_that_of_utc_in_every_time_zone() {
    let Some(library) = other_clocks() else {
        return skipped("there is no libfaketime (package faketime)");
    };
    let database = rusqlite::Connection::open_in_memory().unwrap();
    let seconds_to = |instant: &str| -> i64 {
        let sql = "SELECT unixepoch(?1) - unixepoch()";
        database
            .query_row(sql, [instant], |row| row.get(0))
            .unwrap()
    };
    // Half an hour before each end, or after each start, so that the test's own time does not matter.
    for (now, window, window_start, reset_at) in [
        // A day of 23 hours in Berlin, and one of 25.
        (
            "2025-03-30T00:30:00Z",
            "daily",
            "2025-03-30T00:00:00Z",
            "2025-03-31T00:00:00Z",
        ),
        (
            "2025-10-26T00:30:00Z",
            "daily",
            "2025-10-26T00:00:00Z",
            "2025-10-27T00:00:00Z",
        ),
        // A leap day, and the end of a year.
        (
            "2028-02-28T23:30:00Z",
            "daily",
            "2028-02-28T00:00:00Z",
            "2028-02-29T00:00:00Z",
        ),
        (
            "2028-02-29T23:30:00Z",
            "daily",
            "2028-02-29T00:00:00Z",
            "2028-03-01T00:00:00Z",
        ),
        (
            "2027-12-31T23:30:00Z",
            "hourly",
            "2027-12-31T23:00:00Z",
            "2028-01-01T00:00:00Z",
        ),
    ] {
        let site = Site::new();
        let offset = format!("{:+}", seconds_to(now));
        let server = site.serve_with(|command| {
            at_another_time(command, &library, &offset).env("TZ", "Europe/Berlin")
        });
        server.set("/quotas/u/r", window, 1).await;
        server.call(Method::POST, CONSUME, "").await.is(200);
        let denied = server.call(Method::POST, CONSUME, "").await;
        let quota = denied.is(429).json();
        assert_eq!(quota["window_start"], window_start);
        assert_eq!(quota["reset_at"], reset_at);
    }
}
