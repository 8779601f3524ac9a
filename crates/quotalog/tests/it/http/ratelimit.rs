//! The fields that tell what is left, and when to come back.

use hyper::Method;

use crate::support::answer::Answer;
use crate::support::app::TestApp;

const FIELDS: [&str; 5] = [
    "ratelimit-policy",
    "ratelimit",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

#[track_caller]
fn check_fields(answer: &Answer, values: [&str; 5]) {
    for (name, value) in FIELDS.into_iter().zip(values) {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
}

/// C28: whole seconds, rounded up, never 0; the same number as `t`.
#[tokio::test]
async fn c28_a_wait_is_told_in_whole_seconds_rounded_up() {
    //          now                       window    wait
    let rows = [
        ("2026-11-30T10:59:59.400Z", "hourly", "1"),
        ("2026-11-30T10:59:59.999999Z", "hourly", "1"),
        ("2026-11-30T10:59:58.999999Z", "hourly", "2"),
        ("2026-11-30T10:00:00Z", "hourly", "3600"),
        ("2026-11-30T10:00:00.000001Z", "hourly", "3600"),
        ("2026-11-30T12:00:00Z", "daily", "43200"),
        ("2026-11-30T18:20:00Z", "daily", "20400"),
    ];
    for (now, window, wait) in rows {
        let app = TestApp::at(now).await;
        app.policy(window, 1).await;
        app.consume().await.is(200);
        let denied = app.consume().await.problem(429, "quota-exceeded");
        assert_eq!(denied.header("retry-after"), Some(wait), "{now}");
        let field = format!(r#""{window}";r=0;t={wait}"#);
        assert_eq!(denied.header("ratelimit"), Some(&*field), "{now}");
        // A client that waits just that long gets its unit.
        app.clock.advance_s(wait.parse().unwrap());
        app.consume().await.is(200);
    }
}

#[tokio::test]
async fn c30_each_field_comes_once_wherever_it_belongs() {
    let app = TestApp::at("2026-11-30T18:39:00Z").await;
    app.policy("hourly", 100).await;
    let fields = |remaining: &'static str, left: &'static str| {
        [
            r#""hourly";q=100;w=3600"#,
            left,
            "100",
            remaining,
            "1796065200",
        ]
    };
    let consumed = app.consume_amount(42).await.is(200);
    check_fields(&consumed, fields("58", r#""hourly";r=58;t=1260"#));
    check_fields(&app.check().await, fields("58", r#""hourly";r=58;t=1260"#));
    let denied = app.consume_amount(59).await.problem(429, "quota-exceeded");
    check_fields(&denied, fields("58", r#""hourly";r=58;t=1260"#));
    assert_eq!(denied.header("retry-after"), Some("1260"));
    let replayed = app.keyed("/quotas/u/r/consume", "k", "").await.is(200);
    check_fields(&replayed, fields("57", r#""hourly";r=57;t=1260"#));
    let refunded = app.post("/quotas/u/r/refund", "").await.is(200);
    check_fields(&refunded, fields("58", r#""hourly";r=58;t=1260"#));
    let reset = app.post("/quotas/u/r/reset", "").await.is(200);
    check_fields(&reset, fields("100", r#""hourly";r=100;t=1260"#));
    let head = app.call(Method::HEAD, "/quotas/u/r", &app.admin, "").await;
    check_fields(&head.is(200), fields("100", r#""hourly";r=100;t=1260"#));
}

#[tokio::test]
async fn c30_other_answers_carry_none_of_them() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    for answer in [
        app.get("/quotas/u/none").await.is(404),
        app.post("/quotas/u/none/consume", "").await.is(404),
        app.post("/quotas/u/none/refund", "").await.is(404),
        app.post("/consume", "").await.is(422),
        app.put("/defaults/s", r#"{"window":"hourly","limit_count":1}"#)
            .await
            .is(200),
        app.consume_amount(0).await.is(422),
        app.consume_amount(6).await.is(422),
        app.call(Method::GET, "/quotas/u/r", "x", "").await.is(401),
        app.call(Method::PATCH, "/quotas/u/r", "x", "")
            .await
            .is(405),
        app.get("/quotas/u").await.is(200),
        app.get("/quotas").await.is(200),
        app.get("/quotas/u/r/usage").await.is(200),
        app.get("/healthz").await.is(200),
        app.delete("/quotas/u/r").await.is(204),
    ] {
        for name in FIELDS {
            assert_eq!(answer.header(name), None);
        }
    }
}

/// C32, the refusals included.
#[tokio::test]
async fn c32_nothing_about_quotas_or_tokens_is_kept_on_the_way() {
    let app = TestApp::new().await;
    let anonymous = |path: &'static str| app.call(Method::GET, path, "x", "");
    app.policy("hourly", 1).await;
    for answer in [
        app.check().await,
        app.get("/quotas/u").await.is(200),
        app.policy("hourly", 1).await,
        app.consume().await.is(200),
        app.consume().await.is(429),
        app.post("/quotas/u/r/reset", "").await.is(200),
        app.consume_amount(0).await.is(422),
        app.get("/quotas/u/none").await.is(404),
        app.get("/quotas/u/r/none").await.is(404),
        app.get("/quotas/%FF").await.is(400),
        app.call(Method::PATCH, "/quotas/u/r", "x", "")
            .await
            .is(405),
        app.call(Method::HEAD, "/quotas/u/r", &app.admin, "")
            .await
            .is(200),
        anonymous("/quotas/u/r").await.is(401),
        anonymous("/tokens").await.is(401),
        anonymous("/consume").await.is(405),
        app.post("/quotas/u/r/refund", "").await.is(200),
        app.post("/consume", "").await.is(422),
        app.delete("/defaults/none").await.is(404),
        app.get("/quotas").await.is(200),
        app.get("/quotas?limit=0").await.is(422),
        app.get("/quotas/u/r/usage").await.is(200),
        app.get("/defaults").await.is(200),
        app.get("/defaults/none").await.is(404),
        app.get("/audit").await.is(200),
        anonymous("/audit").await.is(401),
        app.get("/tokens").await.is(200),
        app.post("/tokens", r#"{"role":"viewer"}"#).await.is(201),
        app.delete("/quotas/u/r").await.is(204),
        app.delete("/quotas/u").await.is(204),
    ] {
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    let page = app.get("/problems/forbidden").await.is(200);
    assert_eq!(page.header("cache-control"), None);
}

/// Text of a caller's choosing reaches no header.
#[tokio::test]
async fn ids_are_in_no_header() {
    let app = TestApp::new().await;
    let path = "/quotas/marker-u/marker-r";
    app.put(path, r#"{"window":"hourly","limit_count":1}"#)
        .await
        .is(200);
    for answer in [
        app.get(path).await,
        app.keyed(&format!("{path}/consume"), "marker-k", "").await,
        app.post(&format!("{path}/consume"), "").await,
        app.get("/marker-path").await,
    ] {
        for (name, value) in &answer.headers {
            assert!(!value.to_str().unwrap().contains("marker"), "{name}");
        }
    }
}
