//! What `deploy/` holds is what its own tools take.

use std::path::Path;
use std::process::Command;

use crate::support::server::skipped;

const UNIT: &str = include_str!("../../../../deploy/quotalog.service");

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
