//! What `deploy/` holds is what its own tools take.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use hyper::Method;
use quotalog_testkit::postgres::{Cluster, Setup};

use crate::cli::{fails, succeeds};
use crate::support::running::Running;
use crate::support::server::{ADMIN, Connection, Site, skipped, until};

const UNIT: &str = include_str!("../../../../deploy/quotalog.service");
const SETTINGS: &str = include_str!("../../../../deploy/quotalog.env");
const IMAGE: &str = include_str!("../../../../deploy/Dockerfile");
const BALANCER: &str = include_str!("../../../../deploy/haproxy.cfg");
const ROLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/roles.sql");

/// The unit, with a program that is there, in a folder of its own.
fn unit(folder: &Path) -> std::path::PathBuf {
    let unit = folder.join("quotalog.service");
    let program = env!("CARGO_BIN_EXE_quotalog");
    let text = UNIT.replace("/usr/local/bin/quotalog", program);
    std::fs::write(&unit, text).unwrap();
    unit
}

#[test]
fn systemd_takes_the_unit_and_finds_little_exposed() {
    let folder = tempfile::tempdir().unwrap();
    let unit = unit(folder.path());
    let analyze = || Command::new("systemd-analyze");
    let Ok(verified) = analyze().arg("verify").arg(&unit).output() else {
        return skipped("systemd-analyze is not there");
    };
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success(), "{said}");
    assert!(!said.contains("quotalog.service"), "{said}");

    let security = ["security", "--offline=true", "--threshold=20"];
    let security = analyze().args(security).arg(&unit).output().unwrap();
    let said = String::from_utf8_lossy(&security.stdout);
    assert!(security.status.success(), "{said}");
}

/// Both read the file: systemd, and the shell of whoever runs a command by hand.
#[test]
fn the_settings_of_the_unit_are_sound_and_a_shell_reads_them() {
    assert!(UNIT.contains("EnvironmentFile=/etc/quotalog.env"));
    assert!(UNIT.lines().all(|line| !line.starts_with("Environment=")));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("quotalog.env");
    let own = format!("sqlite:{}/", folder.path().display());
    let settings = SETTINGS.replace("sqlite:/var/lib/quotalog/", &own);
    assert!(settings.contains(&own));
    std::fs::write(&file, settings).unwrap();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", r#"set -a; . "$0"; exec "$@""#])
        .arg(&file);
    let examined = shell.arg(env!("CARGO_BIN_EXE_quotalog")).arg("doctor");
    let examined = examined.output().unwrap();
    let found = String::from_utf8_lossy(&examined.stdout).into_owned();
    assert!(examined.status.success(), "{found}");
    assert!(found.contains(&folder.path().join("quotalog.db").display().to_string()));
    // No variable is unknown.
    let said = String::from_utf8_lossy(&examined.stderr);
    assert_eq!(said, "");
}

#[test]
fn the_unit_waits_longer_than_the_server_drains() {
    let number = |name: &str| -> u64 {
        let line = UNIT.lines().find_map(|line| line.strip_prefix(name));
        line.expect("the setting is there").parse().unwrap()
    };
    // The delay, the deadline and the closing of the store, as they are by default.
    assert!(number("TimeoutStopSec=") > 1 + 30 + 10);
    assert!(number("LimitNOFILE=") > 10_000);
}

/// The image's own question to its server, asked of one that runs here, and of none.
#[test]
fn the_image_knows_whether_its_server_lives() {
    let check = IMAGE.lines().find(|line| line.starts_with("HEALTHCHECK "));
    let (_, check) = check.unwrap().split_once(" CMD ").unwrap();
    let check: Vec<String> = serde_json::from_str(check).unwrap();
    let site = Site::new();
    let server = site.serve();
    let address = server.address.to_string().replace(':', "/");
    let is_well = || {
        let words = check
            .iter()
            .map(|word| word.replace("127.0.0.1/8200", &address));
        let words: Vec<String> = words.collect();
        assert_ne!(words, check);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stderr(Stdio::null());
        command.status().unwrap().success()
    };
    assert!(is_well());
    server.kill();
    assert!(!is_well());
}

/// The balancer as it is configured, but for the addresses.
fn balance(folder: &Path, nodes: [SocketAddr; 2]) -> Option<(Running, SocketAddr)> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap();
    let mut config = BALANCER.replace("bind :8200", &format!("bind {address}"));
    for (place, node) in nodes.iter().enumerate() {
        let name = format!("node-{0} node-{0}:8200", place + 1);
        assert!(config.contains(&name));
        config = config.replace(&name, &format!("node-{} {node}", place + 1));
    }
    let file = folder.join("haproxy.cfg");
    std::fs::write(&file, config).unwrap();
    drop(port);
    let mut haproxy = Command::new("haproxy");
    haproxy.arg("-db").arg("-f").arg(file);
    haproxy.stdout(Stdio::null()).stderr(Stdio::null());
    Some((Running(haproxy.spawn().ok()?), address))
}

#[tokio::test]
async fn behind_the_balancer_a_node_may_stop_and_nobody_notices() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let site = Site::on(&cluster.database());
    let delayed = || site.serve_with(|command| command.env("QUOTALOG_SHUTDOWN_DELAY", "2s"));
    let nodes = [delayed(), delayed()];
    for node in &nodes {
        node.ready().await;
    }
    let addresses = [nodes[0].address, nodes[1].address];
    let folder = site.folder.path();
    let Some((_balancer, address)) = balance(folder, addresses) else {
        return skipped("there is no HAProxy (package haproxy)");
    };
    let call = async |method, path| {
        let mut connection = Connection::open(address).await?;
        let answer = connection.call(method, path, ADMIN, "").await;
        answer.map_err(std::io::Error::other)
    };
    until("the balancer serves", async || {
        let answer = call(Method::GET, "/readyz").await;
        answer.is_ok_and(|answer| answer.status == 200)
    })
    .await;
    nodes[0].set("/quotas/u/r", "daily", 1_000_000).await;
    let consume = async || {
        let answer = call(Method::POST, "/quotas/u/r/consume").await.unwrap();
        answer.is(200);
    };
    for _ in 0..50 {
        consume().await;
    }
    let [first, second] = nodes;
    first.signal("TERM");
    let mut ended = tokio::spawn(first.ended());
    while !ended.is_finished() {
        consume().await;
    }
    assert_eq!((&mut ended).await.unwrap().code(), Some(0));
    consume().await;
    assert_eq!(call(Method::GET, "/metrics").await.unwrap().status, 403);
    drop(second);
}

#[tokio::test]
async fn a_node_does_all_its_work_as_a_role_that_may_change_no_table() {
    let Some(cluster) = Cluster::own(&Setup::new()) else {
        return;
    };
    let superuser = cluster.database();
    let passwords = [
        ("QUOTALOG_OWNER_PASSWORD", "o'wner\\"),
        ("QUOTALOG_NODE_PASSWORD", "$node"),
    ];
    superuser.run_script(Path::new(ROLES), &passwords);
    let url = |role: &str| {
        let url = superuser.url().replace("postgres@", &format!("{role}@"));
        url.replace(superuser.name(), "quotalog")
    };
    let site = Site::on(&superuser);
    let as_role = |command: &mut Command, role: &str, password: &str| {
        command.env("QUOTALOG_DATABASE", url(role));
        command.env("PGPASSWORD", password);
    };
    let run = |arguments: &[&str], (role, password): (&str, &str)| {
        let mut command = site.command(arguments);
        as_role(&mut command, role, password);
        command.output().unwrap()
    };
    let (owner, node) = (("quotalog_owner", "o'wner\\"), ("quotalog", "$node"));

    // Before the tables are there, a node may not make them.
    fails(&run(&["token", "list"], node), 2, "permission denied");
    succeeds(&run(&["token", "list"], owner));
    let server = site.serve_with(|command| {
        as_role(command, node.0, node.1);
        command
    });
    server.ready().await;
    server.set("/quotas/u/r", "daily", 10).await;
    server.set("/defaults/r", "daily", 10).await;
    let requests = [
        (Method::POST, "/quotas/u/r/consume", 200),
        (Method::POST, "/quotas/v/r/consume", 200),
        (Method::POST, "/quotas/u/r/refund", 200),
        (Method::POST, "/quotas/u/r/reset", 200),
        (Method::GET, "/quotas?sort=used_percent", 200),
        (Method::GET, "/audit", 200),
        (Method::DELETE, "/quotas/u/r", 204),
        (Method::DELETE, "/defaults/r", 204),
        (Method::DELETE, "/quotas/u", 204),
        (Method::DELETE, "/quotas/v", 204),
    ];
    for (method, path, status) in requests {
        server.call(method, path, "").await.is(status);
    }
    let commands: [&[&str]; 2] = [&["token", "create", "--role", "viewer"], &["prune"]];
    for arguments in commands {
        succeeds(&run(arguments, node));
    }
    assert!(!site.log().contains(" ERROR quotalog"), "{}", site.log());

    // What it may not do, and the owner may.
    for sql in [
        "DROP TABLE quota_usage",
        "TRUNCATE quota_usage",
        "CREATE TABLE more ()",
    ] {
        let sql = format!("SET ROLE quotalog; {sql}");
        let refused = std::panic::catch_unwind(|| superuser.in_database("quotalog").ask(&sql));
        assert!(refused.is_err(), "{sql}");
    }
    let file = format!("sqlite:{}", site.folder.path().join("copy.db").display());
    let (from, to) = (url(owner.0), file.as_str());
    succeeds(&run(&["copy", "--from", &from, "--to", to], owner));
}
