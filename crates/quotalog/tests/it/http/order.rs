//! The order of judgement: of two faults in a request, the earlier stage answers.

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Body;
use hyper::{Method, Request};
use quotalog_auth::Role;

use crate::support::app::TestApp;

/// Requests with two faults each, and the problem that each must get. A row holds the method, the path,
/// whose token, the media type, the body, one more field, and the answer; `-` is nothing, and `LARGE` a
/// body that is too large.
const WITHOUT_THE_STORE: &str = r#"
    # Form of the path, before route, method and token.
    POST   /nowhere/%FF               admin   json -       -                   400 malformed-request
    PATCH  /quotas/u/%FF              admin   json -       -                   400 malformed-request
    POST   /quotas/%FF/r/consume      unknown json -       -                   400 malformed-request
    POST   /quotas/%FF/..%2F/consume  unknown json -       -                   400 malformed-request
    POST   /quotas//%FF/consume       admin   json -       -                   400 malformed-request
    # Route and method, before the token and all of the body.
    POST   /nowhere                   unknown json -       -                   404 not-found
    POST   /quotas/a%2Fb/r/consume    unknown text LARGE   -                   404 not-found
    PATCH  /quotas/a%2Fb/r            unknown json -       -                   404 not-found
    PATCH  /quotas/u/r                unknown text LARGE   -                   405 method-not-allowed
    PATCH  /quotas/%00/r              admin   json -       -                   405 method-not-allowed
    # Token, before role, body and values.
    POST   /quotas/u/r/consume        unknown json LARGE   -                   401 unauthorized
    POST   /quotas/u/r/consume        unknown text {       -                   401 unauthorized
    POST   /quotas/u/r/consume        unknown json {       -                   401 unauthorized
    POST   /quotas/%00/r/consume      unknown json -       -                   401 unauthorized
    GET    /quotas/u?limit=0          unknown json -       -                   401 unauthorized
    # Role and ownership, before the body and values.
    POST   /quotas/u/r/consume        viewer  json LARGE   -                   403 forbidden
    POST   /quotas/u/r/consume        alice   text {}      -                   403 forbidden
    POST   /quotas/u/r/consume        alice   json {       -                   403 forbidden
    POST   /quotas/u/r/consume        alice   json {"x":1} -                   403 forbidden
    POST   /quotas/u/r/consume        alice   json -       idempotency-key:"a  403 forbidden
    POST   /quotas/%00/r/consume      alice   json -       -                   403 forbidden
    PUT    /quotas/u/r                alice   json {}      if-match:x          403 forbidden
    GET    /quotas/u?limit=%          alice   json -       -                   403 forbidden
    POST   /tokens                    alice   text {       -                   403 forbidden
    # Size, type and form, in this order, before values.
    POST   /quotas/u/r/consume        admin   text LARGE   -                   413 content-too-large
    POST   /quotas/u/r/consume        admin   json LARGE   idempotency-key:"a  413 content-too-large
    POST   /quotas/u/r/consume        admin   text {       -                   415 unsupported-media-type
    POST   /quotas/%00/r/consume      admin   text {}      -                   415 unsupported-media-type
    POST   /quotas/%00/r/consume      admin   json {       -                   400 malformed-request
    POST   /quotas/u/r/consume        admin   json {       idempotency-key:"a  400 malformed-request
    PUT    /quotas/%00/r              admin   json {}      if-match:x          400 malformed-request
    DELETE /quotas/%00/r              admin   json -       if-match:x          400 malformed-request
    GET    /quotas/%00?limit=%        admin   json -       -                   400 malformed-request
"#;

/// `used` is a key on `u`/`r` and on `u`/`gone`, whose policy is gone; 4 of 5 units are left of `u`/`r`.
const IN_THE_STORE: &str = r#"
    # Values, before a kept answer, existence and the rest.
    POST   /quotas/u/r/consume    admin json {"amount":0} idempotency-key:used 422 validation-failed
    POST   /quotas/u/gone/consume admin json {"amount":0} -                    422 validation-failed
    PUT    /quotas/u/r            admin json {}           if-match:"stale"     422 validation-failed
    DELETE /quotas/u/%00          admin json -            if-match:"stale"     422 validation-failed
    # A kept answer, before existence and what could never fit.
    POST   /quotas/u/gone/consume admin json {"amount":2} idempotency-key:used 422 idempotency-mismatch
    POST   /quotas/u/r/consume    admin json {"amount":6} idempotency-key:used 422 idempotency-mismatch
    POST   /quotas/u/r/consume    admin json {"amount":5} idempotency-key:used 422 idempotency-mismatch
    # Existence, before If-Match and what could never fit.
    DELETE /quotas/u/gone         admin json -            if-match:"stale"     404 not-found
    POST   /quotas/u/gone/consume admin json {"amount":6} -                    404 not-found
    # What could never fit, before what does not fit now.
    POST   /quotas/u/r/consume    admin json {"amount":6} -                    422 validation-failed
    POST   /quotas/u/r/consume    admin json {"amount":5} -                    429 quota-exceeded
"#;

async fn check(app: &TestApp, table: &str) {
    let tokens = BTreeMap::from([
        ("admin", app.admin.clone()),
        ("viewer", app.token(Role::Viewer).await),
        ("alice", app.user_token("alice").await),
        ("unknown", "unknown".to_owned()),
    ]);
    let rows = table.lines().map(str::trim);
    for row in rows.filter(|row| !row.is_empty() && !row.starts_with('#')) {
        let cells: Vec<&str> = row.split_whitespace().collect();
        let [method, path, token, media_type, body, field, status, name] = cells[..] else {
            panic!("a row has 8 cells: {row}");
        };
        let body = match body {
            "-" => Body::empty(),
            "LARGE" => Body::from(" ".repeat(16 * 1024 + 1)),
            text => Body::from(text.to_owned()),
        };
        let media_type = match media_type {
            "json" => "application/json",
            _ => "text/plain",
        };
        let mut request = Request::builder().method(method).uri(path);
        request = request
            .header("authorization", format!("Bearer {}", tokens[token]))
            .header("content-type", media_type);
        if let Some((field, value)) = field.split_once(':') {
            request = request.header(field, value);
        }
        let answer = app.send(request.body(body).unwrap()).await;
        assert_eq!(answer.status.to_string(), status, "{row}");
        answer.problem(status.parse().unwrap(), name);
    }
}

#[tokio::test]
async fn what_can_be_told_without_the_store_comes_first() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    check(&app, WITHOUT_THE_STORE).await;
    assert_eq!(app.check().await.usage(), 0);
}

#[tokio::test]
async fn what_the_store_tells_comes_in_its_order() {
    let app = TestApp::new().await;
    let gone = "/quotas/u/gone";
    app.policy("hourly", 5).await;
    app.keyed("/quotas/u/r/consume", "used", "").await.is(200);
    app.put(gone, r#"{"window":"hourly","limit_count":5}"#)
        .await
        .is(200);
    app.keyed("/quotas/u/gone/consume", "used", "")
        .await
        .is(200);
    app.delete(gone).await.is(204);
    check(&app, IN_THE_STORE).await;
    // A replay needs no policy, and nothing that is left.
    let replayed = app.keyed("/quotas/u/gone/consume", "used", "").await;
    let replayed = replayed.is(200);
    assert_eq!(replayed.header("idempotency-replayed"), Some("true"));
    assert_eq!(app.check().await.usage(), 1);
}

/// Whether the user or the quota exists, no token that may not look can tell.
#[tokio::test]
async fn a_refusal_is_the_same_whether_or_not_the_quota_exists() {
    let app = TestApp::new().await;
    let tokens = [app.user_token("alice").await, app.token(Role::Viewer).await];
    let routes = [
        (Method::GET, "/quotas/u"),
        (Method::GET, "/quotas/u/r"),
        (Method::POST, "/quotas/u/r/consume"),
        (Method::POST, "/quotas/u/r/reset"),
        (Method::PUT, "/quotas/u/r"),
        (Method::DELETE, "/quotas/u/r"),
    ];
    let ask = async || {
        let mut refusals = Vec::new();
        for token in &tokens {
            for (method, path) in &routes {
                let mut answer = app.call(method.clone(), path, token, "").await;
                if answer.status != 403 {
                    continue;
                }
                answer.headers.remove("x-request-id").unwrap();
                refusals.push((answer.body, answer.headers));
            }
        }
        refusals
    };
    let before = ask().await;
    assert_eq!(before.len(), 10);
    app.policy("hourly", 1).await;
    app.consume().await.is(200);
    assert_eq!(ask().await, before);
    let details: BTreeSet<_> = before
        .iter()
        .map(|(body, _)| {
            let mut problem: serde_json::Value = serde_json::from_slice(body).unwrap();
            problem.as_object_mut().unwrap().remove("instance");
            problem.to_string()
        })
        .collect();
    assert_eq!(details.len(), 1);
}
