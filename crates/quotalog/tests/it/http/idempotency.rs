//! `Idempotency-Key`: the answer of a request that succeeded, kept with its effect.

use std::sync::Arc;

use axum::body::Body;
use hyper::Method;
use quotalog_auth::Role;
use quotalog_ledger::store::{Administer as _, Retention};
use tokio::task::JoinSet;

use crate::support::answer::Answer;
use crate::support::app::TestApp;

const CONSUME: &str = "/quotas/u/r/consume";
const RESET: &str = "/quotas/u/r/reset";
const REFUND: &str = "/quotas/u/r/refund";
const BATCH: &str = "/consume";
/// Two units of `u`/`r` and one of `u`/`s`.
const ITEMS: &str = r#"{"items":[{"user_id":"u","resource":"r","amount":2},
    {"user_id":"u","resource":"s"}]}"#;
const HOURLY_5: &str = r#"{"window":"hourly","limit_count":5}"#;
const KEPT: &str = "SELECT count(*) FROM quotalog_idempotency_keys";

/// Checks that `again` is the kept answer `first`, to the byte.
#[track_caller]
fn assert_replay(again: &Answer, first: &Answer) {
    assert_eq!(again.status, first.status);
    assert_eq!(again.body, first.body);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(first.header("idempotency-replayed"), None);
    let mut headers = [again.headers.clone(), first.headers.clone()];
    for headers in &mut headers {
        headers.remove("x-request-id").expect("a request id");
        headers.remove("idempotency-replayed");
    }
    assert_eq!(headers[0], headers[1]);
}

#[tokio::test]
async fn a_replay_is_the_kept_answer_whatever_happened_since() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    let first = app.keyed(CONSUME, "k", r#"{"amount":3}"#).await.is(200);
    let replay = async |app: &TestApp| {
        let again = app.keyed(CONSUME, "k", r#"{"amount":3}"#).await;
        assert_replay(&again, &first);
    };
    replay(&app).await;
    assert_eq!(app.check().await.usage(), 3);
    // Later in the window: the fields are those of the kept answer.
    app.set_time("2026-11-30T18:40:00Z");
    replay(&app).await;
    app.consume_amount(2).await.is(200);
    app.consume().await.problem(429, "quota-exceeded");
    replay(&app).await;
    app.policy("daily", 1).await;
    replay(&app).await;
    app.post(RESET, "").await.is(200);
    replay(&app).await;
    assert_eq!(app.check().await.usage(), 0);
    app.set_time("2026-11-30T19:10:00Z");
    replay(&app).await;
    app.delete("/quotas/u/r").await.is(204);
    replay(&app).await;
    let retention = Retention {
        usage_s: 1,
        idempotency_s: 86_400,
        audit_s: 400 * 86_400,
    };
    let pruned = app.store.prune_step(retention, 100).await.unwrap();
    assert_ne!(pruned.rows(), 0);
    assert_eq!(app.number("SELECT count(*) FROM quota_usage"), 0);
    replay(&app).await;
    let app = app.restart().await;
    replay(&app).await;
    let other = app.beside().await;
    replay(&other).await;
    app.set_time("2026-12-01T18:20:00Z");
    replay(&app).await;
    assert_eq!(app.number(KEPT), 1);
    // After 24 hours the key is free.
    app.set_time("2026-12-01T18:20:01Z");
    let later = app.keyed(CONSUME, "k", r#"{"amount":3}"#).await;
    later.problem(404, "not-found");
}

#[tokio::test]
async fn another_request_under_a_key_is_a_mismatch() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    app.keyed(CONSUME, "k", "").await.is(200);
    for body in [r#"{"amount":2}"#, r#"{"amount":5}"#, r#"{"amount":6}"#] {
        let other = app.keyed(CONSUME, "k", body).await;
        let other = other.problem(422, "idempotency-mismatch");
        assert_eq!(other.header("idempotency-replayed"), None);
        assert!(other.json().get("errors").is_none());
    }
    // The same amount however it is said.
    for body in ["", "{}", r#"{"amount":1}"#, r#" { "amount" : 1 } "#] {
        let same = app.keyed(CONSUME, "k", body).await.is(200);
        assert_eq!(same.header("idempotency-replayed"), Some("true"));
    }
    assert_eq!(app.check().await.usage(), 1);
}

/// C51: neither callers nor pairs nor operations share a key.
#[tokio::test]
async fn c51_a_key_belongs_to_its_operation_and_pair() {
    let app = TestApp::new().await;
    for path in ["/quotas/alice/r", "/quotas/bob/r", "/quotas/alice/s"] {
        app.put(path, HOURLY_5).await.is(200);
    }
    let (alice, bob) = (app.user_token("alice").await, app.user_token("bob").await);
    let keyed = async |token: &str, path: &str, body: &str| {
        let request = hyper::Request::builder()
            .method(Method::POST)
            .uri(path)
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .header("idempotency-key", "a");
        let request = request.body(Body::from(body.to_owned())).unwrap();
        app.send(request).await
    };
    let first = keyed(&alice, "/quotas/alice/r/consume", "").await.is(200);
    let other_user = keyed(&bob, "/quotas/bob/r/consume", "").await.is(200);
    let other_resource = keyed(&alice, "/quotas/alice/s/consume", "").await.is(200);
    for (answer, user) in [
        (&first, "alice"),
        (&other_user, "bob"),
        (&other_resource, "alice"),
    ] {
        assert_eq!(answer.header("idempotency-replayed"), None);
        assert_eq!(answer.json()["user_id"], user);
        assert_eq!(answer.usage(), 1);
    }
    let refused = keyed(&alice, "/quotas/bob/r/consume", "").await;
    refused.problem(403, "forbidden");
    let other_amount = keyed(&alice, "/quotas/alice/r/consume", r#"{"amount":2}"#).await;
    other_amount.problem(422, "idempotency-mismatch");
    // Whoever may consume for the pair repeats the same request.
    let again = app.keyed("/quotas/alice/r/consume", "a", "").await.is(200);
    assert_replay(&again, &first);
    let reset = app.keyed("/quotas/alice/r/reset", "a", "").await.is(200);
    assert_eq!(reset.header("idempotency-replayed"), None);
    assert_eq!(reset.usage(), 0);
    assert_eq!(app.number(KEPT), 4);
}

/// C52: one of the twins counts, all of them get its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c52_parallel_twins_count_once() {
    let app = Arc::new(TestApp::new().await);
    let other = Arc::new(app.beside().await);
    app.policy("hourly", 100).await;
    let mut twins = JoinSet::new();
    for twin in 0..20 {
        let app = Arc::clone(if twin % 2 == 0 { &app } else { &other });
        twins.spawn(async move { app.keyed(CONSUME, "a", "").await.is(200) });
    }
    let answers = twins.join_all().await;
    let new = answers
        .iter()
        .filter(|answer| answer.header("idempotency-replayed").is_none());
    assert_eq!(new.count(), 1);
    for answer in &answers {
        assert_eq!(answer.body, answers[0].body);
        assert_eq!(answer.header("ratelimit"), answers[0].header("ratelimit"));
    }
    assert_eq!(app.check().await.usage(), 1);
}

#[tokio::test]
async fn a_quoted_key_and_the_bare_one_are_the_same() {
    let app = TestApp::new().await;
    app.policy("hourly", 1_000).await;
    let longest = "k".repeat(255);
    let keys = [
        ("a", r#""a""#),
        (r#"a"b\c"#, r#""a\"b\\c""#),
        (&longest, &format!("\"{longest}\"")),
        ("{}", "\"{}\""),
    ];
    for (bare, quoted) in keys {
        let first = app.keyed(CONSUME, quoted, "").await.is(200);
        assert_replay(&app.keyed(CONSUME, bare, "").await, &first);
    }
    // Case counts.
    let other = app.keyed(CONSUME, "A", "").await.is(200);
    assert_eq!(other.header("idempotency-replayed"), None);
}

/// C39: 255 characters are a key, 256 are none.
#[tokio::test]
async fn c39_what_is_no_key_is_refused_and_counts_nothing() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    let too_long = "k".repeat(256);
    let too_long_quoted = format!("\"{too_long}\"");
    for key in [
        "",
        "a b",
        "\"\"",
        "\"a",
        "\"a b\"",
        "a\tb",
        "\"a\"x",
        &too_long,
        &too_long_quoted,
    ] {
        for path in [CONSUME, RESET, REFUND] {
            app.keyed(path, key, "")
                .await
                .faults(&["Idempotency-Key invalid"]);
        }
        app.keyed(BATCH, key, ITEMS)
            .await
            .faults(&["Idempotency-Key invalid"]);
    }
    let request = app.request(Method::POST, CONSUME);
    let request = request.header("idempotency-key", "\u{e9}".as_bytes());
    let answer = app.send(request.body(Body::empty()).unwrap()).await;
    answer.faults(&["Idempotency-Key invalid"]);
    let request = app.request(Method::POST, CONSUME);
    let request = request
        .header("idempotency-key", "a")
        .header("idempotency-key", "a");
    let answer = app.send(request.body(Body::empty()).unwrap()).await;
    answer.faults(&["Idempotency-Key invalid"]);
    assert_eq!(app.check().await.usage(), 0);
    assert_eq!(app.number(KEPT), 0);
}

#[tokio::test]
async fn a_refusal_is_not_kept_and_leaves_no_row() {
    let app = TestApp::new().await;
    let viewer = app.token(Role::Viewer).await;
    let as_viewer = hyper::Request::post(CONSUME)
        .header("authorization", format!("Bearer {viewer}"))
        .header("idempotency-key", "k")
        .body(Body::empty())
        .unwrap();
    app.send(as_viewer).await.problem(403, "forbidden");
    app.keyed(CONSUME, "k", "").await.problem(404, "not-found");
    app.keyed(RESET, "k", "").await.problem(404, "not-found");
    app.policy("hourly", 2).await;
    app.keyed(CONSUME, "k", "{")
        .await
        .problem(400, "malformed-request");
    app.keyed(CONSUME, "k", r#"{"amount":0}"#)
        .await
        .faults(&["amount invalid"]);
    app.keyed(CONSUME, "k", r#"{"amount":3}"#)
        .await
        .faults(&["amount exceeds_limit"]);
    app.consume().await.is(200);
    app.keyed(CONSUME, "k", r#"{"amount":2}"#)
        .await
        .problem(429, "quota-exceeded");
    assert_eq!(app.number(KEPT), 0);
    // The same key, also for another request, may succeed later.
    let granted = app.keyed(CONSUME, "k", "").await.is(200);
    assert_eq!(granted.usage(), 2);
    assert_eq!(app.number(KEPT), 1);
    app.keyed(CONSUME, "k", r#"{"amount":2}"#)
        .await
        .problem(422, "idempotency-mismatch");
    assert_eq!(app.number(KEPT), 1);
}

#[tokio::test]
async fn a_reset_is_repeated_under_its_key_alone() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    app.consume_amount(3).await.is(200);
    let first = app.keyed(RESET, "k", "").await.is(200);
    assert_eq!(first.usage(), 0);
    app.consume_amount(2).await.is(200);
    assert_replay(&app.keyed(RESET, "k", "{}").await, &first);
    assert_eq!(app.check().await.usage(), 2);
    assert_eq!(app.keyed(RESET, "other", "").await.is(200).usage(), 0);
    assert_eq!(app.check().await.usage(), 0);
}

#[tokio::test]
async fn a_refund_is_repeated_under_its_key_alone() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    app.consume_amount(5).await.is(200);
    let first = app.keyed(REFUND, "k", r#"{"amount":2}"#).await.is(200);
    assert_eq!(first.usage(), 3);
    let replay = async |app: &TestApp| {
        let again = app.keyed(REFUND, "k", r#"{"amount":2}"#).await;
        assert_replay(&again, &first);
    };
    replay(&app).await;
    assert_eq!(app.check().await.usage(), 3);
    for body in ["", r#"{"amount":1}"#, r#"{"amount":3}"#] {
        let other = app.keyed(REFUND, "k", body).await;
        other.problem(422, "idempotency-mismatch");
    }
    // Another operation's key of the same name is another key.
    let consumed = app.keyed(CONSUME, "k", r#"{"amount":2}"#).await.is(200);
    assert_eq!(consumed.usage(), 5);
    assert_eq!(app.keyed(RESET, "k", "").await.is(200).usage(), 0);
    replay(&app).await;
    app.set_time("2026-11-30T19:10:00Z");
    replay(&app).await;
    app.delete("/quotas/u/r").await.is(204);
    replay(&app).await;
    let app = app.restart().await;
    replay(&app).await;
    assert_eq!(app.number(KEPT), 3);
    let bare = app.keyed(REFUND, "bare", "").await;
    bare.problem(404, "not-found");
    assert_eq!(app.number(KEPT), 3);
}

/// A server with the policies of [`ITEMS`].
async fn with_both_policies() -> TestApp {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    app.put("/quotas/u/s", HOURLY_5).await.is(200);
    app
}

#[tokio::test]
async fn a_batch_is_repeated_whatever_happened_since() {
    let app = with_both_policies().await;
    let first = app.keyed(BATCH, "k", ITEMS).await.is(200);
    let replay = async |app: &TestApp| {
        let again = app.keyed(BATCH, "k", ITEMS).await;
        assert_replay(&again, &first);
        assert_eq!(again.header("ratelimit"), None);
    };
    replay(&app).await;
    assert_eq!(app.check().await.usage(), 2);
    app.consume_amount(3).await.is(200);
    app.keyed(BATCH, "other", ITEMS)
        .await
        .problem(429, "quota-exceeded");
    replay(&app).await;
    app.policy("daily", 1).await;
    replay(&app).await;
    app.set_time("2026-11-30T19:10:00Z");
    replay(&app).await;
    app.delete("/quotas/u/s").await.is(204);
    replay(&app).await;
    // The key is its token's, which lives on.
    let token = app.admin.clone();
    let mut app = app.restart().await;
    app.admin = token;
    replay(&app).await;
    assert_eq!(app.number(KEPT), 1);
    app.set_time("2026-12-01T18:20:01Z");
    let later = app.keyed(BATCH, "k", ITEMS).await;
    later.problem(404, "not-found");
}

#[tokio::test]
async fn other_items_under_a_key_are_a_mismatch() {
    let app = with_both_policies().await;
    app.keyed(BATCH, "k", ITEMS).await.is(200);
    let item = |resource: &str, amount: &str| {
        format!(r#"{{"user_id":"u","resource":"{resource}"{amount}}}"#)
    };
    let (r, s) = (item("r", r#","amount":2"#), item("s", ""));
    for items in [
        format!("{s},{r}"),
        r.clone(),
        s.clone(),
        format!("{r},{s},{s}"),
        format!("{},{s}", item("r", r#","amount":1"#)),
        format!("{r},{}", item("none", "")),
        format!("{r},{}", item("s", r#","amount":6"#)),
    ] {
        let body = format!(r#"{{"items":[{items}]}}"#);
        let other = app.keyed(BATCH, "k", &body).await;
        other.problem(422, "idempotency-mismatch");
    }
    // The same items however they are written.
    let one = r#","amount":1"#;
    let same = format!(r#"{{ "items" : [{r}, {}] }}"#, item("s", one));
    let same = app.keyed(BATCH, "\"k\"", &same).await.is(200);
    assert_eq!(same.header("idempotency-replayed"), Some("true"));
    assert_eq!(app.check().await.usage(), 2);
    // A consume's key of the same name is another key.
    let consumed = app.keyed(CONSUME, "k", "").await.is(200);
    assert_eq!(consumed.header("idempotency-replayed"), None);
}

/// C51: a batch's key belongs to the token that sent it.
#[tokio::test]
async fn c51_callers_share_no_key_of_a_batch() {
    let app = with_both_policies().await;
    let tokens = [
        app.admin.clone(),
        app.token(Role::Service).await,
        app.user_token("u").await,
        app.user_token("u").await,
    ];
    for (position, token) in tokens.iter().enumerate() {
        let keyed = async || {
            let request = hyper::Request::post(BATCH)
                .header("authorization", format!("Bearer {token}"))
                .header("content-type", "application/json")
                .header("idempotency-key", "a");
            let body = r#"{"items":[{"user_id":"u","resource":"r"}]}"#;
            app.send(request.body(Body::from(body)).unwrap()).await
        };
        let first = keyed().await.is(200);
        assert_eq!(first.json()["quotas"][0]["usage"], position + 1);
        assert_replay(&keyed().await, &first);
    }
    assert_eq!(app.number(KEPT), 4);
}

/// C52, of batches: their twins share no lock of a pair, and count once all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c52_parallel_twins_of_a_batch_count_once() {
    let app = Arc::new(with_both_policies().await);
    let mut other = app.beside().await;
    other.admin.clone_from(&app.admin);
    let other = Arc::new(other);
    let mut twins = JoinSet::new();
    for twin in 0..20 {
        let app = Arc::clone(if twin % 2 == 0 { &app } else { &other });
        twins.spawn(async move { app.keyed(BATCH, "a", ITEMS).await.is(200) });
    }
    let answers = twins.join_all().await;
    let new = answers
        .iter()
        .filter(|answer| answer.header("idempotency-replayed").is_none());
    assert_eq!(new.count(), 1);
    assert!(answers.iter().all(|answer| answer.body == answers[0].body));
    assert_eq!(app.check().await.usage(), 2);
}

#[tokio::test]
async fn a_refused_batch_is_not_kept_and_leaves_no_row() {
    let app = TestApp::new().await;
    app.keyed(BATCH, "k", ITEMS).await.problem(404, "not-found");
    app.policy("hourly", 5).await;
    app.put("/quotas/u/s", r#"{"window":"hourly","limit_count":1}"#)
        .await
        .is(200);
    app.keyed(BATCH, "k", r#"{"items":[]}"#)
        .await
        .faults(&["items invalid"]);
    let twice = r#"{"items":[{"user_id":"u","resource":"s"},{"user_id":"u","resource":"s"}]}"#;
    let never = app.keyed(BATCH, "k", twice).await;
    never.faults(&[
        "items[0].amount exceeds_limit",
        "items[1].amount exceeds_limit",
    ]);
    app.post("/quotas/u/s/consume", "").await.is(200);
    app.keyed(BATCH, "k", ITEMS)
        .await
        .problem(429, "quota-exceeded");
    assert_eq!(app.number(KEPT), 0);
    app.post("/quotas/u/s/reset", "").await.is(200);
    let granted = app.keyed(BATCH, "k", ITEMS).await.is(200);
    assert_eq!(granted.header("idempotency-replayed"), None);
    assert_eq!(app.number(KEPT), 1);
}

/// Where nothing is counted, a key says nothing and is not kept.
#[tokio::test]
async fn other_routes_take_no_key() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    let request = app.request(Method::GET, "/quotas/u/r");
    let request = request.header("idempotency-key", "a b").body(Body::empty());
    app.send(request.unwrap()).await.is(200);
    let request = app.request(Method::PUT, "/quotas/u/r");
    let request = request
        .header("idempotency-key", "k")
        .header("content-type", "application/json");
    let request = request.body(Body::from(r#"{"window":"hourly","limit_count":6}"#));
    app.send(request.unwrap()).await.is(200);
    let request = app.request(Method::PUT, "/defaults/r");
    let request = request
        .header("idempotency-key", "k")
        .header("content-type", "application/json");
    let request = request.body(Body::from(HOURLY_5));
    app.send(request.unwrap()).await.is(200);
    assert_eq!(app.number(KEPT), 0);
}
