//! One batch in its transaction: lock, load, judge, decide, save.
//!
//! It takes two round trips. The statements of each are sent together, before the first of them is answered: those
//! that lock and read, and, after the decision, those that write, with the commit. A statement that fails makes
//! the ones behind it fail, and nothing is committed.
//!
//! **The mutex of a pair is its row of policy**, on every node, whoever serves the pair. Usage is read by a
//! statement of its own after the lock, since a statement sees nothing that was committed after it began, not
//! even what it waited for. A pair without that row has no policy and no usage of today. If the decision gives
//! it some, the transaction begins anew, and makes the rows first: to lock them last would be out of order.
//!
//! **The mutex of a key is its place in the table of kept answers.** Twins that share no pair both decide; the
//! second of them cannot insert its answer, and decides again when the first one's is there.
//!
//! **The defaults have one mutex for all**, which those share who only read them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use quotalog_auth::{Generation, Standing};
use quotalog_domain::{
    KeyScope, Keyed, Operation, Outcome, Pair, PairState, Policy, Resource, State, Timestamp,
    decide_batch,
};
use quotalog_ledger::store::{Batch, Deed, Revoked, StoreError, Submission, Verdict};
use quotalog_record::kept;
use tokio::time::Instant as Moment;
use tokio_postgres::{Error, Row};

use crate::audit::{self, Entries};
use crate::connection::{Begin, Connection, Value};
use crate::fault::{Fault, Remedy, before_commit, is_of_the_statement};
use crate::instant::Instant;
use crate::quota::{self, FIND_DEFAULTS, FIND_USAGE, Keys};
use crate::row;
use crate::store::Inner;
use crate::token;
use crate::tx::{self, TRIP_MAX};

/// For how long a batch that met others, or lost its connection, is run again.
const AGAIN_WITHIN: Duration = Duration::from_secs(3);
/// By when a batch must have come as far as its writes, runs and waits of all kinds included. Those who sent it are
/// told "unavailable" then, while they still wait for us.
const WRITES_WITHIN: Duration = TRIP_MAX;

// A lateral part that locks, or comes with `OFFSET 0`, is planned by itself: it seeks in an index once for each key.
// Joined as equals, a table that the planner takes for empty may be read through for each batch, for as long as
// the plan is kept, whatever has come into the table since.

/// The mutex of the defaults. Known to this program alone.
const HEAD_SHARED: &str = "SELECT generation, coalesce($1, transaction_timestamp()), \
     pg_advisory_xact_lock_shared(8148427718541894) FROM quotalog_token_generation WHERE id = 1";
const HEAD_EXCLUSIVE: &str = "SELECT generation, coalesce($1, transaction_timestamp()), \
     pg_advisory_xact_lock(8148427718541894) FROM quotalog_token_generation WHERE id = 1";
/// Makes the rows that lock pairs, in the order of all locks. Whoever makes one for a user keeps that user from
/// being erased meanwhile, which would not see the row.
const GUARD_USERS: &str = "SELECT count(pg_advisory_xact_lock_shared(hashtextextended(k, 81484277))) \
     FROM unnest($1::text[]) AS k";
pub(crate) const GUARD_USER: &str =
    "SELECT count(pg_advisory_xact_lock(hashtextextended($1, 81484277)))";
pub(crate) const ANCHOR: &str = "INSERT INTO quota_policies (user_id, resource) \
     SELECT k.user_id, k.resource FROM unnest($1::text[], $2::text[]) \
     WITH ORDINALITY AS k(user_id, resource, at) ORDER BY k.at \
     ON CONFLICT (user_id, resource) DO NOTHING";
pub(crate) const LOCK: &str = "SELECT k.at, p.\"window\", p.limit_count, p.created_at, p.updated_at \
     FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k(user_id, resource, at) \
     CROSS JOIN LATERAL (SELECT o.\"window\", o.limit_count, o.created_at, o.updated_at \
     FROM quota_policies o WHERE o.user_id = k.user_id AND o.resource = k.resource FOR UPDATE) p \
     ORDER BY k.at";
pub(crate) const FIND_KEPT: &str = "SELECT k.at, i.kept FROM \
     unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) \
     WITH ORDINALITY AS k(user_id, resource, operation, caller, key, at) \
     CROSS JOIN LATERAL (SELECT o.kept FROM quotalog_idempotency_keys o \
     WHERE o.user_id = k.user_id AND o.resource = k.resource \
     AND o.operation = k.operation AND o.caller = k.caller AND o.key = k.key AND o.kept_at >= \
     coalesce($6, transaction_timestamp()) - $7::bigint * interval '1 second' OFFSET 0) i";

pub(crate) const SAVE_POLICIES: &str = "INSERT INTO quota_policies \
     (user_id, resource, \"window\", limit_count, created_at, updated_at) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::timestamptz[], \
     $6::timestamptz[]) ON CONFLICT (user_id, resource) DO UPDATE SET \
     \"window\" = excluded.\"window\", limit_count = excluded.limit_count, \
     created_at = excluded.created_at, updated_at = excluded.updated_at";
pub(crate) const SAVE_USAGE: &str = "INSERT INTO quota_usage \
     (user_id, resource, window_start, usage, created_at, updated_at) \
     SELECT k.user_id, k.resource, k.window_start, k.usage, $5::timestamptz, $5::timestamptz \
     FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::bigint[]) \
     AS k(user_id, resource, window_start, usage) \
     ON CONFLICT (user_id, resource, window_start) DO UPDATE SET \
     usage = excluded.usage, updated_at = excluded.updated_at";
/// The row of a pair goes with its last row of usage. Its lock must be held, from before this statement began.
/// The newest is looked for: before it may lie all that was pruned and is not cleared yet.
pub(crate) const DROP_ANCHORS: &str = "DELETE FROM quota_policies WHERE ctid = ANY (ARRAY \
     (SELECT p.place FROM unnest($1::text[], $2::text[]) AS k(user_id, resource) \
     CROSS JOIN LATERAL (SELECT o.ctid AS place FROM quota_policies o \
     WHERE o.user_id = k.user_id AND o.resource = k.resource AND o.\"window\" IS NULL \
     AND (SELECT true FROM quota_usage u WHERE u.user_id = o.user_id AND u.resource = o.resource \
     ORDER BY u.window_start DESC LIMIT 1) IS NULL OFFSET 0) p))";
const SAVE_DEFAULTS: &str = "INSERT INTO quotalog_defaults \
     (resource, \"window\", limit_count, created_at, updated_at) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::timestamptz[], \
     $5::timestamptz[]) ON CONFLICT (resource) DO UPDATE SET \
     \"window\" = excluded.\"window\", limit_count = excluded.limit_count, \
     created_at = excluded.created_at, updated_at = excluded.updated_at";
pub(crate) const DELETE_DEFAULTS: &str = "DELETE FROM quotalog_defaults WHERE resource = ANY($1)";
/// Makes room for a key that is used again after its retention.
pub(crate) const DELETE_EXPIRED: &str = "DELETE FROM quotalog_idempotency_keys WHERE ctid = ANY (ARRAY \
     (SELECT i.place FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) \
     AS k(user_id, resource, operation, caller, key) \
     CROSS JOIN LATERAL (SELECT o.ctid AS place FROM quotalog_idempotency_keys o \
     WHERE o.user_id = k.user_id AND o.resource = k.resource \
     AND o.operation = k.operation AND o.caller = k.caller AND o.key = k.key \
     AND o.kept_at < $6::timestamptz - $7::bigint * interval '1 second' OFFSET 0) i))";
/// In the order of the keys, so that twins wait for each other and never in a circle.
pub(crate) const SAVE_KEPT: &str = "INSERT INTO quotalog_idempotency_keys \
     (user_id, resource, operation, caller, key, kept, kept_at) \
     SELECT k.user_id, k.resource, k.operation, k.caller, k.key, k.kept, $7::timestamptz FROM \
     unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[]) \
     WITH ORDINALITY AS k(user_id, resource, operation, caller, key, kept, at) ORDER BY k.at";

/// Takes the batch on a connection that is open, decides it, and commits what changed.
pub(crate) async fn commit(store: &Inner, batch: Batch) -> Result<Vec<Verdict>, StoreError> {
    let mut lease = store.lanes.lease().await?;
    let submissions = batch.take();
    if submissions.is_empty() {
        lease.give_back();
        return Ok(Vec::new());
    }
    let taken_at = Moment::now();
    let (until, deadline) = (taken_at + AGAIN_WITHIN, taken_at + WRITES_WITHIN);
    let mut anchors = BTreeSet::new();
    loop {
        let attempt = Attempt {
            store,
            connection: &lease,
            submissions: &submissions,
            anchors: &anchors,
            deadline,
        };
        let failed = match attempt.run().await {
            Ok(Attempted::Committed(verdicts)) => {
                lease.give_back();
                return Ok(verdicts);
            }
            Ok(Attempted::Lacking(pairs)) if Moment::now() < until => {
                anchors.extend(pairs);
                roll_back(&lease, deadline).await?;
                continue;
            }
            Ok(Attempted::Lacking(_)) => return Err(Fault::AlwaysAnother.unavailable()),
            Err(failed) => failed,
        };
        let error = match failed {
            Failed::BeforeCommit(error) => error,
            // Whatever the connection is worth now, it is cut.
            Failed::For(error) => return Err(error),
        };
        match Remedy::of(&error) {
            Remedy::Again if Moment::now() < until => roll_back(&lease, deadline).await?,
            Remedy::Elsewhere if Moment::now() < until => {
                // Its place in the pool first, then a new one.
                drop(lease);
                lease = in_time(deadline, store.lanes.lease()).await??;
            }
            Remedy::Again => return Err(Fault::AlwaysAnother.unavailable()),
            Remedy::Elsewhere => return Err(before_commit(error)),
            Remedy::Later | Remedy::Mended | Remedy::None => {
                if roll_back(&lease, deadline).await.is_ok() {
                    lease.give_back();
                }
                return Err(before_commit(error));
            }
        }
    }
}

async fn roll_back(connection: &Connection, deadline: Moment) -> Result<(), StoreError> {
    let rolled_back = in_time(deadline, connection.run("ROLLBACK")).await?;
    rolled_back.map_err(before_commit)
}

/// What `work` brings, unless the deadline comes before: nothing was written then.
async fn in_time<T>(deadline: Moment, work: impl Future<Output = T>) -> Result<T, StoreError> {
    tokio::time::timeout_at(deadline, work)
        .await
        .map_err(|_elapsed| Fault::TimedOut.unavailable())
}

/// One run of a batch.
struct Attempt<'a> {
    store: &'a Inner,
    connection: &'a Connection,
    submissions: &'a Arc<[Submission]>,
    /// Pairs whose rows are made first.
    anchors: &'a BTreeSet<Pair>,
    /// By when it must have come to the commit.
    deadline: Moment,
}

enum Attempted {
    Committed(Vec<Verdict>),
    /// These pairs are to be changed and have no row that locks them. The transaction is open.
    Lacking(Vec<Pair>),
}

enum Failed {
    /// Nothing was written, and nothing will be.
    BeforeCommit(Error),
    /// There is nothing left to try.
    For(StoreError),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::BeforeCommit(error)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::For(error)
    }
}

/// What the first trip brought beyond the state.
struct Loaded {
    now: Timestamp,
    generation: Generation,
    /// Which of the state's pairs have a row, which is locked now.
    locked: Vec<bool>,
}

/// The rows that the first trip brought.
struct Found {
    head: Row,
    locked: Vec<Row>,
    usage: Vec<Row>,
    defaults: Vec<Row>,
    kept: Vec<Row>,
}

impl Attempt<'_> {
    async fn run(&self) -> Result<Attempted, Failed> {
        let commands = self
            .submissions
            .iter()
            .map(|submission| &submission.command);
        let mut state = State::needed_by(commands);
        let loaded = in_time(self.deadline, Box::pin(self.load(&mut state))).await??;
        let holding = in_time(self.deadline, self.judge(&loaded)).await??;
        let admitted = || {
            let judged = self.submissions.iter().zip(&holding);
            judged.filter_map(|(submission, holds)| holds.then_some(submission))
        };
        let commands = admitted().map(|submission| &submission.command);
        let outcomes = decide_batch(&mut state, commands, loaded.now);
        let lacking = loaded.lacking(&state);
        if !lacking.is_empty() {
            return Ok(Attempted::Lacking(lacking));
        }
        let mut entries = Entries::default();
        let mut changes = state.changes().iter().peekable();
        for (position, submission) in admitted().enumerate() {
            while let Some((_, change)) = changes.next_if(|(of, _)| *of == position) {
                entries.add(&submission.credential, &Deed::of_change(change));
            }
        }
        let verdicts = verdicts(&holding, outcomes)?;
        let writes = Writes::of(&state, loaded.now, self.anchors);
        in_time(self.deadline, writes.prepare(self.connection, &entries)).await??;
        let retention_s = self.store.idempotency_retention_s;
        writes
            .commit(self.connection, &entries, retention_s)
            .await?;
        Ok(Attempted::Committed(verdicts))
    }

    /// The first trip: begins, locks and reads.
    async fn load(&self, state: &mut State) -> Result<Loaded, Error> {
        let pairs: Vec<Pair> = state.pairs().map(|(pair, _)| pair.clone()).collect();
        let keyed: Vec<Keyed> = state.keys().cloned().collect();
        let found = self.find(state, &pairs, &keyed).await?;

        let passed_over = &self.store.passed_over;
        let mut locked = vec![false; pairs.len()];
        let mut slots: Vec<(&Pair, &mut PairState)> = state.pairs_mut().collect();
        for row in &found.locked {
            if let Some((at, (pair, slot))) = at_place(row, &mut slots) {
                locked[at] = true;
                let key = [pair.user_id.as_str(), pair.resource.as_str()];
                if let Some(policy) = quota::policy(passed_over, &key, row, 1) {
                    slot.load_policy(policy);
                }
            }
        }
        for row in &found.usage {
            if let Some((_, (pair, slot))) = at_place(row, &mut slots) {
                let key = [pair.user_id.as_str(), pair.resource.as_str()];
                quota::load(passed_over, &key, row, 1, &mut slot.usage);
            }
        }
        for (resource, policy) in quota::defaults(passed_over, &found.defaults) {
            state.load_default(&resource, policy);
        }
        for row in &found.kept {
            let keyed = quota::place(row, 0).and_then(|at| keyed.get(at));
            if let Some(keyed) = keyed {
                let answer = kept::decode(row.try_get(1)?).unwrap_or_else(|error| {
                    let operation = keyed.scope.operation();
                    tracing::error!(%error, operation, "a key is refused");
                    kept::unmatched()
                });
                state.load_kept(keyed, answer);
            }
        }
        Ok(Loaded {
            now: tx::now(&found.head, 1)?,
            generation: Generation(found.head.try_get(0)?),
            locked,
        })
    }

    async fn find(&self, state: &State, pairs: &[Pair], keyed: &[Keyed]) -> Result<Found, Error> {
        let resources: Vec<&str> = state.resources().map(Resource::as_str).collect();
        let (keys, anchors, users) = (Keys::of(pairs), Keys::of(self.anchors), self.users());
        let places = Places::of(keyed);
        let instant = self.store.clock.instant().map(Instant::from);
        let head = self.head();
        let on = self.connection;
        // To prepare is a trip of its own, the first time on a connection; so all of it comes before.
        for sql in [
            head,
            GUARD_USERS,
            ANCHOR,
            LOCK,
            FIND_USAGE,
            FIND_DEFAULTS,
            FIND_KEPT,
        ] {
            on.prepare(sql).await?;
        }
        let of_anchors: [Value<'_>; 2] = [&anchors.user_ids, &anchors.resources];
        let of_pairs: [Value<'_>; 3] = [&keys.user_ids, &keys.resources, &instant];
        let of_kept: [Value<'_>; 7] = [
            &places.user_ids,
            &places.resources,
            &places.operations,
            &places.callers,
            &places.keys,
            &instant,
            &self.store.idempotency_retention_s,
        ];
        let (of_head, of_users, of_resources): ([Value<'_>; 1], [Value<'_>; 1], [Value<'_>; 1]) =
            ([&instant], [&users], [&resources]);
        // They are sent in this order. What need not come after the locks of pairs comes before: nodes that want the
        // same pair wait for each other from there on.
        let (begun, head, defaults, guarded, anchored, locked, usage, kept) = tokio::join! {
            biased;
            on.begin(Begin::Write),
            on.query_one(head, &of_head),
            on.query_unless(resources.is_empty(), FIND_DEFAULTS, &of_resources),
            on.query_unless(users.is_empty(), GUARD_USERS, &of_users),
            on.execute_unless(anchors.is_empty(), ANCHOR, &of_anchors),
            on.query_unless(keys.is_empty(), LOCK, &of_pairs[..2]),
            on.query_unless(keys.is_empty(), FIND_USAGE, &of_pairs),
            on.query_unless(keyed.is_empty(), FIND_KEPT, &of_kept),
        };
        begun?;
        // The first that failed tells why; those behind it only that the transaction is aborted.
        let (head, defaults) = (head?, defaults?);
        guarded?;
        anchored?;
        Ok(Found {
            head,
            defaults,
            locked: locked?,
            usage: usage?,
            kept: kept?,
        })
    }

    /// Those who change a default wait for all others, and all others for them.
    fn head(&self) -> &'static str {
        let changes_default = self.submissions.iter().any(|submission| {
            matches!(
                submission.command.operation,
                Operation::SetDefault { .. } | Operation::DeleteDefault { .. }
            )
        });
        if changes_default {
            HEAD_EXCLUSIVE
        } else {
            HEAD_SHARED
        }
    }

    /// The users for whom rows are made, in one order.
    fn users(&self) -> Vec<&str> {
        let mut users: Vec<&str> = self
            .anchors
            .iter()
            .map(|pair| pair.user_id.as_str())
            .collect();
        users.dedup();
        users
    }

    /// Which of the submissions come from a caller whose credential holds.
    async fn judge(&self, loaded: &Loaded) -> Result<Vec<bool>, Error> {
        let mut doubted: Vec<&str> = Vec::new();
        for submission in self.submissions.iter() {
            match submission
                .credential
                .standing(loaded.generation, loaded.now)
            {
                Standing::Valid | Standing::Expired => {}
                Standing::IfExists(id) => doubted.push(id.as_str()),
            }
        }
        doubted.sort_unstable();
        doubted.dedup();
        let mut existing: BTreeSet<String> = BTreeSet::new();
        if !doubted.is_empty() {
            let rows = self.connection.query(token::EXISTING, &[&doubted]).await?;
            existing.extend(rows.iter().map(|row| row::text(row, 0).to_owned()));
        }
        let holding = self.submissions.iter().map(|submission| {
            let credential = &submission.credential;
            let exists = existing.contains(tx::token_id(credential));
            tx::holds(credential, loaded.generation, loaded.now, exists)
        });
        Ok(holding.collect())
    }
}

impl Loaded {
    /// The pairs that the decision changed although they have no row that locks them.
    fn lacking(&self, state: &State) -> Vec<Pair> {
        let pairs = state.pairs().zip(&self.locked);
        let lacking = pairs.filter(|((_, slot), locked)| {
            let counted = slot.usage.rows().iter().any(|row| row.changed);
            !**locked && (slot.policy_changed() || counted)
        });
        lacking.map(|((pair, _), _)| pair.clone()).collect()
    }
}

/// The slot whose place the row's first column tells.
fn at_place<'s, T>(row: &Row, slots: &'s mut [T]) -> Option<(usize, &'s mut T)> {
    let at = quota::place(row, 0)?;
    Some((at, slots.get_mut(at)?))
}

fn verdicts(holding: &[bool], outcomes: Vec<Outcome>) -> Result<Vec<Verdict>, StoreError> {
    let mut outcomes = outcomes.into_iter();
    let verdict = |holds: &bool| match holds {
        false => Ok(Err(Revoked)),
        true => outcomes
            .next()
            .map(Ok)
            .ok_or_else(|| Fault::OutcomeMissing.internal()),
    };
    holding.iter().map(verdict).collect()
}

/// What changed, as the arrays of the statements of the second trip.
struct Writes<'a> {
    now: Instant,
    policies: Policies<'a>,
    usage: UsageRows<'a>,
    /// Pairs that may have no usage, and have no policy.
    emptied: Keys<'a>,
    defaults: Policies<'a>,
    defaults_deleted: Vec<&'a str>,
    kept: Places<'a>,
    answers: Vec<Vec<u8>>,
}

/// Policies of pairs, or, by resource alone, defaults.
#[derive(Default)]
pub(crate) struct Policies<'a> {
    keys: Keys<'a>,
    windows: Vec<Option<&'static str>>,
    limits: Vec<Option<i64>>,
    created_at: Vec<Option<Instant>>,
    updated_at: Vec<Option<Instant>>,
}

#[derive(Default)]
struct UsageRows<'a> {
    keys: Keys<'a>,
    starts: Vec<Instant>,
    units: Vec<i64>,
}

/// The columns that name kept answers.
#[derive(Default)]
struct Places<'a> {
    user_ids: Vec<&'a str>,
    resources: Vec<&'a str>,
    operations: Vec<&'a str>,
    callers: Vec<&'a str>,
    keys: Vec<&'a str>,
}

impl<'a> Writes<'a> {
    fn of(state: &'a State, now: Timestamp, anchors: &'a BTreeSet<Pair>) -> Self {
        let mut writes = Self {
            now: Instant::from(now),
            policies: Policies::default(),
            usage: UsageRows::default(),
            emptied: Keys::of(anchors),
            defaults: Policies::default(),
            defaults_deleted: Vec::new(),
            kept: Places::default(),
            answers: Vec::new(),
        };
        for (pair, slot) in state.pairs() {
            if slot.policy_changed() {
                writes
                    .policies
                    .add(pair.user_id.as_str(), pair.resource.as_str(), slot.policy());
                if slot.policy().is_none() {
                    writes.emptied.add(pair);
                }
            }
            for row in slot.usage.rows().iter().filter(|row| row.changed) {
                writes.usage.keys.add(pair);
                writes.usage.starts.push(Instant::from(row.window_start));
                writes.usage.units.push(stored(row.usage));
            }
        }
        for (resource, policy) in state.changed_defaults() {
            match policy {
                Some(policy) => writes.defaults.add("", resource.as_str(), Some(policy)),
                None => writes.defaults_deleted.push(resource.as_str()),
            }
        }
        for (keyed, answer) in state.changed_kept() {
            writes.kept.add(keyed);
            writes.answers.push(kept::encode(answer));
        }
        writes
    }

    /// The second trip: writes and commits.
    async fn commit(
        &self,
        on: &Connection,
        entries: &Entries<'_>,
        retention_s: i64,
    ) -> Result<(), Failed> {
        let emptied: [Value<'_>; 2] = [&self.emptied.user_ids, &self.emptied.resources];
        let deleted: [Value<'_>; 1] = [&self.defaults_deleted];
        let committed = tokio::time::timeout(TRIP_MAX, async {
            // They are sent in this order: what has no usage is told when usage is there.
            tokio::join! {
                biased;
                self.policies.save(on),
                self.usage.save(on, &self.now),
                on.execute_unless(self.emptied.is_empty(), DROP_ANCHORS, &emptied),
                self.defaults.save_defaults(on),
                on.execute_unless(self.defaults_deleted.is_empty(), DELETE_DEFAULTS, &deleted),
                self.kept.delete_expired(on, &self.now, retention_s),
                self.kept.save(on, &self.answers, &self.now),
                entries.save(on, &self.now),
                on.commit(),
            }
        });
        let committed = committed
            .await
            .map_err(|_elapsed| Fault::TimedOut.unknown())?;
        let (policies, usage, anchors, defaults, deleted, expired, kept, audit, commit) = committed;
        for written in [
            policies, usage, anchors, defaults, deleted, expired, kept, audit,
        ] {
            written.map_err(while_committing)?;
        }
        commit?;
        Ok(())
    }
}

impl Writes<'_> {
    /// To prepare is a trip of its own, the first time on a connection; so all of it comes before.
    async fn prepare(&self, on: &Connection, entries: &Entries<'_>) -> Result<(), Error> {
        let needed = [
            (self.policies.is_empty(), SAVE_POLICIES),
            (self.usage.keys.is_empty(), SAVE_USAGE),
            (self.emptied.is_empty(), DROP_ANCHORS),
            (self.defaults.is_empty(), SAVE_DEFAULTS),
            (self.defaults_deleted.is_empty(), DELETE_DEFAULTS),
            (self.answers.is_empty(), DELETE_EXPIRED),
            (self.answers.is_empty(), SAVE_KEPT),
            (entries.is_empty(), audit::INSERT),
        ];
        for (_, sql) in needed.into_iter().filter(|(unneeded, _)| !unneeded) {
            on.prepare(sql).await?;
        }
        Ok(())
    }
}

impl<'a> Policies<'a> {
    pub(crate) fn add(&mut self, user_id: &'a str, resource: &'a str, policy: Option<&Policy>) {
        self.keys.user_ids.push(user_id);
        self.keys.resources.push(resource);
        self.windows
            .push(policy.map(|policy| policy.window.as_str()));
        self.limits
            .push(policy.map(|policy| stored(policy.limit.get())));
        let created_at = policy.map(|policy| Instant::from(policy.created_at));
        self.created_at.push(created_at);
        let updated_at = policy.map(|policy| Instant::from(policy.updated_at));
        self.updated_at.push(updated_at);
    }

    fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(crate) async fn save(&self, on: &Connection) -> Result<(), Error> {
        let values: [Value<'_>; 6] = [
            &self.keys.user_ids,
            &self.keys.resources,
            &self.windows,
            &self.limits,
            &self.created_at,
            &self.updated_at,
        ];
        on.execute_unless(self.is_empty(), SAVE_POLICIES, &values)
            .await
    }

    pub(crate) async fn save_defaults(&self, on: &Connection) -> Result<(), Error> {
        let values: [Value<'_>; 5] = [
            &self.keys.resources,
            &self.windows,
            &self.limits,
            &self.created_at,
            &self.updated_at,
        ];
        on.execute_unless(self.is_empty(), SAVE_DEFAULTS, &values)
            .await
    }
}

impl UsageRows<'_> {
    async fn save(&self, on: &Connection, now: &Instant) -> Result<(), Error> {
        let values: [Value<'_>; 5] = [
            &self.keys.user_ids,
            &self.keys.resources,
            &self.starts,
            &self.units,
            now,
        ];
        on.execute_unless(self.keys.is_empty(), SAVE_USAGE, &values)
            .await
    }
}

impl<'a> Places<'a> {
    fn of(keyed: &'a [Keyed]) -> Self {
        let mut places = Self::default();
        keyed.iter().for_each(|keyed| places.add(keyed));
        places
    }

    fn add(&mut self, keyed: &'a Keyed) {
        let (user_id, resource, caller) = match &keyed.scope {
            KeyScope::Pair(_, pair) => (pair.user_id.as_str(), pair.resource.as_str(), ""),
            KeyScope::Resource(_, resource) => ("", resource.as_str(), ""),
            KeyScope::Caller(_, caller) => ("", "", caller.as_str()),
        };
        self.user_ids.push(user_id);
        self.resources.push(resource);
        self.operations.push(keyed.scope.operation());
        self.callers.push(caller);
        self.keys.push(keyed.key.as_str());
    }

    async fn delete_expired(
        &self,
        on: &Connection,
        now: &Instant,
        retention_s: i64,
    ) -> Result<(), Error> {
        let values: [Value<'_>; 7] = [
            &self.user_ids,
            &self.resources,
            &self.operations,
            &self.callers,
            &self.keys,
            now,
            &retention_s,
        ];
        on.execute_unless(self.keys.is_empty(), DELETE_EXPIRED, &values)
            .await
    }

    async fn save(&self, on: &Connection, answers: &[Vec<u8>], now: &Instant) -> Result<(), Error> {
        let values: [Value<'_>; 7] = [
            &self.user_ids,
            &self.resources,
            &self.operations,
            &self.callers,
            &self.keys,
            &answers,
            now,
        ];
        on.execute_unless(self.keys.is_empty(), SAVE_KEPT, &values)
            .await
    }
}

/// An error of what was sent together with the commit. One of the statement itself came before the commit, which
/// then did not happen. Of a session that ended nobody knows how far the server came, and least of all a pooler in
/// between, which says so in the place of the first answer that it lacks.
fn while_committing(error: Error) -> Failed {
    if is_of_the_statement(&error) {
        Failed::BeforeCommit(error)
    } else {
        Failed::For(StoreError::OutcomeUnknown(Box::new(error)))
    }
}

/// The tables' integers end at [`i64::MAX`], and so do limits and usage.
pub(crate) fn stored(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}
