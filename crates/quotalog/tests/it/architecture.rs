//! The layers: which crate may use which, and what every crate has in common.
//!
//! The table below is ARCHITECTURE.md's map in the words of Cargo. A new arrow is a decision: it changes
//! this table in the same commit, and says why.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

/// What each crate uses outside its tests.
const USES: &[(&str, &[&str])] = &[
    // A hash is as pure as all else there; it makes what a key remembers of a request short and nameless.
    ("quotalog-domain", &["sha2", "thiserror"]),
    (
        "quotalog-auth",
        &[
            "quotalog-domain",
            "base64",
            "getrandom",
            "sha2",
            "subtle",
            "thiserror",
        ],
    ),
    (
        "quotalog-ledger",
        &[
            "quotalog-auth",
            "quotalog-domain",
            "prometheus",
            "quick_cache",
            "thiserror",
            "time",
            "tokio",
            "tracing",
        ],
    ),
    (
        "quotalog-jwt",
        &[
            "quotalog-auth",
            "quotalog-domain",
            // Its clock and its deadlines alone.
            "quotalog-ledger",
            "bytes",
            "http-body-util",
            "hyper",
            "hyper-util",
            "jsonwebtoken",
            "prometheus",
            "quick_cache",
            "ring",
            "rustls-native-certs",
            "serde",
            "serde_json",
            "spki",
            "thiserror",
            "tokio",
            "tokio-rustls",
            "tracing",
        ],
    ),
    (
        "quotalog-record",
        &[
            "quotalog-auth",
            "quotalog-domain",
            "quotalog-ledger",
            "serde",
            "serde_json",
            "sha2",
            "thiserror",
            "tracing",
        ],
    ),
    (
        "quotalog-store-postgres",
        &[
            "quotalog-auth",
            "quotalog-domain",
            "quotalog-ledger",
            "quotalog-record",
            "bytes",
            "refinery",
            "thiserror",
            "time",
            "tokio",
            "tokio-postgres",
            "tokio-postgres-rustls",
            "tokio-rustls",
            "tracing",
        ],
    ),
    (
        "quotalog-store-sqlite",
        &[
            "quotalog-auth",
            "quotalog-domain",
            "quotalog-ledger",
            "quotalog-record",
            "crossbeam-channel",
            "refinery",
            "rusqlite",
            "thiserror",
            "time",
            "tokio",
            "tracing",
        ],
    ),
    (
        "quotalog-front",
        &[
            "quotalog-auth",
            "quotalog-domain",
            "quotalog-jwt",
            "quotalog-ledger",
            "bytes",
            "itoa",
            "quick_cache",
            "serde",
            "serde_json",
            "time",
            "tokio",
        ],
    ),
    (
        "quotalog-grpc",
        &[
            "quotalog-auth",
            "quotalog-domain",
            "quotalog-front",
            "quotalog-ledger",
            "axum",
            "envoy-types",
            "prometheus",
            "tokio",
            "tokio-stream",
            "tonic",
            "tonic-health",
            "tower",
            "tracing",
        ],
    ),
    (
        "quotalog-http",
        &[
            "quotalog-auth",
            "quotalog-domain",
            "quotalog-front",
            "quotalog-ledger",
            "axum",
            "base64",
            "bytes",
            "http-body-util",
            "hyper",
            "hyper-util",
            "percent-encoding",
            "prometheus",
            "serde",
            "serde_json",
            "thiserror",
            "tokio",
            "tokio-rustls",
            "tower",
            "tracing",
            // Into the build alone: the files of the pages at `/docs`.
            "rawzip",
            "utoipa",
            "utoipa-swagger-ui-vendored",
        ],
    ),
    (
        "quotalog-client",
        &[
            "bytes",
            "getrandom",
            "http",
            "http-body-util",
            "hyper-rustls",
            "hyper-util",
            "percent-encoding",
            "rustls-native-certs",
            "serde",
            "serde_json",
            "thiserror",
            "time",
            "tokio",
            "tokio-rustls",
            "tower-layer",
            "tower-service",
        ],
    ),
    (
        "quotalog-testkit",
        &[
            "quotalog-auth",
            "quotalog-domain",
            "quotalog-ledger",
            "rustix",
            "tempfile",
            "tokio",
        ],
    ),
    (
        "quotalog",
        &[
            "quotalog-auth",
            "quotalog-client",
            "quotalog-domain",
            "quotalog-front",
            "quotalog-grpc",
            "quotalog-http",
            "quotalog-jwt",
            "quotalog-ledger",
            "quotalog-record",
            "quotalog-store-postgres",
            "quotalog-store-sqlite",
            "anyhow",
            "clap",
            "clap_complete",
            "csv",
            "indicatif",
            "mimalloc",
            "percent-encoding",
            "prometheus",
            "rustix",
            "serde",
            "serde_json",
            "thiserror",
            "tokio",
            "tracing",
            "tracing-subscriber",
            "unicode-width",
        ],
    ),
];

#[test]
fn each_crate_uses_what_the_table_says() {
    let packages = packages();
    let named: BTreeSet<&str> = USES.iter().map(|(name, _)| *name).collect();
    let existing: BTreeSet<&str> = packages.iter().map(|package| &**package.name).collect();
    assert_eq!(named, existing, "the crates of the table and of crates/");

    for (name, uses) in USES {
        let package = packages.iter().find(|package| *package.name == *name);
        let package = package.expect("it exists, as was just compared");
        let used: BTreeSet<&str> = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind != DependencyKind::Development)
            .map(|dependency| &*dependency.name)
            .collect();
        let allowed: BTreeSet<&str> = uses.iter().copied().collect();
        let new: Vec<_> = used.difference(&allowed).collect();
        assert!(
            new.is_empty(),
            "{name} may not use {new:?}: see ARCHITECTURE.md"
        );
        let gone: Vec<_> = allowed.difference(&used).collect();
        assert!(gone.is_empty(), "{name} no longer uses {gone:?}");
    }
}

#[test]
fn the_testkit_is_for_tests_alone() {
    for package in packages() {
        for dependency in &package.dependencies {
            if dependency.name == "quotalog-testkit" {
                let kind = dependency.kind;
                assert_eq!(kind, DependencyKind::Development, "{}", package.name);
            }
        }
    }
}

#[test]
fn every_crate_inherits_the_lints_and_the_edition() {
    for package in packages() {
        let manifest = read(package.manifest_path.as_std_path());
        let lines: Vec<&str> = manifest.lines().map(str::trim).collect();
        let inherits_lints = lines
            .windows(2)
            .any(|pair| pair == ["[lints]", "workspace = true"]);
        assert!(inherits_lints, "{}: [lints] workspace = true", package.name);
        for field in ["edition", "rust-version", "version", "license"] {
            let line = format!("{field}.workspace = true");
            assert!(lines.contains(&&*line), "{}: {line}", package.name);
        }
    }
}

#[test]
fn every_outside_crate_is_named_once_and_with_its_reason() {
    for package in packages() {
        let manifest = read(package.manifest_path.as_std_path());
        for line in section_with(&manifest, "dependencies]") {
            let shared = line.contains("workspace = true");
            assert!(shared, "{}: {line}", package.name);
        }
    }

    let manifest = read(&root().join("Cargo.toml"));
    let mut above = "";
    for line in section_with(&manifest, "[workspace.dependencies]") {
        let ours_or_comment = line.contains("path = ") || line.starts_with('#');
        let explained = above.starts_with('#');
        assert!(ours_or_comment || explained, "why this crate? {line}");
        above = line;
    }
}

#[test]
fn the_compiler_is_the_users_choice() {
    let folders = packages().into_iter().map(|package| {
        let manifest = package.manifest_path.into_std_path_buf();
        manifest.parent().map(Path::to_path_buf).unwrap_or_default()
    });
    for folder in folders.chain([root()]) {
        for name in ["rust-toolchain", "rust-toolchain.toml"] {
            let file = folder.join(name);
            assert!(!file.exists(), "{}: rust-version says it", file.display());
        }
    }
}

fn packages() -> Vec<Package> {
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo describes the workspace")
        .packages
}

fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = crates.and_then(Path::parent);
    root.expect("this crate lies in crates/").to_path_buf()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a manifest is readable")
}

/// The lines, blank ones aside, of every section whose heading ends like this.
fn section_with<'a>(manifest: &'a str, heading: &str) -> Vec<&'a str> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line.ends_with(heading);
        } else if inside && !line.is_empty() {
            lines.push(line);
        }
    }
    lines
}
