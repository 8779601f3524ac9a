//! A place in line before SQLite's lock, which knows no line.
//!
//! SQLite's own wait is unfair: beside a process that writes without a pause another one may wait for
//! seconds. Here a process waits at the gate, and while it holds the gate it is the next one; whoever
//! comes back too soon finds the gate closed. Exactness does not rest on this, only on SQLite's lock, so
//! a program that does not know these files does no harm.

use std::fs::{File, TryLockError};
use std::io;
use std::time::{Duration, Instant};

/// The two lock files.
#[derive(Debug)]
pub(crate) struct Turnstile {
    pub(crate) gate: File,
    pub(crate) main: File,
}

/// The turn to write. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a File);

struct AtGate<'a>(&'a File);

/// Why there was no turn.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TurnError {
    #[error("other processes kept the database busy")]
    TimedOut,
    #[error("the lock files cannot be locked")]
    Io(#[source] io::Error),
}

// The standard library knows no lock with a time limit, so a wait is a series of attempts. The pause is
// short beside the millisecond that a commit takes, and long beside the microsecond of an attempt.
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_micros(200);

impl Turnstile {
    /// Waits for a turn until `deadline`.
    pub(crate) fn enter(&self, deadline: Instant) -> Result<Turn<'_>, TurnError> {
        lock(&self.gate, deadline)?;
        let _at_gate = AtGate(&self.gate);
        lock(&self.main, deadline)?;
        Ok(Turn(&self.main))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        unlock(self.0);
    }
}

impl Drop for AtGate<'_> {
    fn drop(&mut self) {
        unlock(self.0);
    }
}

fn lock(file: &File, deadline: Instant) -> Result<(), TurnError> {
    let mut pause = PAUSE_MIN;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) if error.kind() != io::ErrorKind::Interrupted => {
                return Err(TurnError::Io(error));
            }
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
        if Instant::now() >= deadline {
            return Err(TurnError::TimedOut);
        }
        std::thread::sleep(pause);
        pause = PAUSE_MAX.min(pause * 2);
    }
}

fn unlock(file: &File) {
    if let Err(error) = file.unlock() {
        tracing::error!(%error, "a lock file of the database cannot be unlocked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turnstiles() -> (Turnstile, Turnstile, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| File::create(folder.path().join(name)).unwrap();
        let pair = || Turnstile {
            gate: open("gate"),
            main: open("main"),
        };
        (pair(), pair(), folder)
    }

    #[test]
    fn one_turn_at_a_time_and_a_bounded_wait() {
        let (first, second, _folder) = turnstiles();
        let turn = first.enter(Instant::now()).unwrap();
        assert!(matches!(
            second.enter(Instant::now()),
            Err(TurnError::TimedOut)
        ));
        // The one that gave up left the gate open.
        drop(turn);
        drop(second.enter(Instant::now()).unwrap());
        drop(first.enter(Instant::now()).unwrap());
    }

    #[test]
    fn a_turn_ends_in_a_panic_too() {
        let (first, second, _folder) = turnstiles();
        let panicked = std::panic::catch_unwind(|| {
            let _turn = first.enter(Instant::now()).unwrap();
            panic!("in the turn");
        });
        assert!(panicked.is_err());
        drop(second.enter(Instant::now()).unwrap());
    }
}
