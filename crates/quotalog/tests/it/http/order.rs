//! The order of judgement: of two faults in a request, the earlier stage answers.

use std::collections::BTreeMap;

use axum::body::Body;
use hyper::Request;
use quotalog_auth::Role;

use crate::support::app::TestApp;

/// Requests with two faults each, and the problem that each must get. A row holds the method, the path,
/// whose token, the media type, the body, one more field, and the answer; `-` is nothing, and `LARGE` a
/// body that is too large for any path but the batch's, for which `HUGE` is. A body has no blanks; `ALICE`,
/// `U` and `BOTH` stand for batches of alice's, of `u`'s, and of both.
const WITHOUT_THE_STORE: &str = r#"
    # Form of the path, before route, method and token.
    POST   /nowhere/%FF               admin   json -       -                   400 malformed-request
    PATCH  /quotas/u/%FF              admin   json -       -                   400 malformed-request
    POST   /quotas/%FF/r/consume      unknown json -       -                   400 malformed-request
    POST   /quotas/%FF/..%2F/consume  unknown json -       -                   400 malformed-request
    POST   /quotas//%FF/consume       admin   json -       -                   400 malformed-request
    PATCH  /defaults/%FF              unknown json -       -                   400 malformed-request
    # Route and method, before the token and all of the body.
    POST   /nowhere                   unknown json -       -                   404 not-found
    POST   /quotas/a%2Fb/r/consume    unknown text LARGE   -                   404 not-found
    PATCH  /quotas/a%2Fb/r            unknown json -       -                   404 not-found
    PATCH  /quotas/u/r                unknown text LARGE   -                   405 method-not-allowed
    PATCH  /quotas/%00/r              admin   json -       -                   405 method-not-allowed
    PUT    /consume                   unknown text HUGE    -                   405 method-not-allowed
    GET    /quotas/u/r/refund         unknown text LARGE   -                   405 method-not-allowed
    POST   /defaults/%00              unknown json {       -                   405 method-not-allowed
    # Token, before role, body and values.
    POST   /quotas/u/r/consume        unknown json LARGE   -                   401 unauthorized
    POST   /quotas/u/r/consume        unknown text {       -                   401 unauthorized
    POST   /quotas/u/r/consume        unknown json {       -                   401 unauthorized
    POST   /quotas/%00/r/consume      unknown json -       -                   401 unauthorized
    GET    /quotas/u?limit=0          unknown json -       -                   401 unauthorized
    POST   /quotas/%00/r/refund       unknown text {       -                   401 unauthorized
    POST   /consume                   unknown text HUGE    -                   401 unauthorized
    POST   /consume                   unknown json {       idempotency-key:"a  401 unauthorized
    PUT    /defaults/%00              unknown json {       -                   401 unauthorized
    GET    /quotas?limit=%            unknown json -       -                   401 unauthorized
    GET    /audit?user_id=..          unknown json -       -                   401 unauthorized
    DELETE /quotas/%00                unknown json -       -                   401 unauthorized
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
    POST   /quotas/%00/r/refund       viewer  text LARGE   -                   403 forbidden
    POST   /quotas/alice/r/refund     alice   json {       idempotency-key:"a  403 forbidden
    POST   /consume                   viewer  text HUGE    -                   403 forbidden
    PUT    /defaults/%00              viewer  text LARGE   -                   403 forbidden
    DELETE /defaults/%00              viewer  json -       -                   403 forbidden
    GET    /defaults/%00              alice   json -       -                   403 forbidden
    GET    /defaults?limit=%          alice   json -       -                   403 forbidden
    GET    /quotas?limit=%            alice   json -       -                   403 forbidden
    GET    /quotas/%00/r/usage?from=x alice   json -       -                   403 forbidden
    GET    /audit?limit=%             viewer  json -       -                   403 forbidden
    DELETE /quotas/%00                viewer  json -       -                   403 forbidden
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
    POST   /quotas/%00/r/refund       admin   text LARGE   -                   413 content-too-large
    POST   /quotas/%00/r/refund       admin   text {       idempotency-key:"a  415 unsupported-media-type
    POST   /quotas/%00/r/refund       admin   json {       idempotency-key:"a  400 malformed-request
    POST   /consume                   alice   text HUGE    -                   413 content-too-large
    POST   /consume                   alice   text LARGE   -                   415 unsupported-media-type
    POST   /consume                   alice   text U       -                   415 unsupported-media-type
    POST   /consume                   alice   json LARGE   -                   400 malformed-request
    POST   /consume                   alice   json {"items":[{"user_id":"u"},{"x":1,"x":1}]} - 400 malformed-request
    PUT    /defaults/%00              admin   text {       -                   415 unsupported-media-type
    # The form of a query, before its values.
    GET    /quotas?sort=x&limit=%     admin   json -       -                   400 malformed-request
    GET    /quotas/%00/r/usage?to=%FF admin   json -       -                   400 malformed-request
    GET    /audit?user_id=..&%        admin   json -       -                   400 malformed-request
    GET    /defaults?limit=0&%        admin   json -       -                   400 malformed-request
    # Whose the items are, after the body's form and before values.
    POST   /consume                   alice   json {"items":[{"user_id":"u"}]} - 403 forbidden
    POST   /consume                   alice   json {"items":[7,{"user_id":"u"}],"x":1} - 403 forbidden
    POST   /consume                   alice   json BOTH    idempotency-key:"a  403 forbidden
    POST   /consume                   alice   json ALICE   idempotency-key:"a  422 validation-failed
    POST   /consume                   alice   json {"items":[{"resource":"r"}]} - 422 validation-failed
"#;

/// `used` is a key of the admin on `u`/`r`, on `u`/`gone`, whose policy is gone, and on a batch; `back` one on
/// refunds of `u`/`r`. 4 of 5 units are left of `u`/`r`, and all 5 of `u`/`s`.
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
    DELETE /defaults/%00          admin json -            -                    422 validation-failed
    DELETE /defaults/gone         admin json -            -                    404 not-found
    GET    /defaults/%00          admin json -            -                    422 validation-failed
    GET    /defaults/gone         admin json -            -                    404 not-found
    DELETE /quotas/%00            admin json -            -                    422 validation-failed
    # Whose the items are, before all that the store knows of them.
    POST   /consume               alice json BOTH         -                    403 forbidden
    POST   /consume               alice json ALICE        -                    404 not-found
    # A refund knows no limit: what it gives back stops at 0.
    POST   /quotas/u/gone/refund  admin json {"amount":0} -                    422 validation-failed
    POST   /quotas/u/r/refund     admin json {"amount":6} idempotency-key:back 422 idempotency-mismatch
    POST   /quotas/u/gone/refund  admin json {"amount":6} -                    404 not-found
    # A batch's first failing stage answers for all its items.
    POST   /consume admin json {"items":[{"user_id":"u","resource":"r","amount":0}]} idempotency-key:used 422 validation-failed
    POST   /consume admin json {"items":[{"user_id":"u","resource":"gone"}]} idempotency-key:used 422 idempotency-mismatch
    POST   /consume admin json {"items":[{"user_id":"u","resource":"r","amount":6}]} idempotency-key:used 422 idempotency-mismatch
    POST   /consume admin json {"items":[{"user_id":"u","resource":"r","amount":6},{"user_id":"u","resource":"gone"}]} - 404 not-found
    POST   /consume admin json {"items":[{"user_id":"u","resource":"r","amount":5},{"user_id":"u","resource":"gone"}]} - 404 not-found
    POST   /consume admin json {"items":[{"user_id":"u","resource":"r","amount":5},{"user_id":"u","resource":"s","amount":6}]} - 422 validation-failed
    POST   /consume admin json {"items":[{"user_id":"u","resource":"r","amount":5},{"user_id":"u","resource":"s"}]} - 429 quota-exceeded
    # What could never fit, before what does not fit now.
    POST   /quotas/u/r/consume    admin json {"amount":6} -                    422 validation-failed
    POST   /quotas/u/r/consume    admin json {"amount":5} -                    429 quota-exceeded
"#;

const ALICE: &str = r#"{"user_id":"alice","resource":"r"}"#;
const U: &str = r#"{"user_id":"u","resource":"r"}"#;

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
            "HUGE" => Body::from(" ".repeat(128 * 1024 + 1)),
            "ALICE" => Body::from(format!(r#"{{"items":[{ALICE}]}}"#)),
            "U" => Body::from(format!(r#"{{"items":[{U}]}}"#)),
            "BOTH" => Body::from(format!(r#"{{"items":[{ALICE},{U}]}}"#)),
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
    let s = r#"{"items":[{"user_id":"u","resource":"s"}]}"#;
    app.put("/quotas/u/s", r#"{"window":"hourly","limit_count":5}"#)
        .await
        .is(200);
    app.keyed("/consume", "used", s).await.is(200);
    app.post("/quotas/u/s/refund", "").await.is(200);
    app.consume().await.is(200);
    app.keyed("/quotas/u/r/refund", "back", "").await.is(200);
    check(&app, IN_THE_STORE).await;
    // A replay needs no policy, and nothing that is left.
    let replayed = app.keyed("/quotas/u/gone/consume", "used", "").await;
    let replayed = replayed.is(200);
    assert_eq!(replayed.header("idempotency-replayed"), Some("true"));
    assert_eq!(app.check().await.usage(), 1);
}
