//! Everything in a file as plain data: read as it is at one moment, or written into a file that holds nothing yet.
//!
//! A file that is read is not changed: tables that it lacks, as that of another program does, are taken for empty. All
//! that is written is one transaction, so that what is broken off leaves no trace.

use std::path::Path;

use quotalog_domain::Timestamp;
use quotalog_ledger::store::{StoreError, StoreFuture};
use quotalog_record::transfer::{ROWS_MAX, Row, Source, Storage, Table, Target, Unfit, Value};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Result, ToSql};

use crate::fault::{Fault, at_commit, before_commit};
use crate::schema::{self, refused};
use crate::{OpenError, connection, instant, place, shape, token};

/// A file whose rows are read or written as plain data.
pub struct SqliteTransfer {
    /// `None` while a thread works with it, and for good if that panicked.
    work: Option<Work>,
}

struct Work {
    connection: Connection,
    /// The table that is being read, and the row after which it goes on.
    reading: Option<(&'static Table, i64)>,
}

impl SqliteTransfer {
    /// Reads the file as it is now, whatever others write meanwhile. Blocks.
    ///
    /// # Errors
    /// [`OpenError`], which says what to change.
    pub fn read(path: &Path) -> std::result::Result<Self, OpenError> {
        let path = place::locate(path)?;
        let refused = |error| refused(&path, error);
        let connection = connection::open_reader(&path).map_err(refused)?;
        let version = schema::version(&path, &connection)?;
        shape::check(&path, &connection)?;
        let has_policies = schema::has_table(&connection, "quota_policies").map_err(refused)?;
        match version {
            None if !has_policies => return Err(OpenError::NoTables(path)),
            Some(found) if found < schema::newest() => {
                let known = schema::newest();
                return Err(OpenError::OlderSchema { path, found, known });
            }
            None | Some(_) => {}
        }
        // A transaction sees the file as it was when it first read.
        let begin = "BEGIN; SELECT count(*) FROM sqlite_schema";
        connection.execute_batch(begin).map_err(refused)?;
        Ok(Self::with(connection))
    }

    /// Makes the file or brings it up to date, and begins to write into it. Others wait. Blocks.
    ///
    /// # Errors
    /// [`OpenError`], which says what to change.
    pub fn write(path: &Path, now: Timestamp) -> std::result::Result<Self, OpenError> {
        let path = place::locate(path)?;
        let turnstile = place::open_turnstile(&path)?;
        let connection = schema::prepare(&path, &turnstile, now)?;
        connection
            .execute_batch("BEGIN IMMEDIATE")
            .map_err(|error| refused(&path, error))?;
        Ok(Self::with(connection))
    }

    fn with(connection: Connection) -> Self {
        Self {
            work: Some(Work {
                connection,
                reading: None,
            }),
        }
    }

    /// Has a thread that may block do `work`.
    fn run<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Work) -> Result<T> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(async move {
            let mut taken = self.work.take().ok_or_else(closed)?;
            let done = tokio::task::spawn_blocking(move || {
                let result = work(&mut taken);
                (taken, result)
            });
            let (taken, result) = done.await.map_err(panicked)?;
            self.work = Some(taken);
            result.map_err(before_commit)
        })
    }
}

fn closed() -> StoreError {
    Fault::Closed.unavailable()
}

fn panicked(error: tokio::task::JoinError) -> StoreError {
    Fault::Panicked(error.to_string()).internal()
}

impl Source for SqliteTransfer {
    fn count(&mut self, table: &'static Table) -> StoreFuture<'_, u64> {
        self.run(move |work| {
            if !schema::has_table(&work.connection, table.name)? {
                return Ok(0);
            }
            let sql = format!("SELECT count(*) FROM {}", table.name);
            let count: i64 = work.connection.query_row(&sql, [], |row| row.get(0))?;
            Ok(count.unsigned_abs())
        })
    }

    fn open(&mut self, table: &'static Table) -> StoreFuture<'_, ()> {
        self.run(move |work| {
            let exists = schema::has_table(&work.connection, table.name)?;
            work.reading = exists.then_some((table, i64::MIN));
            Ok(())
        })
    }

    fn next_rows(&mut self) -> StoreFuture<'_, Vec<std::result::Result<Row, Unfit>>> {
        self.run(Work::next_rows)
    }

    fn last_place(&mut self, table: &'static Table) -> StoreFuture<'_, i64> {
        self.run(move |work| {
            if !schema::has_table(&work.connection, table.name)? {
                return Ok(0);
            }
            // The first is there for tables that give no place twice.
            let sql = format!(
                "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{0}'), 0), \
                 coalesce((SELECT max({1}) FROM {0}), 0))",
                table.name,
                row_id(table)
            );
            work.connection.query_row(&sql, [], |row| row.get(0))
        })
    }
}

impl Target for SqliteTransfer {
    fn write(&mut self, table: &'static Table, rows: Vec<Row>) -> StoreFuture<'_, ()> {
        self.run(move |work| {
            let mut write = work.connection.prepare_cached(&write_sql(table))?;
            for row in &rows {
                let values = row.values().iter().map(Stored);
                write.execute(rusqlite::params_from_iter(values))?;
            }
            Ok(())
        })
    }

    fn go_on_after(&mut self, table: &'static Table, place: i64) -> StoreFuture<'_, ()> {
        self.run(move |work| {
            // A table that may give a place again goes on after its last row by itself.
            let gives_none_twice = "SELECT EXISTS (SELECT 1 FROM sqlite_schema \
                 WHERE type = 'table' AND name = ?1 AND sql LIKE '%AUTOINCREMENT%')";
            let on = &work.connection;
            if !on.query_row(gives_none_twice, [table.name], |row| row.get(0))? {
                return Ok(());
            }
            let raised = on.execute(
                "UPDATE sqlite_sequence SET seq = max(seq, ?2) WHERE name = ?1",
                (table.name, place),
            )?;
            if raised == 0 {
                on.execute(
                    "INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)",
                    (table.name, place),
                )?;
            }
            Ok(())
        })
    }

    fn commit(mut self: Box<Self>) -> StoreFuture<'static, ()> {
        Box::pin(async move {
            let work = self.work.take().ok_or_else(closed)?;
            let committed = tokio::task::spawn_blocking(move || {
                token::bump(&work.connection).map_err(before_commit)?;
                work.connection.execute_batch("COMMIT").map_err(at_commit)
            });
            committed.await.map_err(panicked)?
        })
    }
}

impl Work {
    fn next_rows(&mut self) -> Result<Vec<std::result::Result<Row, Unfit>>> {
        let Some((table, after)) = self.reading else {
            return Ok(Vec::new());
        };
        let columns: Vec<String> = names(table).map(|name| format!("\"{name}\"")).collect();
        // By the row id: what another program has left in the keys may have no order.
        let sql = format!(
            "SELECT {0}, {1} FROM {2} WHERE {0} > ?1 ORDER BY {0} LIMIT {ROWS_MAX}",
            row_id(table),
            columns.join(", "),
            table.name
        );
        let mut page = self.connection.prepare_cached(&sql)?;
        let mut rows = page.query([after])?;
        let mut read = Vec::with_capacity(ROWS_MAX);
        self.reading = None;
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            self.reading = Some((table, id));
            let columns = table.columns.iter().enumerate();
            let values = columns
                .map(|(at, column)| Ok(value(row.get_ref(at + 1)?, column.kind.storage())))
                .collect::<Result<_>>()?;
            read.push(table.hold(values).map_err(|column| Unfit {
                row: format!("{} {id}", row_id(table)),
                column,
            }));
        }
        Ok(read)
    }
}

/// A value, if it is stored as it should be.
fn value(found: ValueRef<'_>, storage: Storage) -> Option<Value> {
    match (found, storage) {
        (ValueRef::Null, _) => Some(Value::Null),
        (ValueRef::Integer(integer), Storage::Integer) => Some(Value::Integer(integer)),
        (ValueRef::Text(_), Storage::Text) => {
            let text = found.as_str().ok()?;
            Some(Value::Text(text.to_owned()))
        }
        (ValueRef::Text(_), Storage::Instant) => {
            let text = found.as_str().ok()?;
            instant::from_text(text).map(Value::Instant)
        }
        (ValueRef::Blob(bytes), Storage::Bytes) => Some(Value::Bytes(bytes.to_vec())),
        (
            ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_),
            Storage::Integer | Storage::Text | Storage::Bytes | Storage::Instant,
        ) => None,
    }
}

/// The column that is a row's number.
fn row_id(table: &Table) -> &'static str {
    match table.name {
        "quotalog_tokens" => "place",
        _ => "id",
    }
}

/// The columns as they are called here, where a row's place is its number.
fn names(table: &'static Table) -> impl Iterator<Item = &'static str> {
    let place = table.place().map(|place| place.name);
    let columns = table.columns.iter();
    columns.map(move |column| {
        if place == Some(column.name) {
            row_id(table)
        } else {
            column.name
        }
    })
}

fn write_sql(table: &'static Table) -> String {
    let columns: Vec<String> = names(table).map(|name| format!("\"{name}\"")).collect();
    let values: Vec<String> = (1..=columns.len()).map(|at| format!("?{at}")).collect();
    let (columns, values) = (columns.join(", "), values.join(", "));
    if table.is_single() {
        format!("UPDATE {} SET ({columns}) = ({values})", table.name)
    } else {
        format!("INSERT INTO {} ({columns}) VALUES ({values})", table.name)
    }
}

/// A value as it is stored here.
struct Stored<'v>(&'v Value);

impl ToSql for Stored<'_> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            Value::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Value::Integer(integer) => ToSqlOutput::from(*integer),
            Value::Text(text) => ToSqlOutput::from(text.as_str()),
            Value::Bytes(bytes) => ToSqlOutput::from(bytes.as_slice()),
            Value::Instant(instant) => ToSqlOutput::from(instant::to_text(*instant)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quotalog_record::transfer::{NOT_COPIED, TABLES};

    use super::*;

    /// A migration that adds a table or a column must say how it is copied.
    #[test]
    fn every_table_and_column_of_the_schema_is_copied_or_named_as_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("quotalog.db");
        let target = SqliteTransfer::write(&file, Timestamp::from_unix_s(0)).unwrap();
        let connection = target.work.unwrap().connection;
        let listed = |sql: &str| -> BTreeSet<String> {
            let mut statement = connection.prepare(sql).unwrap();
            let names = statement.query_map([], |row| row.get(0)).unwrap();
            names.map(std::result::Result::unwrap).collect()
        };
        let there = listed(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
        );
        let known = TABLES.iter().map(|table| table.name).chain(NOT_COPIED);
        assert_eq!(there, known.map(str::to_owned).collect());
        for table in &TABLES {
            let sql = format!("SELECT name FROM pragma_table_info('{}')", table.name);
            let known = names(table).chain([row_id(table)]).map(str::to_owned);
            assert_eq!(listed(&sql), known.collect(), "{}", table.name);
        }
    }
}
