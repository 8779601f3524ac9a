//! A copy of a live database, in a file that is a database by itself.
//!
//! `VACUUM INTO` rather than SQLite's backup interface. Both copy one state while others write. The
//! interface copies pages, those of deleted rows too, so that an erased user would live on in each backup;
//! and in steps it begins anew whenever another process has written, which under load is always. `VACUUM
//! INTO` copies what is there, in one read transaction, which holds up no writer.
//!
//! While that transaction lasts the log cannot be reused, and grows. So it is moved into the database here
//! at the end: otherwise the commit of some batch would do it, and its callers would wait.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql};

use crate::schema::refused;
use crate::{OpenError, connection, place};

/// Why there is no backup. Whatever it is, the database is as it was.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The database cannot be read.
    #[error(transparent)]
    Database(OpenError),
    /// The backup's file cannot be made.
    #[error(transparent)]
    File(OpenError),
    /// Something has the name of the backup's file.
    #[error("{} is there already and is not overwritten; move it away or name another file", .0.display())]
    Exists(PathBuf),
    /// A log lies beside the name, and SQLite would take it for the backup's own.
    #[error(
        "{} is there already and would be taken for the backup's own; move it away or name another file",
        .0.display()
    )]
    Leftover(PathBuf),
    /// The draft is there already.
    #[error(
        "{} is there already: another backup is being written, or one was cut off; if none is, delete it",
        .0.display()
    )]
    DraftExists(PathBuf),
    /// There is no room for it.
    #[error("there is no room for {}; free some or name a file on another disk", .0.display())]
    NoRoom(PathBuf),
    /// What was read is damaged.
    #[error("{} is damaged ({cause}); see `quotalog doctor`, and keep the backups there are", .path.display())]
    Damaged {
        /// The database's path.
        path: PathBuf,
        /// What SQLite said.
        cause: String,
    },
    /// Anything else that the operating system says.
    #[error("{} cannot be written ({cause})", .path.display())]
    Unwritten {
        /// The backup's path.
        path: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
}

/// Copies the state of `database` at one moment into the new file `file`, readable by its owner alone, also
/// while others read and write. Blocks.
///
/// The file appears under its name when it is whole, sound and on disk, and not before.
///
/// # Errors
/// [`BackupError`], which says what to change. Then there is no such file.
pub fn backup(database: &Path, file: &Path) -> Result<(), BackupError> {
    let database = place::locate(database).map_err(BackupError::Database)?;
    must_be_free(file, BackupError::Exists)?;
    let file = place::locate_new(file).map_err(BackupError::File)?;
    for suffix in ["-wal", "-journal"] {
        must_be_free(&place::beside(&file, suffix), BackupError::Leftover)?;
    }
    let draft = Draft::begin(&file)?;
    copy(&database, &draft.path)?;
    check(&database, &draft.path)?;
    draft.publish(&file)
}

fn must_be_free(path: &Path, taken: fn(PathBuf) -> BackupError) -> Result<(), BackupError> {
    // A link to nothing is something too.
    match path.symlink_metadata() {
        Ok(_) => Err(taken(path.to_owned())),
        Err(_) => Ok(()),
    }
}

fn copy(database: &Path, draft: &Path) -> Result<(), BackupError> {
    let failed = |error| failed(database, draft, error);
    // For the log alone; a file that may not be written is read all the same.
    let connection = connection::open(
        database,
        OpenFlags::SQLITE_OPEN_READ_WRITE,
        connection::OPEN_WAIT,
    )
    .map_err(failed)?;
    connection
        .execute("VACUUM INTO ?1", [Name(draft)])
        .map_err(failed)?;
    if let Err(error) = connection.pragma_query(None, "wal_checkpoint", |_| Ok(())) {
        tracing::debug!(%error, "the write-ahead log stays as it is");
    }
    Ok(())
}

/// A backup is for the day on which nothing else is left.
fn check(database: &Path, draft: &Path) -> Result<(), BackupError> {
    let failed = |error| failed(database, draft, error);
    let connection = connection::open_reader(draft).map_err(failed)?;
    let faults = damage(&connection, "integrity_check", 1).map_err(failed)?;
    match faults.into_iter().next() {
        None => Ok(()),
        Some(cause) => Err(BackupError::Damaged {
            path: database.to_owned(),
            cause,
        }),
    }
}

/// What one of SQLite's checks of a whole file finds wrong, at most so much of it.
pub(crate) fn damage(
    connection: &Connection,
    check: &str,
    faults_max: u32,
) -> rusqlite::Result<Vec<String>> {
    let mut faults = Vec::new();
    connection.pragma(None, check, faults_max, |row| {
        let fault: String = row.get(0)?;
        if fault != "ok" {
            faults.push(fault.replace('\n', " "));
        }
        Ok(())
    })?;
    Ok(faults)
}

/// What an error of SQLite, which knows of both files, says about the backup.
fn failed(database: &Path, draft: &Path, cause: rusqlite::Error) -> BackupError {
    match cause.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => BackupError::NoRoom(draft.to_owned()),
        Some(ErrorCode::DatabaseCorrupt) => BackupError::Damaged {
            path: database.to_owned(),
            cause: cause.to_string(),
        },
        _ => BackupError::Database(refused(database, cause)),
    }
}

/// A path as SQLite takes it: its bytes, whether or not they are UTF-8.
struct Name<'p>(&'p Path);

impl ToSql for Name<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let bytes = self.0.as_os_str().as_encoded_bytes();
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(bytes)))
    }
}

/// The backup while it is being written. It is gone when this is dropped.
struct Draft {
    path: PathBuf,
}

impl Draft {
    /// Makes the file, empty, which is what SQLite wants it to be.
    fn begin(file: &Path) -> Result<Self, BackupError> {
        let path = place::beside(file, ".draft");
        match place::owner_only().create_new(true).open(&path) {
            Ok(_) => Ok(Self { path }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(BackupError::DraftExists(path))
            }
            Err(cause) => Err(BackupError::File(OpenError::Unwritable { path, cause })),
        }
    }

    /// Gives it its name, once it is on disk.
    fn publish(self, file: &Path) -> Result<(), BackupError> {
        let unwritten = |cause| BackupError::Unwritten {
            path: file.to_owned(),
            cause,
        };
        File::open(&self.path)
            .and_then(|draft| draft.sync_all())
            .map_err(unwritten)?;
        // Whoever took the name meanwhile keeps it: a second name is never given over a first.
        match std::fs::hard_link(&self.path, file) {
            Ok(()) => std::fs::remove_file(&self.path).map_err(unwritten)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(BackupError::Exists(file.to_owned()));
            }
            // Some file systems know one name a file.
            Err(_) => {
                must_be_free(file, BackupError::Exists)?;
                std::fs::rename(&self.path, file).map_err(unwritten)?;
            }
        }
        let folder = file.parent().unwrap_or(Path::new("/"));
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(unwritten)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Under this name there is nothing any more once it is published.
        let _published = std::fs::remove_file(&self.path);
    }
}
