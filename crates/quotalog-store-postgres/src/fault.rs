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
        if *code == SqlState::T_R_DEADLOCK_DETECTED
            || *code == SqlState::T_R_SERIALIZATION_FAILURE
            || *code == SqlState::UNIQUE_VIOLATION
        {
            return Self::Again;
        }
        // A prepared statement is gone or has another type: the connection was given another session, or the
        // tables were changed.
        if *code == SqlState::READ_ONLY_SQL_TRANSACTION
            || *code == SqlState::INVALID_SQL_STATEMENT_NAME
            || *code == SqlState::FEATURE_NOT_SUPPORTED
            || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
            || code.code() == TRANSACTION_TIMEOUT
        {
            return Self::Elsewhere;
        }
        match &code.code()[..2] {
            // The connection; the server shuts down, starts, or has crashed.
            "08" => Self::Elsewhere,
            "57" if *code == SqlState::QUERY_CANCELED => Self::Later,
            "57" => Self::Elsewhere,
            // Resources, locks, the system.
            "53" | "55" | "58" => Self::Later,
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
