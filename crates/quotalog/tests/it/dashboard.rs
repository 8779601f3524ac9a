//! The dashboard in a real browser: `tests/ui` walks its pages, on a server of its own.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::server::{ADMIN, Site, skipped};

const WALKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/ui");

/// What the walks use of npm's registry, as their lockfile has it, in a folder of the tests' own.
fn modules() -> io::Result<PathBuf> {
    let lock = std::fs::read(Path::new(WALKS).join("package-lock.json"))?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ui");
    // A folder of the name is a whole one, and of this lockfile.
    if std::fs::read(folder.join("package-lock.json")).is_ok_and(|there| there == lock) {
        return Ok(folder);
    }
    let draft = folder.with_extension(format!("{}.draft", std::process::id()));
    std::fs::create_dir_all(&draft)?;
    for name in ["package.json", "package-lock.json"] {
        std::fs::copy(Path::new(WALKS).join(name), draft.join(name))?;
    }
    let installed = Command::new("npm")
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(&draft)
        .stdin(Stdio::null())
        .output()?;
    if !installed.status.success() {
        let said = String::from_utf8_lossy(&installed.stderr);
        return Err(io::Error::other(format!("npm has failed: {said}")));
    }
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::rename(draft, &folder)?;
    Ok(folder)
}

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
    let modules = match modules() {
        Ok(modules) => modules,
        Err(error) => return skipped(&format!("the walks cannot be installed: {error}")),
    };
    let site = Site::new();
    let server = site.serve_in_a_morning();
    // They give up by themselves, in bounded time.
    let output = Command::new(node)
        .arg("run.mjs")
        .current_dir(WALKS)
        .env("QUOTALOG_URL", format!("http://{}", server.address))
        .env("QUOTALOG_ADMIN_TOKEN", ADMIN)
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
