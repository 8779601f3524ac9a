//! Query parameters: what a path does not know is refused, on every route, before anything is done.

use std::collections::BTreeSet;

use axum::body::Body;
use hyper::{Method, Request};
use quotalog_auth::Role;

use crate::support::answer::Answer;
use crate::support::app::TestApp;

/// Who watches the process may add what they like, such as a number that keeps caches away.
const LENIENT: [&str; 10] = [
    "/dashboard",
    "/dashboard/{file}",
    "/dashboard/{folder}/{file}",
    "/docs",
    "/docs/{file}",
    "/healthz",
    "/metrics",
    "/openapi.json",
    "/problems/{name}",
    "/readyz",
];

/// Every path that the router knows, each as a request may name it.
async fn routes(app: &TestApp) -> Vec<(String, String)> {
    let metrics = app.get("/metrics").await.is(200);
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    let labels = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix("quotalog_http_request_duration_seconds_count{route=\"")?;
        rest.split('"')
            .next()
            .filter(|route| route.starts_with('/'))
    });
    labels
        .map(|route| {
            let path = route.replace("{user_id}", "u").replace("{resource}", "r");
            let path = path.replace("{name}", "forbidden").replace("{id}", "none");
            let path = path.replace("dashboard/{file}", "dashboard/app.js");
            let path = path.replace("{folder}/{file}", "text/ja.js");
            let path = path.replace("{file}", "start.js");
            assert!(!path.contains('{'), "{path} needs a value");
            (route.to_owned(), path)
        })
        .collect()
}

/// The methods of a path, as its 405 names them.
async fn methods(app: &TestApp, path: &str) -> Vec<Method> {
    let answer = app.call(Method::PATCH, path, &app.admin, "").await.is(405);
    let allowed = answer.header("allow").unwrap().split(',');
    allowed
        .map(|method| method.trim().parse().unwrap())
        .collect()
}

fn faults(answer: &Answer) -> BTreeSet<String> {
    let problem = answer.json();
    let errors = problem["errors"].as_array().expect("errors are listed");
    let text = |error: &serde_json::Value| {
        let of = |member: &str| error[member].as_str().unwrap_or("?").to_owned();
        format!("{} {}", of("field"), of("code"))
    };
    errors.iter().map(text).collect()
}

/// A route that is added later has to refuse what it does not know, or be named above.
#[tokio::test]
async fn no_route_ignores_a_parameter() {
    let app = TestApp::new().await;
    let routes = routes(&app).await;
    assert!(routes.len() > 15, "{routes:?}");
    for lenient in LENIENT {
        assert!(
            routes.iter().any(|(route, _)| route == lenient),
            "{lenient}"
        );
    }
    for (route, path) in &routes {
        for method in methods(&app, path).await {
            let odd = format!("{path}?surprise=1&x");
            let answer = app.call(method.clone(), &odd, &app.admin, "").await;
            if LENIENT.contains(&&**route) {
                answer.is(200);
            } else if method == Method::HEAD {
                assert_eq!(answer.status, 422, "HEAD {path}");
            } else {
                assert_eq!(answer.status, 422, "{method} {path}");
                let faults = faults(&answer);
                for name in ["surprise", "x"] {
                    let fault = format!("{name} unknown_parameter");
                    assert!(faults.contains(&fault), "{method} {path}: {faults:?}");
                }
                let broken = format!("{path}?a=%zz");
                let answer = app.call(method, &broken, &app.admin, "").await;
                answer.problem(400, "malformed-request");
            }
        }
    }
}

#[tokio::test]
async fn a_request_with_a_parameter_too_many_changes_nothing() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    app.put("/quotas/u/exports", r#"{"window":"daily","limit_count":1}"#)
        .await
        .is(200);
    app.put("/defaults/r", r#"{"window":"daily","limit_count":1}"#)
        .await
        .is(200);
    app.consume().await.is(200);
    let (_, token_id) = app.token_with_id(Role::Viewer, None).await;
    let set = r#"{"window":"daily","limit_count":9}"#;
    let batch = r#"{"items":[{"user_id":"u","resource":"r"}]}"#;
    let token = format!("/tokens/{}?x", token_id.as_str());
    for (method, path, body, field) in [
        (Method::DELETE, "/quotas/u?resource=exports", "", "resource"),
        (Method::DELETE, "/quotas/u/r?window=daily", "", "window"),
        (Method::DELETE, "/defaults/r?user_id=u", "", "user_id"),
        (Method::DELETE, &token, "", "x"),
        (Method::PUT, "/quotas/u/r?limit_count=7", set, "limit_count"),
        (Method::PUT, "/defaults/r?dry-run=1", set, "dry-run"),
        (Method::POST, "/quotas/u/r/consume?amount=3", "", "amount"),
        (
            Method::POST,
            "/quotas/u/r/consume?amount=1",
            r#"{"amount":1}"#,
            "amount",
        ),
        (Method::POST, "/quotas/u/r/refund?amount=1", "", "amount"),
        (Method::POST, "/quotas/u/r/reset?at=now", "", "at"),
        (Method::POST, "/consume?items=2", batch, "items"),
        (
            Method::POST,
            "/tokens?role=admin",
            r#"{"role":"admin"}"#,
            "role",
        ),
    ] {
        let answer = app.call(method, path, &app.admin, body).await;
        answer.faults(&[&format!("{field} unknown_parameter")]);
    }
    assert_eq!(app.check().await.usage(), 1);
    assert_eq!(
        app.number("SELECT limit_count FROM quota_policies WHERE resource = 'r'"),
        5
    );
    assert_eq!(app.number("SELECT count(*) FROM quota_policies"), 2);
    assert_eq!(app.number("SELECT limit_count FROM quotalog_defaults"), 1);
    assert_eq!(app.number("SELECT count(*) FROM quotalog_tokens"), 2);
}

#[tokio::test]
async fn a_field_of_the_body_that_came_as_a_parameter_is_told_where_it_belongs() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    let message = async |method: Method, path: &str, body: &str| {
        let answer = app.call(method, path, &app.admin, body).await.is(422);
        answer.json()["errors"][0]["message"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let told = message(Method::POST, "/quotas/u/r/consume?amount=3", "").await;
    assert!(told.contains("field of the body"), "{told}");
    let told = message(Method::POST, "/quotas/u/r/consume?amout=3", "").await;
    assert!(told.contains("knows no parameters"), "{told}");
    let told = message(Method::GET, "/quotas/u/r/usage?form=x", "").await;
    assert!(told.contains("from, to, limit, cursor"), "{told}");
}

/// In the order of judgement: with the other values, after the token and the role, before a kept answer.
#[tokio::test]
async fn parameters_are_judged_with_the_values() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    let path = "/quotas/u/r/consume?amount=3";
    let no_token = format!("/quotas/u/r?access_token={}", app.admin);
    let no_token = Request::get(no_token).body(Body::empty()).unwrap();
    app.send(no_token).await.problem(401, "unauthorized");
    let viewer = app.token(Role::Viewer).await;
    let forbidden = app.call(Method::POST, path, &viewer, "").await;
    forbidden.problem(403, "forbidden");
    let malformed = app.post(path, "{").await;
    let malformed = malformed.problem(400, "malformed-request");
    assert_eq!(malformed.json()["instance"], "/quotas/u/r/consume");
    let all = app.keyed(path, "a b", r#"{"amount":0,"x":1}"#).await;
    all.faults(&[
        "amount invalid",
        "x unknown_field",
        "amount unknown_parameter",
        "Idempotency-Key invalid",
    ]);
    app.keyed("/quotas/u/r/consume", "k", "").await.is(200);
    for body in ["", r#"{"amount":2}"#] {
        let kept = app.keyed(path, "k", body).await;
        kept.faults(&["amount unknown_parameter"]);
    }
    let no_policy = app.post("/quotas/u/none/consume?amount=3", "").await;
    no_policy.faults(&["amount unknown_parameter"]);
}
