//! Looking a database over without changing it: what is well, what is odd, and what to do about it.

use std::path::Path;

use quotalog_domain::Timestamp;
use quotalog_ledger::clock::Clock;
use quotalog_record::unfit::PassedOver;
use quotalog_record::{Finding, Grade};
use rusqlite::Connection;

use crate::schema::{self, Rows};
use crate::tx::Tx;
use crate::{OpenError, backup, believed, connection, instant, place, shape, token};

/// A log that has grown to this size is not moved into the database any more, so someone keeps it open.
const LOG_BYTES_USUAL: u64 = 256 * 1024 * 1024;
/// The most faults of a damaged file that are told.
const FAULTS_MAX: u32 = 5;

/// Looks over the database at `path` as `clock` shows the time. Blocks; a large file takes a while.
#[must_use]
pub fn examine(path: &Path, clock: &dyn Clock) -> Vec<Finding> {
    let mut findings = Vec::new();
    // What cannot be read at all ends the examination, and is the last that it finds.
    if let Err(error) = look_over(path, clock.now(), &mut findings) {
        findings.push(Finding::new(Grade::Problem, "database", error.to_string()));
    }
    findings
}

fn look_over(path: &Path, now: Timestamp, findings: &mut Vec<Finding>) -> Result<(), OpenError> {
    let path = place::locate(path)?;
    let refused = |error| schema::refused(&path, error);
    let connection = connection::open_reader(&path).map_err(refused)?;
    let version = schema::version(&path, &connection)?;
    shape::check(&path, &connection)?;
    findings.push(schema_of(version, &connection).map_err(refused)?);
    findings.extend(mode_of(&path));
    findings.extend(log_of(&path));
    findings.extend(damage(&connection).map_err(refused)?);
    for rows in schema::TABLES {
        if schema::has_table(&connection, rows.table).map_err(refused)? {
            findings.push(fitness(&connection, &rows).map_err(refused)?);
        }
    }
    if version.is_some() {
        findings.push(clock(&connection, now).map_err(refused)?);
        findings.push(admin(&connection, now).map_err(refused)?);
    }
    Ok(())
}

fn schema_of(version: Option<i32>, connection: &Connection) -> rusqlite::Result<Finding> {
    let newest = schema::newest();
    let detail = match version {
        Some(version) if version == newest => format!("version {version}"),
        Some(version) => format!("version {version}; the next start makes it {newest}"),
        None if schema::has_table(connection, "quota_policies")? => {
            "of another program; the next start adopts it".to_owned()
        }
        None => "empty; the next start makes the tables".to_owned(),
    };
    Ok(Finding::new(Grade::Fine, "schema", detail))
}

#[cfg(unix)]
fn mode_of(path: &Path) -> Option<Finding> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = path.metadata().ok()?.permissions().mode() & 0o777;
    let open = mode & 0o077 != 0;
    Some(if open {
        let detail = format!("{mode:o}: others may read or write the file; chmod 600 it");
        Finding::new(Grade::Warning, "file mode", detail)
    } else {
        Finding::new(Grade::Fine, "file mode", format!("{mode:o}"))
    })
}

#[cfg(not(unix))]
fn mode_of(_path: &Path) -> Option<Finding> {
    None
}

fn log_of(path: &Path) -> Option<Finding> {
    let bytes = place::beside(path, "-wal").metadata().ok()?.len();
    let mib = bytes / 1024 / 1024;
    Some(if bytes > LOG_BYTES_USUAL {
        let detail = format!("{mib} MiB; some program keeps an old state of the file open: end it");
        Finding::new(Grade::Warning, "log", detail)
    } else {
        Finding::new(Grade::Fine, "log", format!("{mib} MiB"))
    })
}

fn damage(connection: &Connection) -> rusqlite::Result<Vec<Finding>> {
    let faults = backup::damage(connection, "quick_check", FAULTS_MAX)?;
    if faults.is_empty() {
        return Ok(vec![Finding::new(Grade::Fine, "file", "sound")]);
    }
    let advice = "stop the server and start it on a backup";
    let faults = faults.into_iter();
    let findings = faults.map(|fault| {
        Finding::new(
            Grade::Problem,
            "file",
            format!("damaged ({fault}); {advice}"),
        )
    });
    Ok(findings.collect())
}

fn fitness(connection: &Connection, rows: &Rows) -> rusqlite::Result<Finding> {
    let unfits = schema::unfit(connection, rows)?;
    let named = unfits.first.iter();
    let named: Vec<String> = named.map(|(id, why)| format!("id {id}: {why}")).collect();
    Ok(Finding::rows(rows.table, unfits.of, unfits.count, &named))
}

fn clock(connection: &Connection, now: Timestamp) -> rusqlite::Result<Finding> {
    let text = |at| format!("{} UTC", instant::to_text(at));
    Ok(Finding::clock(now, believed::of(connection)?, text))
}

fn admin(connection: &Connection, now: Timestamp) -> rusqlite::Result<Finding> {
    let passed_over = PassedOver::default();
    let tx = Tx {
        connection,
        now,
        passed_over: &passed_over,
    };
    Ok(Finding::admin_token(token::has_valid_admin(&tx)?))
}
