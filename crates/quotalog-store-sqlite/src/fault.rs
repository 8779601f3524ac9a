//! What an error of SQLite means for the caller. The only map from one to the other.

use quotalog_ledger::store::StoreError;
use rusqlite::ErrorCode;

/// Why the store did not do something, when SQLite has nothing to do with it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("the queue of the store is full")]
    QueueFull,
    #[error("the store is closed")]
    Closed,
    #[error("the work panicked: {0}")]
    Panicked(String),
    #[error("the decision made fewer outcomes than there were commands")]
    OutcomeMissing,
    #[error("the connection could not be opened again")]
    NotReopened,
    #[error("the database file was deleted, replaced or emptied")]
    FileGone,
}

impl Fault {
    pub(crate) fn unavailable(self) -> StoreError {
        StoreError::Unavailable(Box::new(self))
    }

    pub(crate) fn internal(self) -> StoreError {
        StoreError::Internal(Box::new(self))
    }
}

/// An error before the commit: nothing was written, whatever it is.
pub(crate) fn before_commit(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(code) if may_pass(code) => StoreError::Unavailable(Box::new(error)),
        _ => StoreError::Internal(Box::new(error)),
    }
}

/// An error of the commit itself.
///
/// SQLite writes the frame that commits last and then syncs. Once a write or a sync has failed, or memory
/// ran out while the written frames were entered into the shared index, the frame may be on disk.
pub(crate) fn at_commit(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => {
            StoreError::OutcomeUnknown(Box::new(error))
        }
        _ => before_commit(error),
    }
}

/// Whether the connection should be replaced before it is used again.
pub(crate) fn breaks_connection(error: &StoreError) -> bool {
    matches!(
        code_of(error),
        Some(
            ErrorCode::SystemIoFailure
                | ErrorCode::OutOfMemory
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::ApiMisuse
        )
    )
}

/// Whether there was no room on the disk.
pub(crate) fn disk_is_full(error: &StoreError) -> bool {
    code_of(error) == Some(ErrorCode::DiskFull)
}

fn code_of(error: &StoreError) -> Option<ErrorCode> {
    let (StoreError::Unavailable(cause)
    | StoreError::OutcomeUnknown(cause)
    | StoreError::Internal(cause)) = error;
    let error = cause.downcast_ref::<rusqlite::Error>()?;
    error.sqlite_error_code()
}

fn may_pass(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::OperationAborted
            | ErrorCode::OperationInterrupted
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::NoLargeFileSupport
    )
}
