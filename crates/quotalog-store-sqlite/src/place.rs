//! Where the database and its lock files are, and how they come into being: readable by their owner alone.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::OpenError;
use crate::turnstile::Turnstile;

/// The canonical path of the database, so that all names of one file meet at the same lock files.
///
/// The file may not exist yet; its folder must.
pub(crate) fn locate(path: &Path) -> Result<PathBuf, OpenError> {
    if path.as_os_str().is_empty() {
        return Err(OpenError::NoPath);
    }
    let text = path.to_string_lossy();
    if text.starts_with(":memory:") || text.starts_with("file:") {
        return Err(OpenError::NotAPath(path.to_owned()));
    }
    match path.canonicalize() {
        Ok(canonical) if canonical.is_file() => Ok(canonical),
        Ok(_) => Err(OpenError::NotAFile(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => locate_new(path),
        Err(cause) => Err(OpenError::Folder {
            path: path.to_owned(),
            cause,
        }),
    }
}

/// The canonical path of a file that does not exist yet, in a folder that must.
pub(crate) fn locate_new(path: &Path) -> Result<PathBuf, OpenError> {
    let not_a_file = || OpenError::NotAFile(path.to_owned());
    let name = path.file_name().ok_or_else(not_a_file)?;
    if path.is_symlink() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(not_a_file());
    }
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    let folder = folder.canonicalize().map_err(|cause| OpenError::Folder {
        path: path.to_owned(),
        cause,
    })?;
    Ok(folder.join(name))
}

/// Makes the database's file, empty, if there is none. SQLite gives its other files the same mode.
pub(crate) fn create_database(path: &Path) -> Result<(), OpenError> {
    match owner_only().create_new(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(cause) => Err(OpenError::Unwritable {
            path: path.to_owned(),
            cause,
        }),
    }
}

/// Opens the lock files of the database, and makes them if there are none.
pub(crate) fn open_turnstile(path: &Path) -> Result<Turnstile, OpenError> {
    Ok(Turnstile {
        gate: open_lock(&beside(path, "-gate"))?,
        main: open_lock(&beside(path, "-turn"))?,
    })
}

fn open_lock(path: &Path) -> Result<File, OpenError> {
    owner_only()
        .create(true)
        .open(path)
        .map_err(|cause| OpenError::Unwritable {
            path: path.to_owned(),
            cause,
        })
}

/// The path with `suffix` after its last name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut beside = OsString::from(path);
    beside.push(suffix);
    PathBuf::from(beside)
}

/// The mode is set as the file is made, so there is no moment at which others could open it.
pub(crate) fn owner_only() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
