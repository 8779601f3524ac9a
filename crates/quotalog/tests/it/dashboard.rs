//! The dashboard in a real browser: `tests/ui` walks its pages, on a server of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cli::succeeds;
use crate::support::jwt::AUDIENCE;
use crate::support::npm::from_npm;
use crate::support::server::{ADMIN, Site, in_a_morning, skipped};

/// The issuer's secret; the walks sign with it.
const JWT_SECRET: &str = "the secret of an issuer of the walks";

const WALKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/ui");

/// Where a program is.
fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(name));
    files.find(|file| file.is_file())
}

#[test]
fn a_browser_walks_every_page() {
    let Some(chromium) = found("chromium") else {
        return skipped("there is no chromium");
    };
    let Some(node) = found("node") else {
        return skipped("there is no node (package nodejs)");
    };
    let modules = match from_npm(Path::new(WALKS), "ui") {
        Ok(modules) => modules,
        Err(error) => return skipped(&format!("the walks cannot be installed: {error}")),
    };
    let site = Site::new();
    let server = site.serve_with(|command| {
        in_a_morning(command)
            .env("QUOTALOG_JWT_SECRET", JWT_SECRET)
            .env("QUOTALOG_JWT_AUDIENCE", AUDIENCE)
            .env("QUOTALOG_JWT_ROLE_CLAIM", "role")
    });
    let usage = site.folder.path().join("usage.csv");
    std::fs::write(
        &usage,
        "user_id,resource,window_start,usage\nimported,r,2026-11-30T18:00:00Z,7\n",
    )
    .unwrap();
    let imported = site.run(&["import", "--what", "usage", usage.to_str().unwrap()]);
    succeeds(&imported);
    // They give up by themselves, in bounded time.
    let output = Command::new(node)
        .arg("run.mjs")
        .current_dir(WALKS)
        .env("QUOTALOG_URL", format!("http://{}", server.address))
        .env("QUOTALOG_ADMIN_TOKEN", ADMIN)
        .env("QUOTALOG_JWT_SECRET", JWT_SECRET)
        .env("QUOTALOG_JWT_AUDIENCE", AUDIENCE)
        .env("CHROMIUM", chromium)
        .env("UI_MODULES", modules)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("walks went well"), "{said}");
}
