//! The only map from an error to a code. UNKNOWN is none of ours: it would leave a proxy to guess.

use std::error::Error;

use axum::response::Response;
use quotalog_front::Overloaded;
use quotalog_ledger::LedgerError;
use tonic::{Code, Status};

use crate::router::MESSAGE_BYTES_MAX;

/// The call comes without a valid token.
pub(crate) fn unauthenticated() -> Status {
    Status::unauthenticated(
        "Send a valid token in the call's metadata as: authorization: Bearer <token>.",
    )
}

/// The token does not allow the call.
pub(crate) fn permission_denied() -> Status {
    Status::permission_denied("Only a token of the role admin or service may ask for rate limits.")
}

/// The caller's deadline is near, and there is no answer yet.
pub(crate) fn too_late() -> Status {
    Status::unavailable(
        "There was no answer within the deadline. The units may or may not have been counted.",
    )
}

/// What the ledger could not do.
pub(crate) fn of_ledger(error: LedgerError) -> Status {
    match error {
        LedgerError::Revoked => unauthenticated(),
        LedgerError::Unavailable => {
            Status::unavailable("The call cannot be served now. Nothing was counted.")
        }
        LedgerError::OutcomeUnknown => {
            Status::unavailable("The units may or may not have been counted.")
        }
        LedgerError::Internal(cause) => of_our_fault(cause),
    }
}

/// A fault of ours, whose cause goes to the log alone.
pub(crate) fn of_our_fault(cause: impl Into<Box<dyn Error>>) -> Status {
    let cause = cause.into();
    tracing::error!(error = &*cause, "a call failed by a fault of ours");
    Status::internal("The server made a mistake, and has logged it.")
}

/// The caller has too many calls under way, and this one waited in vain.
pub(crate) fn overloaded(_: Overloaded) -> Status {
    Status::unavailable("This token has too many calls under way. Nothing was counted.")
}

/// The library's answer to a call whose message it could not read, with a code that says whose fault that is.
pub(crate) fn unread(response: Response) -> Response {
    match code_of(&response) {
        Code::Internal | Code::Unknown => answer(Status::invalid_argument(
            "The message could not be read: it is cut off, compressed, not Protobuf, or has text that is not UTF-8.",
        )),
        Code::OutOfRange => answer(Status::resource_exhausted(format!(
            "The message is larger than {MESSAGE_BYTES_MAX} bytes."
        ))),
        Code::Ok
        | Code::Cancelled
        | Code::InvalidArgument
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::Unimplemented
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => response,
    }
}

/// The whole answer to a call that failed.
pub(crate) fn answer(status: Status) -> Response {
    status.into_http()
}

/// The code that an answer's head tells. It tells none where a message follows, and then the call went well.
pub(crate) fn code_of(response: &Response) -> Code {
    let status = response.headers().get("grpc-status");
    status.map_or(Code::Ok, |code| Code::from_bytes(code.as_bytes()))
}
