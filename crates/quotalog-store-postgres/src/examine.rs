//! Looking a database over without changing it: what is well, what is odd, and what to do about it.

use std::sync::Arc;
use std::time::Duration;

use quotalog_domain::Timestamp;
use quotalog_record::unfit::{PassedOver, Unfit};
use quotalog_record::{Finding, Grade};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio_postgres::{Error, Row};

use crate::connection::{Connection, Connector};
use crate::fault::of_opening;
use crate::row;
use crate::{OpenError, PostgresConfig, believed, schema, token, tx};

/// How often a server that does not answer is asked, and the pause in between.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);
/// The most rows of a table that are named.
const NAMED_MAX: usize = 5;

/// A large table takes a while to read, and nothing waits for it.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = '10min'; \
     SET LOCAL enable_seqscan = on";
const SERVER: &str = "SELECT current_setting('server_version'), pg_is_in_recovery(), \
     current_setting('fsync'), current_setting('full_page_writes'), current_setting('autovacuum'), \
     transaction_timestamp()";
const MAY_WRITE: &str = "SELECT coalesce(bool_and(has_table_privilege(c.oid, may.what)), true) \
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, \
     unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS may(what) \
     WHERE n.nspname = 'public' AND c.relkind = 'r' AND c.relname ~ '^(quota_|quotalog_)' \
     AND c.relname <> 'quotalog_schema_history'";
const MAY_CREATE: &str = "SELECT has_schema_privilege('public', 'CREATE')";

/// A table whose rows other programs may have written.
struct Table {
    name: &'static str,
    declare: &'static str,
    fetch: &'static str,
    keys: usize,
    read: fn(&Row) -> Result<(), Unfit>,
}

const TABLES: [Table; 4] = [
    Table {
        name: "quota_policies",
        declare: "DECLARE policies NO SCROLL CURSOR FOR SELECT user_id, resource, \"window\", limit_count, \
                  created_at, updated_at FROM quota_policies WHERE \"window\" IS NOT NULL",
        fetch: "FETCH 10000 FROM policies",
        keys: 2,
        read: |row| row::pair(row, 0).and_then(|_| row::policy(row, 2).map(drop)),
    },
    Table {
        name: "quota_usage",
        declare: "DECLARE usage NO SCROLL CURSOR FOR SELECT user_id, resource, window_start, usage FROM quota_usage",
        fetch: "FETCH 10000 FROM usage",
        keys: 2,
        read: |row| row::pair(row, 0).and_then(|_| row::usage(row, 2).map(drop)),
    },
    Table {
        name: "quotalog_defaults",
        declare: "DECLARE defaults NO SCROLL CURSOR FOR SELECT resource, \"window\", limit_count, created_at, \
                  updated_at FROM quotalog_defaults",
        fetch: "FETCH 10000 FROM defaults",
        keys: 1,
        read: |row| row::resource(row, 0).and_then(|_| row::policy(row, 1).map(drop)),
    },
    Table {
        name: "quotalog_tokens",
        declare: "DECLARE tokens NO SCROLL CURSOR FOR SELECT id, role, user_id, name, created_at, expires_at \
                  FROM quotalog_tokens",
        fetch: "FETCH 10000 FROM tokens",
        keys: 1,
        read: |row| row::token(row, 0).map(drop),
    },
];

/// Looks the database over. A large one takes a while.
pub async fn examine(config: PostgresConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    // What cannot be read at all ends the examination, and is the last that it finds.
    if let Err(error) = look_over(&config, &mut findings).await {
        findings.push(Finding::new(Grade::Problem, "database", error.to_string()));
    }
    findings
}

async fn look_over(config: &PostgresConfig, findings: &mut Vec<Finding>) -> Result<(), OpenError> {
    let connector = Arc::new(Connector::new(config)?);
    let connection = reach(&connector).await?;
    schema::check_server(&connection).await?;
    let applied = schema::applied(&connection).await?;
    let read = read(&connection, applied, findings).await;
    connection.close().await;
    read.map_err(|error| of_opening(&error))
}

/// A server that is busy is asked again: a wrong alarm is of no use to whoever asks.
async fn reach(connector: &Connector) -> Result<Connection, OpenError> {
    for _ in 1..TRIES {
        match connector.connect().await {
            Ok(Some(connection)) => return Ok(connection),
            Err(error) if !error.may_pass() => return Err(error),
            Ok(None) | Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    connector.connect().await?.ok_or_else(schema::no_answer)
}

async fn read(
    connection: &Connection,
    applied: i32,
    findings: &mut Vec<Finding>,
) -> Result<(), Error> {
    connection.run(BEGIN).await?;
    let server = connection.query_one(SERVER, &[]).await?;
    let now = tx::now(&server, 5)?;
    findings.push(server_of(&server));
    findings.extend(durability_of(&server));
    findings.extend(vacuum_of(&server));
    findings.push(schema_of(connection, applied).await?);
    if applied < schema::known() {
        return Ok(());
    }
    findings.push(rights(connection).await?);
    for table in &TABLES {
        findings.push(fitness(connection, table).await?);
    }
    findings.push(clock(connection, now).await?);
    let passed_over = PassedOver::default();
    let has_admin = token::has_valid_admin(connection, now, &passed_over).await?;
    findings.push(Finding::admin_token(has_admin));
    connection.run("ROLLBACK").await
}

fn server_of(server: &Row) -> Finding {
    let version = row::text(server, 0);
    if server.try_get(1).unwrap_or(false) {
        let detail = format!(
            "PostgreSQL {version}, a standby that takes no writes; name its primary too, and set \
             target_session_attrs=read-write"
        );
        return Finding::new(Grade::Problem, "server", detail);
    }
    Finding::new(Grade::Fine, "server", format!("PostgreSQL {version}"))
}

/// Settings without which a crash of the server's machine loses what was answered, or the whole database.
fn durability_of(server: &Row) -> Vec<Finding> {
    let off = [("fsync", 2), ("full_page_writes", 3)];
    let off = off
        .into_iter()
        .filter(|(_, column)| row::text(server, *column) == "off");
    let findings: Vec<Finding> = off
        .map(|(name, _)| {
            let detail =
                format!("{name} is off, and a crash may lose what was answered; turn it on");
            Finding::new(Grade::Problem, "durability", detail)
        })
        .collect();
    if findings.is_empty() {
        let detail = "what is answered is on disk";
        return vec![Finding::new(Grade::Fine, "durability", detail)];
    }
    findings
}

fn vacuum_of(server: &Row) -> Option<Finding> {
    (row::text(server, 4) == "off").then(|| {
        let detail = "autovacuum is off, so the tables grow with every consume; turn it on";
        Finding::new(Grade::Warning, "vacuum", detail)
    })
}

async fn schema_of(connection: &Connection, applied: i32) -> Result<Finding, Error> {
    let newest = schema::known();
    if applied == newest {
        let detail = format!("version {applied}");
        return Ok(Finding::new(Grade::Fine, "schema", detail));
    }
    let may_create = connection.query_one(MAY_CREATE, &[]).await?;
    let what = if applied == 0 {
        "empty; the next start makes the tables".to_owned()
    } else {
        format!("version {applied}; the next start makes it {newest}")
    };
    Ok(if may_create.try_get(0)? {
        Finding::new(Grade::Fine, "schema", what)
    } else {
        let detail =
            format!("{what}, and this role may not: start once with one that owns the schema");
        Finding::new(Grade::Problem, "schema", detail)
    })
}

async fn rights(connection: &Connection) -> Result<Finding, Error> {
    let may_write = connection.query_one(MAY_WRITE, &[]).await?;
    Ok(if may_write.try_get(0)? {
        Finding::new(Grade::Fine, "role", "may read and write the tables")
    } else {
        let detail =
            "may not read and write all tables; grant it SELECT, INSERT, UPDATE and DELETE";
        Finding::new(Grade::Problem, "role", detail)
    })
}

async fn fitness(connection: &Connection, table: &Table) -> Result<Finding, Error> {
    connection.run(table.declare).await?;
    let (mut of, mut unfit, mut named) = (0_u64, 0_u64, Vec::new());
    loop {
        let rows = connection.query(table.fetch, &[]).await?;
        if rows.is_empty() {
            break;
        }
        for found in &rows {
            of += 1;
            if let Err(why) = (table.read)(found) {
                unfit += 1;
                if named.len() < NAMED_MAX {
                    let key: Vec<&str> = (0..table.keys).map(|at| row::text(found, at)).collect();
                    named.push(format!("{key:?}: {why}"));
                }
            }
        }
    }
    Ok(Finding::rows(table.name, of, unfit, &named))
}

async fn clock(connection: &Connection, now: Timestamp) -> Result<Finding, Error> {
    let last = believed::last(connection).await?;
    Ok(Finding::clock(now, last, |at| {
        let at = OffsetDateTime::from_unix_timestamp(at.unix_s()).ok();
        at.and_then(|at| at.format(&Rfc3339).ok())
            .unwrap_or_default()
    }))
}
