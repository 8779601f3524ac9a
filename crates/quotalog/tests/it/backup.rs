//! `quotalog backup`: what is in the copy, beside whom it is made, and what it refuses.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hyper::Method;
use tokio::task::JoinHandle;

use crate::cli::{fails, succeeds};
use crate::faults::unshare;
use crate::support::server::{
    ADMIN, Connection, Site, quotalog, read_number, skipped, stored, until,
};

/// One unit of each of two pairs, which are counted together or not at all.
const TWO: &str = r#"{"items":[{"user_id":"u","resource":"a"},{"user_id":"u","resource":"b"}]}"#;

fn back_up(site: &Site, file: &Path) -> Output {
    site.run(&["backup", file.to_str().unwrap()])
}

#[track_caller]
fn backed_up(site: &Site, file: &Path) {
    let output = back_up(site, file);
    succeeds(&output);
    assert!(output.stderr.is_empty(), "{output:?}");
}

/// A site with a database that holds something.
fn filled() -> (Site, PathBuf) {
    let site = Site::new();
    site.token(&["--role", "admin"]);
    let copy = site.folder.path().join("copy.db");
    (site, copy)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn usage(database: &Path, resource: &str) -> u64 {
    stored(database, "u", resource).values().sum()
}

fn is_sound(database: &Path) -> bool {
    let connection = rusqlite::Connection::open(database).unwrap();
    let check = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0));
    check.is_ok_and(|result: String| result == "ok")
}

/// Clients that consume of both pairs until they are told to stop.
fn load(
    server: std::net::SocketAddr,
    stop: &Arc<AtomicBool>,
) -> (Arc<AtomicU64>, Vec<JoinHandle<()>>) {
    let granted = Arc::new(AtomicU64::new(0));
    let clients = (0..8).map(|_| {
        let (stop, granted) = (Arc::clone(stop), Arc::clone(&granted));
        tokio::spawn(async move {
            let mut connection = Connection::open(server).await.unwrap();
            while !stop.load(Ordering::SeqCst) {
                let answer = connection.call(Method::POST, "/consume", ADMIN, TWO).await;
                answer.unwrap().is(200);
                granted.fetch_add(1, Ordering::SeqCst);
            }
        })
    });
    let clients = clients.collect();
    (granted, clients)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_beside_a_busy_server_is_a_state_that_was() {
    let site = Site::new();
    let server = site.serve();
    server.set("/quotas/u/a", "daily", 1_000_000).await;
    server.set("/quotas/u/b", "daily", 1_000_000).await;
    let stop = Arc::new(AtomicBool::new(false));
    let (granted, clients) = load(server.address, &stop);
    let granted = || granted.load(Ordering::SeqCst);

    let mut copies = Vec::new();
    for number in 0..4 {
        let before = granted();
        until("some units granted", async || granted() > before + 20).await;
        let copy = site.folder.path().join(format!("copy-{number}.db"));
        let at_least = granted();
        let output = {
            let mut command = site.command(&["backup", copy.to_str().unwrap()]);
            tokio::task::spawn_blocking(move || command.output().unwrap())
        };
        let output = output.await.unwrap();
        succeeds(&output);
        copies.push((copy, at_least));
    }
    stop.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.unwrap();
    }

    for (copy, at_least) in &copies {
        let (a, b) = (usage(copy, "a"), usage(copy, "b"));
        assert_eq!(a, b, "half of a batch is in the copy");
        assert!(
            (*at_least..=granted()).contains(&a),
            "{at_least} {a} {}",
            granted()
        );
        assert!(is_sound(copy));
    }
    // The original is none the worse.
    assert_eq!(server.stop().code(), Some(0));
    assert_eq!(usage(&site.database(), "a"), granted());
    assert!(is_sound(&site.database()));

    // A server that starts on the copy goes on from there, with its policies and tokens.
    let (copy, _) = copies.pop().unwrap();
    let counted = usage(&copy, "a");
    let restored = site
        .serve_with(|command| command.args(["--database", &format!("sqlite:{}", copy.display())]));
    let answer = restored
        .call(Method::POST, "/quotas/u/a/consume", "")
        .await
        .is(200);
    let today = stored(&copy, "u", "a")[&answer.window_start()];
    assert_eq!(answer.usage(), today);
    assert_eq!(usage(&copy, "a"), counted + 1);
}

#[test]
fn a_backup_is_one_file_for_its_owner_and_changes_nothing() {
    let (site, _) = filled();
    let folder = site.folder.path().join("backups");
    fs::create_dir(&folder).unwrap();
    let before = fs::read(site.database()).unwrap();
    let beside = names(site.folder.path());

    let copy = folder.join("copy.db");
    backed_up(&site, &copy);
    assert_eq!(names(&folder), ["copy.db"]);
    assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read(site.database()).unwrap(), before);
    assert_eq!(names(site.folder.path()), beside);
    let tokens = "SELECT count(*) FROM quotalog_tokens";
    assert_eq!(read_number(&copy, tokens), 1);
}

#[test]
fn what_was_deleted_is_in_no_backup() {
    let (site, copy) = filled();
    let database = rusqlite::Connection::open(site.database()).unwrap();
    let rows = "INSERT INTO quota_usage (user_id, resource, window_start, usage, created_at, updated_at) \
                VALUES ('somebody-erased', 'r', '2026-12-01 00:00:00', 1, '', '')";
    database.execute(rows, []).unwrap();
    database.execute("DELETE FROM quota_usage", []).unwrap();
    database
        .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
    let holds = |file: &Path| {
        let bytes = fs::read(file).unwrap();
        bytes.windows(15).any(|part| part == b"somebody-erased")
    };
    assert!(
        holds(&site.database()),
        "SQLite leaves it in a free place of the page"
    );
    backed_up(&site, &copy);
    assert!(!holds(&copy));
}

#[test]
fn a_file_that_is_there_is_not_overwritten() {
    let (site, copy) = filled();
    fs::write(&copy, "of somebody").unwrap();
    fails(&back_up(&site, &copy), 2, copy.to_str().unwrap());
    assert_eq!(fs::read(&copy).unwrap(), b"of somebody");
    fails(&back_up(&site, &site.database()), 2, "is there already");
    fails(&back_up(&site, site.folder.path()), 2, "is there already");

    let link = site.folder.path().join("link.db");
    symlink("nowhere", &link).unwrap();
    fails(&back_up(&site, &link), 2, "is there already");

    // SQLite would play the log of another database into the backup.
    let other = site.folder.path().join("other.db");
    fs::write(site.folder.path().join("other.db-wal"), "of another").unwrap();
    fails(&back_up(&site, &other), 2, "other.db-wal");

    // Another backup to the same file, or what a crash left of one.
    let third = site.folder.path().join("third.db");
    let draft = site.folder.path().join("third.db.draft");
    fs::write(&draft, "half").unwrap();
    fails(&back_up(&site, &third), 1, "third.db.draft");
    fs::remove_file(&draft).unwrap();
    backed_up(&site, &third);
}

#[test]
fn a_place_that_takes_no_file_is_told_in_one_line() {
    let (site, copy) = filled();
    let before = names(site.folder.path());
    let missing = site.folder.path().join("missing/copy.db");
    fails(&back_up(&site, &missing), 2, "folder");
    let slash = site.folder.path().join("copy.db/");
    fails(&back_up(&site, &slash), 2, "not a regular file");
    fails(
        &back_up(&site, Path::new("/proc/copy.db")),
        1,
        "/proc/copy.db",
    );

    let database = rusqlite::Connection::open(site.database()).unwrap();
    database
        .execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE")
        .unwrap();
    fails(&back_up(&site, &copy), 6, "locked");
    drop(database);
    let after: Vec<_> = names(site.folder.path());
    assert_eq!(before, after);
}

#[test]
fn what_is_no_sound_database_is_not_backed_up() {
    let (site, copy) = filled();
    let text = site.folder.path().join("text.db");
    fs::write(
        &text,
        "not a database, but long enough to be looked at ".repeat(40),
    )
    .unwrap();
    let mut command = quotalog();
    command.args(["backup", copy.to_str().unwrap()]);
    let output = command
        .env("QUOTALOG_DATABASE", format!("sqlite:{}", text.display()))
        .output();
    fails(&output.unwrap(), 2, "not a SQLite database");

    // A row that is missing from an index, while each page by itself is in order.
    let database = rusqlite::Connection::open(site.database()).unwrap();
    database
        .execute_batch(
            "CREATE TEMP TABLE put_aside AS
                 SELECT * FROM sqlite_schema WHERE name = 'quotalog_tokens_by_user';
             PRAGMA writable_schema = ON;
             DELETE FROM sqlite_schema WHERE name = 'quotalog_tokens_by_user';
             PRAGMA writable_schema = RESET;
             INSERT INTO quotalog_tokens (id, hash, role, user_id, created_at)
                 VALUES ('x', x'00', 'user', 'u', '2026-12-01 00:00:00');
             PRAGMA writable_schema = ON;
             INSERT INTO sqlite_schema SELECT * FROM put_aside;
             PRAGMA writable_schema = RESET;",
        )
        .unwrap();
    drop(database);
    let output = back_up(&site, &copy);
    fails(&output, 1, "damaged");
    assert!(!copy.exists());
}

#[test]
fn a_disk_without_room_is_told_and_left_as_it_was() {
    let Some(mut command) = unshare() else {
        return skipped("no small disk can be mounted here");
    };
    let (site, _) = filled();
    let disk = site.folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let script = r#"mount -t tmpfs -o size=16k none "$0" && cd "$0" &&
        { "$1" backup copy.db --database "sqlite:$2"; code=$?; ls -A; exit $code; }"#;
    let output = command
        .args(["sh", "-c", script])
        .arg(&disk)
        .arg(env!("CARGO_BIN_EXE_quotalog"))
        .arg(site.database())
        .output();
    fails(&output.unwrap(), 1, "no room");
}
