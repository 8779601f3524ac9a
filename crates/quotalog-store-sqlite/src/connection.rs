//! Connections to the file, set up for their part: the one that writes, and those that read.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Result};

/// How long a read waits for a file that is busy, which in WAL mode it hardly ever is.
const READ_WAIT: Duration = Duration::from_secs(1);
/// How long the start waits for another program to let go of the file.
pub(crate) const OPEN_WAIT: Duration = Duration::from_secs(5);
/// More than there are statements, so that each is compiled once.
const STATEMENTS_MAX: usize = 64;
/// The page of a new file. A commit writes each page it touched in whole, and the rows of a batch lie on
/// nearly as many pages as there are rows, so a small page writes less: a quarter of what SQLite's own
/// default of 4 KiB did, which the disk felt first. A file that is there keeps its size.
const PAGE_BYTES: i64 = 1_024;
/// When this much is in the log (16 MiB in pages of a new file), the next commit moves it into the
/// database. Less often would be cheaper in all, and slower for the one commit that does it.
const CHECKPOINT_PAGES: i64 = 16_000;
/// To this size the log file is cut back, if a long reader has let it grow.
const LOG_BYTES_MAX: i64 = 64 * 1024 * 1024;
/// Grown into as it is needed: tens of thousands of pairs in use among a million fit.
const WRITER_CACHE_KIB: i64 = 64_000;
const READER_CACHE_KIB: i64 = 4_000;

/// The writing connection, and the journal mode that SQLite put the file into.
pub(crate) fn open_writer(path: &Path) -> Result<(Connection, String)> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE, OPEN_WAIT)?;
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    let mode = connection
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // What is deleted is overwritten, also on pages that come free: an erased user is not to be read in the
    // file's unused parts.
    connection.pragma_update(None, "secure_delete", true)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX)?;
    Ok((connection, mode))
}

/// A connection that cannot write.
pub(crate) fn open_reader(path: &Path) -> Result<Connection> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY, READ_WAIT)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    Ok(connection)
}

/// A connection of any kind, which trusts nothing that the file says of itself.
pub(crate) fn open(path: &Path, mode: OpenFlags, wait: Duration) -> Result<Connection> {
    // No mutex: each connection belongs to one thread.
    let flags = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(wait)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // What another program wrote into the schema of its file shall not run functions with side effects.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // A plan that depends on the bound values would be made anew for each of them.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}
