//! Everything in a database as plain data: read as it is at one moment, or written into one that holds nothing yet.
//!
//! Reading is one transaction, and so is writing: what is broken off leaves no trace. Rows come and go a page at a
//! time, by a cursor and by `COPY`.

use std::pin::pin;

use bytes::BytesMut;
use quotalog_ledger::store::StoreFuture;
use quotalog_record::transfer::{ROWS_MAX, Row, Source, Storage, Table, Target, Unfit, Value};
use tokio_postgres::Error;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{IsNull, ToSql, Type};

use crate::config::{PostgresClock, PostgresConfig};
use crate::connection::{Begin, Connection, Connector};
use crate::fault::{before_commit, of_opening};
use crate::instant::Instant;
use crate::{OpenError, schema, token};

/// A database whose rows are read or written as plain data.
pub struct PostgresTransfer {
    connection: Connection,
    /// The table that is being read.
    reading: Option<&'static Table>,
}

/// A page may be long in coming, and whoever writes the other side takes time too.
const PATIENT: &str =
    "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0";
/// Known to this program alone. It is held by whoever reads and by whoever writes, so that nobody copies a database
/// into itself, under whatever name.
const LOCK: &str = "SELECT pg_try_advisory_xact_lock(8148427718541896)";
/// Nobody else writes meanwhile. Reading goes on.
const LOCK_TABLES: &str = "SHARE ROW EXCLUSIVE MODE";
/// The rows that lock the pairs which were counted, whoever serves them.
const ANCHOR: &str = "INSERT INTO quota_policies (user_id, resource) \
     SELECT DISTINCT u.user_id, u.resource FROM quota_usage u ON CONFLICT (user_id, resource) DO NOTHING";

impl PostgresTransfer {
    /// Reads the database as it is now, whatever others write meanwhile.
    ///
    /// # Errors
    /// [`OpenError`], which says what to change, or that the same may work later.
    pub async fn read(config: &PostgresConfig) -> Result<Self, OpenError> {
        let connection = schema::as_it_is(&Connector::new(config)?).await?;
        Self::begun(connection, Begin::Read)
            .await?
            .alone()
            .await?
            .set(PATIENT)
            .await
    }

    /// The same for whoever only looks, beside any others.
    ///
    /// # Errors
    /// [`OpenError`], which says what to change, or that the same may work later.
    pub async fn look(config: &PostgresConfig) -> Result<Self, OpenError> {
        let connection = schema::as_it_is(&Connector::new(config)?).await?;
        Self::begun(connection, Begin::Read)
            .await?
            .set(PATIENT)
            .await
    }

    /// Brings the database up to date, and begins to write into it. Others wait.
    ///
    /// # Errors
    /// [`OpenError`], which says what to change, or that the same may work later.
    pub async fn write(config: &PostgresConfig) -> Result<Self, OpenError> {
        let connector = Connector::new(config)?;
        let connection = schema::prepare(&connector, &PostgresClock::Database).await?;
        let tables: Vec<&str> = quotalog_record::transfer::TABLES
            .iter()
            .map(|table| table.name)
            .collect();
        let settings = format!(
            "{PATIENT}; LOCK TABLE {} IN {LOCK_TABLES}",
            tables.join(", ")
        );
        Self::begun(connection, Begin::Write)
            .await?
            .alone()
            .await?
            .set(&settings)
            .await
    }

    async fn begun(connection: Connection, begin: Begin) -> Result<Self, OpenError> {
        let begun = connection.begin(begin).await;
        begun.map_err(|error| of_opening(&error))?;
        Ok(Self {
            connection,
            reading: None,
        })
    }

    async fn set(self, settings: &str) -> Result<Self, OpenError> {
        let set = self.connection.run(settings).await;
        set.map_err(|error| of_opening(&error))?;
        Ok(self)
    }

    /// Refuses a database that is being copied.
    async fn alone(self) -> Result<Self, OpenError> {
        let refused = |error: Error| of_opening(&error);
        let locked = self
            .connection
            .query_one(LOCK, &[])
            .await
            .map_err(refused)?;
        if locked.try_get::<_, bool>(0).map_err(refused)? {
            Ok(self)
        } else {
            Err(OpenError::Copied)
        }
    }

    async fn number(&self, sql: &str) -> Result<i64, Error> {
        let row = self.connection.client().query_one(sql, &[]).await?;
        row.try_get(0)
    }

    async fn close_cursor(&mut self) -> Result<(), Error> {
        match self.reading.take() {
            Some(_) => self.connection.run("CLOSE rows").await,
            None => Ok(()),
        }
    }

    async fn page(&self, table: &'static Table) -> Result<Vec<Result<Row, Unfit>>, Error> {
        let fetch = format!("FETCH FORWARD {ROWS_MAX} FROM rows");
        let rows = self.connection.client().query(&fetch, &[]).await?;
        Ok(rows.iter().map(|row| held(table, row)).collect())
    }

    async fn copy_in(&self, table: &'static Table, rows: &[Row]) -> Result<(), Error> {
        let sql = format!(
            "COPY {} ({}) FROM STDIN (FORMAT binary)",
            table.name,
            columns(table).join(", ")
        );
        let types: Vec<Type> = table
            .columns
            .iter()
            .map(|column| match column.kind.storage() {
                Storage::Integer => Type::INT8,
                Storage::Text => Type::TEXT,
                Storage::Bytes => Type::BYTEA,
                Storage::Instant => Type::TIMESTAMPTZ,
            })
            .collect();
        let sink = self.connection.client().copy_in(&sql).await?;
        let mut writer = pin!(BinaryCopyInWriter::new(sink, &types));
        for row in rows {
            writer.as_mut().write_raw(stored(row)).await?;
        }
        writer.finish().await?;
        Ok(())
    }

    /// Replaces the row of a table that always has one.
    async fn replace(&self, table: &'static Table, row: &Row) -> Result<(), Error> {
        let columns = columns(table).into_iter().enumerate();
        let columns: Vec<String> = columns
            .map(|(at, name)| format!("{name} = ${}", at + 1))
            .collect();
        let sql = format!("UPDATE {} SET {}", table.name, columns.join(", "));
        let values = stored(row);
        let values: Vec<&(dyn ToSql + Sync)> = values
            .iter()
            .map(|value| value as &(dyn ToSql + Sync))
            .collect();
        self.connection.client().execute(&sql, &values).await?;
        Ok(())
    }

    async fn finish(&self) -> Result<(), Error> {
        self.connection.run(ANCHOR).await?;
        self.connection.run(token::BUMP).await
    }
}

impl Source for PostgresTransfer {
    fn count(&mut self, table: &'static Table) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let sql = format!("SELECT count(*) FROM {}", table.name);
            let counted = self.number(&(sql + filter(table))).await;
            Ok(counted.map_err(before_commit)?.unsigned_abs())
        })
    }

    fn open(&mut self, table: &'static Table) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.close_cursor().await.map_err(before_commit)?;
            let columns = columns(table);
            let order = if table.is_single() {
                String::new()
            } else {
                format!(" ORDER BY {}", columns[..table.key_len].join(", "))
            };
            let sql = format!(
                "DECLARE rows NO SCROLL CURSOR FOR SELECT {} FROM {}{}{order}",
                columns.join(", "),
                table.name,
                filter(table)
            );
            self.connection.run(&sql).await.map_err(before_commit)?;
            self.reading = Some(table);
            Ok(())
        })
    }

    fn next_rows(&mut self) -> StoreFuture<'_, Vec<Result<Row, Unfit>>> {
        Box::pin(async move {
            let Some(table) = self.reading else {
                return Ok(Vec::new());
            };
            let rows = self.page(table).await.map_err(before_commit)?;
            if rows.is_empty() {
                self.close_cursor().await.map_err(before_commit)?;
            }
            Ok(rows)
        })
    }

    fn last_place(&mut self, table: &'static Table) -> StoreFuture<'_, i64> {
        Box::pin(async move {
            let Some(place) = table.place() else {
                return Ok(0);
            };
            let sql = format!(
                "SELECT greatest(0, pg_sequence_last_value(pg_get_serial_sequence('public.{0}', '{1}')::regclass), \
                 (SELECT max({1}) FROM {0}))",
                table.name, place.name
            );
            self.number(&sql).await.map_err(before_commit)
        })
    }
}

impl Target for PostgresTransfer {
    fn write(&mut self, table: &'static Table, rows: Vec<Row>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let written = match &*rows {
                [row, ..] if table.is_single() => self.replace(table, row).await,
                rows => self.copy_in(table, rows).await,
            };
            written.map_err(before_commit)
        })
    }

    fn go_on_after(&mut self, table: &'static Table, place: i64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let Some(column) = table.place().filter(|_| place > 0) else {
                return Ok(());
            };
            let sql = format!(
                "SELECT setval(pg_get_serial_sequence('public.{0}', '{1}'), greatest({place}, \
                 pg_sequence_last_value(pg_get_serial_sequence('public.{0}', '{1}')::regclass)))",
                table.name, column.name
            );
            self.number(&sql).await.map_err(before_commit)?;
            Ok(())
        })
    }

    fn commit(self: Box<Self>) -> StoreFuture<'static, ()> {
        Box::pin(async move {
            self.finish().await.map_err(before_commit)?;
            self.connection.commit().await?;
            self.connection.close().await;
            Ok(())
        })
    }
}

/// Rows that only lock a pair are made anew where they are needed.
fn filter(table: &Table) -> &'static str {
    match table.name {
        "quota_policies" => " WHERE \"window\" IS NOT NULL",
        _ => "",
    }
}

fn columns(table: &'static Table) -> Vec<String> {
    let columns = table.columns.iter();
    columns
        .map(|column| format!("\"{}\"", column.name))
        .collect()
}

fn held(table: &'static Table, row: &tokio_postgres::Row) -> Result<Row, Unfit> {
    let columns = table.columns.iter().enumerate();
    let values: Vec<Option<Value>> = columns
        .map(|(at, column)| value(row, at, column.kind.storage()))
        .collect();
    let key: Vec<String> = values[..table.key_len]
        .iter()
        .map(|value| format!("{value:?}"))
        .collect();
    table.hold(values).map_err(|column| Unfit {
        row: key.join(", "),
        column,
    })
}

/// A value, if the domain has it.
fn value(row: &tokio_postgres::Row, at: usize, storage: Storage) -> Option<Value> {
    let value = match storage {
        Storage::Integer => row.try_get::<_, Option<i64>>(at).ok()?.map(Value::Integer),
        Storage::Text => row.try_get::<_, Option<String>>(at).ok()?.map(Value::Text),
        Storage::Bytes => row
            .try_get::<_, Option<Vec<u8>>>(at)
            .ok()?
            .map(Value::Bytes),
        Storage::Instant => match row.try_get::<_, Option<Instant>>(at).ok()? {
            Some(instant) => Some(Value::Instant(instant.timestamp()?)),
            None => None,
        },
    };
    Some(value.unwrap_or(Value::Null))
}

fn stored(row: &Row) -> Vec<Stored<'_>> {
    row.values().iter().map(Stored).collect()
}

/// A value as it is stored here.
#[derive(Debug)]
struct Stored<'v>(&'v Value);

impl ToSql for Stored<'_> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self.0 {
            Value::Null => Ok(IsNull::Yes),
            Value::Integer(integer) => integer.to_sql_checked(kind, out),
            Value::Text(text) => text.to_sql_checked(kind, out),
            Value::Bytes(bytes) => bytes.to_sql_checked(kind, out),
            Value::Instant(instant) => Instant::from(*instant).to_sql_checked(kind, out),
        }
    }

    // Each value asks for itself.
    fn accepts(_: &Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}
