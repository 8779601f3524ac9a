//! Erasing a user. What serves requests goes at once, with the entry of the audit; the rest follows in short
//! transactions, between which others write.
//!
//! What comes into being after the first transaction is not the erased user's any more, though it may bear
//! the same id: to delete it would grant units twice, or forget an answer that a retry needs. So the rest is
//! bounded by what there was then.

use quotalog_auth::Credential;
use quotalog_domain::{UserId, Window};
use quotalog_ledger::store::{Deed, Judged, StoreError};
use quotalog_record::kept;
use rusqlite::{OptionalExtension as _, Result};

use crate::fault::before_commit;
use crate::ports::judged;
use crate::raw::Raw;
use crate::store::SqliteStore;
use crate::tx::Tx;
use crate::{audit, instant, token};

/// Usage rows of one transaction: a few milliseconds of the writer's time.
const ROWS_MAX: u32 = 500;
/// Kept answers that are read in one transaction; each may tell of a hundred quotas.
const ANSWERS_MAX: u32 = 200;

pub(crate) const DELETE_POLICIES: &str = "DELETE FROM quota_policies WHERE user_id = ?1";
pub(crate) const DELETE_PRESENT_USAGE: &str =
    "DELETE FROM quota_usage WHERE user_id = ?1 AND window_start >= ?2";
pub(crate) const DELETE_PAST_USAGE: &str = "DELETE FROM quota_usage WHERE id IN \
     (SELECT id FROM quota_usage WHERE user_id = ?1 AND window_start < ?2 LIMIT ?3)";
pub(crate) const DELETE_KEPT: &str = "DELETE FROM quotalog_idempotency_keys WHERE user_id = ?1";
pub(crate) const LAST_KEPT: &str = "SELECT coalesce(max(id), 0) FROM quotalog_idempotency_keys";
/// The answers that are kept for a caller, not for a pair.
pub(crate) const KEPT_FOR_CALLERS: &str = "SELECT id, operation, caller, key, kept FROM quotalog_idempotency_keys \
     WHERE user_id = '' AND resource = '' AND (operation, caller, key) > (?1, ?2, ?3) \
     ORDER BY operation, caller, key LIMIT ?4";
const FIND_KEPT: &str = "SELECT kept FROM quotalog_idempotency_keys WHERE id = ?1";
const DELETE_KEPT_ONE: &str = "DELETE FROM quotalog_idempotency_keys WHERE id = ?1";

/// Erases the user. After an error, doing the same again does the rest.
pub(crate) async fn user(
    store: &SqliteStore,
    credential: Credential,
    user_id: UserId,
) -> std::result::Result<Judged<()>, StoreError> {
    let user = user_id.clone();
    let first = store.write(move |tx| {
        let erase = |tx: &Tx<'_>| erase_present(tx, &credential, &user);
        judged(tx, &credential, erase).map_err(before_commit)
    });
    match first.await? {
        Ok(left) => erase_left(store, user_id, left)
            .await
            .map(Ok)
            .map_err(partly_done),
        Err(revoked) => Ok(Err(revoked)),
    }
}

/// What the first transaction left to do.
struct Left {
    /// Usage rows that start before this text.
    day_start: String,
    /// Kept answers with row ids up to this one.
    kept_to: i64,
}

/// Something was erased already, so nobody may be told that nothing was.
fn partly_done(error: StoreError) -> StoreError {
    match error {
        StoreError::Unavailable(cause) | StoreError::OutcomeUnknown(cause) => {
            StoreError::OutcomeUnknown(cause)
        }
        StoreError::Internal(cause) => StoreError::Internal(cause),
    }
}

fn erase_present(tx: &Tx<'_>, credential: &Credential, user_id: &UserId) -> Result<Left> {
    let id = user_id.as_str();
    let day_start = instant::to_text(Window::Daily.span_at(tx.now).start);
    let delete = |sql| tx.connection.prepare_cached(sql)?.execute([id]);
    let policies = delete(DELETE_POLICIES)?;
    delete(DELETE_KEPT)?;
    tx.connection
        .prepare_cached(DELETE_PRESENT_USAGE)?
        .execute((id, &day_start))?;
    let tokens = token::delete_of_user(tx, user_id)?;
    let deed = Deed::user_erased(user_id.clone(), number(policies), number(tokens));
    audit::write(tx, credential, &deed)?;
    Ok(Left {
        day_start,
        kept_to: last_kept(tx)?,
    })
}

async fn erase_left(
    store: &SqliteStore,
    user_id: UserId,
    left: Left,
) -> std::result::Result<(), StoreError> {
    let Left {
        day_start,
        mut kept_to,
    } = left;
    loop {
        let (user, before) = (user_id.clone(), day_start.clone());
        let deleting =
            store.write(move |tx| erase_past_usage(tx, &user, &before).map_err(before_commit));
        if deleting.await? == 0 {
            break;
        }
    }
    let mut after = Some(Place::first());
    while let Some(place) = after {
        let user = user_id.clone();
        let page = store.read(move |tx| Answers::naming(tx, &user, &place, kept_to));
        let answers = page.await?;
        after = answers.next;
        if !answers.ids.is_empty() {
            let user = user_id.clone();
            let deleting = store.write(move |tx| {
                erase_answers(tx, &user, &answers.ids, kept_to).map_err(before_commit)
            });
            kept_to = deleting.await?;
        }
    }
    Ok(())
}

fn erase_past_usage(tx: &Tx<'_>, user_id: &UserId, day_start: &str) -> Result<usize> {
    let mut delete = tx.connection.prepare_cached(DELETE_PAST_USAGE)?;
    delete.execute((user_id.as_str(), day_start, ROWS_MAX))
}

/// The operation, caller and key of a kept answer, after which a page goes on.
struct Place([Raw; 3]);

impl Place {
    fn first() -> Self {
        Self([(); 3].map(|()| Raw::text("")))
    }
}

/// The answers of one page that name the user.
struct Answers {
    ids: Vec<i64>,
    next: Option<Place>,
}

impl Answers {
    fn naming(tx: &Tx<'_>, user_id: &UserId, after: &Place, kept_to: i64) -> Result<Self> {
        let mut page = tx.connection.prepare_cached(KEPT_FOR_CALLERS)?;
        let Place([operation, caller, key]) = after;
        let mut rows = page.query((operation, caller, key, ANSWERS_MAX))?;
        let mut answers = Self {
            ids: Vec::new(),
            next: None,
        };
        let mut looked_at = 0;
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            let kept = row.get_ref(4)?.as_blob().unwrap_or_default();
            if id <= kept_to && kept::names(kept, user_id) {
                answers.ids.push(id);
            }
            looked_at += 1;
            if looked_at == ANSWERS_MAX {
                let at = |column| row.get_ref(column).map(Raw::of);
                answers.next = Some(Place([at(1)?, at(2)?, at(3)?]));
            }
        }
        Ok(answers)
    }
}

/// Deletes the answers, if they are still those that were read, and tells up to where kept answers are the
/// erased user's.
fn erase_answers(tx: &Tx<'_>, user_id: &UserId, ids: &[i64], kept_to: i64) -> Result<i64> {
    for id in ids {
        let mut find = tx.connection.prepare_cached(FIND_KEPT)?;
        let found = find.query_row([id], |row| {
            let kept = row.get_ref(0)?.as_blob().unwrap_or_default();
            Ok(kept::names(kept, user_id))
        });
        if found.optional()? == Some(true) {
            tx.connection
                .prepare_cached(DELETE_KEPT_ONE)?
                .execute([id])?;
        }
    }
    // The row id of a row that was the last one is given again.
    Ok(kept_to.min(last_kept(tx)?))
}

fn last_kept(tx: &Tx<'_>) -> Result<i64> {
    let mut last = tx.connection.prepare_cached(LAST_KEPT)?;
    last.query_row([], |row| row.get(0))
}

fn number(rows: usize) -> u64 {
    u64::try_from(rows).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quotalog_domain::{CallerId, Command, IdempotencyKey, Item, Operation, Pair};
    use quotalog_testkit::ManualClock;
    use quotalog_testkit::conformance::{Desk, START, consume, pair};

    use super::*;
    use crate::SqliteConfig;

    fn open(folder: &tempfile::TempDir) -> Desk<SqliteStore> {
        let config = SqliteConfig {
            path: folder.path().join("quotalog.db"),
            idempotency_retention_s: 86_400,
            readers: 1,
        };
        let clock = Arc::new(ManualClock::new(START));
        Desk {
            store: SqliteStore::open(config, clock).unwrap(),
        }
    }

    fn user_u() -> UserId {
        pair("u", "r").user_id
    }

    async fn erase_present_alone(desk: &Desk<SqliteStore>) -> Left {
        let erasing = desk.store.write(|tx| {
            erase_present(tx, &Credential::CommandLine, &user_u()).map_err(before_commit)
        });
        erasing.await.unwrap()
    }

    /// A batch of u and v under a key.
    fn batch(key: &str) -> Command {
        let items = [pair("v", "d"), pair("u", "d")].map(|pair: Pair| Item {
            pair,
            amount: quotalog_domain::Amount::ONE,
        });
        let items = items.to_vec();
        keyed(Command::new(Operation::ConsumeBatch { items }), key)
    }

    fn keyed(command: Command, key: &str) -> Command {
        let key = IdempotencyKey::try_from(key).unwrap();
        command.with_key(key, CallerId::new("caller"))
    }

    async fn replayed(desk: &Desk<SqliteStore>, key: &str) -> bool {
        desk.one(batch(key)).await.unwrap().replayed
    }

    #[tokio::test]
    async fn what_came_after_the_first_transaction_stays() {
        let folder = tempfile::tempdir().unwrap();
        let desk = open(&folder);
        desk.set_default("d", Window::Daily, 10).await;
        assert!(desk.one(batch("before")).await.is_ok());
        // The newest of all kept answers is the user's own, so that its row id is given again.
        let own = keyed(consume(pair("u", "d"), 1), "own");
        assert!(desk.one(own).await.is_ok());
        let left = erase_present_alone(&desk).await;
        assert!(desk.one(batch("after")).await.is_ok());
        assert!(desk.one(consume(pair("u", "d"), 3)).await.is_ok());
        erase_left(&desk.store, user_u(), left).await.unwrap();
        assert_eq!(desk.usage(pair("u", "d")).await, 4, "granted once");
        assert!(replayed(&desk, "after").await, "its retry finds it");
        assert!(!replayed(&desk, "before").await);
    }

    #[tokio::test]
    async fn a_row_id_that_is_given_again_is_not_taken_for_the_first_one() {
        let folder = tempfile::tempdir().unwrap();
        let desk = open(&folder);
        desk.set_default("d", Window::Daily, 10).await;
        assert!(desk.one(batch("before")).await.is_ok());
        let left = erase_present_alone(&desk).await;
        let (kept_to, user) = (left.kept_to, user_u());
        let erasing = desk.store.write(move |tx| {
            let answers = Answers::naming(tx, &user, &Place::first(), kept_to);
            let answers = answers.map_err(before_commit)?;
            erase_answers(tx, &user, &answers.ids, kept_to).map_err(before_commit)
        });
        let left = Left {
            kept_to: erasing.await.unwrap(),
            ..left
        };
        assert!(desk.one(batch("after")).await.is_ok());
        erase_left(&desk.store, user_u(), left).await.unwrap();
        assert!(replayed(&desk, "after").await);
    }

    #[tokio::test]
    async fn doing_it_again_does_what_a_failure_left() {
        let folder = tempfile::tempdir().unwrap();
        let desk = open(&folder);
        desk.set_default("d", Window::Daily, 10).await;
        assert!(desk.one(batch("k")).await.is_ok());
        let aged = desk.store.write(|tx| {
            let sql = "UPDATE quota_usage SET window_start = '2026-11-01 00:00:00'";
            tx.connection.execute(sql, []).map_err(before_commit)
        });
        assert_eq!(aged.await.unwrap(), 2);
        // As if the process had ended here.
        let _left = erase_present_alone(&desk).await;
        let erased = user(&desk.store, Credential::CommandLine, user_u()).await;
        assert_eq!(erased.unwrap(), Ok(()));
        let rows = desk.store.read(|tx| {
            let sql = "SELECT (SELECT count(*) FROM quota_usage), \
                       (SELECT count(*) FROM quotalog_idempotency_keys)";
            let counts = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            tx.connection.query_row(sql, [], counts)
        });
        let rows: (i64, i64) = rows.await.unwrap();
        assert_eq!(rows, (1, 0), "what was counted for v");
    }
}
