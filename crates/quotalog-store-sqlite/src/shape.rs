//! What the two tables that another program may have made must be like, or else nothing is opened.
//!
//! A table that only looks alike would fail requests one by one, or worse: forget what was counted, or
//! count two users as one.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, Result};

use crate::OpenError;
use crate::schema::refused;

/// One of the two tables.
struct Table {
    name: &'static str,
    columns: &'static [&'static str],
    /// The columns that together name a row, in the order of their names.
    key: &'static [&'static str],
    /// The column that holds an integer.
    units: &'static str,
}

const TABLES: [Table; 2] = [
    Table {
        name: "quota_policies",
        columns: &[
            "user_id",
            "resource",
            "window",
            "limit_count",
            "created_at",
            "updated_at",
        ],
        key: &["resource", "user_id"],
        units: "limit_count",
    },
    Table {
        name: "quota_usage",
        columns: &[
            "user_id",
            "resource",
            "window_start",
            "usage",
            "created_at",
            "updated_at",
        ],
        key: &["resource", "user_id", "window_start"],
        units: "usage",
    },
];

const ROWID_TABLE: &str = "SELECT type = 'table' AND NOT wr FROM pragma_table_list \
     WHERE schema = 'main' AND name = ?1 COLLATE NOCASE";
const TRIGGERS: &str = "SELECT EXISTS (SELECT 1 FROM sqlite_schema \
     WHERE type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE)";
const FOREIGN_KEYS: &str = "SELECT EXISTS (SELECT 1 FROM pragma_foreign_key_list(?1))";
const COLUMNS: &str = "SELECT name, type, \"notnull\", dflt_value IS NOT NULL, pk, hidden \
     FROM pragma_table_xinfo(?1)";
const UNIQUE_INDEXES: &str = "SELECT name, partial FROM pragma_index_list(?1) WHERE \"unique\"";
const KEYS_OF_INDEX: &str =
    "SELECT name, coll FROM pragma_index_xinfo(?1) WHERE key ORDER BY lower(name)";

/// Refuses a file in which one of the tables exists and is of another shape.
pub(crate) fn check(path: &Path, connection: &Connection) -> std::result::Result<(), OpenError> {
    for table in &TABLES {
        let fault = table
            .fault(connection)
            .map_err(|error| refused(path, error))?;
        if let Some(fault) = fault {
            return Err(OpenError::ForeignSchema {
                path: path.to_owned(),
                cause: format!("{} {fault}", table.name),
            });
        }
    }
    Ok(())
}

impl Table {
    /// What is wrong with the table, if it exists and anything is.
    fn fault(&self, connection: &Connection) -> Result<Option<String>> {
        let says = |sql: &str| connection.query_row(sql, [self.name], |row| row.get::<_, bool>(0));
        match says(ROWID_TABLE).optional()? {
            None => return Ok(None),
            Some(false) => return Ok(Some("is not an ordinary table".to_owned())),
            Some(true) => {}
        }
        if says(TRIGGERS)? {
            return Ok(Some("has a trigger".to_owned()));
        }
        if says(FOREIGN_KEYS)? {
            return Ok(Some("refers to another table".to_owned()));
        }
        if let Some(fault) = self.fault_of_columns(connection)? {
            return Ok(Some(fault));
        }
        self.fault_of_key(connection)
    }

    fn fault_of_columns(&self, connection: &Connection) -> Result<Option<String>> {
        let columns: Vec<Column> = connection
            .prepare(COLUMNS)?
            .query_map([self.name], Column::read)?
            .collect::<Result<_>>()?;
        if let Some(fault) = columns.iter().find_map(|column| self.fault_of(column)) {
            return Ok(Some(fault));
        }
        for name in ["id"].iter().chain(self.columns) {
            if !columns.iter().any(|column| column.is(name)) {
                return Ok(Some(format!("has no such column: {name}")));
            }
        }
        Ok(None)
    }

    fn fault_of(&self, column: &Column) -> Option<String> {
        let name = column.name.escape_debug();
        if column.is("id") {
            let is_rowid = column.kind.eq_ignore_ascii_case("INTEGER") && column.place_in_key == 1;
            return (!is_rowid).then(|| "has an id that is no INTEGER PRIMARY KEY".to_owned());
        }
        if column.place_in_key != 0 {
            return Some(format!("has {name} in its primary key"));
        }
        if !self.columns.iter().any(|known| column.is(known)) {
            return column
                .must_be_given()
                .then(|| format!("has a further column that must be given: {name}"));
        }
        if column.hidden {
            return Some(format!("computes its column {name}"));
        }
        let affinity = column.affinity();
        let fits = if column.is(self.units) {
            matches!(
                affinity,
                Affinity::Integer | Affinity::None | Affinity::Other
            )
        } else if self.key.iter().any(|key| column.is(key)) {
            matches!(affinity, Affinity::Text | Affinity::None)
        } else {
            true
        };
        (!fits).then(|| format!("has the wrong type in its column {name}"))
    }

    /// The key must be unique, by bytes, and nothing less than the key may be.
    fn fault_of_key(&self, connection: &Connection) -> Result<Option<String>> {
        for key in self.key {
            let (_, collation, ..) = connection.column_metadata(Some("main"), self.name, *key)?;
            if collation.is_some_and(|name| !is_binary(name.to_bytes())) {
                return Ok(Some(format!("does not compare {key} by its bytes")));
            }
        }
        let indexes: Vec<(String, bool)> = connection
            .prepare(UNIQUE_INDEXES)?
            .query_map([self.name], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_>>()?;
        let mut keys_of = connection.prepare(KEYS_OF_INDEX)?;
        let mut has_key = false;
        for (index, partial) in indexes {
            let keys: Vec<(Option<String>, String)> = keys_of
                .query_map([&index], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<Result<_>>()?;
            let is_key = !partial
                && keys.len() == self.key.len()
                && keys.iter().zip(self.key).all(|((name, _), key)| {
                    name.as_deref()
                        .is_some_and(|name| name.eq_ignore_ascii_case(key))
                });
            if !is_key {
                return Ok(Some("has a further unique index".to_owned()));
            }
            if !keys.iter().all(|(_, coll)| is_binary(coll.as_bytes())) {
                return Ok(Some("does not compare its key by its bytes".to_owned()));
            }
            has_key = true;
        }
        let fault = || format!("has no unique index over {}", self.key.join(", "));
        Ok((!has_key).then(fault))
    }
}

fn is_binary(collation: &[u8]) -> bool {
    collation.eq_ignore_ascii_case(b"BINARY")
}

/// A column, as SQLite describes it.
struct Column {
    name: String,
    kind: String,
    not_null: bool,
    has_default: bool,
    place_in_key: i64,
    hidden: bool,
}

/// What SQLite makes of a value that is stored in a column of some type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Affinity {
    /// Digits become an integer.
    Integer,
    /// A number becomes its digits.
    Text,
    /// Everything stays what it is.
    None,
    /// A number becomes a floating one.
    Real,
    /// Digits become a number.
    Other,
}

impl Column {
    fn read(row: &rusqlite::Row<'_>) -> Result<Self> {
        Ok(Self {
            name: row.get(0)?,
            kind: row.get(1)?,
            not_null: row.get(2)?,
            has_default: row.get(3)?,
            place_in_key: row.get(4)?,
            hidden: row.get::<_, i64>(5)? != 0,
        })
    }

    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    fn must_be_given(&self) -> bool {
        self.not_null && !self.has_default && !self.hidden
    }

    /// The rules of <https://www.sqlite.org/datatype3.html>, section 3.1, in their order.
    fn affinity(&self) -> Affinity {
        let kind = self.kind.to_ascii_uppercase();
        let has = |parts: &[&str]| parts.iter().any(|part| kind.contains(part));
        if has(&["INT"]) {
            Affinity::Integer
        } else if has(&["CHAR", "CLOB", "TEXT"]) {
            Affinity::Text
        } else if kind.is_empty() || has(&["BLOB"]) {
            Affinity::None
        } else if has(&["REAL", "FLOA", "DOUB"]) {
            Affinity::Real
        } else {
            Affinity::Other
        }
    }
}
