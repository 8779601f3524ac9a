//! `POST /quotas/{userId}/{resource}/consume`, and the check beside it.

use quotalog_domain::Window;

use crate::support::app::TestApp;

#[tokio::test]
async fn c14_a_refused_request_is_not_counted() {
    let app = TestApp::new().await;
    app.policy("daily", 2).await;
    app.consume().await.is(200);
    app.consume().await.is(200);
    for _ in 0..10 {
        app.consume().await.problem(429, "quota-exceeded");
    }
    assert_eq!(app.check().await.usage(), 2);
    app.policy("daily", 3).await;
    let third = app.consume().await.is(200);
    assert_eq!((third.usage(), third.remaining()), (3, 0));
    app.consume().await.problem(429, "quota-exceeded");
}

#[tokio::test]
async fn c15_looking_costs_nothing_and_leaves_no_trace() {
    let app = TestApp::new().await;
    app.policy("daily", 5).await;
    for _ in 0..100 {
        assert_eq!(app.check().await.usage(), 0);
    }
    app.get("/quotas/u").await.is(200);
    assert_eq!(app.number("SELECT count(*) FROM quota_usage"), 0);
    assert_eq!(app.consume().await.is(200).usage(), 1);
    assert_eq!(app.number("SELECT count(*) FROM quota_usage"), 1);
}

#[tokio::test]
async fn c17_an_amount_is_positive() {
    let app = TestApp::new().await;
    app.policy("daily", 5).await;
    app.consume_amount(2).await.is(200);
    for amount in [0, -1, -9, i64::MIN] {
        let answer = app.consume_amount(amount).await;
        answer.faults(&["amount invalid"]);
    }
    let check = app.check().await;
    assert_eq!((check.usage(), check.remaining()), (2, 3));
}

#[tokio::test]
async fn c18_units_are_granted_all_or_none() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    assert_eq!(app.consume_amount(3).await.is(200).remaining(), 2);
    let denied = app.consume_amount(3).await.problem(429, "quota-exceeded");
    assert_eq!((denied.usage(), denied.remaining()), (3, 2));
    assert_eq!(denied.json()["allowed"], false);
    assert_eq!(denied.header("ratelimit"), Some(r#""hourly";r=2;t=2400"#));
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("2"));
    let check = app.check().await;
    assert_eq!((check.usage(), check.json()["allowed"] == true), (3, true));
    assert_eq!(app.consume_amount(2).await.is(200).remaining(), 0);

    app.post("/quotas/u/r/reset", "").await.is(200);
    let never = app.consume_amount(6).await;
    never.faults(&["amount exceeds_limit"]);
    // What can never fit is told so also when nothing is left.
    app.consume_amount(5).await.is(200);
    let never = app.consume_amount(6).await;
    never.faults(&["amount exceeds_limit"]);
    assert_eq!(app.check().await.usage(), 5);
}

#[tokio::test]
async fn c20_the_last_unit_is_granted_and_one_more_is_not() {
    let app = TestApp::new().await;
    app.policy("hourly", 3).await;
    for hour in ["18", "19", "20"] {
        app.set_time(&format!("2026-11-30T{hour}:20:00Z"));
        for remaining in [2, 1, 0] {
            assert_eq!(app.consume().await.is(200).remaining(), remaining);
        }
        let denied = app.consume().await.problem(429, "quota-exceeded");
        assert_eq!(denied.header("ratelimit"), Some(r#""hourly";r=0;t=2400"#));
    }
    app.post("/quotas/u/r/reset", "").await.is(200);
    app.policy("hourly", 1).await;
    app.consume().await.is(200);
    app.consume().await.problem(429, "quota-exceeded");
    app.post("/quotas/u/r/reset", "").await.is(200);
    app.policy("daily", 1_000_000).await;
    app.post("/quotas/u/r/reset", "").await.is(200);
    assert_eq!(app.consume_amount(1_000_000).await.is(200).remaining(), 0);
}

/// `allowed` of a grant tells of its units, that of a check whether any are left.
#[tokio::test]
async fn allowed_is_told_of_the_request() {
    let app = TestApp::new().await;
    app.policy("hourly", 2).await;
    let allowed = |answer: &crate::support::answer::Answer| answer.json()["allowed"] == true;
    assert!(allowed(&app.check().await));
    assert!(allowed(&app.consume_amount(2).await.is(200)));
    assert!(!allowed(&app.check().await));
    let denied = app.consume().await.problem(429, "quota-exceeded");
    assert!(!allowed(&denied));
    assert!(allowed(&app.post("/quotas/u/r/reset", "").await.is(200)));
}

#[tokio::test]
async fn the_quota_object_has_one_shape() {
    let app = TestApp::at("2026-11-01T09:00:00.750Z").await;
    app.put(
        "/quotas/alice/api-calls",
        r#"{"window":"daily","limit_count":100}"#,
    )
    .await
    .is(200);
    app.set_time("2026-11-30T08:15:00Z");
    let changed = app
        .put(
            "/quotas/alice/api-calls",
            r#"{"window":"hourly","limit_count":100}"#,
        )
        .await
        .is(200);
    app.set_time("2026-11-30T18:39:00Z");
    let consumed = app
        .post("/quotas/alice/api-calls/consume", r#"{"amount":42}"#)
        .await
        .is(200);
    let expected = concat!(
        r#"{"user_id":"alice","resource":"api-calls","window":"hourly","limit_count":100,"#,
        r#""usage":42,"remaining":58,"allowed":true,"#,
        r#""window_start":"2026-11-30T18:00:00Z","reset_at":"2026-11-30T19:00:00Z","#,
        r#""source":"policy","created_at":"2026-11-01T09:00:00Z","#,
        r#""updated_at":"2026-11-30T08:15:00Z"}"#
    );
    assert_eq!(consumed.body, expected);
    assert_eq!(consumed.header("content-type"), Some("application/json"));
    let check = app.get("/quotas/alice/api-calls").await.is(200);
    assert_eq!(check.body, expected);
    let list = app.get("/quotas/alice").await.is(200);
    let text = format!(r#"{{"user_id":"alice","quotas":[{expected}],"next_cursor":null}}"#);
    assert_eq!(list.body, text);
    let mut members: Vec<String> = changed
        .json()
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    let consumed = consumed.json();
    let mut same: Vec<String> = consumed.as_object().unwrap().keys().cloned().collect();
    members.sort();
    same.sort();
    assert_eq!(members, same);
}

#[tokio::test]
async fn a_default_serves_who_has_no_policy() {
    let app = TestApp::new().await;
    app.default("r", Window::Daily, 2).await;
    let check = app.check().await;
    assert_eq!(check.json()["source"], "default");
    assert_eq!(check.header("etag"), None);
    // Nothing is counted yet, so the pair is not listed.
    let list = app.get("/quotas/u").await.is(200).json();
    assert_eq!(list["quotas"], serde_json::json!([]));
    app.consume_amount(2).await.is(200);
    let denied = app.consume().await.problem(429, "quota-exceeded");
    assert_eq!(denied.json()["source"], "default");
    assert_eq!(
        denied.header("ratelimit-policy"),
        Some(r#""daily";q=2;w=86400"#)
    );
    let list = app.get("/quotas/u").await.is(200).json();
    assert_eq!(list["quotas"][0]["usage"], 2);

    app.policy("daily", 5).await;
    let own = app.consume().await.is(200);
    assert_eq!((own.usage(), own.json()["source"] == "policy"), (3, true));
    app.delete("/quotas/u/r").await.is(204);
    assert_eq!(app.check().await.remaining(), 0);
}
