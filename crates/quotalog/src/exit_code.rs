//! What the program exits with: the one place that maps a failure to a number.

use std::process::ExitCode;

/// How a command ended, for scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// A failure without a number of its own.
    Failure,
    /// The arguments or the configuration are wrong.
    Usage,
    /// The units do not fit into what is left.
    Exhausted,
    /// The server does not take the token, or the token may not do this.
    NotAllowed,
    /// What was named does not exist.
    NotFound,
    /// The store or the server cannot be reached, or is busy.
    Unavailable,
}

/// A failure that knows its exit code; others exit with 1.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    pub(crate) fn error(exit: Exit, message: impl Into<String>) -> anyhow::Error {
        let message = message.into();
        anyhow::Error::new(Self { exit, message })
    }
}

/// The exit code of a failed command.
pub(crate) fn of(error: &anyhow::Error) -> ExitCode {
    let exit = error
        .downcast_ref::<Failure>()
        .map_or(Exit::Failure, |failure| failure.exit);
    ExitCode::from(match exit {
        Exit::Failure => 1,
        Exit::Usage => 2,
        Exit::Exhausted => 3,
        Exit::NotAllowed => 4,
        Exit::NotFound => 5,
        Exit::Unavailable => 6,
    })
}
