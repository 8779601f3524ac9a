//! The servers that tests of PostgreSQL stand on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use quotalog_testkit::postgres::{Cluster, Setup, Stop};

/// Set for the process that [`a_server_ends_with_its_process`] starts.
const CHILD: &str = "QUOTALOG_TESTKIT_CHILD";

#[test]
fn each_database_is_its_own() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let (a, b) = (cluster.database(), cluster.database());
    a.ask("CREATE TABLE t (n int); INSERT INTO t VALUES (1), (2)");
    assert_eq!(a.ask("SELECT n, n + 1 FROM t ORDER BY n"), "1|2\n2|3");
    assert_eq!(b.ask("SELECT to_regclass('t') IS NULL"), "t");
    assert_ne!(a.url(), b.url());
}

#[test]
fn settings_and_files_are_taken() {
    let setup = Setup::new()
        .setting("max_connections", "20")
        .file("note", "here");
    let Some(cluster) = Cluster::own(&setup) else {
        return;
    };
    let database = cluster.database();
    assert_eq!(database.ask("SHOW max_connections"), "20");
    assert_eq!(database.ask("SELECT pg_read_file('note')"), "here");
}

#[test]
fn a_server_comes_back_with_its_data() {
    let Some(cluster) = Cluster::own(&Setup::new()) else {
        return;
    };
    let database = cluster.database();
    database.ask("CREATE TABLE t (n int)");
    let ways: [fn(&Cluster); 3] = [
        |cluster| cluster.stop(Stop::Fast),
        |cluster| cluster.stop(Stop::Immediate),
        Cluster::kill,
    ];
    for (before, end) in ways.into_iter().enumerate() {
        database.ask("INSERT INTO t VALUES (1)");
        end(&cluster);
        assert!(TcpStream::connect(("127.0.0.1", cluster.port())).is_err());
        cluster.start();
        let rows = database.ask("SELECT count(*) FROM t");
        assert_eq!(rows, (before + 1).to_string());
    }
}

#[test]
fn a_standby_has_what_its_server_answered_and_takes_its_place() {
    let Some(cluster) = Cluster::own(&Setup::new()) else {
        return;
    };
    let database = cluster.database();
    let standby = cluster.standby();
    let copy = standby.named_as(&database);
    database.ask("CREATE TABLE t (n int); INSERT INTO t VALUES (7)");
    assert_eq!(copy.ask("SELECT pg_is_in_recovery()"), "t");
    cluster.kill();
    standby.promote();
    copy.ask("INSERT INTO t VALUES (8)");
    assert_eq!(copy.ask("SELECT n FROM t ORDER BY n"), "7\n8");
}

#[test]
fn a_frozen_server_says_nothing_until_it_goes_on() {
    let Some(cluster) = Cluster::own(&Setup::new()) else {
        return;
    };
    cluster.freeze();
    // The system takes the connection; the question whether the server speaks TLS is answered by nobody.
    let mut connection = TcpStream::connect(("127.0.0.1", cluster.port())).unwrap();
    connection.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).unwrap();
    let mut answer = [0];
    let silence = Some(Duration::from_millis(200));
    connection.set_read_timeout(silence).unwrap();
    connection.read_exact(&mut answer).unwrap_err();
    cluster.thaw();
    connection.set_read_timeout(None).unwrap();
    connection.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"N");
}

/// Of the next test, the part that does not end by itself.
#[test]
fn a_process_that_is_to_be_killed() {
    let Some(file) = std::env::var_os(CHILD) else {
        return;
    };
    let cluster = Cluster::shared().expect("whoever started this has seen it");
    let data = cluster.database().ask("SHOW data_directory");
    std::fs::write(file, data).unwrap();
    println!();
    println!("ready");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_server_ends_with_its_process() {
    if Cluster::shared().is_none() {
        return;
    }
    let told = tempfile::NamedTempFile::new().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_that_is_to_be_killed", "--nocapture"])
        .env(CHILD, told.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let ready = said.lines().any(|line| line.unwrap() == "ready");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(ready);
    let data = PathBuf::from(std::fs::read_to_string(told.path()).unwrap());
    let folder: &Path = data.parent().unwrap();
    assert!(data.is_absolute() && data.ends_with("data"), "{data:?}");
    let mut looks = 0;
    while folder.exists() {
        looks += 1;
        assert!(looks < 6_000, "{folder:?} is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}
