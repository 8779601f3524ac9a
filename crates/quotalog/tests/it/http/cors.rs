//! Use from the pages of other origins: for those that are named, and off without any.

use axum::body::Body;
use hyper::header::HeaderMap;
use hyper::{Method, Request};

use crate::support::answer::Answer;
use crate::support::app::TestApp;

const OURS: &str = "https://app.example";
const THEIRS: &str = "https://evil.example";

async fn send(app: &TestApp, method: Method, path: &str, fields: &[(&str, &str)]) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    app.send(request.body(Body::empty()).unwrap()).await
}

async fn preflight(app: &TestApp, path: &str, origin: &str) -> Answer {
    let asked = [
        ("origin", origin),
        ("access-control-request-method", "POST"),
        (
            "access-control-request-headers",
            "authorization,idempotency-key",
        ),
    ];
    send(app, Method::OPTIONS, path, &asked).await
}

fn cors_fields(headers: &HeaderMap) -> Vec<&str> {
    let names = headers.keys().map(hyper::header::HeaderName::as_str);
    names
        .filter(|name| name.starts_with("access-control-"))
        .collect()
}

/// As a list of texts.
#[track_caller]
fn listed(answer: &Answer, name: &str) -> Vec<String> {
    let value = answer.header(name).unwrap_or_else(|| panic!("no {name}"));
    value
        .split(',')
        .map(|part| part.trim().to_ascii_lowercase())
        .collect()
}

#[tokio::test]
async fn without_an_origin_that_is_named_it_is_off() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    for path in ["/quotas/u/r/consume", "/openapi.json", "/quotas/u/r"] {
        let answer = preflight(&app, path, OURS)
            .await
            .problem(405, "method-not-allowed");
        assert!(answer.header("allow").is_some(), "{path}");
        assert!(cors_fields(&answer.headers).is_empty());
        assert_eq!(answer.header("vary"), None);
    }
    let answer = send(&app, Method::GET, "/healthz", &[("origin", OURS)])
        .await
        .is(200);
    assert!(cors_fields(&answer.headers).is_empty());
    assert_eq!(answer.header("vary"), None);
    assert_eq!(app.check().await.usage(), 0);
}

/// It asks no token, since browsers send none, and it counts nothing.
#[tokio::test]
async fn a_preflight_is_answered_for_the_origins_that_are_named() {
    let app = TestApp::for_origins(&["http://localhost:3000", OURS]).await;
    app.policy("hourly", 5).await;
    for origin in ["http://localhost:3000", OURS] {
        for path in ["/quotas/u/r/consume", "/quotas/u/r", "/tokens", "/consume"] {
            let answer = preflight(&app, path, origin).await.is(204);
            assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
            assert_eq!(answer.header("vary"), Some("Origin"));
            assert!(answer.header("x-request-id").is_some());
            let methods = listed(&answer, "access-control-allow-methods");
            assert_eq!(methods, ["get", "head", "put", "post", "delete"]);
            let fields = listed(&answer, "access-control-allow-headers");
            for field in [
                "authorization",
                "content-type",
                "idempotency-key",
                "if-match",
                "if-none-match",
            ] {
                assert!(fields.iter().any(|known| known == field), "{field}");
            }
            assert_eq!(answer.header("access-control-allow-credentials"), None);
        }
    }
    assert_eq!(app.check().await.usage(), 0);
}

#[tokio::test]
async fn an_origin_is_compared_byte_by_byte() {
    let app = TestApp::for_origins(&[OURS]).await;
    for origin in [
        THEIRS,
        "null",
        "",
        "*",
        "http://app.example",
        "https://app.example:443",
        "https://APP.example",
        "https://app.example.evil.example",
        "https://evil-app.example",
        "https://app.example/",
    ] {
        let answer = preflight(&app, "/quotas/u/r/consume", origin).await.is(204);
        assert!(cors_fields(&answer.headers).is_empty(), "{origin}");
        let answer = send(&app, Method::GET, "/healthz", &[("origin", origin)])
            .await
            .is(200);
        assert!(cors_fields(&answer.headers).is_empty(), "{origin}");
        assert_eq!(answer.header("vary"), Some("Origin"), "{origin}");
    }
    let twice = [("origin", OURS), ("origin", OURS)];
    let answer = send(&app, Method::GET, "/healthz", &twice).await.is(200);
    assert!(cors_fields(&answer.headers).is_empty());
}

/// Refusals too, or a page could not tell why.
#[tokio::test]
async fn every_answer_can_be_read_by_the_pages_that_are_named() {
    let app = TestApp::for_origins(&[OURS]).await;
    app.policy("hourly", 1).await;
    let bearer = format!("Bearer {}", app.admin);
    let with_token = [
        ("origin", OURS),
        ("authorization", &*bearer),
        ("idempotency-key", "k"),
    ];
    let without = [("origin", OURS)];
    let consume = "/quotas/u/r/consume";
    for (method, path, fields, status) in [
        (Method::POST, consume, &with_token[..], 200),
        (Method::POST, consume, &with_token[..], 200),
        (Method::POST, consume, &with_token[..2], 429),
        (Method::POST, consume, &without[..], 401),
        (Method::GET, "/quotas/u/other", &with_token[..], 404),
        (Method::GET, "/quotas/%FF", &without[..], 400),
        (Method::GET, "/nowhere", &without[..], 404),
        (Method::PATCH, consume, &without[..], 405),
        (Method::OPTIONS, consume, &without[..], 405),
        (
            Method::OPTIONS,
            consume,
            &[("access-control-request-method", "GET")],
            405,
        ),
        (Method::HEAD, "/healthz", &without[..], 200),
    ] {
        let answer = send(&app, method.clone(), path, fields).await.is(status);
        assert_eq!(answer.header("vary"), Some("Origin"));
        if fields[0].0 != "origin" {
            continue;
        }
        assert_eq!(
            answer.header("access-control-allow-origin"),
            Some(OURS),
            "{method} {path}"
        );
        let told = listed(&answer, "access-control-expose-headers");
        for name in answer.headers.keys().map(hyper::header::HeaderName::as_str) {
            // What pages may read unasked, and what is the protocol's own.
            let is_known = [
                "content-type",
                "content-length",
                "cache-control",
                "vary",
                "allow",
            ]
            .contains(&name)
                || name.starts_with("access-control-");
            assert!(
                is_known || told.iter().any(|told| told == name),
                "{name} is not exposed"
            );
        }
    }
    assert_eq!(app.check().await.usage(), 1);
}
