//! The twelve attacks that the interface was designed against, each with its verdict: blocked.

use std::sync::Arc;

use axum::body::Body;
use hyper::{Method, Request};
use quotalog_auth::Role;
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::app::{TestApp, encoded};

const DAILY_10: &str = r#"{"window":"daily","limit_count":10}"#;

/// Sends `u`/`r` as many consumes at once, and tells which usages were granted, in order.
async fn burst(app: &Arc<TestApp>, requests: usize) -> Vec<u64> {
    let mut burst = JoinSet::new();
    for _ in 0..requests {
        let app = Arc::clone(app);
        burst.spawn(async move { app.consume().await });
    }
    let mut granted = Vec::new();
    for answer in burst.join_all().await {
        if answer.status == 200 {
            granted.push(answer.is(200).usage());
        } else {
            answer.problem(429, "quota-exceeded");
        }
    }
    granted.sort_unstable();
    granted
}

#[tokio::test]
async fn atk_01_nothing_is_done_without_a_token_or_with_one_of_another() {
    let app = TestApp::new().await;
    app.put("/quotas/bob/r", DAILY_10).await.is(200);
    let batch = r#"{"items":[{"user_id":"bob","resource":"r"}]}"#;
    let routes = [
        (Method::PUT, "/quotas/bob/r", DAILY_10),
        (Method::GET, "/quotas/bob", ""),
        (Method::GET, "/quotas/bob/r", ""),
        (Method::POST, "/quotas/bob/r/consume", ""),
        (Method::POST, "/quotas/bob/r/refund", ""),
        (Method::POST, "/quotas/bob/r/reset", ""),
        (Method::POST, "/consume", batch),
        (Method::PUT, "/defaults/r", DAILY_10),
        (Method::DELETE, "/defaults/r", ""),
        (Method::GET, "/defaults", ""),
        (Method::GET, "/defaults/r", ""),
        (Method::GET, "/quotas", ""),
        (Method::GET, "/quotas/bob/r/usage", ""),
        (Method::GET, "/audit", ""),
        (Method::DELETE, "/quotas/bob", ""),
        (Method::DELETE, "/quotas/bob/r", ""),
        (Method::POST, "/tokens", r#"{"role":"admin"}"#),
        (Method::GET, "/tokens", ""),
        (Method::DELETE, "/tokens/x", ""),
    ];
    let alice = app.user_token("alice").await;
    for (method, path, body) in routes {
        let anonymous = Request::builder().method(method.clone()).uri(path);
        let anonymous = anonymous
            .header("content-type", "application/json")
            .body(Body::from(body))
            .unwrap();
        let answer = app.send(anonymous).await.problem(401, "unauthorized");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        app.call(method, path, &alice, body)
            .await
            .problem(403, "forbidden");
    }
    for role in [Role::Viewer, Role::Service] {
        let token = app.token(role).await;
        let put = app.call(Method::PUT, "/quotas/bob/r", &token, DAILY_10);
        put.await.problem(403, "forbidden");
    }
    let own = app.call(Method::PUT, "/quotas/alice/r", &alice, DAILY_10);
    own.await.problem(403, "forbidden");
    assert_eq!(app.get("/quotas/bob/r").await.is(200).usage(), 0);
}

#[tokio::test]
async fn atk_02_sql_in_a_path_is_a_literal_id() {
    let app = TestApp::new().await;
    for resource in [
        "api'; DROP TABLE quota_policies; --",
        "\" OR \"1\"=\"1",
        "; DROP TABLE quota_usage;--",
        "') OR 1=1 --",
    ] {
        let path = format!("/quotas/user-1/{}", encoded(resource));
        let set = app.put(&path, DAILY_10).await.is(200);
        assert_eq!(set.json()["resource"], resource);
        let consumed = app.post(&format!("{path}/consume"), "").await.is(200);
        assert_eq!((consumed.usage(), consumed.remaining()), (1, 9));
        let literal = resource.replace('\'', "''");
        for table in ["quota_policies", "quota_usage"] {
            let sql = format!("SELECT count(*) FROM {table} WHERE resource = '{literal}'");
            assert_eq!(app.number(&sql), 1, "{sql}");
        }
    }
    assert_eq!(app.number("SELECT count(*) FROM quota_policies"), 4);
    assert_eq!(app.number("SELECT sum(usage) FROM quota_usage"), 4);
    let path = "/quotas/user-1/unknown%27%20OR%20%271%27=%271/consume";
    app.post(path, "").await.problem(404, "not-found");
}

#[tokio::test]
async fn atk_03_a_limit_is_positive() {
    let app = TestApp::new().await;
    app.policy("daily", 10).await;
    for limit in ["0", "-1", "-999"] {
        let body = format!(r#"{{"window":"daily","limit_count":{limit}}}"#);
        let answer = app.put("/quotas/u/r", &body).await;
        let answer = answer.faults(&["limit_count invalid"]);
        let message = "limit_count must be a positive integer.";
        assert_eq!(answer.json()["errors"][0]["message"], message);
    }
    assert_eq!(app.check().await.json()["limit_count"], 10);
}

#[tokio::test]
async fn atk_04_a_window_is_hourly_or_daily() {
    let app = TestApp::new().await;
    for window in ["weekly", "minutely"] {
        let body = format!(r#"{{"window":"{window}","limit_count":100}}"#);
        let answer = app.put("/quotas/u/r", &body).await;
        let answer = answer.faults(&["window invalid"]);
        let message = "window must be one of: hourly, daily.";
        assert_eq!(answer.json()["errors"][0]["message"], message);
    }
    app.get("/quotas/u/r").await.problem(404, "not-found");
}

#[tokio::test]
async fn atk_05_nothing_is_consumed_without_a_policy() {
    let app = TestApp::new().await;
    let answer = app.post("/quotas/user-ghost/api-calls/consume", "").await;
    let answer = answer.problem(404, "not-found");
    let instance = "/quotas/user-ghost/api-calls/consume";
    assert_eq!(answer.json()["instance"], instance);
    assert_eq!(app.number("SELECT count(*) FROM quota_usage"), 0);
}

#[tokio::test]
async fn atk_06_a_limit_is_an_integer() {
    let app = TestApp::new().await;
    let body = r#"{"window":"daily","limit_count":9.9}"#;
    let answer = app.put("/quotas/u/r", body).await;
    answer.faults(&["limit_count invalid"]);
    app.get("/quotas/u/r").await.problem(404, "not-found");
}

#[tokio::test]
async fn atk_07_a_limit_is_at_most_a_million() {
    let app = TestApp::new().await;
    let beyond_64_bits = "99999999999999999999999999999999999999999";
    for limit in [
        "1000001",
        "9223372036854775807",
        "9999999999",
        "18446744073709551616",
        beyond_64_bits,
    ] {
        let body = format!(r#"{{"window":"daily","limit_count":{limit}}}"#);
        let answer = app.put("/quotas/u/r", &body).await;
        let answer = answer.faults(&["limit_count too_large"]);
        let message = "limit_count must not exceed 1000000.";
        assert_eq!(answer.json()["errors"][0]["message"], message);
    }
    app.policy("daily", 1_000_000).await;
}

/// C07.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn atk_08_a_race_grants_the_limit_and_no_more() {
    let app = Arc::new(TestApp::new().await);
    app.policy("hourly", 10).await;
    let all: Vec<u64> = (1..=10).collect();
    assert_eq!(burst(&app, 25).await, all);
    assert_eq!(app.check().await.usage(), 10);

    for racers in [2, 10] {
        app.post("/quotas/u/r/reset", "").await.is(200);
        app.consume_amount(9).await.is(200);
        assert_eq!(burst(&app, racers).await, [10]);
        assert_eq!(app.check().await.usage(), 10);
    }
}

#[tokio::test]
async fn atk_09_a_path_is_never_tidied_and_any_name_a_literal() {
    let app = TestApp::new().await;
    for path in [
        "/quotas/user-1/../../../../etc/passwd",
        "/quotas/user-1/..%2F..%2F..%2F..%2Fetc%2Fpasswd",
        "/quotas/user-1/%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/quotas/../../../../etc/passwd",
        "/quotas/..%2F..%2Fetc/passwd",
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
    ] {
        app.put(path, DAILY_10).await.problem(404, "not-found");
        app.get(path).await.problem(404, "not-found");
    }
    let set = app.put("/quotas/user-1/system::admin", DAILY_10).await;
    assert_eq!(set.is(200).json()["resource"], "system::admin");
    let path = "/quotas/user-1/system::admin/consume";
    assert_eq!(app.post(path, "").await.is(200).usage(), 1);
}

#[tokio::test]
async fn atk_10_only_an_admin_resets() {
    let app = TestApp::new().await;
    app.policy("hourly", 1).await;
    app.consume().await.is(200);
    for role in [
        app.user_token("u").await,
        app.user_token("v").await,
        app.token(Role::Service).await,
        app.token(Role::Viewer).await,
    ] {
        let reset = app.call(Method::POST, "/quotas/u/r/reset", &role, "");
        reset.await.problem(403, "forbidden");
    }
    // Nor does anyone give back its own units, or those of others.
    for role in [
        app.user_token("u").await,
        app.user_token("v").await,
        app.token(Role::Viewer).await,
    ] {
        let refund = app.call(Method::POST, "/quotas/u/r/refund", &role, "");
        refund.await.problem(403, "forbidden");
    }
    assert_eq!(app.check().await.usage(), 1);
    assert_eq!(app.post("/quotas/u/r/reset", "").await.is(200).usage(), 0);
}

/// C39: 255 bytes are an id, one more is none; bytes, not characters.
#[tokio::test]
async fn atk_11_an_id_has_at_most_255_bytes() {
    let app = TestApp::new().await;
    let (long, longer) = ("x".repeat(5_000), "x".repeat(10_000));
    let path = format!("/quotas/{longer}/{long}");
    let both = ["user_id too_long", "resource too_long"];
    app.put(&path, DAILY_10).await.faults(&both);
    app.get(&path).await.faults(&both);
    app.delete(&path).await.faults(&both);
    app.post(&format!("{path}/consume"), "").await.faults(&both);
    app.post(&format!("{path}/reset"), "").await.faults(&both);
    app.post(&format!("{path}/refund"), "").await.faults(&both);
    let list = app.get(&format!("/quotas/{longer}")).await;
    list.faults(&["user_id too_long"]);
    app.get(&format!("{path}/usage")).await.faults(&both);

    let four_bytes = encoded("\u{1f600}");
    for (segment, fits) in [
        ("x".repeat(255), true),
        (four_bytes.repeat(63), true),
        ("x".repeat(256), false),
        (four_bytes.repeat(64), false),
    ] {
        let path = format!("/quotas/{segment}/{segment}");
        let answer = app.put(&path, DAILY_10).await;
        if !fits {
            answer.faults(&both);
            continue;
        }
        answer.is(200);
        let consumed = app.post(&format!("{path}/consume"), "").await.is(200);
        assert_eq!(consumed.usage(), 1);
        app.get(&path).await.is(200);
        let usage = app.get(&format!("{path}/usage")).await.is(200);
        assert_eq!(usage.json()["windows"][0]["usage"], 1);
        let list = app.get(&format!("/quotas/{segment}")).await.is(200);
        assert_eq!(list.json()["quotas"][0]["usage"], 1);
        app.post(&format!("{path}/reset"), "").await.is(200);
        app.delete(&path).await.is(204);
    }
}

#[tokio::test]
async fn atk_12_nothing_of_a_request_moves_the_window() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    let next_day = "Tue, 01 Dec 2026 18:20:00 GMT";
    let request = app
        .request(Method::POST, "/quotas/u/r/consume")
        .header("date", next_day)
        .header("x-now", "2026-12-01T18:20:00Z")
        .header("x-request-start", "t=1796149200")
        .header("if-modified-since", next_day)
        .header("timezone", "Asia/Kathmandu");
    let answer = app.send(request.body(Body::empty()).unwrap()).await.is(200);
    assert_eq!(answer.json()["window_start"], "2026-11-30T18:00:00Z");
    assert_eq!(answer.json()["reset_at"], "2026-11-30T19:00:00Z");
    for field in ["now", "window_start", "reset_at", "at", "timezone"] {
        let body = json!({ field: "2026-12-01T18:00:00Z" }).to_string();
        let parameter = format!("/quotas/u/r/consume?{field}=2026-12-01T18:00:00Z");
        let consume = app.post(&parameter, "").await;
        consume.faults(&[&format!("{field} unknown_parameter")]);
        let fault = format!("{field} unknown_field");
        let consume = app.post("/quotas/u/r/consume", &body).await;
        consume.faults(&[&fault]);
        let reset = app.post("/quotas/u/r/reset", &body).await;
        reset.faults(&[&fault]);
        let refund = app.post("/quotas/u/r/refund", &body).await;
        refund.faults(&[&fault]);
        let item = json!({ "user_id": "u", "resource": "r", field: "2026-12-01T18:00:00Z" });
        let batch = json!({ "items": [item] }).to_string();
        let batch = app.post("/consume", &batch).await;
        batch.faults(&[&format!("items[0].{fault}")]);
        let set = json!({ "window": "hourly", "limit_count": 5, field: "2026-12-01T18:00:00Z" });
        let set = app.put("/quotas/u/r", &set.to_string()).await;
        set.faults(&[&fault]);
    }
    assert_eq!(app.check().await.usage(), 1);
}
