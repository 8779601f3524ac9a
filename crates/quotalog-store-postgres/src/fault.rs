//! What an error of PostgreSQL means for the caller. The only map from one to the other.

use std::error::Error as _;

use quotalog_ledger::store::StoreError;
use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};

use crate::OpenError;

/// Why the store did not do something, when PostgreSQL did not say it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("the store is closed")]
    Closed,
    #[error("no connection was free in time")]
    NoneFree,
    #[error("no answer came in time")]
    TimedOut,
    #[error("the server committed without waiting for its standby any longer")]
    Unconfirmed,
    #[error("the batch was run again and again, and met others each time")]
    AlwaysAnother,
    #[error("the decision made fewer outcomes than there were commands")]
    OutcomeMissing,
    #[error("what was laid ready for the import is not as it was")]
    NotAsStaged,
    #[error("the database takes no writes; it is a standby")]
    ReadOnly,
    #[error(
        "the role may not do what the server does ({0}); grant it SELECT, INSERT, UPDATE and DELETE on the tables, \
         and USAGE on their schema"
    )]
    NotAllowed(String),
    #[error(
        "the tables are not there, or not as they were made ({0}); put them back, or let the role use their schema"
    )]
    NotAsMade(String),
}

impl Fault {
    pub(crate) fn unavailable(self) -> StoreError {
        StoreError::Unavailable(Box::new(self))
    }

    pub(crate) fn unknown(self) -> StoreError {
        StoreError::OutcomeUnknown(Box::new(self))
    }

    pub(crate) fn internal(self) -> StoreError {
        StoreError::Internal(Box::new(self))
    }
}

/// A limit that the role or the server may have, from PostgreSQL 17 on; it ends the session.
const TRANSACTION_TIMEOUT: &str = "25P04";

/// What can be done about an error that came before the commit was sent, so that nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// The same on the same connection, at once: it met another transaction.
    Again,
    /// The same on another connection: this one is of no more use.
    Elsewhere,
    /// The same later.
    Later,
    /// The same, once somebody has given the role its rights, or the tables back.
    Mended,
    /// None: it would fail the same way.
    None,
}

impl Remedy {
    pub(crate) fn of(error: &Error) -> Self {
        let Some(code) = error.code() else {
            // Without a code it is the connection's, or a value that does not fit its parameter or column.
            return if is_of_the_network(error) {
                Self::Elsewhere
            } else {
                Self::None
            };
        };
        Self::of_code(code)
    }

    fn of_code(code: &SqlState) -> Self {
        if *code == SqlState::T_R_DEADLOCK_DETECTED
            || *code == SqlState::T_R_SERIALIZATION_FAILURE
            || *code == SqlState::UNIQUE_VIOLATION
        {
            return Self::Again;
        }
        // A prepared statement is gone, is somebody else's or has another type: the connection was given another
        // session, or the tables were changed.
        if *code == SqlState::READ_ONLY_SQL_TRANSACTION
            || *code == SqlState::INVALID_SQL_STATEMENT_NAME
            || *code == SqlState::DUPLICATE_PSTATEMENT
            || *code == SqlState::FEATURE_NOT_SUPPORTED
            || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
            || code.code() == TRANSACTION_TIMEOUT
        {
            return Self::Elsewhere;
        }
        match &code.code()[..2] {
            // The connection; the server shuts down, starts, or has crashed. A pooler hands on that the server does
            // not let it in, or has no such database.
            "08" | "28" | "3D" => Self::Elsewhere,
            "57" if *code == SqlState::QUERY_CANCELED => Self::Later,
            "57" => Self::Elsewhere,
            // Resources, locks, the system.
            "53" | "55" | "58" => Self::Later,
            // Our statements never change, and each has run on every version that we take: what they name is not
            // there, is something else, or is not for this role.
            "42" if *code == SqlState::SYNTAX_ERROR => Self::None,
            "3F" | "42" => Self::Mended,
            // Values that the tables refuse, and broken files (XX), are of some rows: the others go on without them.
            _ => Self::None,
        }
    }
}

/// An error before the commit: nothing was written, whatever it is.
pub(crate) fn before_commit(error: Error) -> StoreError {
    match Remedy::of(&error) {
        Remedy::Again | Remedy::Elsewhere | Remedy::Later => {
            StoreError::Unavailable(Box::new(error))
        }
        Remedy::Mended if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            Fault::NotAllowed(line(&error)).unavailable()
        }
        Remedy::Mended => Fault::NotAsMade(line(&error)).unavailable(),
        Remedy::None => StoreError::Internal(Box::new(error)),
    }
}

/// An error of the commit itself. If the server says that it failed and goes on, it did; if it ends the session, or
/// the connection broke, the commit may be on disk.
pub(crate) fn at_commit(error: Error) -> StoreError {
    if is_of_the_statement(&error) {
        before_commit(error)
    } else {
        StoreError::OutcomeUnknown(Box::new(error))
    }
}

/// Whether the server says that a statement failed, and that the session goes on. A pooler that lost the server says
/// so as an error of the connection, whatever has become of the statement.
pub(crate) fn is_of_the_statement(error: &Error) -> bool {
    let told = error.as_db_error();
    told.is_some_and(|told| {
        told.parsed_severity() == Some(Severity::Error) && !told.code().code().starts_with("08")
    })
}

/// An error of a start: of connecting, or of what is asked before the store is opened.
pub(crate) fn of_opening(error: &Error) -> OpenError {
    let line = line(error);
    match error.code() {
        None if is_of_the_network(error) => OpenError::Unreachable(line),
        // No password, no TLS, a certificate of somebody else.
        None => OpenError::Refused(line),
        // A standby, which may be promoted.
        Some(code) if *code == SqlState::READ_ONLY_SQL_TRANSACTION => OpenError::Unreachable(line),
        Some(code) => match &code.code()[..2] {
            "08" | "53" | "57" => OpenError::Unreachable(line),
            // A password, a role, a database that is not there, a table that may not be made.
            "28" | "3D" | "42" => OpenError::Refused(line),
            _ => OpenError::Postgres(line),
        },
    }
}

/// An error and its causes on one line.
fn line(error: &Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{}, code {}", error.message(), error.code().code());
    }
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        cause = error.source();
    }
    line
}

fn is_of_the_network(error: &Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    let is_io = cause.is_some_and(|cause: &std::io::Error| {
        // TLS wraps what it finds wrong, which waiting does not mend.
        let inner = cause.get_ref();
        !inner.is_some_and(|inner| inner.is::<tokio_rustls::rustls::Error>())
    });
    is_io || error.is_closed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an operator, or another transaction, can have a running server meet.
    #[test]
    fn what_may_pass_is_told_from_faults_of_ours_by_its_code() {
        let table = [
            // It met another transaction.
            ("40001", Remedy::Again),
            ("40P01", Remedy::Again),
            ("23505", Remedy::Again),
            // The connection, or what is at its end.
            ("08006", Remedy::Elsewhere),
            ("08P01", Remedy::Elsewhere),
            ("57P01", Remedy::Elsewhere),
            ("57P02", Remedy::Elsewhere),
            ("57P03", Remedy::Elsewhere),
            ("57P04", Remedy::Elsewhere),
            ("57P05", Remedy::Elsewhere),
            ("25006", Remedy::Elsewhere),
            ("25P03", Remedy::Elsewhere),
            ("25P04", Remedy::Elsewhere),
            ("28000", Remedy::Elsewhere),
            ("28P01", Remedy::Elsewhere),
            ("3D000", Remedy::Elsewhere),
            // Its prepared statements.
            ("0A000", Remedy::Elsewhere),
            ("26000", Remedy::Elsewhere),
            ("42P05", Remedy::Elsewhere),
            // There is no room, or somebody else has it.
            ("53100", Remedy::Later),
            ("53200", Remedy::Later),
            ("53300", Remedy::Later),
            ("55000", Remedy::Later),
            ("55P03", Remedy::Later),
            ("57014", Remedy::Later),
            ("58030", Remedy::Later),
            ("58P01", Remedy::Later),
            // The role's rights, and what has become of schema, table, column, constraint, function.
            ("42501", Remedy::Mended),
            ("3F000", Remedy::Mended),
            ("42P01", Remedy::Mended),
            ("42703", Remedy::Mended),
            ("42P10", Remedy::Mended),
            ("42804", Remedy::Mended),
            ("42809", Remedy::Mended),
            ("42883", Remedy::Mended),
            // A statement or a value of ours, a constraint or trigger of theirs, a broken file.
            ("42601", Remedy::None),
            ("22003", Remedy::None),
            ("22P02", Remedy::None),
            ("23502", Remedy::None),
            ("23514", Remedy::None),
            ("25P02", Remedy::None),
            ("54000", Remedy::None),
            ("P0001", Remedy::None),
            ("XX000", Remedy::None),
            ("XX001", Remedy::None),
            ("XX002", Remedy::None),
        ];
        for (code, remedy) in table {
            assert_eq!(
                Remedy::of_code(&SqlState::from_code(code)),
                remedy,
                "{code}"
            );
        }
    }
}
