//! `GET /metrics`: who reads it, what it counts, and that no caller can make it grow.

use std::sync::Arc;

use axum::body::Body;
use hyper::{Method, Request};
use quotalog_auth::Role;
use quotalog_domain::Window;
use quotalog_testkit::Fault;
use tokio::task::JoinSet;

use crate::support::app::TestApp;

/// The text, as an admin reads it.
async fn text(app: &TestApp) -> String {
    let answer = app.get("/metrics").await.is(200);
    assert_eq!(
        answer.header("content-type"),
        Some("text/plain; version=0.0.4")
    );
    String::from_utf8(answer.body.to_vec()).unwrap()
}

/// The value of one series.
#[track_caller]
fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    let value = line.and_then(|rest| rest.strip_prefix(' '));
    let value = value.and_then(|value| value.parse().ok());
    value.unwrap_or_else(|| panic!("no {series} in\n{text}"))
}

#[tokio::test]
async fn only_an_admin_reads_the_metrics_beside_the_other_routes() {
    let app = TestApp::new().await;
    let request = Request::get("/metrics").body(Body::empty()).unwrap();
    app.send(request).await.problem(401, "unauthorized");
    for role in [Role::Viewer, Role::Service] {
        let token = app.token(role).await;
        let answer = app.call(Method::GET, "/metrics", &token, "").await;
        answer.problem(403, "forbidden");
    }
    let (token, id) = app.token_with_id(Role::Admin, None).await;
    app.call(Method::GET, "/metrics", &token, "").await.is(200);
    app.revoke(id).await;
    let answer = app.call(Method::GET, "/metrics", &token, "").await;
    answer.problem(401, "unauthorized");
    let answer = app.post("/metrics", "").await;
    answer.problem(405, "method-not-allowed");
}

#[tokio::test]
async fn requests_consumes_and_batches_are_counted() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    app.consume_amount(3).await.is(200);
    app.keyed("/quotas/u/r/consume", "k", "").await.is(200);
    app.keyed("/quotas/u/r/consume", "k", "").await.is(200);
    app.keyed("/quotas/u/r/consume", "k", r#"{"amount":2}"#)
        .await
        .is(422);
    app.consume_amount(2).await.is(429);
    app.consume_amount(6).await.is(422);
    app.consume_amount(0).await.is(422);
    app.post("/quotas/u/other/consume", "").await.is(404);

    let text = text(&app).await;
    for (outcome, count) in [
        ("granted", 2.0),
        ("replayed", 1.0),
        ("key-reused", 1.0),
        ("exhausted", 1.0),
        ("exceeds-limit", 1.0),
        ("not-found", 1.0),
        ("unavailable", 0.0),
    ] {
        let series = format!("quotalog_consumes_total{{outcome=\"{outcome}\"}}");
        assert_eq!(value(&text, &series), count, "{outcome}");
    }
    assert_eq!(value(&text, "quotalog_consumed_units_total"), 4.0);
    let route = "/quotas/{user_id}/{resource}/consume";
    for (status, count) in [(200, 3.0), (422, 3.0), (429, 1.0), (404, 1.0)] {
        let series = format!(
            "quotalog_http_requests_total{{method=\"POST\",route=\"{route}\",status=\"{status}\"}}"
        );
        assert_eq!(value(&text, &series), count, "{status}");
    }
    let series = format!("quotalog_http_request_duration_seconds_count{{route=\"{route}\"}}");
    assert_eq!(value(&text, &series), 8.0);
    // The policy, and the consumes that were sound enough to be decided.
    assert_eq!(value(&text, "quotalog_batch_commands_sum"), 8.0);
    assert_eq!(value(&text, "quotalog_commit_duration_seconds_count"), 8.0);
    assert_eq!(value(&text, "quotalog_queue_commands"), 0.0);
}

#[tokio::test]
async fn failures_of_the_store_are_counted() {
    let (app, store) = TestApp::faulty().await;
    app.policy("hourly", 5).await;
    for (kind, fault) in [
        ("unavailable", Fault::RolledBack),
        ("outcome-unknown", Fault::LostBeforeCommit),
        ("internal", Fault::Internal),
    ] {
        store.fail_always(fault);
        assert!(app.consume().await.status >= 500);
        store.mend();
        let text = text(&app).await;
        let of_store = format!("quotalog_store_errors_total{{kind=\"{kind}\"}}");
        assert!(value(&text, &of_store) >= 1.0, "{kind}");
        let of_consumes = format!("quotalog_consumes_total{{outcome=\"{kind}\"}}");
        assert_eq!(value(&text, &of_consumes), 1.0, "{kind}");
    }
}

/// C65: a label holds nothing that callers choose.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c65_users_paths_and_methods_add_no_series() {
    let app = Arc::new(TestApp::new().await);
    app.default("r", Window::Daily, 5).await;
    app.get("/metrics").await.is(200);
    let lines_before = text(&app).await.lines().count();
    let mut clients = JoinSet::new();
    for client in 0..100 {
        let app = Arc::clone(&app);
        clients.spawn(async move {
            for user in 0..100 {
                let path = format!("/quotas/someone-{client}-{user}/r/consume");
                app.post(&path, "").await.is(200);
            }
            for path in 0..10 {
                let path = format!("/nowhere/{client}/someone-{path}");
                app.get(&path).await.problem(404, "not-found");
            }
            let method = Method::from_bytes(format!("METHOD{}", client / 2).as_bytes()).unwrap();
            let path = ["/quotas/someone/r", "/nowhere/someone"][client % 2];
            let refused = app.call(method, path, &app.admin, "").await;
            assert!(matches!(refused.status, 404 | 405));
        });
    }
    clients.join_all().await;
    let text = text(&app).await;
    assert_eq!(
        value(&text, "quotalog_consumes_total{outcome=\"granted\"}"),
        10_000.0
    );
    let lines = text.lines().count();
    assert!(
        lines < lines_before + 50,
        "{lines_before} lines, then {lines}"
    );
    for chosen in ["someone", "nowhere", "METHOD"] {
        assert!(!text.contains(chosen), "{chosen} in\n{text}");
    }
}
