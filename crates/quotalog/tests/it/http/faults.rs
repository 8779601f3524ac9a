//! A store that fails: every call of a script in turn, in every way, until a run meets no fault.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use quotalog_ledger::WAIT_MAX;
use quotalog_store_sqlite::SqliteStore;
use quotalog_testkit::{Fault, FaultyStore};
use tokio::task::JoinSet;

use crate::support::answer::Answer;
use crate::support::app::TestApp;

const CONSUME: &str = "/quotas/u/r/consume";
const BATCH: &str = "/consume";
/// Three units of `u`/`r`, and one of `v`/`s`.
const ITEMS: &str = r#"{"items":[{"user_id":"u","resource":"r"},{"user_id":"v","resource":"s"},
    {"user_id":"u","resource":"r","amount":2}]}"#;

/// What the answers of a script say was counted.
#[derive(Debug, Default)]
struct Tally {
    granted: u64,
    unknown: u64,
    /// The part of `unknown` that no key can settle.
    unkeyed: u64,
    /// Requests under a key that were not answered 200.
    open: Vec<Keyed>,
}

/// A request under a key, and the units of `u`/`r` that it asks for.
#[derive(Debug, Clone, Copy)]
struct Keyed {
    path: &'static str,
    key: &'static str,
    body: &'static str,
    amount: u64,
}

/// What the script consumes under keys.
const KEYED: [Keyed; 5] = [
    keyed(CONSUME, "a", "", 1),
    keyed(CONSUME, "b", r#"{"amount":2}"#, 2),
    keyed(CONSUME, "c", "", 1),
    keyed(BATCH, "d", ITEMS, 3),
    keyed(CONSUME, "e", "", 1),
];

const fn keyed(path: &'static str, key: &'static str, body: &'static str, amount: u64) -> Keyed {
    Keyed {
        path,
        key,
        body,
        amount,
    }
}

impl Keyed {
    async fn send(&self, app: &TestApp) -> Answer {
        app.keyed(self.path, self.key, self.body).await
    }
}

impl Tally {
    /// Takes down the answer to a consume, which no policy and no limit stands in the way of.
    #[track_caller]
    fn consumed(&mut self, answer: Answer, keyed: Option<Keyed>, amount: u64) {
        match answer.status {
            200 => {
                self.granted += amount;
                return;
            }
            500 => drop(answer.problem(500, "internal")),
            _ if is_unknown(&answer) => {
                answer.problem(503, "outcome-unknown");
                self.unknown += amount;
                self.unkeyed += if keyed.is_none() { amount } else { 0 };
            }
            _ => drop(answer.problem(503, "unavailable")),
        }
        self.open.extend(keyed);
    }

    fn possible(&self) -> RangeInclusive<u64> {
        self.granted..=self.granted + self.unknown
    }
}

fn is_unknown(answer: &Answer) -> bool {
    answer.status == 503 && answer.json()["type"] == "/problems/outcome-unknown"
}

/// Checks that an answer is what it should be, or tells of a fault.
#[track_caller]
fn expect(answer: Answer, status: u16) {
    match answer.status {
        500 => drop(answer.problem(500, "internal")),
        503 if is_unknown(&answer) => drop(answer.problem(503, "outcome-unknown")),
        503 => drop(answer.problem(503, "unavailable")),
        _ => drop(answer.is(status)),
    }
}

/// Everything that these routes ask of a store, with consumes in between.
async fn script(app: &TestApp) -> Tally {
    let mut tally = Tally::default();
    let [a, b, c, d, e] = KEYED;
    for keyed in [a, b] {
        tally.consumed(keyed.send(app).await, Some(keyed), keyed.amount);
    }
    expect(app.get("/quotas/u/r").await, 200);
    tally.consumed(app.consume_amount(4).await, None, 4);
    expect(app.get("/quotas/u").await, 200);
    let put = app.put("/quotas/u/r", r#"{"window":"hourly","limit_count":2000}"#);
    expect(put.await, 200);
    tally.consumed(c.send(app).await, Some(c), c.amount);
    expect(app.post("/quotas/v/r/reset", "").await, 200);
    expect(app.post("/quotas/v/r/refund", "").await, 200);
    tally.consumed(d.send(app).await, Some(d), d.amount);
    let put = app.put("/defaults/t", r#"{"window":"daily","limit_count":3}"#);
    expect(put.await, 200);
    expect(app.delete("/defaults/none").await, 404);
    expect(app.get("/defaults/none").await, 404);
    for list in ["/defaults", "/quotas/u/r/usage", "/quotas", "/audit"] {
        expect(app.get(list).await, 200);
    }
    expect(app.get("/quotas?sort=used_percent").await, 200);
    expect(app.delete("/quotas/nobody").await, 204);
    expect(app.get("/tokens").await, 200);
    expect(app.post("/tokens", r#"{"role":"viewer"}"#).await, 201);
    expect(app.delete("/tokens/none").await, 404);
    // Judged without the store, so that it is asked to confirm the token.
    expect(app.consume_amount(0).await, 422);
    let unknown = app.call(Method::GET, "/quotas/u/r", "unknown", "").await;
    expect(unknown, 401);
    // A first request, with a token that is not remembered.
    let user = app.user_token("u").await;
    let first = app.call(Method::POST, CONSUME, &user, "");
    tally.consumed(first.await, None, 1);
    expect(app.delete("/quotas/v/r").await, 204);
    tally.consumed(e.send(app).await, Some(e), e.amount);
    tally
}

/// A server with the policies that the script needs.
async fn ready() -> (TestApp, Arc<FaultyStore<SqliteStore>>) {
    let (app, store) = TestApp::faulty().await;
    app.policy("hourly", 1_000).await;
    for path in ["/quotas/v/r", "/quotas/v/s"] {
        app.put(path, r#"{"window":"hourly","limit_count":5}"#)
            .await
            .is(200);
    }
    (app, store)
}

/// Runs the script with its nth call failing, for n = 1, 2, 3 … until none fails.
async fn fail_each_call(fault: Fault) {
    for nth in 1.. {
        let (app, store) = ready().await;
        store.fail_nth(nth, fault);
        let tally = script(&app).await;
        let met = store.met();
        drop(store);

        // A batch's key is that of its token.
        let admin = app.admin.clone();
        let mut app = app.restart().await;
        app.admin = admin;
        let usage = app.check().await.usage();
        assert!(
            tally.possible().contains(&usage),
            "{nth}: {usage}, {tally:?}"
        );
        match fault {
            Fault::LostAfterCommit => assert_eq!(usage, tally.granted + tally.unknown),
            Fault::NotTaken | Fault::RolledBack | Fault::LostBeforeCommit | Fault::Internal => {
                assert_eq!(usage, tally.granted, "{nth}: {tally:?}");
            }
        }
        if matches!(fault, Fault::NotTaken | Fault::RolledBack | Fault::Internal) {
            assert_eq!(tally.unknown, 0, "{nth}");
        }
        // A retry under the same key settles it: counted once, whatever had happened.
        let mut expected = tally.granted;
        for keyed in &tally.open {
            let retried = keyed.send(&app).await.is(200);
            let had_counted = retried.header("idempotency-replayed").is_some();
            assert_eq!(
                had_counted,
                fault == Fault::LostAfterCommit,
                "{nth}: {keyed:?}"
            );
            expected += keyed.amount;
        }
        // What a batch counts of one pair, it counts of all.
        assert_eq!(app.get("/quotas/v/s").await.is(200).usage(), 1, "{nth}");
        if fault == Fault::LostAfterCommit {
            expected += tally.unkeyed;
        }
        assert_eq!(app.check().await.usage(), expected, "{nth}: {tally:?}");
        if !met {
            assert_eq!(tally.granted, 13);
            assert!(nth > 27, "the script makes more than {nth} calls");
            return;
        }
    }
}

#[tokio::test]
async fn a_transaction_that_cannot_begin_counts_nothing() {
    fail_each_call(Fault::NotTaken).await;
}

#[tokio::test]
async fn a_transaction_that_is_taken_back_counts_nothing() {
    fail_each_call(Fault::RolledBack).await;
}

#[tokio::test]
async fn a_commit_that_was_lost_before_it_happened_counts_nothing() {
    fail_each_call(Fault::LostBeforeCommit).await;
}

#[tokio::test]
async fn a_commit_that_was_lost_after_it_happened_counts_once() {
    fail_each_call(Fault::LostAfterCommit).await;
}

#[tokio::test]
async fn a_fault_of_ours_counts_nothing() {
    fail_each_call(Fault::Internal).await;
}

/// A store that takes nothing: the answer says so within 5 s, and the next request works.
#[tokio::test]
async fn a_request_that_waits_too_long_is_unavailable_within_5_s() {
    let (app, store) = ready().await;
    app.consume().await.is(200);
    store.fail_always(Fault::NotTaken);
    // The store answers at once, so that nothing but the wait moves this clock.
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    let answer = app.keyed(CONSUME, "k", "").await;
    let answer = answer.problem(503, "unavailable");
    assert!(
        answer
            .header("retry-after")
            .unwrap()
            .parse::<u64>()
            .unwrap()
            >= 1
    );
    let waited = start.elapsed();
    assert!(waited >= WAIT_MAX, "{waited:?}");
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    tokio::time::resume();
    store.mend();
    let retried = app.keyed(CONSUME, "k", "").await.is(200);
    assert_eq!(retried.header("idempotency-replayed"), None);
    assert_eq!(app.check().await.usage(), 2);
}

/// A caller sends more than it may have under way: who waits for the caller's turn first has no more time for it all.
#[tokio::test]
async fn a_request_that_waits_for_its_turn_too_is_unavailable_within_5_s() {
    let (app, store) = ready().await;
    app.consume().await.is(200);
    store.fail_always(Fault::NotTaken);
    tokio::time::pause();
    let (app, start) = (Arc::new(app), tokio::time::Instant::now());
    let mut sent = JoinSet::new();
    // More than the share of one caller.
    for _ in 0..1_100 {
        let app = Arc::clone(&app);
        sent.spawn(async move { app.consume().await });
    }
    for answer in sent.join_all().await {
        answer.problem(503, "unavailable");
    }
    let waited = start.elapsed();
    assert!(waited >= WAIT_MAX, "{waited:?}");
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    tokio::time::resume();
    store.mend();
    app.consume().await.is(200);
    assert_eq!(app.check().await.usage(), 2);
}

/// One fault among many that race: each answer is true, and no neighbour fails for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_in_a_race_leaves_the_count_exact() {
    for fault in [
        Fault::NotTaken,
        Fault::RolledBack,
        Fault::LostBeforeCommit,
        Fault::LostAfterCommit,
        Fault::Internal,
    ] {
        let (app, store) = ready().await;
        let app = Arc::new(app);
        store.fail_nth(1, fault);
        let mut race = JoinSet::new();
        for _ in 0..40 {
            let app = Arc::clone(&app);
            race.spawn(async move { app.consume().await });
        }
        let mut tally = Tally::default();
        for answer in race.join_all().await {
            tally.consumed(answer, None, 1);
        }
        assert!(store.met());
        let usage = app.check().await.usage();
        assert!(
            tally.possible().contains(&usage),
            "{fault:?}: {usage}, {tally:?}"
        );
        if fault == Fault::Internal {
            // What fails a whole batch is tried again one by one.
            assert!(tally.granted >= 39, "{tally:?}");
        }
        app.consume().await.is(200);
    }
}
