//! The first admin token: how it reaches the operator, once, and never through a log.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use quotalog_auth::{Role, Token, TokenName};
use quotalog_ledger::store::{Administer, Publish, StoreError};
use tokio::time::Instant;

/// How long a store is asked again that is busy: others may start on it at the same time, and change its tables.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause before it is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// Makes an admin token if the store holds no valid one, and shows it: on the terminal, or in
/// `token_file` where standard output is none.
pub(crate) async fn ensure(store: &dyn Administer, token_file: &Path) -> anyhow::Result<()> {
    let token_file = &std::path::absolute(token_file).unwrap_or_else(|_| token_file.to_owned());
    let on_terminal = io::stdout().is_terminal();
    let give_up_at = Instant::now() + PATIENCE;
    let (id, made) = loop {
        let name = TokenName::try_from("first admin token").ok();
        let (token, new) = Token::generate(Role::Admin, name, None)?;
        let id = new.id.clone();
        let was_shown = Arc::new(AtomicBool::new(false));
        let publish: Publish = {
            let (path, was_shown) = (token_file.to_owned(), Arc::clone(&was_shown));
            Box::new(move || {
                was_shown.store(true, Ordering::Release);
                if on_terminal {
                    show(&token)
                } else {
                    write_private(&path, &token)
                }
            })
        };
        match store.create_first_admin_token(new, publish).await {
            // No other token is shown beside one that was.
            Err(StoreError::Unavailable(_))
                if !was_shown.load(Ordering::Acquire) && Instant::now() < give_up_at =>
            {
                tokio::time::sleep(PAUSE).await;
            }
            made => break (id, made),
        }
    };
    let made = made.with_context(|| {
        format!(
            "cannot make the first admin token; where standard output is no terminal it is \
             written to {}; name another file with --token-file (QUOTALOG_TOKEN_FILE)",
            token_file.display()
        )
    })?;
    if made && !on_terminal {
        tracing::info!(
            id = id.as_str(),
            file = %token_file.display(),
            "made the first admin token; read it from the file, then delete the file"
        );
    }
    Ok(())
}

fn show(token: &Token) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "This store had no valid admin token, so one was made. It is shown only now; keep it safe:\n\n    \
         {}\n",
        token.reveal()
    )?;
    out.flush()
}

/// Writes the token to a file that only its owner can read, whole or not at all.
///
/// The store's write lock is held meanwhile, so a draft that is already there was left by a crash.
fn write_private(path: &Path, token: &Token) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".draft");
    let draft = PathBuf::from(draft);
    remove_if_there(&draft)?;
    let written = write_new(&draft, token)
        .and_then(|()| set_aside(path))
        .and_then(|()| std::fs::rename(&draft, path));
    if written.is_err() {
        // What is left of the draft is no token that works; a failure to remove it changes nothing.
        let _leftover = remove_if_there(&draft);
    }
    written
}

/// Keeps a file of that name, which may hold the token of another store, under the next free number.
fn set_aside(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !path.try_exists()? {
        return Ok(());
    }
    for number in 1_u32.. {
        let mut numbered = path.as_os_str().to_owned();
        numbered.push(format!(".{number}"));
        let numbered = PathBuf::from(numbered);
        if !numbered.try_exists()? {
            tracing::warn!(
                file = %numbered.display(),
                "an earlier token file was there, and is kept under this name"
            );
            return std::fs::rename(path, numbered);
        }
    }
    Err(io::Error::other("every number is taken"))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn write_new(path: &Path, token: &Token) -> io::Result<()> {
    let mut file: File = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    writeln!(file, "{}", token.reveal())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use quotalog_domain::Timestamp;
    use quotalog_ledger::store::Read as _;
    use quotalog_store_sqlite::{SqliteConfig, SqliteStore};
    use quotalog_testkit::{Fault, FaultyStore, ManualClock};

    use super::*;

    fn token() -> Token {
        Token::generate(Role::Admin, None, None).unwrap().0
    }

    #[test]
    fn the_file_is_private_and_an_earlier_one_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin-token");
        let tokens = [token(), token(), token()];
        for token in &tokens {
            write_private(&path, token).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("admin-token").trim_end(), tokens[2].reveal());
        assert_eq!(read("admin-token.1").trim_end(), tokens[0].reveal());
        assert_eq!(read("admin-token.2").trim_end(), tokens[1].reveal());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    fn store(folder: &Path) -> FaultyStore<SqliteStore> {
        let config = SqliteConfig {
            path: folder.join("quotalog.db"),
            idempotency_retention_s: 86_400,
            readers: 1,
        };
        let clock = Arc::new(ManualClock::new(Timestamp::from_unix_s(1_800_000_000)));
        FaultyStore::new(SqliteStore::open(config, clock).unwrap())
    }

    /// Others start on the file at the same time.
    #[tokio::test]
    async fn a_store_that_is_busy_is_asked_again() {
        let folder = tempfile::tempdir().unwrap();
        let (store, path) = (store(folder.path()), folder.path().join("admin-token"));
        store.fail_nth(1, Fault::NotTaken);
        ensure(&store, &path).await.unwrap();
        assert!(store.met());
        let token = Token::presented(std::fs::read_to_string(&path).unwrap().trim_end());
        let found = store.authenticate(token.hash()).await.unwrap();
        assert_eq!(found.unwrap().role, Role::Admin);
    }

    #[tokio::test]
    async fn a_store_that_stays_busy_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let (store, path) = (store(folder.path()), folder.path().join("admin-token"));
        store.fail_always(Fault::NotTaken);
        // The store answers at once, so that nothing but the wait moves this clock.
        tokio::time::pause();
        assert!(ensure(&store, &path).await.is_err());
        assert!(!path.exists());
    }

    #[test]
    fn a_draft_that_a_crash_left_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin-token");
        std::fs::write(folder.path().join("admin-token.draft"), "half a tok").unwrap();
        let token = token();
        write_private(&path, &token).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap().trim_end(),
            token.reveal()
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
