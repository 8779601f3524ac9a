//! Keys as SQLite orders them, also where they are no values of the domain: to go on after any row there is.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Result, ToSql};

/// A text or a blob by its bytes; every text comes before every blob.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Raw {
    is_blob: bool,
    bytes: Vec<u8>,
}

impl Raw {
    pub(crate) fn text(text: &str) -> Self {
        Self {
            is_blob: false,
            bytes: text.as_bytes().to_vec(),
        }
    }

    /// A column's value. What comes before all texts is taken for the first of them, which is empty.
    pub(crate) fn of(value: ValueRef<'_>) -> Self {
        let (is_blob, bytes) = match value {
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => (false, &[][..]),
            ValueRef::Text(bytes) => (false, bytes),
            ValueRef::Blob(bytes) => (true, bytes),
        };
        Self {
            is_blob,
            bytes: bytes.to_vec(),
        }
    }
}

impl ToSql for Raw {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(if self.is_blob {
            ValueRef::Blob(&self.bytes)
        } else {
            ValueRef::Text(&self.bytes)
        }))
    }
}
