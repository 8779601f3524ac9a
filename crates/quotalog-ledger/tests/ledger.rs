//! The queue and the writer, against a store that does as it is told.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quotalog_auth::{Caller, Credential, NewToken, Role, Token, TokenHash, TokenId, TokenRecord};
use quotalog_domain::{
    Amount, Answer, CallerId, Command, DefaultPolicy, IdempotencyKey, Item, Limit, Operation,
    Outcome, Pair, Quota, Resource, State, Timestamp, UserId, Window, decide_batch,
};
use quotalog_ledger::store::{
    Administer, AuditEntry, AuditFilter, AuditId, Batch, Commit, ErasureId, ExpiryPassed, Judged,
    Listed, Page, PruneStep, Publish, QuotaFilter, Read, Retention, Revoked, StoreError,
    StoreFuture, TokenOrder, UsageEntry, UsageRange,
};
use quotalog_ledger::{Asker, Deadline, Ledger, LedgerError, Settings, WAIT_MAX};
use tokio::sync::Semaphore;

/// Whoever asks has an answer by then.
const PROMISE: Duration = Duration::from_secs(5);

/// How the next commit of the store goes.
enum Script {
    /// Refused before the batch is taken.
    NotTaken,
    /// Taken, then rolled back.
    RolledBack,
    /// Taken, and broken in the commit.
    Broken,
    /// Taken and decided.
    Pass,
}

/// A store that commits when it is given a permit, and remembers which users each commit was for.
struct ScriptedStore {
    permits: Semaphore,
    script: Mutex<VecDeque<Script>>,
    commits: Mutex<Vec<Vec<String>>>,
    /// Whom the commits are for that wait for a permit.
    under_way: Mutex<Vec<Vec<String>>>,
    /// Batches that belong to no pair get no answer.
    hangs_without_pairs: bool,
    /// Every batch that holds this user fails by itself.
    poisonous: Option<&'static str>,
    lookups: Mutex<u32>,
    lookups_hang: Mutex<bool>,
    revoked: Mutex<bool>,
    /// Permits for steps of erasures.
    steps: Semaphore,
    erasures: Mutex<Erasures>,
}

/// Steps that each erasure takes.
const STEPS: u32 = 3;

/// Erasures by their number, which are finished in their order.
struct Erasures {
    begun: i64,
    finished: i64,
    /// Of the oldest that is not finished.
    steps_left: u32,
    /// Steps that fail before the next one that does not.
    failures: u32,
}

impl ScriptedStore {
    fn new(permits: usize) -> Self {
        Self {
            permits: Semaphore::new(permits),
            script: Mutex::default(),
            commits: Mutex::default(),
            under_way: Mutex::default(),
            hangs_without_pairs: false,
            poisonous: None,
            lookups: Mutex::default(),
            lookups_hang: Mutex::default(),
            revoked: Mutex::default(),
            steps: Semaphore::new(0),
            erasures: Mutex::new(Erasures {
                begun: 0,
                finished: 0,
                steps_left: STEPS,
                failures: 0,
            }),
        }
    }

    /// Lets steps of erasures go on, as many as like.
    fn let_steps_go_on(&self) {
        self.steps.add_permits(1_000);
    }

    async fn until_finished(&self, erasures: i64) {
        while self.erasures.lock().unwrap().finished < erasures {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// No two commits at the same time are for the same user.
    fn enter(&self, users: &[String]) {
        let mut under_way = self.under_way.lock().unwrap();
        for user in users {
            assert!(!under_way.iter().flatten().any(|other| other == user));
        }
        under_way.push(users.to_vec());
    }

    fn under_way(&self) -> usize {
        self.under_way.lock().unwrap().len()
    }

    fn commits(&self) -> Vec<Vec<String>> {
        self.commits.lock().unwrap().clone()
    }
}

fn cause(text: &str) -> Box<dyn std::error::Error + Send + Sync> {
    text.into()
}

impl Commit for ScriptedStore {
    fn commit(&self, batch: Batch) -> StoreFuture<'_, Vec<Judged<Outcome>>> {
        Box::pin(async move {
            let script = self.script.lock().unwrap().pop_front();
            if let Some(Script::NotTaken) = script {
                return Err(StoreError::Unavailable(cause("busy")));
            }
            let submissions = batch.take();
            let users: Vec<String> = submissions
                .iter()
                .flat_map(|submission| submission.command.operation.pairs())
                .map(|pair| pair.user_id.as_str().to_owned())
                .collect();
            match script {
                Some(Script::RolledBack) => {
                    return Err(StoreError::Unavailable(cause("disk full")));
                }
                Some(Script::Broken) => return Err(StoreError::OutcomeUnknown(cause("cut"))),
                Some(Script::NotTaken | Script::Pass) | None => {}
            }
            if self
                .poisonous
                .is_some_and(|user| users.iter().any(|other| other == user))
            {
                return Err(StoreError::Internal(cause("constraint")));
            }
            if self.hangs_without_pairs && users.is_empty() {
                return std::future::pending().await;
            }
            self.enter(&users);
            self.permits.acquire().await.unwrap().forget();
            self.under_way.lock().unwrap().retain(|of| *of != users);
            self.commits.lock().unwrap().push(users);
            let mut state = State::needed_by(submissions.iter().map(|each| &each.command));
            let commands = submissions.iter().map(|each| &each.command);
            let outcomes = decide_batch(&mut state, commands, Timestamp::from_unix_s(0));
            let revoked = *self.revoked.lock().unwrap();
            let judge = |outcome| if revoked { Err(Revoked) } else { Ok(outcome) };
            Ok(outcomes.into_iter().map(judge).collect())
        })
    }
}

impl Read for ScriptedStore {
    fn authenticate(&self, _: TokenHash) -> StoreFuture<'_, Option<Caller>> {
        *self.lookups.lock().unwrap() += 1;
        if *self.lookups_hang.lock().unwrap() {
            return Box::pin(std::future::pending());
        }
        let revoked = *self.revoked.lock().unwrap();
        Box::pin(async move { Ok((!revoked).then(caller)) })
    }

    fn confirm(&self, _: Credential) -> StoreFuture<'_, Judged<()>> {
        Box::pin(async { Ok(Ok(())) })
    }

    fn quota(&self, _: Credential, _: Pair) -> StoreFuture<'_, Judged<Option<Quota>>> {
        Box::pin(std::future::pending())
    }

    fn user_quotas(
        &self,
        _: Credential,
        _: UserId,
        _: Page<Resource>,
    ) -> StoreFuture<'_, Judged<Listed<Quota, Resource>>> {
        Box::pin(std::future::pending())
    }

    fn quotas(
        &self,
        _: Credential,
        _: QuotaFilter,
        _: Page<Pair>,
    ) -> StoreFuture<'_, Judged<Listed<Quota, Pair>>> {
        Box::pin(std::future::pending())
    }

    fn fullest(
        &self,
        _: Credential,
        _: QuotaFilter,
        _: usize,
    ) -> StoreFuture<'_, Judged<Vec<Quota>>> {
        Box::pin(std::future::pending())
    }

    fn usage_history(
        &self,
        _: Credential,
        _: Pair,
        _: UsageRange,
        _: Page<Timestamp>,
    ) -> StoreFuture<'_, Judged<Listed<UsageEntry, Timestamp>>> {
        Box::pin(std::future::pending())
    }

    fn default_policy(
        &self,
        _: Credential,
        _: Resource,
    ) -> StoreFuture<'_, Judged<Option<DefaultPolicy>>> {
        Box::pin(std::future::pending())
    }

    fn defaults(
        &self,
        _: Credential,
        _: Page<Resource>,
    ) -> StoreFuture<'_, Judged<Listed<DefaultPolicy, Resource>>> {
        Box::pin(std::future::pending())
    }

    fn audit(
        &self,
        _: Credential,
        _: AuditFilter,
        _: Page<AuditId>,
    ) -> StoreFuture<'_, Judged<Listed<AuditEntry, AuditId>>> {
        Box::pin(std::future::pending())
    }

    fn tokens(
        &self,
        _: Credential,
        _: Page<TokenOrder>,
    ) -> StoreFuture<'_, Judged<Listed<TokenRecord, TokenOrder>>> {
        Box::pin(std::future::pending())
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

impl Administer for ScriptedStore {
    fn create_token(
        &self,
        _: Credential,
        _: NewToken,
    ) -> StoreFuture<'_, Judged<Result<TokenRecord, ExpiryPassed>>> {
        Box::pin(std::future::pending())
    }

    fn revoke_token(&self, _: Credential, _: TokenId) -> StoreFuture<'_, Judged<bool>> {
        Box::pin(std::future::pending())
    }

    fn create_first_admin_token(&self, _: NewToken, _: Publish) -> StoreFuture<'_, bool> {
        Box::pin(std::future::pending())
    }

    fn erase_user(&self, _: Credential, _: UserId) -> StoreFuture<'_, Judged<ErasureId>> {
        Box::pin(async {
            let mut erasures = self.erasures.lock().unwrap();
            erasures.begun += 1;
            Ok(Ok(ErasureId(erasures.begun)))
        })
    }

    fn erase_step(&self) -> StoreFuture<'_, Option<ErasureId>> {
        Box::pin(async {
            self.steps.acquire().await.unwrap().forget();
            let mut erasures = self.erasures.lock().unwrap();
            if erasures.failures > 0 {
                erasures.failures -= 1;
                return Err(StoreError::Unavailable(cause("disk full")));
            }
            if erasures.finished < erasures.begun {
                erasures.steps_left -= 1;
                if erasures.steps_left == 0 {
                    erasures.finished += 1;
                    erasures.steps_left = STEPS;
                }
            }
            let oldest = erasures.finished + 1;
            Ok((oldest <= erasures.begun).then_some(ErasureId(oldest)))
        })
    }

    fn prune_step(&self, _: Retention, _: u32) -> StoreFuture<'_, PruneStep> {
        Box::pin(std::future::pending())
    }
}

fn caller() -> Caller {
    Caller {
        role: Role::Admin,
        credential: Credential::Token {
            id: TokenId::named("t"),
            expires_at: None,
            generation: quotalog_auth::Generation(1),
        },
    }
}

fn set_policy(user: &str) -> Command {
    Command::new(Operation::SetPolicy {
        pair: Pair {
            user_id: UserId::try_from(user).unwrap(),
            resource: Resource::try_from("r").unwrap(),
        },
        window: Window::Hourly,
        limit: Limit::settable(5).unwrap(),
        precondition: None,
    })
}

/// Sends a command for `user` in the background, and waits until it is in the queue.
async fn send(
    ledger: &Ledger,
    user: &'static str,
) -> tokio::task::JoinHandle<Result<Outcome, LedgerError>> {
    let ledger = ledger.clone();
    let sending =
        tokio::spawn(async move { ledger.submit(Asker::now(&caller()), set_policy(user)).await });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    sending
}

#[track_caller]
fn assert_is_quota_of(user: &str, result: Result<Outcome, LedgerError>) {
    match result.unwrap().unwrap().answer {
        Answer::Quota(quota) => assert_eq!(quota.pair.user_id.as_str(), user),
        Answer::Quotas(_) | Answer::Limits(_) | Answer::Default(_) | Answer::Deleted => {
            panic!("no quota")
        }
    }
}

#[tokio::test(start_paused = true)]
async fn answers_come_after_the_commit_and_in_order() {
    let store = Arc::new(ScriptedStore::new(0));
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let first = send(&ledger, "a").await;
    let second = send(&ledger, "b").await;
    assert!(!first.is_finished());
    store.permits.add_permits(2);
    assert_is_quota_of("a", first.await.unwrap());
    assert_is_quota_of("b", second.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_batch_gathers_while_another_commits() {
    let store = Arc::new(ScriptedStore::new(0));
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let mut sent = vec![send(&ledger, "first").await];
    for user in ["b", "c", "d"] {
        sent.push(send(&ledger, user).await);
    }
    store.permits.add_permits(2);
    for sending in sent {
        assert!(sending.await.unwrap().is_ok());
    }
    assert_eq!(store.commits(), [vec!["first"], vec!["b", "c", "d"]]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_a_bound() {
    let store = Arc::new(ScriptedStore::new(9));
    store.script.lock().unwrap().push_back(Script::NotTaken);
    let settings = Settings {
        batch_len_max: 2,
        ..Settings::default()
    };
    let ledger = Ledger::start(Arc::clone(&store), settings);
    let mut sent = Vec::new();
    for user in ["a", "b", "c"] {
        sent.push(send(&ledger, user).await);
    }
    for sending in sent {
        assert!(sending.await.unwrap().is_ok());
    }
    assert_eq!(store.commits(), [vec!["a", "b"], vec!["c"]]);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_answers_at_once() {
    let store = Arc::new(ScriptedStore::new(0));
    let settings = Settings {
        queue_len_max: 1,
        ..Settings::default()
    };
    let ledger = Ledger::start(Arc::clone(&store), settings);
    let in_transaction = send(&ledger, "a").await;
    let queued = send(&ledger, "b").await;
    let started = tokio::time::Instant::now();
    let refused = ledger.submit(Asker::now(&caller()), set_policy("c")).await;
    assert!(matches!(refused, Err(LedgerError::Unavailable)));
    assert_eq!(started.elapsed().as_millis(), 0);
    store.permits.add_permits(2);
    assert!(in_transaction.await.unwrap().is_ok());
    assert!(queued.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_left_is_skipped() {
    let store = Arc::new(ScriptedStore::new(0));
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let first = send(&ledger, "a").await;
    let leaving = send(&ledger, "gone").await;
    let staying = send(&ledger, "b").await;
    leaving.abort();
    assert!(leaving.await.unwrap_err().is_cancelled());
    store.permits.add_permits(3);
    assert!(first.await.unwrap().is_ok());
    assert!(staying.await.unwrap().is_ok());
    assert_eq!(store.commits(), [vec!["a"], vec!["b"]]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_never_taken_is_unavailable_within_5_s() {
    let store = Arc::new(ScriptedStore::new(0));
    store
        .script
        .lock()
        .unwrap()
        .extend((0..1_000).map(|_| Script::NotTaken));
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let started = tokio::time::Instant::now();
    let result = ledger.submit(Asker::now(&caller()), set_policy("a")).await;
    assert!(matches!(result, Err(LedgerError::Unavailable)));
    assert!(started.elapsed() >= WAIT_MAX);
    assert!(started.elapsed() < PROMISE);
    // The store works again: what was answered 503 is not counted after all.
    store.script.lock().unwrap().clear();
    store.permits.add_permits(2);
    assert_is_quota_of(
        "b",
        ledger.submit(Asker::now(&caller()), set_policy("b")).await,
    );
    assert_eq!(store.commits(), [vec!["b"]]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_taken_and_not_answered_is_of_unknown_outcome() {
    let store = Arc::new(ScriptedStore::new(0));
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let started = tokio::time::Instant::now();
    let taken = send(&ledger, "a").await;
    let queued = send(&ledger, "b").await;
    assert!(matches!(
        taken.await.unwrap(),
        Err(LedgerError::OutcomeUnknown)
    ));
    assert!(matches!(
        queued.await.unwrap(),
        Err(LedgerError::Unavailable)
    ));
    assert!(started.elapsed() < PROMISE);
    store.permits.add_permits(2);
    assert_is_quota_of(
        "c",
        ledger.submit(Asker::now(&caller()), set_policy("c")).await,
    );
    assert_eq!(store.commits(), [vec!["a"], vec!["c"]]);
}

/// The time in the queue and the time in the transaction are one wait for the client.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_taken_late_is_answered_within_5_s_all_the_same() {
    let store = Arc::new(ScriptedStore::new(0));
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let first = send(&ledger, "a").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let second = send(&ledger, "b").await;
    let started = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let third = send(&ledger, "c").await;
    // The first is answered, and the others are taken, of which no commit comes.
    store.permits.add_permits(1);
    assert_is_quota_of("a", first.await.unwrap());
    assert!(matches!(
        second.await.unwrap(),
        Err(LedgerError::OutcomeUnknown)
    ));
    assert!(started.elapsed() < PROMISE);
    // Who came later has not waited as long.
    assert!(!third.is_finished());
    store.permits.add_permits(1);
    assert_is_quota_of("c", third.await.unwrap());
    assert_eq!(store.commits(), [vec!["a"], vec!["b", "c"]]);
}

/// Who asks, whose request arrived so long ago and has waited elsewhere since.
fn after(waited: Duration, caller: &Caller) -> Asker<'_> {
    let arrived_at = tokio::time::Instant::now() - waited;
    Asker {
        caller,
        deadline: Deadline::of_arrival(arrived_at),
    }
}

/// The time before the ledger, in the queue and for an answer are one wait for the client.
#[tokio::test(start_paused = true)]
async fn a_request_that_waited_elsewhere_has_what_is_left_of_5_s() {
    tokio::time::sleep(Duration::from_secs(10)).await;
    let store = Arc::new(ScriptedStore::new(0));
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let taken = send(&ledger, "a").await;
    // They come to wait behind a batch that is slow already, and behind one that arrived later.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let younger = send(&ledger, "b").await;
    let (waited, caller) = (Duration::from_secs(4), caller());
    let left = PROMISE - waited;
    let started = tokio::time::Instant::now();
    let queued = ledger.submit(after(waited, &caller), set_policy("c")).await;
    assert!(matches!(queued, Err(LedgerError::Unavailable)));
    assert!(started.elapsed() < left, "{:?}", started.elapsed());

    let started = tokio::time::Instant::now();
    let pair = Pair {
        user_id: user("u"),
        resource: Resource::try_from("r").unwrap(),
    };
    let question = ledger.quota(after(waited, &caller), pair).await;
    assert!(matches!(question, Err(LedgerError::Unavailable)));
    let order = ledger.revoke_token(after(waited, &caller), TokenId::named("x"));
    assert!(started.elapsed() < left, "{:?}", started.elapsed());
    let started = tokio::time::Instant::now();
    assert!(matches!(order.await, Err(LedgerError::OutcomeUnknown)));
    assert!(started.elapsed() < left, "{:?}", started.elapsed());

    let started = tokio::time::Instant::now();
    *store.lookups_hang.lock().unwrap() = true;
    let deadline = after(waited, &caller).deadline;
    let token = Token::presented("t");
    let lookup = ledger.authenticate(&token, deadline);
    assert!(matches!(lookup.await, Err(LedgerError::Unavailable)));
    assert!(started.elapsed() < left, "{:?}", started.elapsed());
    store.permits.add_permits(2);
    assert_is_quota_of("a", taken.await.unwrap());
    assert_is_quota_of("b", younger.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_time_is_up_is_in_no_transaction() {
    tokio::time::sleep(Duration::from_secs(10)).await;
    let store = Arc::new(ScriptedStore::new(9));
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let caller = caller();
    let late = ledger.submit(after(WAIT_MAX, &caller), set_policy("late"));
    assert!(matches!(late.await, Err(LedgerError::Unavailable)));
    let just = WAIT_MAX - Duration::from_millis(1);
    let in_time = ledger.submit(after(just, &caller), set_policy("just"));
    assert_is_quota_of("just", in_time.await);
    assert_eq!(store.commits().concat(), ["just"]);
}

#[tokio::test(start_paused = true)]
async fn requests_are_served_in_the_order_of_their_arrival_wherever_they_waited() {
    tokio::time::sleep(Duration::from_secs(10)).await;
    let store = Arc::new(ScriptedStore::new(0));
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let mut sent = vec![send(&ledger, "first").await];
    for (user, waited_s) in [("c", 0), ("a", 2), ("d", 0), ("b", 1)] {
        let ledger = ledger.clone();
        sent.push(tokio::spawn(async move {
            let caller = caller();
            let asker = after(Duration::from_secs(waited_s), &caller);
            ledger.submit(asker, set_policy(user)).await
        }));
        tokio::task::yield_now().await;
    }
    store.permits.add_permits(2);
    for sending in sent {
        assert!(sending.await.unwrap().is_ok());
    }
    assert_eq!(store.commits(), [vec!["first"], vec!["a", "b", "c", "d"]]);
}

#[tokio::test(start_paused = true)]
async fn each_failure_of_a_commit_says_whether_it_may_have_counted() {
    let store = Arc::new(ScriptedStore::new(1));
    store
        .script
        .lock()
        .unwrap()
        .extend([Script::RolledBack, Script::Broken, Script::NotTaken]);
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let submit = async || ledger.submit(Asker::now(&caller()), set_policy("a")).await;
    assert!(matches!(submit().await, Err(LedgerError::Unavailable)));
    assert!(matches!(submit().await, Err(LedgerError::OutcomeUnknown)));
    // Not taken, so still in the queue, and served by the next commit.
    assert_is_quota_of("a", submit().await);
}

#[tokio::test(start_paused = true)]
async fn a_bad_command_fails_no_neighbour() {
    let mut store = ScriptedStore::new(9);
    store.poisonous = Some("bad");
    store.script.lock().unwrap().push_back(Script::NotTaken);
    let store = Arc::new(store);
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let good = send(&ledger, "a").await;
    let bad = send(&ledger, "bad").await;
    let other = send(&ledger, "b").await;
    assert_is_quota_of("a", good.await.unwrap());
    assert!(matches!(bad.await.unwrap(), Err(LedgerError::Internal(_))));
    assert_is_quota_of("b", other.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_tried_alone_keep_their_place_and_their_deadline() {
    let mut store = ScriptedStore::new(9);
    store.poisonous = Some("bad");
    let mut script = vec![Script::NotTaken, Script::Pass];
    script.extend((0..1_000).map(|_| Script::NotTaken));
    store.script.lock().unwrap().extend(script);
    let store = Arc::new(store);
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let started = tokio::time::Instant::now();
    let sent = [
        send(&ledger, "bad").await,
        send(&ledger, "a").await,
        send(&ledger, "b").await,
    ];
    // The batch failed, nothing was counted, and then the store took no more.
    for sending in sent {
        assert!(matches!(
            sending.await.unwrap(),
            Err(LedgerError::Unavailable)
        ));
    }
    assert!(started.elapsed() < 2 * WAIT_MAX);
    assert!(store.commits().is_empty());
}

#[tokio::test(start_paused = true)]
async fn shutting_down_serves_what_was_taken_in_and_nothing_more() {
    let store = Arc::new(ScriptedStore::new(0));
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let first = send(&ledger, "a").await;
    let second = send(&ledger, "b").await;
    let closing = {
        let ledger = ledger.clone();
        tokio::spawn(async move { ledger.shut_down().await })
    };
    tokio::task::yield_now().await;
    let late = ledger
        .submit(Asker::now(&caller()), set_policy("late"))
        .await;
    assert!(matches!(late, Err(LedgerError::Unavailable)));
    store.permits.add_permits(2);
    closing.await.unwrap();
    assert!(first.await.unwrap().is_ok());
    assert!(second.await.unwrap().is_ok());
    assert_eq!(store.commits(), [vec!["a"], vec!["b"]]);
}

#[tokio::test(start_paused = true)]
async fn a_valid_token_is_looked_up_once_and_forgotten_when_it_is_refused() {
    let store = Arc::new(ScriptedStore::new(9));
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let token = Token::presented("secret");
    let found = ledger
        .authenticate(&token, Deadline::from_now())
        .await
        .unwrap()
        .unwrap();
    assert!(
        ledger
            .authenticate(&token, Deadline::from_now())
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(*store.lookups.lock().unwrap(), 1);

    *store.revoked.lock().unwrap() = true;
    let refused = ledger.submit(Asker::now(&found), set_policy("a")).await;
    assert!(matches!(refused, Err(LedgerError::Revoked)));
    assert!(
        ledger
            .authenticate(&token, Deadline::from_now())
            .await
            .unwrap()
            .is_none()
    );
    // An unknown token is asked for each time, so that a new one works at once.
    *store.revoked.lock().unwrap() = false;
    assert!(
        ledger
            .authenticate(&token, Deadline::from_now())
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(*store.lookups.lock().unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_unknown_tokens_takes_a_bounded_part_of_the_store() {
    let store = Arc::new(ScriptedStore::new(0));
    *store.lookups_hang.lock().unwrap() = true;
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let mut flood = tokio::task::JoinSet::new();
    for number in 0..1_000 {
        let ledger = ledger.clone();
        let token = Token::presented(&format!("wrong {number}"));
        flood.spawn(async move { ledger.authenticate(&token, Deadline::from_now()).await });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*store.lookups.lock().unwrap(), 256);
    // Those that have no turn in time are refused, and nobody is let in.
    while let Some(refused) = flood.join_next().await {
        assert!(matches!(refused.unwrap(), Err(LedgerError::Unavailable)));
    }
}

#[tokio::test(start_paused = true)]
async fn the_environments_token_needs_no_store() {
    let store = Arc::new(ScriptedStore::new(0));
    let settings = Settings {
        admin_token: Some(Token::presented("of the environment").hash()),
        ..Settings::default()
    };
    let ledger = Ledger::start(Arc::clone(&store), settings);
    let found = ledger
        .authenticate(
            &Token::presented("of the environment"),
            Deadline::from_now(),
        )
        .await;
    assert_eq!(found.unwrap().unwrap().credential, Credential::Environment);
    assert_eq!(*store.lookups.lock().unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_not_answered_is_unavailable_and_an_order_of_unknown_outcome() {
    let store = Arc::new(ScriptedStore::new(0));
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let pair = Pair {
        user_id: UserId::try_from("u").unwrap(),
        resource: Resource::try_from("r").unwrap(),
    };
    let question = ledger.quota(Asker::now(&caller()), pair).await;
    assert!(matches!(question, Err(LedgerError::Unavailable)));
    let order = ledger
        .revoke_token(Asker::now(&caller()), TokenId::named("x"))
        .await;
    assert!(matches!(order, Err(LedgerError::OutcomeUnknown)));
}

#[tokio::test(start_paused = true)]
async fn work_of_many_transactions_is_waited_for_longer() {
    let store = Arc::new(ScriptedStore::new(0));
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let started = tokio::time::Instant::now();
    let user_id = UserId::try_from("u").unwrap();
    let order = ledger.erase_user(Asker::now(&caller()), user_id).await;
    assert!(matches!(order, Err(LedgerError::OutcomeUnknown)));
    assert!(started.elapsed() >= 12 * WAIT_MAX);
    let started = tokio::time::Instant::now();
    let question = ledger
        .fullest(Asker::now(&caller()), QuotaFilter::default(), 1)
        .await;
    assert!(matches!(question, Err(LedgerError::Unavailable)));
    assert!(started.elapsed() >= 12 * WAIT_MAX);
    let started = tokio::time::Instant::now();
    let page = Page {
        after: None,
        len_max: 1,
    };
    let question = ledger
        .quotas(Asker::now(&caller()), QuotaFilter::default(), page)
        .await;
    assert!(matches!(question, Err(LedgerError::Unavailable)));
    assert!(started.elapsed() < 2 * WAIT_MAX);
}

fn user(user_id: &str) -> UserId {
    UserId::try_from(user_id).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_erasure_is_answered_when_it_is_finished() {
    let store = Arc::new(ScriptedStore::new(0));
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let caller = caller();
    let mut erasing = Box::pin(ledger.erase_user(Asker::now(&caller), user("u")));
    // All steps but the last.
    store.steps.add_permits(2);
    let early = tokio::time::timeout(WAIT_MAX, &mut erasing).await;
    assert!(early.is_err());
    store.steps.add_permits(1);
    erasing.await.unwrap();
    assert_eq!(store.erasures.lock().unwrap().finished, 1);
}

#[tokio::test(start_paused = true)]
async fn an_erasure_whose_client_left_is_finished() {
    let store = Arc::new(ScriptedStore::new(0));
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let caller = caller();
    let erasing = ledger.erase_user(Asker::now(&caller), user("u"));
    let left = tokio::time::timeout(WAIT_MAX, erasing).await;
    assert!(left.is_err());
    assert_eq!(store.erasures.lock().unwrap().begun, 1);
    store.let_steps_go_on();
    store.until_finished(1).await;
}

#[tokio::test(start_paused = true)]
async fn an_erasure_that_is_not_waited_for_any_longer_goes_on_and_a_repeat_waits_further() {
    let store = Arc::new(ScriptedStore::new(0));
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let unknown = ledger.erase_user(Asker::now(&caller()), user("u")).await;
    assert!(matches!(unknown, Err(LedgerError::OutcomeUnknown)));
    store.let_steps_go_on();
    ledger
        .erase_user(Asker::now(&caller()), user("u"))
        .await
        .unwrap();
    assert_eq!(store.erasures.lock().unwrap().finished, 2);
}

#[tokio::test(start_paused = true)]
async fn erasures_of_others_are_found_at_the_start_and_later() {
    let store = Arc::new(ScriptedStore::new(0));
    store.let_steps_go_on();
    store.erasures.lock().unwrap().begun = 2;
    let _ledger = Ledger::start(Arc::clone(&store), Settings::default());
    store.until_finished(2).await;
    store.erasures.lock().unwrap().begun = 3;
    store.until_finished(3).await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_fails_is_tried_again() {
    let store = Arc::new(ScriptedStore::new(0));
    store.let_steps_go_on();
    store.erasures.lock().unwrap().failures = 20;
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    ledger
        .erase_user(Asker::now(&caller()), user("u"))
        .await
        .unwrap();
    assert_eq!(store.erasures.lock().unwrap().failures, 0);
}

#[tokio::test(start_paused = true)]
async fn shutting_down_does_not_wait_for_erasures() {
    let store = Arc::new(ScriptedStore::new(0));
    let ledger = Ledger::start(Arc::clone(&store), Settings::default());
    let erasing = tokio::spawn({
        let ledger = ledger.clone();
        async move { ledger.erase_user(Asker::now(&caller()), user("u")).await }
    });
    while store.erasures.lock().unwrap().begun == 0 {
        tokio::task::yield_now().await;
    }
    ledger.shut_down().await;
    let answer = erasing.await.unwrap();
    assert!(matches!(answer, Err(LedgerError::OutcomeUnknown)));
    store.let_steps_go_on();
    tokio::time::sleep(2 * WAIT_MAX).await;
    assert_eq!(store.erasures.lock().unwrap().finished, 0);
}

/// A command on no single pair.
fn set_default(resource: &str) -> Command {
    Command::new(Operation::SetDefault {
        resource: Resource::try_from(resource).unwrap(),
        window: Window::Hourly,
        limit: Limit::settable(5).unwrap(),
        precondition: None,
    })
}

fn batch_of(users: &[&str], key: Option<&str>) -> Command {
    let items = users.iter().map(|user| Item {
        pair: Pair {
            user_id: UserId::try_from(*user).unwrap(),
            resource: Resource::try_from("r").unwrap(),
        },
        amount: Amount::ONE,
    });
    let command = Command::new(Operation::ConsumeBatch {
        items: items.collect(),
    });
    match key {
        Some(key) => command.with_key(
            IdempotencyKey::try_from(key).unwrap(),
            CallerId::new("caller"),
        ),
        None => command,
    }
}

fn with_lanes(lanes: usize) -> Settings {
    Settings {
        lanes,
        ..Settings::default()
    }
}

/// Sends the commands at the same instant, each in the background.
async fn send_all(
    ledger: &Ledger,
    commands: Vec<Command>,
) -> Vec<tokio::task::JoinHandle<Result<Outcome, LedgerError>>> {
    let sending = commands.into_iter().map(|command| {
        let ledger = ledger.clone();
        tokio::spawn(async move { ledger.submit(Asker::now(&caller()), command).await })
    });
    let sent = sending.collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    sent
}

fn policies_of(users: std::ops::Range<u32>) -> Vec<Command> {
    users.map(|user| set_policy(&format!("u{user}"))).collect()
}

#[tokio::test(start_paused = true)]
async fn batches_that_are_worth_it_commit_at_the_same_time_and_share_no_pair() {
    let store = Arc::new(ScriptedStore::new(0));
    let ledger = Ledger::start(Arc::clone(&store), with_lanes(4));
    let mut sent = Vec::new();
    for _ in 0..5 {
        sent.extend(send_all(&ledger, policies_of(0..400)).await);
    }
    assert!((2..=4).contains(&store.under_way()));
    for _ in 0..10 {
        store.permits.add_permits(2);
        sent.extend(send_all(&ledger, policies_of(0..400)).await);
    }
    store.permits.add_permits(1_000);
    for sending in sent {
        assert!(sending.await.unwrap().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_batch_waits_for_one_that_is_brisk_and_for_none_that_is_slow() {
    let store = Arc::new(ScriptedStore::new(0));
    let ledger = Ledger::start(Arc::clone(&store), with_lanes(4));
    let mut sent = send_all(&ledger, policies_of(0..1)).await;
    sent.extend(send_all(&ledger, policies_of(1..40)).await);
    assert_eq!(store.under_way(), 1);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(store.under_way() > 1);
    store.permits.add_permits(1_000);
    for sending in sent {
        assert!(sending.await.unwrap().is_ok());
    }

    // If the first had been brisk, all others would have gone together.
    store.commits.lock().unwrap().clear();
    store.permits.forget_permits(1_000);
    let first = send_all(&ledger, policies_of(0..1)).await;
    let others = send_all(&ledger, policies_of(1..40)).await;
    store.permits.add_permits(2);
    for sending in first.into_iter().chain(others) {
        assert!(sending.await.unwrap().is_ok());
    }
    let lens: Vec<usize> = store.commits().iter().map(Vec::len).collect();
    assert_eq!(lens, [1, 39]);
}

#[tokio::test(start_paused = true)]
async fn what_belongs_to_no_single_pair_has_a_lane_of_its_own() {
    let store = Arc::new(ScriptedStore::new(0));
    let ledger = Ledger::start(Arc::clone(&store), with_lanes(8));
    let first = send_all(&ledger, vec![set_default("r")]).await;
    let commands = vec![
        batch_of(&["a", "b"], Some("k")),
        batch_of(&["c"], None),
        set_default("s"),
        // The twin of the first, for others.
        batch_of(&["d"], Some("k")),
    ];
    let together = send_all(&ledger, commands).await;
    let alone = send_all(&ledger, vec![set_policy("z")]).await;
    assert_eq!(store.under_way(), 2);
    store.permits.add_permits(9);
    for sending in first.into_iter().chain(together).chain(alone) {
        // What a pair without a policy is answered is the domain's matter.
        assert!(sending.await.unwrap().is_ok());
    }
    let mut commits = store.commits();
    commits.sort_unstable();
    assert_eq!(commits, [vec![], vec!["a", "b", "c", "d"], vec!["z"]]);
}

#[tokio::test(start_paused = true)]
async fn the_bound_of_the_queue_is_that_of_all_lanes_together() {
    let store = Arc::new(ScriptedStore::new(0));
    let settings = Settings {
        queue_len_max: 10,
        ..with_lanes(3)
    };
    let ledger = Ledger::start(Arc::clone(&store), settings);
    let mut sent = Vec::new();
    for number in 0..50 {
        let command = match number % 5 {
            0 => set_default("r"),
            _ => set_policy(&format!("u{number}")),
        };
        sent.extend(send_all(&ledger, vec![command]).await);
    }
    assert!(store.under_way() > 1, "only one lane is busy");
    let refused = sent.iter().filter(|sending| sending.is_finished()).count();
    assert!(refused > 0);
    // The queue of all lanes is shown as one.
    let shown = ledger
        .collectors()
        .into_iter()
        .flat_map(|each| each.collect());
    let queue_len = shown
        .filter(|family| family.name() == "quotalog_queue_commands")
        .map(|family| family.get_metric()[0].get_gauge().get_value())
        .sum::<f64>();
    assert!((queue_len - 10.0).abs() < 0.5, "{queue_len}");
    store.permits.add_permits(1_000);
    let mut served = 0;
    for sending in sent {
        match sending.await.unwrap() {
            Ok(_) => served += 1,
            Err(error) => assert!(matches!(error, LedgerError::Unavailable), "{error:?}"),
        }
    }
    assert_eq!(served, 50 - refused);
}

#[tokio::test(start_paused = true)]
async fn shutting_down_serves_all_lanes() {
    let store = Arc::new(ScriptedStore::new(0));
    let ledger = Ledger::start(Arc::clone(&store), with_lanes(3));
    let users: Vec<String> = (0..20).map(|number| format!("u{number}")).collect();
    let mut sent = Vec::new();
    for _ in 0..2 {
        let commands = users.iter().map(|user| set_policy(user));
        sent.extend(send_all(&ledger, commands.chain([set_default("r")]).collect()).await);
    }
    let closing = {
        let ledger = ledger.clone();
        tokio::spawn(async move { ledger.shut_down().await })
    };
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(!closing.is_finished());
    store.permits.add_permits(1_000);
    closing.await.unwrap();
    for sending in sent {
        assert!(sending.is_finished());
        assert!(sending.await.unwrap().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_hangs_holds_up_no_other() {
    let mut store = ScriptedStore::new(9);
    store.hangs_without_pairs = true;
    let store = Arc::new(store);
    let ledger = Ledger::start(Arc::clone(&store), with_lanes(2));
    let hanging = send_all(&ledger, vec![set_default("r")]).await;
    let queued = send_all(&ledger, vec![set_default("s")]).await;
    assert_is_quota_of(
        "u",
        ledger.submit(Asker::now(&caller()), set_policy("u")).await,
    );
    for sending in hanging {
        let answer = sending.await.unwrap();
        assert!(matches!(answer, Err(LedgerError::OutcomeUnknown)));
    }
    for sending in queued {
        let answer = sending.await.unwrap();
        assert!(matches!(answer, Err(LedgerError::Unavailable)));
    }
}
