//! `POST /quotas/{userId}/{resource}/refund`: units of the current window, given back.

use quotalog_domain::Window;

use crate::support::app::TestApp;

const REFUND: &str = "/quotas/u/r/refund";

#[tokio::test]
async fn a_refund_gives_units_back_and_stops_at_0() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    app.consume_amount(5).await.is(200);
    app.consume().await.problem(429, "quota-exceeded");
    let one = app.post(REFUND, "").await.is(200);
    assert_eq!((one.usage(), one.remaining()), (4, 1));
    let two = app.post(REFUND, r#"{"amount":2}"#).await.is(200);
    assert_eq!((two.usage(), two.remaining()), (2, 3));
    assert_eq!(two.header("ratelimit"), Some(r#""hourly";r=3;t=2400"#));
    assert_eq!(app.check().await.usage(), 2);
    // More than was used, and more than the limit: what is left of usage is given back.
    for body in [r#"{"amount":3}"#, r#"{"amount":1000000}"#, "{}"] {
        let all = app.post(REFUND, body).await.is(200);
        assert_eq!((all.usage(), all.remaining()), (0, 5));
        assert_eq!(all.json()["allowed"], true);
    }
    assert_eq!(app.consume_amount(5).await.is(200).remaining(), 0);
    app.consume().await.problem(429, "quota-exceeded");
}

#[tokio::test]
async fn a_refund_of_what_was_never_used_leaves_no_trace() {
    let app = TestApp::new().await;
    app.post(REFUND, "").await.problem(404, "not-found");
    app.policy("hourly", 5).await;
    assert_eq!(app.post(REFUND, "").await.is(200).usage(), 0);
    assert_eq!(app.number("SELECT count(*) FROM quota_usage"), 0);
    app.delete("/quotas/u/r").await.is(204);
    app.post(REFUND, "").await.problem(404, "not-found");
    app.default("r", Window::Daily, 3).await;
    app.consume_amount(2).await.is(200);
    let refunded = app.post(REFUND, "").await.is(200);
    assert_eq!(refunded.usage(), 1);
    assert_eq!(refunded.json()["source"], "default");
}

/// The contract's example of rows, at 10:30: of a day's rows, the hour's is the newest.
#[tokio::test]
async fn a_refund_takes_from_the_newest_row_of_its_window_alone() {
    let app = TestApp::at("2026-11-30T09:30:00Z").await;
    app.policy("hourly", 10).await;
    app.consume_amount(4).await.is(200);
    app.set_time("2026-11-30T10:30:00Z");
    app.consume_amount(3).await.is(200);
    app.policy("daily", 10).await;
    assert_eq!(app.consume().await.is(200).usage(), 8);
    let refunded = app.post(REFUND, r#"{"amount":2}"#).await.is(200);
    assert_eq!(refunded.usage(), 6);
    assert_eq!(app.policy("hourly", 10).await.usage(), 1);
    // An hour's refund leaves the hours before it alone.
    let refunded = app.post(REFUND, r#"{"amount":9}"#).await.is(200);
    assert_eq!(refunded.usage(), 0);
    app.set_time("2026-11-30T09:45:00Z");
    assert_eq!(app.check().await.usage(), 4);
    app.set_time("2026-11-30T10:45:00Z");
    assert_eq!(app.policy("daily", 10).await.usage(), 5);
    // The newest row is empty by now, so the one before it is next.
    let refunded = app.post(REFUND, r#"{"amount":2}"#).await.is(200);
    assert_eq!(refunded.usage(), 3);
    app.set_time("2026-11-30T09:45:00Z");
    assert_eq!(app.policy("hourly", 10).await.usage(), 2);
}

#[tokio::test]
async fn a_refund_touches_its_own_pair_alone() {
    let app = TestApp::new().await;
    for path in ["/quotas/u/r", "/quotas/u/s", "/quotas/v/r"] {
        let set = app.put(path, r#"{"window":"hourly","limit_count":5}"#);
        set.await.is(200);
        let consume = format!("{path}/consume");
        app.post(&consume, r#"{"amount":3}"#).await.is(200);
    }
    app.post(REFUND, r#"{"amount":2}"#).await.is(200);
    assert_eq!(app.check().await.usage(), 1);
    assert_eq!(app.get("/quotas/u/s").await.is(200).usage(), 3);
    assert_eq!(app.get("/quotas/v/r").await.is(200).usage(), 3);
}

/// C17: units come back by a refund alone, and by a positive one.
#[tokio::test]
async fn c17_an_amount_to_give_back_is_positive() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    app.consume_amount(3).await.is(200);
    for amount in ["0", "-1", "1.0", "1e0", "\"1\"", "null", "true", "[1]"] {
        let body = format!(r#"{{"amount":{amount}}}"#);
        app.post(REFUND, &body).await.faults(&["amount invalid"]);
    }
    for amount in ["1000001", "99999999999999999999"] {
        let body = format!(r#"{{"amount":{amount}}}"#);
        app.post(REFUND, &body).await.faults(&["amount too_large"]);
    }
    let answer = app.post("/quotas/%00/r/refund", r#"{"amount":0,"amout":1}"#);
    answer
        .await
        .faults(&["user_id invalid", "amount invalid", "amout unknown_field"]);
    assert_eq!(app.check().await.usage(), 3);
}
