//! A file that appears under its name when it is whole and on disk, and not before, readable by its owner alone.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::exit_code::{Exit, Failure};

/// The file while it is being written. Unless it is published, it is gone when this is dropped.
pub(crate) struct NewFile {
    path: PathBuf,
    draft: PathBuf,
    pub(crate) file: File,
}

impl NewFile {
    /// Begins a file that must not be there yet.
    pub(crate) fn begin(path: &Path) -> anyhow::Result<Self> {
        if path.symlink_metadata().is_ok() {
            return Err(exists(path));
        }
        let mut draft = path.as_os_str().to_owned();
        draft.push(".draft");
        let draft = PathBuf::from(draft);
        let mut options = OpenOptions::new();
        let opened = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft);
        let file = opened.map_err(|error| {
            if error.kind() != io::ErrorKind::AlreadyExists {
                return unwritten(path, &error);
            }
            let message = format!(
                "{} is there already: the same is being written by another, or was cut off; if it was, delete it",
                draft.display()
            );
            Failure::error(Exit::Failure, message)
        })?;
        Ok(Self {
            path: path.to_owned(),
            draft,
            file,
        })
    }

    /// Gives it its name, once it is on disk.
    pub(crate) fn publish(self) -> anyhow::Result<()> {
        let unwritten = |error: io::Error| unwritten(&self.path, &error);
        self.file.sync_all().map_err(unwritten)?;
        // Whoever took the name meanwhile keeps it: a second name is never given over a first.
        match std::fs::hard_link(&self.draft, &self.path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(exists(&self.path));
            }
            // Some file systems know one name a file.
            Err(_) if self.path.symlink_metadata().is_ok() => return Err(exists(&self.path)),
            Err(_) => std::fs::rename(&self.draft, &self.path).map_err(unwritten)?,
        }
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            Some(_) | None => Path::new("."),
        };
        let folder = File::open(folder).and_then(|folder| folder.sync_all());
        folder.map_err(unwritten)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // It has no second name once it is published by one.
        let _published = std::fs::remove_file(&self.draft);
    }
}

fn exists(path: &Path) -> anyhow::Error {
    let message = format!(
        "{} is there already and is not overwritten; move it away or name another file",
        path.display()
    );
    Failure::error(Exit::Usage, message)
}

fn unwritten(path: &Path, error: &io::Error) -> anyhow::Error {
    let message = format!("{} cannot be written ({error})", path.display());
    Failure::error(Exit::Failure, message)
}
