//! Requests that race: on one process, on two, with a reset, with pruning.

use std::sync::Arc;

use quotalog_ledger::store::{Administer as _, Retention};
use tokio::task::JoinSet;

use crate::support::app::TestApp;

const CONSUME: &str = "/quotas/u/r/consume";

/// C10: nothing is refused for being busy, and each count is that of its grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_a_mix_of_reads_writes_and_pruning_meets_no_fault() {
    let app = Arc::new(TestApp::new().await);
    let other = Arc::new(app.beside().await);
    let policy = r#"{"window":"hourly","limit_count":1000000}"#;
    let paths = ["/quotas/u/r", "/quotas/u/s", "/quotas/v/r", "/quotas/v/s"];
    for path in paths {
        app.put(path, policy).await.is(200);
    }
    let mut clients = JoinSet::new();
    for client in 0..32 {
        let app = Arc::clone(if client % 2 == 0 { &app } else { &other });
        clients.spawn(async move {
            for round in 0..9 {
                let path = paths[(client + round) % paths.len()];
                match round % 3 {
                    0 => app.get(path).await.is(200),
                    1 => app.post(&format!("{path}/consume"), "").await.is(200),
                    _ => app.put(path, policy).await.is(200),
                };
            }
        });
    }
    let retention = Retention {
        usage_s: 86_400,
        idempotency_s: 86_400,
        audit_s: 400 * 86_400,
    };
    while !clients.is_empty() {
        app.store.prune_step(retention, 100).await.unwrap();
        while let Some(ended) = clients.try_join_next() {
            ended.unwrap();
        }
        tokio::task::yield_now().await;
    }
    let mut usage = 0;
    for path in paths {
        usage += other.get(path).await.is(200).usage();
    }
    assert_eq!(usage, 32 * 3);
}

/// C24: a change on one process is the next request's on the other.
#[tokio::test]
async fn c24_a_new_limit_holds_at_once_for_every_process() {
    let app = TestApp::new().await;
    let other = app.beside().await;
    app.policy("hourly", 100).await;
    other.consume().await.is(200);
    other.consume().await.is(200);
    app.policy("hourly", 2).await;
    let denied = other.consume().await.problem(429, "quota-exceeded");
    assert_eq!(denied.json()["limit_count"], 2);
    let policy = Some(r#""hourly";q=2;w=3600"#);
    assert_eq!(denied.header("ratelimit-policy"), policy);
    app.policy("hourly", 3).await;
    assert_eq!(other.consume().await.is(200).usage(), 3);
    assert_eq!(app.check().await.remaining(), 0);
    app.post("/quotas/u/r/reset", "").await.is(200);
    assert_eq!(other.consume().await.is(200).usage(), 1);
    app.delete("/quotas/u/r").await.is(204);
    other.consume().await.problem(404, "not-found");
}

/// C07, on two processes of one file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c07_two_processes_grant_the_limit_together() {
    let app = Arc::new(TestApp::new().await);
    let other = Arc::new(app.beside().await);
    app.policy("hourly", 10).await;
    let mut race = JoinSet::new();
    for client in 0..40 {
        let app = Arc::clone(if client % 2 == 0 { &app } else { &other });
        race.spawn(async move { app.consume().await });
    }
    let answers = race.join_all().await;
    let granted = answers.into_iter().filter(|answer| answer.status == 200);
    let mut usages: Vec<u64> = granted.map(|answer| answer.is(200).usage()).collect();
    usages.sort_unstable();
    assert_eq!(usages, (1..=10).collect::<Vec<_>>());
}

/// A consume lands wholly before a reset or wholly after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_parts_the_consumes_that_race_with_it() {
    let app = Arc::new(TestApp::new().await);
    app.policy("hourly", 100).await;
    let mut race = JoinSet::new();
    for client in 0..31 {
        let app = Arc::clone(&app);
        race.spawn(async move {
            if client == 15 {
                let reset = app.post("/quotas/u/r/reset", "").await.is(200);
                assert_eq!(reset.usage(), 0);
                None
            } else {
                Some(app.consume().await.is(200).usage())
            }
        });
    }
    let mut usages: Vec<u64> = race.join_all().await.into_iter().flatten().collect();
    usages.sort_unstable();
    let after = app.check().await.usage();
    let mut expected: Vec<u64> = (1..=after).chain(1..=30 - after).collect();
    expected.sort_unstable();
    assert_eq!(usages, expected);
}

/// C51: also while the first under the key is still on its way, another request is a mismatch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c51_of_two_requests_under_a_key_one_wins() {
    let app = Arc::new(TestApp::new().await);
    app.policy("hourly", 100).await;
    let mut race = JoinSet::new();
    for client in 0..20 {
        let app = Arc::clone(&app);
        let amount = 1 + client % 2;
        let body = format!(r#"{{"amount":{amount}}}"#);
        race.spawn(async move { (amount, app.keyed(CONSUME, "k", &body).await) });
    }
    let answers = race.join_all().await;
    let usage = app.check().await.usage();
    assert!((1..=2).contains(&usage));
    for (amount, answer) in answers {
        if amount == usage {
            answer.is(200);
        } else {
            answer.problem(422, "idempotency-mismatch");
        }
    }
}
