//! Why a database file cannot be used: one line each, saying what to change.

use std::io;
use std::path::PathBuf;

/// Why a store was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No path at all.
    #[error("the path of the database is empty; name a file")]
    NoPath,
    /// `:memory:`, or a `file:` URI.
    #[error(
        "{} is not the path of a file; name a file, since a database in memory would lose what was counted",
        .0.display()
    )]
    NotAPath(PathBuf),
    /// The folder does not exist or cannot be entered.
    #[error("the folder of {} cannot be used ({cause}); create it or name another", .path.display())]
    Folder {
        /// The database's path.
        path: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
    /// A folder, a device, a link to nothing.
    #[error("{} is not a regular file; name another", .0.display())]
    NotAFile(PathBuf),
    /// The file cannot be made or written.
    #[error("{} cannot be written ({cause}); change its owner or mode, or name another", .path.display())]
    Unwritable {
        /// The file that cannot be written: the database, or a lock file beside it.
        path: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The file holds something else.
    #[error("{} is not a SQLite database; name another file", .0.display())]
    NotADatabase(PathBuf),
    /// A newer program has changed the tables.
    #[error(
        "{} has schema {found}, and this program knows schemas up to {known}; run a newer version of it",
        .path.display()
    )]
    NewerSchema {
        /// The database's path.
        path: PathBuf,
        /// The schema of the file.
        found: i32,
        /// The newest schema that this program knows.
        known: i32,
    },
    /// An older program has made the tables, and the file is only to be read.
    #[error(
        "{} has schema {found}, and is to be copied as schema {known}; start this version on it once, such as by \
         `quotalog token list`",
        .path.display()
    )]
    OlderSchema {
        /// The database's path.
        path: PathBuf,
        /// The schema of the file.
        found: i32,
        /// The newest schema that this program knows.
        known: i32,
    },
    /// The file is only to be read, and holds nothing of ours.
    #[error("{} holds no quotas; name another file", .0.display())]
    NoTables(PathBuf),
    /// The record of the migrations is not one that this program wrote.
    #[error("{} has a schema of another kind ({cause}); name another file", .path.display())]
    ForeignSchema {
        /// The database's path.
        path: PathBuf,
        /// What does not fit.
        cause: String,
    },
    /// The file system does not support what WAL needs.
    #[error(
        "{} cannot be used in WAL mode (SQLite answers \"{mode}\"); put it on a local file system",
        .path.display()
    )]
    NoWal {
        /// The database's path.
        path: PathBuf,
        /// The mode that SQLite stayed in.
        mode: String,
    },
    /// Another program holds the file.
    #[error("{} is locked by another program; end that and start again", .0.display())]
    Busy(PathBuf),
    /// Lock files do not work there.
    #[error("{} cannot be locked ({cause}); put it on a local file system", .path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The operating system gives no threads.
    #[error("no thread can be started ({0}); raise the limit of processes")]
    Thread(io::Error),
    /// Anything else that SQLite says.
    #[error("{} cannot be opened ({cause})", .path.display())]
    Sqlite {
        /// The database's path.
        path: PathBuf,
        /// What SQLite said.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}
