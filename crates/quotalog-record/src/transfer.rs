//! The tables as plain data, which one store reads and another one writes: for copying everything there is.
//!
//! Here is what both sides must agree on: the tables, what each column holds, and what a row is like that can be
//! held at all. How rows are read and written is the stores' own.
//!
//! **A table that a migration adds belongs into [`TABLES`]**, in the order in which it is to be copied. Until then
//! a test of each store fails.

use std::fmt;

use quotalog_auth::{ActorKind, Role, RoleKind, TokenName};
use quotalog_domain::{Limit, Resource, Timestamp, UserId, Window};
use quotalog_ledger::store::{AuditAction, StoreFuture};
use sha2::{Digest as _, Sha256};

use crate::facts;

/// The most rows that are in hand at once.
pub const ROWS_MAX: usize = 1_000;

/// All that is copied, in this order.
pub static TABLES: [Table; 7] = [POLICIES, USAGE, DEFAULTS, TOKENS, KEPT, AUDIT, CLOCK];

/// What both stores keep and is not copied: the record of the migrations is each store's own, and the generation
/// of the tokens is raised by the copy instead, for callers that a running process has looked up. An erasure that is
/// not finished must come to its end first.
pub const NOT_COPIED: [&str; 3] = [
    "quotalog_schema_history",
    "quotalog_token_generation",
    "quotalog_erasures",
];

/// Erasures that are not finished, which each store notes in its own way.
pub static ERASURES: Table = Table {
    name: "quotalog_erasures",
    noun: "unfinished erasures",
    columns: &[],
    key_len: 1,
};

/// The policies of pairs.
pub const POLICIES: Table = Table {
    name: "quota_policies",
    noun: "policies",
    columns: &[
        given("user_id", Kind::UserId),
        given("resource", Kind::Resource),
        given("window", Kind::Window),
        given("limit_count", Kind::Limit),
        given("created_at", Kind::Instant),
        given("updated_at", Kind::Instant),
    ],
    key_len: 2,
};

/// What was counted.
pub const USAGE: Table = Table {
    name: "quota_usage",
    noun: "usage",
    columns: &[
        given("user_id", Kind::UserId),
        given("resource", Kind::Resource),
        given("window_start", Kind::WindowStart),
        given("usage", Kind::Units),
        given("created_at", Kind::Unread),
        given("updated_at", Kind::Unread),
    ],
    key_len: 3,
};

/// The defaults of resources.
pub const DEFAULTS: Table = Table {
    name: "quotalog_defaults",
    noun: "defaults",
    columns: &[
        given("resource", Kind::Resource),
        given("window", Kind::Window),
        given("limit_count", Kind::Limit),
        given("created_at", Kind::Instant),
        given("updated_at", Kind::Instant),
    ],
    key_len: 1,
};

const TOKENS: Table = Table {
    name: "quotalog_tokens",
    noun: "tokens",
    columns: &[
        given("place", Kind::Place),
        given("id", Kind::Text),
        given("hash", Kind::Bytes),
        given("role", Kind::Role),
        optional("user_id", Kind::UserId),
        optional("name", Kind::TokenName),
        given("created_at", Kind::Instant),
        optional("expires_at", Kind::Instant),
    ],
    key_len: 1,
};

const KEPT: Table = Table {
    name: "quotalog_idempotency_keys",
    noun: "kept answers",
    columns: &[
        given("user_id", Kind::Text),
        given("resource", Kind::Text),
        given("operation", Kind::Text),
        given("caller", Kind::Text),
        given("key", Kind::Text),
        given("kept_at", Kind::Instant),
        // One that is unreadable refuses its key there as it does here.
        given("kept", Kind::Bytes),
        given("place", Kind::Place),
    ],
    key_len: 5,
};

const AUDIT: Table = Table {
    name: "quotalog_audit",
    noun: "audit entries",
    columns: &[
        given("id", Kind::Place),
        given("at", Kind::Instant),
        given("actor_kind", Kind::Actor),
        given("actor_id", Kind::Text),
        optional("actor_name", Kind::Text),
        given("action", Kind::Action),
        optional("user_id", Kind::UserId),
        optional("resource", Kind::Resource),
        optional("before", Kind::Facts),
        optional("after", Kind::Facts),
    ],
    key_len: 1,
};

/// How far the clock was believed goes with the rows that are pruned by it.
const CLOCK: Table = Table {
    name: "quotalog_clock",
    noun: "clock",
    columns: &[
        given("seen_at", Kind::Instant),
        optional("leapt_at", Kind::Instant),
    ],
    key_len: 0,
};

/// One kind of rows.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// What every store calls it.
    pub name: &'static str,
    /// What people call its rows.
    pub noun: &'static str,
    /// What a row holds, in this order.
    pub columns: &'static [Column],
    /// How many of the first columns name a row; 0 where every database has just one, an empty one too.
    pub key_len: usize,
}

/// One value of a row.
#[derive(Debug, PartialEq, Eq)]
pub struct Column {
    /// What it is called.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether it may hold nothing.
    pub is_optional: bool,
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Whose.
    UserId,
    /// Of what.
    Resource,
    /// The name of a window.
    Window,
    /// A limit, also one above today's maximum.
    Limit,
    /// Units counted.
    Units,
    /// A place that is given once, in the order of creation.
    Place,
    /// The name of a role.
    Role,
    /// What people call a token.
    TokenName,
    /// By what somebody who made a change is known.
    Actor,
    /// What somebody did.
    Action,
    /// Facts of the audit.
    Facts,
    /// Any other text.
    Text,
    /// Bytes.
    Bytes,
    /// An instant, of which whole seconds are kept.
    Instant,
    /// The instant that names a row of usage.
    WindowStart,
    /// An instant that nobody reads. Where another program has left something else, it is the instant before it.
    Unread,
}

/// How a column's values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// An integer of 64 bits.
    Integer,
    /// A text.
    Text,
    /// Bytes.
    Bytes,
    /// An instant.
    Instant,
}

/// One value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Null,
    /// An integer.
    Integer(i64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// An instant.
    Instant(Timestamp),
}

/// A row that every store can hold: made by [`Table::hold`] alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row(Vec<Value>);

/// A row that quotalog cannot hold, which it passes over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{row}: its {column} cannot be held")]
pub struct Unfit {
    /// Which one.
    pub row: String,
    /// The column that is at fault.
    pub column: &'static str,
}

/// One state of a database, read table by table.
pub trait Source: Send {
    /// How many rows the table has.
    ///
    /// # Errors
    /// As of any reading.
    fn count(&mut self, table: &'static Table) -> StoreFuture<'_, u64>;

    /// Begins with the first row of the table.
    ///
    /// # Errors
    /// As of any reading.
    fn open(&mut self, table: &'static Table) -> StoreFuture<'_, ()>;

    /// The next rows of the table that was opened, at most [`ROWS_MAX`]; none after the last.
    ///
    /// # Errors
    /// As of any reading.
    fn next_rows(&mut self) -> StoreFuture<'_, Vec<Result<Row, Unfit>>>;

    /// The last place that was given in a table, also if its row is gone; 0 if none was.
    ///
    /// # Errors
    /// As of any reading.
    fn last_place(&mut self, table: &'static Table) -> StoreFuture<'_, i64>;
}

/// A transaction into which everything is written, and read back before it is committed. Dropped, it leaves no trace.
pub trait Target: Source {
    /// Adds rows to a table; where there is always just one, replaces it.
    ///
    /// # Errors
    /// As of any writing: the transaction is of no more use.
    fn write(&mut self, table: &'static Table, rows: Vec<Row>) -> StoreFuture<'_, ()>;

    /// Gives only places after this one from now on.
    ///
    /// # Errors
    /// As of any writing: the transaction is of no more use.
    fn go_on_after(&mut self, table: &'static Table, place: i64) -> StoreFuture<'_, ()>;

    /// Makes everything durable.
    ///
    /// # Errors
    /// As of any commit: nothing is there, or, if the outcome is unknown, all of it may be.
    fn commit(self: Box<Self>) -> StoreFuture<'static, ()>;
}

const fn given(name: &'static str, kind: Kind) -> Column {
    Column {
        name,
        kind,
        is_optional: false,
    }
}

const fn optional(name: &'static str, kind: Kind) -> Column {
    Column {
        name,
        kind,
        is_optional: true,
    }
}

impl Table {
    /// Whether every database has just one row of it, an empty one too.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.key_len == 0
    }

    /// The column that holds each row's place, if rows have one.
    #[must_use]
    pub fn place(&self) -> Option<&'static Column> {
        let mut columns = self.columns.iter();
        columns.find(|column| column.kind == Kind::Place)
    }

    /// A row of these values, in the order of the columns; `None` is what the store could not read as its column's kind.
    ///
    /// # Errors
    /// The name of the first column whose value cannot be held.
    pub fn hold(&self, values: Vec<Option<Value>>) -> Result<Row, &'static str> {
        let mut held: Vec<Value> = Vec::with_capacity(self.columns.len());
        let mut values = values.into_iter();
        for column in self.columns {
            let value = values.next().flatten();
            let value = match (value, column.kind) {
                (None | Some(Value::Null), Kind::Unread) => self.window_start(&held),
                (value, _) => value,
            };
            let value = value.and_then(|value| column.hold(value));
            held.push(value.ok_or(column.name)?);
        }
        self.check_role(&held)?;
        Ok(Row(held))
    }

    fn window_start(&self, held: &[Value]) -> Option<Value> {
        let mut columns = self.columns.iter();
        let at = columns.position(|column| column.kind == Kind::WindowStart)?;
        held.get(at).cloned()
    }

    /// A token of the role user has a user, and no other has one.
    fn check_role(&self, held: &[Value]) -> Result<(), &'static str> {
        let of_kind = |kind| {
            let mut columns = self.columns.iter();
            let at = columns.position(|column| column.kind == kind)?;
            Some((self.columns[at].name, text(held.get(at)?)))
        };
        let Some((column, role)) = of_kind(Kind::Role) else {
            return Ok(());
        };
        let (_, user_id) = of_kind(Kind::UserId).unwrap_or_default();
        let user_id = user_id.and_then(|text| UserId::try_from(text).ok());
        let role = role.and_then(|text| RoleKind::try_from(text).ok());
        let role = role.and_then(|role| Role::new(role, user_id).ok());
        role.map(drop).ok_or(column)
    }
}

impl Column {
    /// The value as it is held; `None` if it cannot be.
    fn hold(&self, value: Value) -> Option<Value> {
        if value == Value::Null {
            return self.is_optional.then_some(value);
        }
        let fits = match (&value, self.kind) {
            (Value::Text(text), kind) => !text.contains('\0') && kind.takes(text),
            (Value::Integer(units), Kind::Limit) => Limit::stored(*units).is_ok(),
            (Value::Integer(units), Kind::Units) => *units >= 0,
            (Value::Integer(_), kind) => kind == Kind::Place,
            (Value::Bytes(_), kind) => kind == Kind::Bytes,
            (Value::Instant(instant), Kind::WindowStart) => *instant == instant.floor_to_s(),
            (Value::Instant(_), kind) => matches!(kind, Kind::Instant | Kind::Unread),
            (Value::Null, _) => false,
        };
        let held = match value {
            Value::Instant(instant) => Value::Instant(instant.floor_to_s()),
            Value::Null | Value::Integer(_) | Value::Text(_) | Value::Bytes(_) => value,
        };
        fits.then_some(held)
    }
}

impl Kind {
    /// How its values are stored.
    #[must_use]
    pub const fn storage(self) -> Storage {
        match self {
            Self::UserId
            | Self::Resource
            | Self::Window
            | Self::Role
            | Self::TokenName
            | Self::Actor
            | Self::Action
            | Self::Facts
            | Self::Text => Storage::Text,
            Self::Limit | Self::Units | Self::Place => Storage::Integer,
            Self::Bytes => Storage::Bytes,
            Self::Instant | Self::WindowStart | Self::Unread => Storage::Instant,
        }
    }

    fn takes(self, text: &str) -> bool {
        match self {
            Self::UserId => UserId::try_from(text).is_ok(),
            Self::Resource => Resource::try_from(text).is_ok(),
            Self::Window => Window::try_from(text).is_ok(),
            Self::Role => RoleKind::try_from(text).is_ok(),
            Self::TokenName => TokenName::try_from(text).is_ok(),
            Self::Actor => ActorKind::try_from(text).is_ok(),
            Self::Action => AuditAction::try_from(text).is_ok(),
            Self::Facts => facts::from_json(text).is_some(),
            Self::Text => true,
            Self::Limit
            | Self::Units
            | Self::Place
            | Self::Bytes
            | Self::Instant
            | Self::WindowStart
            | Self::Unread => false,
        }
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) => Some(text),
        Value::Null | Value::Integer(_) | Value::Bytes(_) | Value::Instant(_) => None,
    }
}

impl Row {
    /// Its values, in the order of the table's columns.
    #[must_use]
    pub fn values(&self) -> &[Value] {
        &self.0
    }
}

/// What a table holds, as one number: whoever holds the same rows has the same, whatever their order is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Digest {
    /// How many rows.
    pub rows: u64,
    /// The sum of the rows' SHA-256, in four parts.
    sums: [u64; 4],
}

impl Digest {
    /// Adds a row.
    pub fn add(&mut self, row: &Row) {
        let mut hash = Sha256::new();
        for value in row.values() {
            match value {
                Value::Null => hash.update([0]),
                Value::Integer(integer) => {
                    hash.update([1]);
                    hash.update(integer.to_be_bytes());
                }
                Value::Text(text) => add_bytes(&mut hash, 2, text.as_bytes()),
                Value::Bytes(bytes) => add_bytes(&mut hash, 3, bytes),
                Value::Instant(instant) => {
                    hash.update([4]);
                    hash.update(instant.unix_us().to_be_bytes());
                }
            }
        }
        let hash = hash.finalize();
        for (sum, part) in self.sums.iter_mut().zip(hash.chunks_exact(8)) {
            let part = part
                .iter()
                .fold(0, |number, byte| (number << 8) | u64::from(*byte));
            *sum = sum.wrapping_add(part);
        }
        self.rows = self.rows.saturating_add(1);
    }
}

/// Lengths keep two neighbours from being taken for two others.
fn add_bytes(hash: &mut Sha256, tag: u8, bytes: &[u8]) {
    hash.update([tag]);
    hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
    hash.update(bytes);
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sums
            .iter()
            .try_for_each(|sum| write!(formatter, "{sum:016x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(user_id: &str, window: &str, limit: i64) -> Vec<Option<Value>> {
        let at = Value::Instant(Timestamp::from_unix_us(1_796_061_600_123_456));
        vec![
            Some(Value::Text(user_id.to_owned())),
            Some(Value::Text("r".to_owned())),
            Some(Value::Text(window.to_owned())),
            Some(Value::Integer(limit)),
            Some(at.clone()),
            Some(at),
        ]
    }

    fn digest(rows: &[Vec<Option<Value>>]) -> Digest {
        let mut digest = Digest::default();
        for row in rows {
            digest.add(&POLICIES.hold(row.clone()).unwrap());
        }
        digest
    }

    #[test]
    fn a_row_is_held_if_the_domain_can_hold_it() {
        let held = POLICIES.hold(policy("o'neil", "daily", 5_000_000)).unwrap();
        let at = Timestamp::from_unix_s(1_796_061_600);
        assert_eq!(held.values()[4], Value::Instant(at));
        let refused = |row| POLICIES.hold(row).unwrap_err();
        assert_eq!(refused(policy("", "daily", 1)), "user_id");
        assert_eq!(refused(policy("a\0b", "daily", 1)), "user_id");
        assert_eq!(refused(policy("u", "weekly", 1)), "window");
        assert_eq!(refused(policy("u", "daily", 0)), "limit_count");
        let mut missing = policy("u", "daily", 1);
        missing[5] = Some(Value::Null);
        assert_eq!(refused(missing), "updated_at");
        assert_eq!(refused(policy("u", "daily", 1)[..5].to_vec()), "updated_at");
    }

    #[test]
    fn an_instant_of_usage_that_nobody_reads_may_be_anything() {
        let start = Value::Instant(Timestamp::from_unix_s(3_600));
        let usage = |start: Option<Value>, units| {
            let id = |text: &str| Some(Value::Text(text.to_owned()));
            let units = Some(Value::Integer(units));
            USAGE.hold(vec![
                id("u"),
                id("r"),
                start,
                units,
                None,
                Some(Value::Null),
            ])
        };
        let held = usage(Some(start.clone()), 3).unwrap();
        assert_eq!(held.values()[4..], [start.clone(), start.clone()]);
        assert_eq!(usage(None, 3), Err("window_start"));
        assert_eq!(usage(Some(start), -1), Err("usage"));
        let within = Value::Instant(Timestamp::from_unix_us(1));
        assert_eq!(usage(Some(within), 3), Err("window_start"));
    }

    #[test]
    fn a_token_has_a_user_if_its_role_has_one() {
        let token = |role: &str, user_id: Value| {
            let at = Some(Value::Instant(Timestamp::from_unix_s(0)));
            TOKENS.hold(vec![
                Some(Value::Integer(1)),
                Some(Value::Text("id".to_owned())),
                Some(Value::Bytes(vec![0])),
                Some(Value::Text(role.to_owned())),
                Some(user_id),
                Some(Value::Null),
                at,
                Some(Value::Null),
            ])
        };
        let user = || Value::Text("u".to_owned());
        assert!(token("user", user()).is_ok() && token("admin", Value::Null).is_ok());
        assert_eq!(token("user", Value::Null), Err("role"));
        assert_eq!(token("admin", user()), Err("role"));
        assert_eq!(token("root", Value::Null), Err("role"));
    }

    #[test]
    fn a_digest_tells_rows_apart_and_not_their_order() {
        let [a, b] = [policy("a", "daily", 1), policy("b", "daily", 1)];
        assert_eq!(
            digest(&[a.clone(), b.clone()]),
            digest(&[b.clone(), a.clone()])
        );
        assert_ne!(
            digest(&[a.clone(), a.clone()]),
            digest(&[b.clone(), b.clone()])
        );
        let only_a = digest(std::slice::from_ref(&a));
        assert_ne!(only_a, digest(&[policy("a", "daily", 2)]));
        assert_ne!(only_a, digest(&[policy("a", "hourly", 1)]));
        assert_ne!(only_a, Digest::default());
        assert_eq!(digest(&[b]).to_string().len(), 64);
    }

    #[test]
    fn tables_and_columns_are_named_once() {
        for table in &TABLES {
            let named = TABLES.iter().filter(|other| other.name == table.name);
            assert_eq!(named.count(), 1, "{}", table.name);
            for column in table.columns {
                let same = table
                    .columns
                    .iter()
                    .filter(|other| other.name == column.name);
                assert_eq!(same.count(), 1, "{} {}", table.name, column.name);
            }
        }
    }
}
