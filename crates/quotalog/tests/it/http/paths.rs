//! Paths and methods: read once, never tidied, each route answering to its own methods alone.

use axum::body::Body;
use hyper::Method;

use crate::support::app::{TestApp, encoded};

const HOURLY_5: &str = r#"{"window":"hourly","limit_count":5}"#;

#[tokio::test]
async fn c33_an_id_is_the_same_key_everywhere() {
    let app = TestApp::new().await;
    let path = "/quotas/o'neil%26co/50%25off";
    let set = app.put(path, HOURLY_5).await.is(200).json();
    assert_eq!(set["user_id"], "o'neil&co");
    assert_eq!(set["resource"], "50%off");
    app.post(&format!("{path}/consume"), "").await.is(200);
    assert_eq!(app.get(path).await.is(200).usage(), 1);

    app.put("/quotas/a+b/r", HOURLY_5).await.is(200);
    app.post("/quotas/a%2Bb/r/consume", "").await.is(200);
    app.post("/quotas/a%2bb/r/consume", "").await.is(200);
    assert_eq!(app.get("/quotas/a+b/r").await.is(200).usage(), 2);
    app.get("/quotas/a%20b/r").await.problem(404, "not-found");

    app.put("/quotas/%2541/r", HOURLY_5).await.is(200);
    let once = app.get("/quotas/%2541/r").await.is(200).json();
    assert_eq!(once["user_id"], "%41");
    app.get("/quotas/A/r").await.problem(404, "not-found");
    app.put("/quotas/A/r", HOURLY_5).await.is(200);
    let letter = app.get("/quotas/%41/r").await.is(200).json();
    assert_eq!(letter["user_id"], "A");
}

/// C35: bytes decide, of ids and of permissions alike.
#[tokio::test]
async fn c35_ids_are_compared_byte_by_byte() {
    let app = TestApp::new().await;
    let ids = [
        "alice",
        "Alice",
        "\u{e9}",
        "e\u{301}",
        "7",
        "007",
        " 7",
        "7 ",
        "日本語",
        "...",
        "system::admin",
    ];
    for (position, id) in ids.iter().enumerate() {
        let path = format!("/quotas/{}/r", encoded(id));
        let limit = position + 1;
        let body = format!(r#"{{"window":"hourly","limit_count":{limit}}}"#);
        app.put(&path, &body).await.is(200);
        let own = app.user_token(id).await;
        let consume = format!("{path}/consume");
        let consumed = app.call(Method::POST, &consume, &own, "").await.is(200);
        assert_eq!(consumed.json()["limit_count"], limit);
        assert_eq!(consumed.usage(), 1, "{id}");
        for other in ids.iter().filter(|other| *other != id) {
            let path = format!("/quotas/{}/r", encoded(other));
            app.call(Method::GET, &path, &own, "")
                .await
                .problem(403, "forbidden");
        }
    }
}

/// An id may be spelt in percent signs, its owner's too; the words of routes may be ids.
#[tokio::test]
async fn an_id_is_known_however_it_is_spelt() {
    let app = TestApp::new().await;
    let alice = app.user_token("alice").await;
    app.put("/quotas/alice/r", HOURLY_5).await.is(200);
    let spelt = "/quotas/%61%6Cice/%72/consume";
    let consumed = app.call(Method::POST, spelt, &alice, "").await.is(200);
    assert_eq!(consumed.json()["user_id"], "alice");
    for path in [
        "/quotas/consume/reset",
        "/quotas/u/consume",
        "/quotas/reset/quotas",
    ] {
        app.put(path, HOURLY_5).await.is(200);
        let consumed = app.post(&format!("{path}/consume"), "").await.is(200);
        assert_eq!(consumed.usage(), 1);
        let reset = app.post(&format!("{path}/reset"), "").await.is(200);
        assert_eq!(reset.usage(), 0);
    }
}

#[tokio::test]
async fn c37_a_path_that_is_no_text_is_malformed() {
    let app = TestApp::new().await;
    for path in [
        "/quotas/%FF/r",
        "/quotas/%83/r",
        "/quotas/u/%",
        "/quotas/u/%ZZ",
        "/quotas/u/%4",
        "/quotas/%E6%97/r",
        "/quotas/u%/r/consume",
        "/%FF",
        "/nowhere/%",
        "/tokens/%FF",
    ] {
        for method in [Method::GET, Method::PUT, Method::POST, Method::PATCH] {
            let answer = app.call(method, path, &app.admin, "").await;
            let answer = answer.problem(400, "malformed-request");
            assert_eq!(answer.json()["instance"], path);
        }
    }
}

#[tokio::test]
async fn control_characters_and_dot_segments_are_no_ids() {
    let app = TestApp::new().await;
    for id in ["%00", "a%0Ab", "%7F", "%C2%85", ".", "..", "%2E", "%2e%2E"] {
        let path = format!("/quotas/{id}/r");
        app.put(&path, HOURLY_5).await.faults(&["user_id invalid"]);
        let path = format!("/quotas/u/{id}");
        app.put(&path, HOURLY_5).await.faults(&["resource invalid"]);
        let path = format!("/quotas/{id}/{id}/consume");
        let both = ["user_id invalid", "resource invalid"];
        app.post(&path, "").await.faults(&both);
        let list = app.get(&format!("/quotas/{id}")).await;
        list.faults(&["user_id invalid"]);
    }
    // Ids and body are judged together.
    let answer = app.put("/quotas/../r", r#"{"window":"weekly"}"#).await;
    answer.faults(&["user_id invalid", "window invalid", "limit_count invalid"]);
}

#[tokio::test]
async fn c41_two_readings_of_a_path_are_none() {
    let app = TestApp::new().await;
    app.put("/quotas/bob/r", HOURLY_5).await.is(200);
    app.put("/quotas/alice/r", HOURLY_5).await.is(200);
    let alice = app.user_token("alice").await;
    for path in [
        "/quotas/alice/../bob/r/consume",
        "/quotas/alice/%2e%2e/bob/r/consume",
        "/quotas/alice/%2E%2E/bob/r/consume",
        "//quotas/bob/r/consume",
        "/quotas//bob/r/consume",
        "/./quotas/bob/r/consume",
        "/quotas/./bob/r/consume",
        "/quotas/alice%2F..%2Fbob/r/consume",
        "/quotas/alice%2f..%2fbob/r/consume",
        "/quotas/alice;/../bob/r/consume",
    ] {
        let answer = app.call(Method::POST, path, &alice, "").await;
        assert!((400..500).contains(&answer.status), "{path}");
        let answer = app.post(path, "").await;
        answer.problem(404, "not-found");
    }
    assert_eq!(app.get("/quotas/bob/r").await.is(200).usage(), 0);
    assert_eq!(app.get("/quotas/alice/r").await.is(200).usage(), 0);
}

#[tokio::test]
async fn an_unknown_path_is_not_found_and_a_slash_at_the_end_makes_one() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    for path in [
        "/",
        "/nowhere",
        "/Quotas/u/r",
        "/quotas/",
        "/quotas//",
        "/quotas//r",
        "/quotas/u/",
        "/quotas/u/r/",
        "/quotas/u/r/consume/",
        "/quotas/u/r/reset/",
        "/quotas/u/r/refund/",
        "/quotas//r/refund",
        "/consume/",
        "/Consume",
        "/%63onsume",
        "/quotas/u/r/usage/",
        "/quotas//r/usage",
        "/audit/",
        "/audit/1",
        "/defaults/",
        "/defaults/r/",
        "/defaults/r/s",
        "/defaults//r",
        "/quotas/u//consume",
        "/quotas//r/consume",
        "/quotas///consume",
        "/quotas/u/r/nowhere",
        "/quotas/u/r/consume/more",
        "/tokens/",
        "/tokens//",
        "/tokens/x/y",
        "/healthz/",
        "/problems",
        "/problems/",
        "/problems/nothing",
        "/problems/forbidden/",
    ] {
        for method in [Method::GET, Method::POST] {
            if path.starts_with("/problems/") && method == Method::POST {
                continue;
            }
            // Without a token too: the path is judged first.
            for token in [&*app.admin, "unknown"] {
                let answer = app.call(method.clone(), path, token, "").await;
                let answer = answer.problem(404, "not-found");
                assert_eq!(answer.json()["instance"], path);
                assert_eq!(answer.header("location"), None);
            }
        }
    }
    assert_eq!(app.check().await.usage(), 0);
}

#[tokio::test]
async fn a_wrong_method_is_told_the_right_ones_and_counts_nothing() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    let routes: [(&str, &[Method]); 18] = [
        ("/quotas", &[Method::GET, Method::HEAD]),
        ("/quotas/u", &[Method::GET, Method::HEAD, Method::DELETE]),
        ("/quotas/u/r/usage", &[Method::GET, Method::HEAD]),
        ("/defaults", &[Method::GET, Method::HEAD]),
        ("/audit", &[Method::GET, Method::HEAD]),
        (
            "/quotas/u/r",
            &[Method::GET, Method::HEAD, Method::PUT, Method::DELETE],
        ),
        ("/quotas/u/r/consume", &[Method::POST]),
        ("/quotas/u/r/reset", &[Method::POST]),
        ("/quotas/u/r/refund", &[Method::POST]),
        ("/consume", &[Method::POST]),
        (
            "/defaults/r",
            &[Method::GET, Method::HEAD, Method::PUT, Method::DELETE],
        ),
        ("/tokens", &[Method::GET, Method::HEAD, Method::POST]),
        ("/tokens/x", &[Method::DELETE]),
        ("/whoami", &[Method::GET, Method::HEAD]),
        ("/healthz", &[Method::GET, Method::HEAD]),
        ("/readyz", &[Method::GET, Method::HEAD]),
        ("/problems/forbidden", &[Method::GET, Method::HEAD]),
        ("/dashboard", &[Method::GET, Method::HEAD]),
    ];
    let odd = Method::from_bytes(b"PURGE").unwrap();
    for (path, known) in routes {
        for method in [
            Method::GET,
            Method::HEAD,
            Method::PUT,
            Method::POST,
            Method::DELETE,
            Method::PATCH,
            Method::OPTIONS,
            Method::TRACE,
            odd.clone(),
        ] {
            if known.contains(&method) {
                continue;
            }
            // The method is judged before the token.
            let answer = app.call(method.clone(), path, "unknown", "").await;
            let answer = if method == Method::HEAD {
                answer.is(405)
            } else {
                answer.problem(405, "method-not-allowed")
            };
            let mut allowed: Vec<&str> = answer
                .header("allow")
                .expect("Allow")
                .split(',')
                .map(str::trim)
                .collect();
            allowed.sort_unstable();
            let mut known: Vec<&str> = known.iter().map(Method::as_str).collect();
            known.sort_unstable();
            assert_eq!(allowed, known, "{method} {path}");
        }
    }
    let request = app
        .request(Method::OPTIONS, "/quotas/u/r")
        .header("origin", "https://elsewhere.example")
        .header("access-control-request-method", "PUT");
    let preflight = app.send(request.body(Body::empty()).unwrap()).await;
    let preflight = preflight.problem(405, "method-not-allowed");
    assert_eq!(preflight.header("access-control-allow-origin"), None);
    assert_eq!(app.check().await.usage(), 0);
}

#[tokio::test]
async fn head_answers_what_get_does_without_the_body() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    let cases = [
        ("/quotas/u/r", 200),
        ("/quotas/u", 200),
        ("/tokens", 200),
        ("/quotas", 200),
        ("/quotas?sort=used_percent", 200),
        ("/quotas/u/r/usage", 200),
        ("/defaults", 200),
        ("/defaults/none", 404),
        ("/audit", 200),
        ("/whoami", 200),
        ("/healthz", 200),
        ("/readyz", 200),
        ("/problems/forbidden", 200),
        ("/quotas/u/none", 404),
        ("/nowhere", 404),
        ("/quotas/u?limit=0", 422),
        ("/quotas/%FF", 400),
    ];
    for (path, status) in cases {
        let get = app.get(path).await.is(status);
        let head = app.call(Method::HEAD, path, &app.admin, "").await;
        let head = head.is(status);
        assert!(head.body.is_empty(), "{path}");
        for name in ["content-type", "etag", "ratelimit", "cache-control"] {
            assert_eq!(head.header(name), get.header(name), "{name} of {path}");
        }
        if let Some(length) = head.header("content-length") {
            assert_eq!(length, get.body.len().to_string());
        }
    }
    let unknown = app.call(Method::HEAD, "/quotas/u/r", "unknown", "").await;
    assert_eq!(unknown.is(401).header("www-authenticate"), Some("Bearer"));
}
