//! Erasing a user. What serves requests goes at once, with the entry of the audit; the rest follows in short
//! transactions, between which others write. What is left for them is stored with the first one, so that it is
//! done whatever happens in between.
//!
//! What comes into being after the first transaction is not the erased user's any more, though it may bear
//! the same id: to delete it would grant units twice, or forget an answer that a retry needs. So the rest is
//! bounded by what there was then.

use quotalog_auth::Credential;
use quotalog_domain::{UserId, Window};
use quotalog_ledger::store::{Deed, ErasureId};
use quotalog_record::kept;
use rusqlite::{OptionalExtension as _, Result};

use crate::raw::Raw;
use crate::tx::Tx;
use crate::{audit, instant, token};

/// Usage rows of one transaction: a few milliseconds of the writer's time.
const ROWS_MAX: u32 = 500;
/// Kept answers that are looked at in one transaction; each may tell of a hundred quotas.
const ANSWERS_MAX: u32 = 500;

pub(crate) const DELETE_POLICIES: &str = "DELETE FROM quota_policies WHERE user_id = ?1";
pub(crate) const DELETE_PRESENT_USAGE: &str =
    "DELETE FROM quota_usage WHERE user_id = ?1 AND window_start >= ?2";
pub(crate) const DELETE_PAST_USAGE: &str = "DELETE FROM quota_usage WHERE id IN \
     (SELECT id FROM quota_usage WHERE user_id = ?1 AND window_start < ?2 LIMIT ?3)";
pub(crate) const DELETE_KEPT: &str = "DELETE FROM quotalog_idempotency_keys WHERE user_id = ?1";
pub(crate) const LAST_KEPT: &str = "SELECT coalesce(max(id), 0) FROM quotalog_idempotency_keys";
/// The answers that are kept for a caller, not for a pair; with the answer itself where it holds the bytes `?5`,
/// so that few are read whole.
pub(crate) const KEPT_FOR_CALLERS: &str = "SELECT id, operation, caller, key, \
     CASE WHEN instr(kept, ?5) > 0 THEN kept END FROM quotalog_idempotency_keys \
     WHERE user_id = '' AND resource = '' AND (operation, caller, key) > (?1, ?2, ?3) \
     ORDER BY operation, caller, key LIMIT ?4";
const DELETE_KEPT_ONE: &str = "DELETE FROM quotalog_idempotency_keys WHERE id = ?1";

const INSERT: &str = "INSERT INTO quotalog_erasures \
     (user_id, day_start, kept_to, after_operation, after_caller, after_key) \
     VALUES (?1, ?2, ?3, '', '', '')";
const OLDEST: &str = "SELECT id, user_id, day_start, kept_to, after_operation, after_caller, after_key \
     FROM quotalog_erasures ORDER BY id LIMIT 1";
const GO_ON_AFTER: &str = "UPDATE quotalog_erasures \
     SET after_operation = ?2, after_caller = ?3, after_key = ?4 WHERE id = ?1";
const LOWER_KEPT_TO: &str = "UPDATE quotalog_erasures SET kept_to = ?1 WHERE kept_to > ?1";
const DELETE: &str = "DELETE FROM quotalog_erasures WHERE id = ?1";

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// Whether it was the last one of an erasure.
    pub(crate) has_finished: bool,
    /// The oldest erasure that is not finished.
    pub(crate) oldest: Option<ErasureId>,
}

/// The first transaction.
pub(crate) fn begin(tx: &Tx<'_>, credential: &Credential, user_id: &UserId) -> Result<ErasureId> {
    let id = user_id.as_str();
    let day_start = instant::to_text(Window::Daily.span_at(tx.now).start);
    let delete = |sql| tx.connection.prepare_cached(sql)?.execute([id]);
    let policies = delete(DELETE_POLICIES)?;
    delete(DELETE_KEPT)?;
    note_kept_deleted(tx)?;
    tx.connection
        .prepare_cached(DELETE_PRESENT_USAGE)?
        .execute((id, &day_start))?;
    let token_ids = token::delete_of_user(tx, user_id)?;
    let policies = u64::try_from(policies).unwrap_or(u64::MAX);
    let deed = Deed::user_erased(user_id.clone(), policies, token_ids);
    audit::write(tx, credential, &deed)?;
    tx.connection
        .prepare_cached(INSERT)?
        .execute((id, &day_start, last_kept(tx)?))?;
    Ok(ErasureId(tx.connection.last_insert_rowid()))
}

/// One more transaction for the oldest erasure, if there is one.
pub(crate) fn step(tx: &Tx<'_>) -> Result<Step> {
    let Some(erasure) = Erasure::oldest(tx)? else {
        return Ok(Step {
            has_finished: false,
            oldest: None,
        });
    };
    let has_finished = erasure.erase_past_usage(tx)? && erasure.erase_answers(tx)?;
    if has_finished {
        tx.connection
            .prepare_cached(DELETE)?
            .execute([erasure.id])?;
    }
    let oldest = Erasure::oldest(tx)?.map(|erasure| ErasureId(erasure.id));
    Ok(Step {
        has_finished,
        oldest,
    })
}

/// To be called where kept answers were deleted: the row id of one that was the last is given again, to an answer
/// that no erasure of now is about.
pub(crate) fn note_kept_deleted(tx: &Tx<'_>) -> Result<()> {
    let mut lower = tx.connection.prepare_cached(LOWER_KEPT_TO)?;
    lower.execute([last_kept(tx)?])?;
    Ok(())
}

fn last_kept(tx: &Tx<'_>) -> Result<i64> {
    let mut last = tx.connection.prepare_cached(LAST_KEPT)?;
    last.query_row([], |row| row.get(0))
}

/// An erasure that is not finished.
struct Erasure {
    id: i64,
    user_id: String,
    /// Usage rows that start before this text are still to go.
    day_start: String,
    /// Kept answers with row ids up to this one are.
    kept_to: i64,
    /// Those up to this operation, caller and key have been looked at.
    after: [Raw; 3],
}

impl Erasure {
    fn oldest(tx: &Tx<'_>) -> Result<Option<Self>> {
        let mut oldest = tx.connection.prepare_cached(OLDEST)?;
        let found = oldest.query_row([], |row| {
            let at = |column| row.get_ref(column).map(Raw::of);
            Ok(Self {
                id: row.get(0)?,
                user_id: row.get(1)?,
                day_start: row.get(2)?,
                kept_to: row.get(3)?,
                after: [at(4)?, at(5)?, at(6)?],
            })
        });
        found.optional()
    }

    /// Deletes some of the usage of earlier days; true when none is left.
    fn erase_past_usage(&self, tx: &Tx<'_>) -> Result<bool> {
        let mut delete = tx.connection.prepare_cached(DELETE_PAST_USAGE)?;
        let deleted = delete.execute((&self.user_id, &self.day_start, ROWS_MAX))?;
        Ok(u32::try_from(deleted).is_ok_and(|deleted| deleted < ROWS_MAX))
    }

    /// Deletes those of the next kept answers that name the user; true when these were the last.
    fn erase_answers(&self, tx: &Tx<'_>) -> Result<bool> {
        let mut ids: Vec<i64> = Vec::new();
        let mut looked_at = 0;
        let mut last = None;
        {
            let mut page = tx.connection.prepare_cached(KEPT_FOR_CALLERS)?;
            let [operation, caller, key] = &self.after;
            let user_id = self.user_id.as_bytes();
            let mut rows = page.query((operation, caller, key, ANSWERS_MAX, user_id))?;
            while let Some(row) = rows.next()? {
                let id = row.get(0)?;
                // NULL where the bytes of the user's id are not in it.
                let kept = row.get_ref(4)?.as_blob().unwrap_or_default();
                if id <= self.kept_to && kept::names(kept, &self.user_id) {
                    ids.push(id);
                }
                looked_at += 1;
                if looked_at == ANSWERS_MAX {
                    let at = |column| row.get_ref(column).map(Raw::of);
                    last = Some([at(1)?, at(2)?, at(3)?]);
                }
            }
        }
        let mut delete = tx.connection.prepare_cached(DELETE_KEPT_ONE)?;
        for id in &ids {
            delete.execute([id])?;
        }
        if !ids.is_empty() {
            note_kept_deleted(tx)?;
        }
        let Some([operation, caller, key]) = &last else {
            return Ok(true);
        };
        tx.connection
            .prepare_cached(GO_ON_AFTER)?
            .execute((self.id, operation, caller, key))?;
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quotalog_domain::{CallerId, Command, IdempotencyKey, Item, Operation, Pair};
    use quotalog_ledger::store::{Administer as _, Retention};
    use quotalog_testkit::ManualClock;
    use quotalog_testkit::conformance::{Desk, START, consume, pair};

    use super::*;
    use crate::fault::before_commit;
    use crate::{SqliteConfig, SqliteStore};

    const RETENTION_S: i64 = 86_400;

    fn open(folder: &tempfile::TempDir, clock: &Arc<ManualClock>) -> Desk<SqliteStore> {
        let config = SqliteConfig {
            path: folder.path().join("quotalog.db"),
            idempotency_retention_s: RETENTION_S,
            readers: 1,
        };
        Desk {
            store: SqliteStore::open(config, clock.clone()).unwrap(),
        }
    }

    fn clock() -> Arc<ManualClock> {
        Arc::new(ManualClock::new(START))
    }

    async fn begin_with_u(desk: &Desk<SqliteStore>) {
        let user_id = pair("u", "r").user_id;
        let begun = desk.store.erase_user(Credential::CommandLine, user_id);
        begun.await.unwrap().unwrap();
    }

    async fn finish(desk: &Desk<SqliteStore>) {
        while desk.store.erase_step().await.unwrap().is_some() {}
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
    async fn a_row_id_that_is_given_again_is_not_taken_for_the_first_one() {
        let folder = tempfile::tempdir().unwrap();
        let desk = open(&folder, &clock());
        desk.set_default("d", Window::Daily, 10).await;
        assert!(desk.one(batch("before")).await.is_ok());
        // The newest of all kept answers is the user's own, and goes at once.
        let own = keyed(consume(pair("u", "d"), 1), "own");
        assert!(desk.one(own).await.is_ok());
        begin_with_u(&desk).await;
        assert!(desk.one(batch("after")).await.is_ok());
        finish(&desk).await;
        assert!(replayed(&desk, "after").await);
        assert!(!replayed(&desk, "before").await);
    }

    #[tokio::test]
    async fn a_row_id_that_pruning_freed_is_not_taken_for_the_first_one() {
        let folder = tempfile::tempdir().unwrap();
        let clock = clock();
        let desk = open(&folder, &clock);
        desk.set_default("d", Window::Daily, 10).await;
        assert!(desk.one(batch("before")).await.is_ok());
        begin_with_u(&desk).await;
        let retention = Retention {
            usage_s: 2 * RETENTION_S,
            idempotency_s: RETENTION_S,
            audit_s: RETENTION_S,
        };
        for _ in 0..25 {
            clock.advance_s(3_600);
            desk.store.prune_step(retention, 100).await.unwrap();
        }
        assert!(desk.one(batch("after")).await.is_ok());
        finish(&desk).await;
        assert!(replayed(&desk, "after").await);
    }

    #[tokio::test]
    async fn an_answer_that_is_kept_anew_under_its_key_is_not_taken_for_the_first_one() {
        let folder = tempfile::tempdir().unwrap();
        let clock = clock();
        let desk = open(&folder, &clock);
        desk.set_default("d", Window::Daily, 10).await;
        assert!(desk.one(batch("again")).await.is_ok());
        assert!(desk.one(batch("another")).await.is_ok());
        clock.advance_s(RETENTION_S + 1);
        begin_with_u(&desk).await;
        assert!(!replayed(&desk, "again").await, "its retention is over");
        finish(&desk).await;
        assert!(replayed(&desk, "again").await);
    }

    #[tokio::test]
    async fn a_step_looks_at_a_bounded_number_of_answers() {
        let folder = tempfile::tempdir().unwrap();
        let desk = open(&folder, &clock());
        desk.set_default("d", Window::Daily, 10).await;
        assert!(desk.one(batch("z")).await.is_ok());
        let filled = desk.store.write(|tx| {
            let sql = "INSERT INTO quotalog_idempotency_keys \
                 (user_id, resource, operation, caller, key, kept_at, kept) \
                 WITH RECURSIVE n(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < 1200) \
                 SELECT '', '', 'consume-batch', 'caller', printf('k%04d', n), '', x'00' FROM n";
            tx.connection.execute(sql, []).map_err(before_commit)
        });
        assert_eq!(filled.await.unwrap(), 1200);
        begin_with_u(&desk).await;
        let mut steps = 1;
        while desk.store.erase_step().await.unwrap().is_some() {
            steps += 1;
        }
        assert_eq!(steps, 1200 / ANSWERS_MAX + 1);
        assert!(!replayed(&desk, "z").await);
    }
}
