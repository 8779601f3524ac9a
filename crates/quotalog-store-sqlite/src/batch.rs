//! One batch in its transaction: judge, load, decide, save.
//!
//! Everything here is done once per pair or once per batch, never once per request.

use std::collections::HashMap;

use quotalog_auth::{Standing, TokenId};
use quotalog_domain::{
    KeptAnswer, KeyScope, Keyed, Pair, Policy, Resource, State, Timestamp, UsageRow, Window,
    decide_batch,
};
use quotalog_ledger::store::{Batch, Deed, Revoked, StoreError, Submission, Verdict};
use quotalog_record::kept;
use rusqlite::{CachedStatement, Result};

use crate::fault::{Fault, before_commit};
use crate::quota::{self, Pairs};
use crate::tx::Tx;
use crate::{audit, instant, token};

pub(crate) const SAVE_POLICY: &str = "INSERT INTO quota_policies \
     (user_id, resource, window, limit_count, created_at, updated_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT(user_id, resource) DO UPDATE SET \
     window = excluded.window, limit_count = excluded.limit_count, \
     created_at = excluded.created_at, updated_at = excluded.updated_at";
const DELETE_POLICY: &str = "DELETE FROM quota_policies WHERE user_id = ?1 AND resource = ?2";
pub(crate) const UPDATE_USAGE: &str =
    "UPDATE quota_usage SET usage = ?2, updated_at = ?3 WHERE id = ?1";
// A conflict is a row that was passed over, so all of it is replaced.
pub(crate) const INSERT_USAGE: &str = "INSERT INTO quota_usage \
     (user_id, resource, window_start, usage, created_at, updated_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?5) ON CONFLICT(user_id, resource, window_start) DO UPDATE SET \
     usage = excluded.usage, created_at = excluded.created_at, updated_at = excluded.updated_at";
const SAVE_DEFAULT: &str = "INSERT INTO quotalog_defaults \
     (resource, window, limit_count, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT(resource) DO UPDATE SET window = excluded.window, \
     limit_count = excluded.limit_count, created_at = excluded.created_at, \
     updated_at = excluded.updated_at";
const DELETE_DEFAULT: &str = "DELETE FROM quotalog_defaults WHERE resource = ?1";
const FIND_KEPT: &str = "SELECT kept FROM quotalog_idempotency_keys WHERE user_id = ?1 AND resource = ?2 \
     AND operation = ?3 AND caller = ?4 AND key = ?5 AND kept_at >= ?6";
// What is kept anew after its retention gets a new row id, by which an erasure tells it from the one before.
const SAVE_KEPT: &str = "INSERT OR REPLACE INTO quotalog_idempotency_keys \
     (user_id, resource, operation, caller, key, kept_at, kept) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

/// Takes the batch, decides it, and writes what changed. The transaction is the caller's.
pub(crate) fn run(
    tx: &Tx<'_>,
    batch: Batch,
    idempotency_retention_s: i64,
) -> std::result::Result<Vec<Verdict>, StoreError> {
    let generation = token::generation(tx.connection).map_err(before_commit)?;
    let submissions = batch.take();
    if submissions.is_empty() {
        return Ok(Vec::new());
    }
    let holding = judge(tx, &submissions, generation).map_err(before_commit)?;
    let admitted = || {
        let pairs = submissions.iter().zip(&holding);
        pairs.filter_map(|(submission, holds)| holds.then_some(submission))
    };
    let mut outcomes = decide(tx, idempotency_retention_s, admitted)
        .map_err(before_commit)?
        .into_iter();
    let verdict = |holds: &bool| match holds {
        false => Ok(Err(Revoked)),
        true => outcomes
            .next()
            .map(Ok)
            .ok_or_else(|| Fault::OutcomeMissing.internal()),
    };
    holding.iter().map(verdict).collect()
}

fn decide<'a, Admitted: Iterator<Item = &'a Submission>>(
    tx: &Tx<'_>,
    idempotency_retention_s: i64,
    admitted: impl Fn() -> Admitted,
) -> Result<Vec<quotalog_domain::Outcome>> {
    let commands = || admitted().map(|submission| &submission.command);
    let mut state = State::needed_by(commands());
    let row_ids = load_pairs(tx, &mut state)?;
    load_defaults(tx, &mut state)?;
    load_kept(tx, &mut state, idempotency_retention_s)?;
    let outcomes = decide_batch(&mut state, commands(), tx.now);
    save_pairs(tx, &state, &row_ids)?;
    save_defaults(tx, &state)?;
    save_kept(tx, &state)?;
    save_changes(tx, &state, admitted())?;
    Ok(outcomes)
}

/// Which of the submissions come from a caller whose credential holds.
fn judge(
    tx: &Tx<'_>,
    submissions: &[Submission],
    generation: quotalog_auth::Generation,
) -> Result<Vec<bool>> {
    let mut existing: HashMap<&TokenId, bool> = HashMap::new();
    let mut holding = Vec::with_capacity(submissions.len());
    for submission in submissions {
        holding.push(match submission.credential.standing(generation, tx.now) {
            Standing::Valid => true,
            Standing::Expired => false,
            Standing::IfExists(id) => match existing.get(id) {
                Some(exists) => *exists,
                None => {
                    let exists = token::exists(tx.connection, id)?;
                    existing.insert(id, exists);
                    exists
                }
            },
        });
    }
    Ok(holding)
}

/// The row ids of the usage rows that were loaded, pair after pair, in the order of the state.
#[derive(Default)]
struct RowIds {
    ids: Vec<i64>,
    len_per_pair: Vec<usize>,
}

fn load_pairs(tx: &Tx<'_>, state: &mut State) -> Result<RowIds> {
    let mut pairs = Pairs::new(tx.connection, tx.now)?;
    let mut row_ids = RowIds::default();
    for (pair, slot) in state.pairs_mut() {
        if let Some(policy) = pairs.policy(tx, pair)? {
            slot.load_policy(policy);
        }
        let len_before = row_ids.ids.len();
        pairs.usage(tx, pair, |row_id, window_start, units| {
            row_ids.ids.push(row_id);
            slot.usage.load(window_start, units);
        })?;
        row_ids.len_per_pair.push(row_ids.ids.len() - len_before);
    }
    Ok(row_ids)
}

fn load_defaults(tx: &Tx<'_>, state: &mut State) -> Result<()> {
    if !quota::any_default(tx)? {
        return Ok(());
    }
    let mut found: Vec<(Resource, Policy)> = Vec::new();
    for resource in state.resources() {
        if let Some(policy) = quota::default_of(tx, resource)? {
            found.push((resource.clone(), policy));
        }
    }
    for (resource, policy) in found {
        state.load_default(&resource, policy);
    }
    Ok(())
}

fn load_kept(tx: &Tx<'_>, state: &mut State, retention_s: i64) -> Result<()> {
    if state.keys().next().is_none() {
        return Ok(());
    }
    let kept_before = instant::to_text(tx.now.plus_s(-retention_s));
    let mut find = tx.connection.prepare_cached(FIND_KEPT)?;
    let mut found: Vec<(Keyed, KeptAnswer)> = Vec::new();
    for keyed in state.keys() {
        let place = KeptPlace::of(keyed);
        let mut rows = find.query((
            place.user_id,
            place.resource,
            place.operation,
            place.caller,
            place.key,
            &kept_before,
        ))?;
        if let Some(row) = rows.next()? {
            let bytes = row.get_ref(0)?.as_blob().unwrap_or_default();
            let answer = kept::decode(bytes).unwrap_or_else(|error| {
                tracing::error!(%error, operation = place.operation, "a key is refused");
                kept::unmatched()
            });
            found.push((keyed.clone(), answer));
        }
    }
    for (keyed, answer) in found {
        state.load_kept(&keyed, answer);
    }
    Ok(())
}

fn save_pairs(tx: &Tx<'_>, state: &State, row_ids: &RowIds) -> Result<()> {
    let mut rows = UsageWriter::new(tx)?;
    let mut ids = row_ids.ids.as_slice();
    let mut len_per_pair = row_ids.len_per_pair.iter();
    for (pair, slot) in state.pairs() {
        let len = len_per_pair
            .next()
            .copied()
            .unwrap_or_default()
            .min(ids.len());
        let (own, rest) = ids.split_at(len);
        ids = rest;
        if slot.policy_changed() {
            save_policy(tx, pair, slot.policy())?;
        }
        // The rows that were loaded come first and in the order of loading; new ones follow them.
        for (position, row) in slot.usage.rows().iter().enumerate() {
            if row.changed {
                rows.write(pair, row, own.get(position).copied())?;
            }
        }
    }
    Ok(())
}

pub(crate) fn save_policy(tx: &Tx<'_>, pair: &Pair, policy: Option<&Policy>) -> Result<()> {
    let (user_id, resource) = (pair.user_id.as_str(), pair.resource.as_str());
    if let Some(policy) = policy {
        let saved = tx.connection.prepare_cached(SAVE_POLICY)?.execute((
            user_id,
            resource,
            policy.window.as_str(),
            stored(policy.limit.get()),
            instant::to_text(policy.created_at),
            instant::to_text(policy.updated_at),
        ))?;
        must_be_one(saved)?;
    } else {
        tx.connection
            .prepare_cached(DELETE_POLICY)?
            .execute((user_id, resource))?;
    }
    Ok(())
}

fn save_defaults(tx: &Tx<'_>, state: &State) -> Result<()> {
    let mut changed = state.changed_defaults();
    changed.try_for_each(|(resource, policy)| save_default(tx, resource, policy))
}

pub(crate) fn save_default(
    tx: &Tx<'_>,
    resource: &Resource,
    policy: Option<&Policy>,
) -> Result<()> {
    if let Some(policy) = policy {
        tx.connection.prepare_cached(SAVE_DEFAULT)?.execute((
            resource.as_str(),
            policy.window.as_str(),
            stored(policy.limit.get()),
            instant::to_text(policy.created_at),
            instant::to_text(policy.updated_at),
        ))?;
    } else {
        tx.connection
            .prepare_cached(DELETE_DEFAULT)?
            .execute([resource.as_str()])?;
    }
    Ok(())
}

fn save_kept(tx: &Tx<'_>, state: &State) -> Result<()> {
    if state.keys().next().is_none() {
        return Ok(());
    }
    let kept_at = instant::to_text(tx.now);
    let mut save = tx.connection.prepare_cached(SAVE_KEPT)?;
    for (keyed, answer) in state.changed_kept() {
        let place = KeptPlace::of(keyed);
        save.execute((
            place.user_id,
            place.resource,
            place.operation,
            place.caller,
            place.key,
            &kept_at,
            kept::encode(answer),
        ))?;
    }
    Ok(())
}

/// Writes what the audit is to remember, each change as its submission's.
fn save_changes<'a>(
    tx: &Tx<'_>,
    state: &State,
    admitted: impl Iterator<Item = &'a Submission>,
) -> Result<()> {
    let mut changes = state.changes().iter().peekable();
    for (position, submission) in admitted.enumerate() {
        while let Some((_, change)) = changes.next_if(|(of, _)| *of == position) {
            audit::write(tx, &submission.credential, &Deed::of_change(change))?;
        }
        if changes.peek().is_none() {
            break;
        }
    }
    Ok(())
}

/// The columns that name a kept answer.
struct KeptPlace<'a> {
    user_id: &'a str,
    resource: &'a str,
    operation: &'a str,
    caller: &'a str,
    key: &'a str,
}

impl<'a> KeptPlace<'a> {
    fn of(keyed: &'a Keyed) -> Self {
        let (user_id, resource, caller) = match &keyed.scope {
            KeyScope::Pair(_, pair) => (pair.user_id.as_str(), pair.resource.as_str(), ""),
            KeyScope::Resource(_, resource) => ("", resource.as_str(), ""),
            KeyScope::Caller(_, caller) => ("", "", caller.as_str()),
        };
        Self {
            user_id,
            resource,
            operation: keyed.scope.operation(),
            caller,
            key: keyed.key.as_str(),
        }
    }
}

/// Writes usage rows; the texts that most of them share are made once.
struct UsageWriter<'c> {
    update: CachedStatement<'c>,
    insert: CachedStatement<'c>,
    now: String,
    starts: [(Timestamp, String); 2],
}

impl<'c> UsageWriter<'c> {
    fn new(tx: &Tx<'c>) -> Result<Self> {
        let starts = [Window::Hourly, Window::Daily].map(|window| {
            let start = window.span_at(tx.now).start;
            (start, instant::to_text(start))
        });
        let now = instant::to_text(tx.now);
        let mut update = tx.connection.prepare_cached(UPDATE_USAGE)?;
        update.raw_bind_parameter(3, &now)?;
        Ok(Self {
            update,
            insert: tx.connection.prepare_cached(INSERT_USAGE)?,
            now,
            starts,
        })
    }

    fn write(&mut self, pair: &Pair, row: &UsageRow, row_id: Option<i64>) -> Result<()> {
        let usage = stored(row.usage);
        if let Some(row_id) = row_id {
            self.update.raw_bind_parameter(1, row_id)?;
            self.update.raw_bind_parameter(2, usage)?;
            return must_be_one(self.update.raw_execute()?);
        }
        let shared = self
            .starts
            .iter()
            .find(|(start, _)| *start == row.window_start);
        let own = shared.is_none().then(|| instant::to_text(row.window_start));
        let window_start = shared.map(|(_, text)| text).or(own.as_ref());
        let (user_id, resource) = (pair.user_id.as_str(), pair.resource.as_str());
        must_be_one(
            self.insert
                .execute((user_id, resource, window_start, usage, &self.now))?,
        )
    }
}

/// What was not written did not happen, whatever of another program's schema kept it from being written.
pub(crate) fn must_be_one(rows: usize) -> Result<()> {
    match rows {
        1 => Ok(()),
        _ => Err(rusqlite::Error::StatementChangedRows(rows)),
    }
}

/// SQLite's integers end at [`i64::MAX`], and so do limits and usage.
pub(crate) fn stored(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}
