//! Whether the database's path still leads to the file that was opened.
//!
//! A file that was deleted, replaced or emptied under a running server still takes writes, which nobody
//! will ever find again. So the path is looked at now and then; another file is never taken up instead.

use std::fs::Metadata;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use quotalog_ledger::store::StoreError;

use crate::OpenError;
use crate::fault::Fault;

/// For how long a look is enough. Within it, units may be granted into a file that is lost.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The file that was opened, and when its path was last seen to lead to it.
#[derive(Debug)]
pub(crate) struct Presence {
    path: PathBuf,
    identity: (u64, u64),
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    seen_at: Option<Instant>,
    logged: bool,
    /// An emptied file stays lost, also when something is written into it again.
    emptied: bool,
}

impl Presence {
    /// Remembers the file that the path leads to now, which has just been opened.
    pub(crate) fn of(path: PathBuf) -> Result<Self, OpenError> {
        let metadata = std::fs::metadata(&path).map_err(|cause| OpenError::Unwritable {
            path: path.clone(),
            cause,
        })?;
        Ok(Self {
            path,
            identity: identity(&metadata),
            state: Mutex::default(),
        })
    }

    /// Looks, unless that was done just now.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] while the path leads to nothing or to another file.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |seen_at| now.saturating_duration_since(seen_at) < LOOK_EVERY;
        if state.seen_at.is_some_and(is_fresh) {
            return Ok(());
        }
        let metadata = std::fs::metadata(&self.path);
        let metadata = metadata.as_ref().ok();
        let is_ours = metadata.is_some_and(|metadata| identity(metadata) == self.identity);
        state.emptied |= is_ours && metadata.is_some_and(|metadata| metadata.len() == 0);
        if is_ours && !state.emptied {
            state.seen_at = Some(now);
            state.logged = false;
            return Ok(());
        }
        state.seen_at = None;
        if !state.logged {
            state.logged = true;
            tracing::error!(
                path = %self.path.display(),
                "the database file was deleted, replaced or emptied; nothing is answered until it is \
                 back and the server is started again"
            );
        }
        Err(Fault::FileGone.unavailable())
    }
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> (u64, u64) {
    (0, 0)
}
