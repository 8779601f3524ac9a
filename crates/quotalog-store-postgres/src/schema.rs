//! The tables: making them, bringing them up to date, refusing those of a newer program.
//!
//! A node of a role that may not change tables starts too, if they are up to date.

use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::config::PostgresClock;
use crate::connection::{Connection, Connector};
use crate::fault::of_opening;
use crate::{OpenError, believed};

// This makes the module `migrations`.
refinery::embed_migrations!("migrations");

const HISTORY: &str = "quotalog_schema_history";
/// Known to this program alone, so that nodes wait for each other and for nobody else.
const LOCK: &str = "SELECT pg_advisory_lock(8148427718541893)";
const UNLOCK: &str = "SELECT pg_advisory_unlock(8148427718541893)";
/// A start may have to wait until another node has changed large tables, and then change them itself.
const PATIENT: &str = "SET statement_timeout = '10min'; SET lock_timeout = '10min'; \
     SET idle_in_transaction_session_timeout = '10min'";
const AS_BEFORE: &str = "SET statement_timeout = '3s'; SET lock_timeout = '2s'; \
     SET idle_in_transaction_session_timeout = '5s'";
/// How long that may take in all.
const PATIENCE: Duration = Duration::from_secs(1_200);
/// The one in which any id can be kept.
const ENCODING: &str = "UTF8";
/// The first version with all that our statements use.
const SERVER_VERSION_MIN: u32 = 14;

/// Brings the tables up to date, one node at a time, and returns the connection that did.
pub(crate) async fn prepare(
    connector: &Connector,
    clock: &PostgresClock,
) -> Result<Connection, OpenError> {
    let Some(mut connection) = connector.connect().await? else {
        return Err(no_answer());
    };
    let prepared = tokio::time::timeout(PATIENCE, bring_up_to_date(&mut connection, clock));
    prepared.await.map_err(|_elapsed| no_answer())??;
    Ok(connection)
}

/// The server was asked, and said nothing.
pub(crate) fn no_answer() -> OpenError {
    OpenError::Unreachable("no answer in time".to_owned())
}

/// A connection to a database whose tables are up to date already; nothing in it is changed.
pub(crate) async fn as_it_is(connector: &Connector) -> Result<Connection, OpenError> {
    let Some(connection) = connector.connect().await? else {
        return Err(no_answer());
    };
    check_server(&connection).await?;
    match applied(&connection).await? {
        0 => Err(OpenError::NoTables),
        found if found < known() => Err(OpenError::OlderSchema {
            found,
            known: known(),
        }),
        _ => Ok(connection),
    }
}

async fn bring_up_to_date(
    connection: &mut Connection,
    clock: &PostgresClock,
) -> Result<(), OpenError> {
    check_server(connection).await?;
    let found = applied(connection).await?;
    if found < known() {
        // To lock out other nodes and to change tables takes a session of our own.
        if connection.is_pooled() {
            return Err(OpenError::Pooled {
                found,
                known: known(),
            });
        }
        connection
            .run(PATIENT)
            .await
            .map_err(|error| of_opening(&error))?;
        connection
            .run(LOCK)
            .await
            .map_err(|error| of_opening(&error))?;
        // Another node may have done it meanwhile.
        if applied(connection).await? < known() {
            migrate(connection).await?;
        }
        connection
            .run(UNLOCK)
            .await
            .map_err(|error| of_opening(&error))?;
        connection
            .run(AS_BEFORE)
            .await
            .map_err(|error| of_opening(&error))?;
    }
    believed::begin(connection, clock)
        .await
        .map_err(|error| of_opening(&error))
}

pub(crate) async fn check_server(connection: &Connection) -> Result<(), OpenError> {
    let row = connection
        .query_one(
            "SELECT current_setting('server_version'), \
             current_setting('server_version_num')::integer / 10000, current_setting('server_encoding')",
            &[],
        )
        .await
        .map_err(|error| of_opening(&error))?;
    let found: String = row.try_get(0).map_err(|error| of_opening(&error))?;
    let major: i32 = row.try_get(1).map_err(|error| of_opening(&error))?;
    if u32::try_from(major).is_ok_and(|major| major < SERVER_VERSION_MIN) {
        return Err(OpenError::TooOld {
            found,
            needed: SERVER_VERSION_MIN,
        });
    }
    let encoding: String = row.try_get(2).map_err(|error| of_opening(&error))?;
    if encoding == ENCODING {
        Ok(())
    } else {
        Err(OpenError::Encoding(encoding))
    }
}

/// The newest schema that this program knows.
pub(crate) fn known() -> i32 {
    let runner = migrations::runner();
    let versions = runner.get_migrations().iter();
    versions
        .map(refinery::Migration::version)
        .max()
        .unwrap_or_default()
}

/// The newest migration that the database has seen; 0 if none. Refuses a history that the migration library
/// could not read, and one that goes beyond this program.
pub(crate) async fn applied(connection: &Connection) -> Result<i32, OpenError> {
    let there = connection
        .query_one(
            "SELECT to_regclass('public.quotalog_schema_history') IS NOT NULL",
            &[],
        )
        .await
        .map_err(|error| of_opening(&error))?;
    if !there
        .try_get::<_, bool>(0)
        .map_err(|error| of_opening(&error))?
    {
        return Ok(0);
    }
    let history = "SELECT version, applied_on, checksum FROM public.quotalog_schema_history";
    let rows = match connection.query(history, &[]).await {
        Ok(rows) => rows,
        Err(error) if error.code().is_some_and(|code| code.code() == "42703") => {
            return Err(OpenError::ForeignSchema(format!("{HISTORY} is unreadable")));
        }
        Err(error) => return Err(of_opening(&error)),
    };
    let mut newest = 0;
    for row in rows {
        let version = row.try_get::<_, i32>(0).ok().filter(|_| {
            row.try_get::<_, &str>(1)
                .is_ok_and(|at| OffsetDateTime::parse(at, &Rfc3339).is_ok())
                && row
                    .try_get::<_, &str>(2)
                    .is_ok_and(|sum| sum.parse::<u64>().is_ok())
        });
        let Some(version) = version else {
            return Err(OpenError::ForeignSchema(format!("{HISTORY} is unreadable")));
        };
        newest = newest.max(version);
    }
    if newest > known() {
        return Err(OpenError::NewerSchema {
            found: newest,
            known: known(),
        });
    }
    Ok(newest)
}

async fn migrate(connection: &mut Connection) -> Result<(), OpenError> {
    let mut runner = migrations::runner()
        .set_grouped(true)
        .set_abort_divergent(true)
        .set_abort_missing(true);
    runner.set_migration_table_name(HISTORY);
    match runner.run_async(connection.client_mut()).await {
        Ok(_) => Ok(()),
        Err(error) => Err(match error.kind() {
            refinery::error::Kind::Connection(_, cause) => match cause.downcast_ref() {
                Some(error) => of_opening(error),
                None => OpenError::Postgres(error.to_string()),
            },
            refinery::error::Kind::DivergentVersion(..)
            | refinery::error::Kind::MissingVersion(_)
            | refinery::error::Kind::InvalidName
            | refinery::error::Kind::InvalidVersion
            | refinery::error::Kind::RepeatedVersion(_)
            | refinery::error::Kind::InvalidMigrationPath(..)
            | refinery::error::Kind::InvalidMigrationFile(..)
            | refinery::error::Kind::ConfigError(_) => OpenError::ForeignSchema(error.to_string()),
        }),
    }
}
