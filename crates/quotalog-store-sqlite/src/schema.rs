//! The tables: making them, adopting those of another program, refusing those of a newer one.

use std::path::Path;
use std::time::{Duration, Instant};

use quotalog_domain::Timestamp;
use quotalog_record::unfit::Unfit;
use rusqlite::{Connection, ErrorCode, MAIN_DB, Result, Row};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::turnstile::{TurnError, Turnstile};
use crate::{OpenError, batch, believed, connection, place, quota, row, shape};

// This makes the module `migrations`.
refinery::embed_migrations!("migrations");

/// A table of our own, so that neither `user_version` nor another program's migrations meet ours.
const HISTORY: &str = "quotalog_schema_history";
/// A start may have to wait until another has migrated a large file.
const TURN_WAIT: Duration = Duration::from_secs(30);

/// Makes or adopts the file and brings its tables up to date, one process at a time.
pub(crate) fn prepare(
    path: &Path,
    turnstile: &Turnstile,
    now: Timestamp,
) -> std::result::Result<Connection, OpenError> {
    let _turn = turnstile
        .enter(Instant::now() + TURN_WAIT)
        .map_err(|error| match error {
            TurnError::TimedOut => OpenError::Busy(path.to_owned()),
            TurnError::Io(cause) => OpenError::Lock {
                path: place::beside(path, "-turn"),
                cause,
            },
        })?;
    place::create_database(path)?;
    let refused = |error| refused(path, error);
    let (mut connection, mode) = connection::open_writer(path).map_err(refused)?;
    if connection.is_readonly(MAIN_DB).map_err(refused)? {
        let cause = std::io::ErrorKind::PermissionDenied.into();
        return Err(OpenError::Unwritable {
            path: path.to_owned(),
            cause,
        });
    }
    if mode != "wal" {
        return Err(OpenError::NoWal {
            path: path.to_owned(),
            mode,
        });
    }
    let has_history = has_table(&connection, HISTORY).map_err(refused)?;
    let adopted = !has_history && has_table(&connection, "quota_policies").map_err(refused)?;
    if has_history {
        check_history(path, &connection)?;
    }
    // What is there is looked at before anything is added, and what was made is held to the same.
    shape::check(path, &connection)?;
    migrate(path, &mut connection)?;
    shape::check(path, &connection)?;
    check_statements(path, &connection)?;
    believed::begin(&connection, now).map_err(refused)?;
    if adopted {
        report_adoption(&connection).map_err(refused)?;
    }
    Ok(connection)
}

/// What an error of SQLite says about the file.
pub(crate) fn refused(path: &Path, cause: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match cause.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::NotADatabase(path),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OpenError::Busy(path),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            OpenError::Unwritable {
                path,
                cause: std::io::Error::other(cause),
            }
        }
        _ => OpenError::Sqlite {
            path,
            cause: Box::new(cause),
        },
    }
}

pub(crate) fn has_table(connection: &Connection, name: &str) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1)";
    connection.query_row(sql, [name], |row| row.get(0))
}

/// Refuses a history that the migration library could not read, and one that goes beyond this program.
fn check_history(path: &Path, connection: &Connection) -> std::result::Result<(), OpenError> {
    let sql = format!("SELECT version, name, applied_on, checksum FROM {HISTORY}");
    let read = |row: &rusqlite::Row<'_>| {
        let readable = row.get::<_, String>(1).is_ok()
            && row
                .get::<_, String>(2)
                .is_ok_and(|at| OffsetDateTime::parse(&at, &Rfc3339).is_ok())
            && row
                .get::<_, String>(3)
                .is_ok_and(|sum| sum.parse::<u64>().is_ok());
        Ok(row.get::<_, i32>(0).ok().filter(|_| readable))
    };
    let versions: Vec<Option<i32>> = connection
        .prepare(&sql)
        .and_then(|mut history| history.query_map([], read)?.collect())
        .map_err(|error| refused(path, error))?;
    let known = newest();
    match versions
        .iter()
        .copied()
        .max_by_key(|version| version.unwrap_or(i32::MAX))
    {
        Some(Some(found)) if found > known => Err(OpenError::NewerSchema {
            path: path.to_owned(),
            found,
            known,
        }),
        Some(None) => Err(OpenError::ForeignSchema {
            path: path.to_owned(),
            cause: format!("{HISTORY} is unreadable"),
        }),
        Some(Some(_)) | None => Ok(()),
    }
}

fn migrate(path: &Path, connection: &mut Connection) -> std::result::Result<(), OpenError> {
    let mut runner = migrations::runner()
        .set_grouped(true)
        .set_abort_divergent(true)
        .set_abort_missing(true);
    runner.set_migration_table_name(HISTORY);
    match runner.run(connection) {
        Ok(_) => Ok(()),
        Err(error) => Err(match error.kind() {
            refinery::error::Kind::DivergentVersion(..)
            | refinery::error::Kind::MissingVersion(_) => OpenError::ForeignSchema {
                path: path.to_owned(),
                cause: error.to_string(),
            },
            refinery::error::Kind::InvalidName
            | refinery::error::Kind::InvalidVersion
            | refinery::error::Kind::RepeatedVersion(_)
            | refinery::error::Kind::InvalidMigrationPath(..)
            | refinery::error::Kind::InvalidMigrationFile(..)
            | refinery::error::Kind::ConfigError(_) => OpenError::Sqlite {
                path: path.to_owned(),
                cause: Box::new(error),
            },
            refinery::error::Kind::Connection(_, cause) => OpenError::Sqlite {
                path: path.to_owned(),
                cause: match cause.downcast_ref() {
                    Some(error) => without_sql(error).into(),
                    None => Box::new(error),
                },
            },
        }),
    }
}

/// A statement that cannot be prepared would fail every request; better now.
fn check_statements(path: &Path, connection: &Connection) -> std::result::Result<(), OpenError> {
    let statements = [
        quota::FIND_POLICY,
        quota::FIND_USAGE,
        batch::SAVE_POLICY,
        batch::INSERT_USAGE,
        batch::UPDATE_USAGE,
    ];
    for sql in statements {
        if let Err(error) = connection.prepare_cached(sql) {
            return Err(OpenError::ForeignSchema {
                path: path.to_owned(),
                cause: without_sql(&error),
            });
        }
    }
    Ok(())
}

/// What SQLite said, on one line: its text for a statement repeats the statement.
fn without_sql(error: &rusqlite::Error) -> String {
    if let rusqlite::Error::SqlInputError { msg, .. } = error {
        msg.clone()
    } else {
        error.to_string()
    }
}

/// Counts, once, the rows of another program that will be passed over.
fn report_adoption(connection: &Connection) -> Result<()> {
    let [policies, usage] = [unfit(connection, &POLICIES)?, unfit(connection, &USAGE)?];
    if policies.count > 0 || usage.count > 0 {
        tracing::warn!(
            policies = policies.count,
            usage = usage.count,
            "rows of the adopted database are passed over"
        );
    } else {
        tracing::info!("the database of another program was adopted");
    }
    Ok(())
}

/// How the rows of a table are read.
pub(crate) struct Rows {
    pub(crate) table: &'static str,
    sql: &'static str,
    read: fn(&Row<'_>) -> std::result::Result<(), Unfit>,
}

const POLICIES: Rows = Rows {
    table: "quota_policies",
    sql: "SELECT id, user_id, resource, window, limit_count, created_at, updated_at FROM quota_policies",
    read: |row| pair(row).and_then(|()| row::policy(row, 3).map(drop)),
};
const USAGE: Rows = Rows {
    table: "quota_usage",
    sql: "SELECT id, user_id, resource, window_start, usage FROM quota_usage",
    read: |row| pair(row).and_then(|()| row::usage(row, 3).map(drop)),
};

const DEFAULTS: Rows = Rows {
    table: "quotalog_defaults",
    sql: "SELECT id, resource, window, limit_count, created_at, updated_at FROM quotalog_defaults",
    read: |row| row::resource(row, 1).and_then(|_| row::policy(row, 2).map(drop)),
};
const TOKENS: Rows = Rows {
    table: "quotalog_tokens",
    sql: "SELECT place, id, role, user_id, name, created_at, expires_at FROM quotalog_tokens",
    read: |row| row::token(row, 1).map(drop),
};

/// The tables whose rows other programs may have written.
pub(crate) const TABLES: [Rows; 4] = [POLICIES, USAGE, DEFAULTS, TOKENS];

fn pair(row: &Row<'_>) -> std::result::Result<(), Unfit> {
    row::user_id(row, 1)?;
    row::resource(row, 2).map(drop)
}

/// The rows of a table that the domain cannot hold.
#[derive(Debug, Default)]
pub(crate) struct Unfits {
    /// How many of how many.
    pub(crate) count: u64,
    pub(crate) of: u64,
    /// The first few: row id and reason.
    pub(crate) first: Vec<(i64, Unfit)>,
}

/// Reads every row of a table.
pub(crate) fn unfit(connection: &Connection, rows: &Rows) -> Result<Unfits> {
    const NAMED_MAX: usize = 5;
    let mut statement = connection.prepare(rows.sql)?;
    let mut found = statement.query([])?;
    let mut unfits = Unfits::default();
    while let Some(row) = found.next()? {
        unfits.of += 1;
        if let Err(why) = (rows.read)(row) {
            unfits.count += 1;
            if unfits.first.len() < NAMED_MAX {
                unfits.first.push((row.get(0)?, why));
            }
        }
    }
    Ok(unfits)
}

/// The newest schema that this program knows.
pub(crate) fn newest() -> i32 {
    let runner = migrations::runner();
    let versions = runner.get_migrations().iter();
    let versions = versions.map(refinery::Migration::version);
    versions.max().unwrap_or_default()
}

/// The schema of a file; `None` if it has none of ours yet.
pub(crate) fn version(
    path: &Path,
    connection: &Connection,
) -> std::result::Result<Option<i32>, OpenError> {
    let refused = |error| refused(path, error);
    if !has_table(connection, HISTORY).map_err(refused)? {
        return Ok(None);
    }
    check_history(path, connection)?;
    let sql = format!("SELECT max(version) FROM {HISTORY}");
    connection
        .query_row(&sql, [], |row| row.get(0))
        .map_err(refused)
}
