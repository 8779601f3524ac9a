//! Packages of npm's registry, as a lockfile has them, fetched into a folder of the tests' own.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A folder named `name` with what the lockfile in `source` names, in its `node_modules`.
pub(crate) fn from_npm(source: &Path, name: &str) -> io::Result<PathBuf> {
    let lock = std::fs::read(source.join("package-lock.json"))?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // A folder of the name is a whole one, and of this lockfile.
    if std::fs::read(folder.join("package-lock.json")).is_ok_and(|there| there == lock) {
        return Ok(folder);
    }
    let draft = folder.with_extension(format!("{}.draft", std::process::id()));
    std::fs::create_dir_all(&draft)?;
    for name in ["package.json", "package-lock.json"] {
        std::fs::copy(source.join(name), draft.join(name))?;
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
