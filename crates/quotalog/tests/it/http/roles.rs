//! Who may do what: every role on every route, and what a refusal lets on.

use std::iter::zip;

use bytes::Bytes;
use hyper::HeaderMap;
use quotalog_auth::Role;
use serde_json::Value;

use crate::support::app::TestApp;

/// What each role is answered on each route, in this order, at an empty store. A row holds the method, the
/// path, the body, which has no blanks, and the five statuses; `-` is no body.
const ROUTES: &str = r#"
    #                                      admin viewer service alice bob
    PUT    /quotas/alice/r          POLICY    200 403 403 403 403
    GET    /quotas                  -         200 200 403 403 403
    GET    /quotas?sort=used_percent -        200 200 403 403 403
    GET    /quotas/alice            -         200 200 200 200 403
    GET    /quotas/alice/r          -         200 200 200 200 403
    GET    /quotas/alice/r/usage    -         200 200 200 200 403
    POST   /quotas/alice/r/consume  -         200 403 200 200 403
    POST   /consume                 BATCH     200 403 200 200 403
    POST   /quotas/alice/r/refund   -         200 403 200 403 403
    POST   /quotas/alice/r/reset    -         200 403 403 403 403
    PUT    /defaults/r              POLICY    200 403 403 403 403
    GET    /defaults                -         200 200 200 403 403
    GET    /defaults/r              -         200 200 200 403 403
    DELETE /defaults/r              -         204 403 403 403 403
    POST   /tokens                  TOKEN     201 403 403 403 403
    GET    /tokens                  -         200 403 403 403 403
    DELETE /tokens/none             -         404 403 403 403 403
    GET    /audit                   -         200 403 403 403 403
    DELETE /quotas/alice/r          -         204 403 403 403 403
    DELETE /quotas/nobody           -         204 403 403 403 403
"#;

struct Row {
    method: &'static str,
    path: &'static str,
    body: &'static str,
    statuses: Vec<u16>,
}

fn rows() -> Vec<Row> {
    let lines = ROUTES.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rows = lines.map(|line| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let (request, statuses) = cells.split_at(3);
        assert_eq!(statuses.len(), 5, "{line}");
        Row {
            method: request[0],
            path: request[1],
            body: match request[2] {
                "POLICY" => r#"{"window":"hourly","limit_count":100}"#,
                "BATCH" => r#"{"items":[{"user_id":"alice","resource":"r"}]}"#,
                "TOKEN" => r#"{"role":"viewer"}"#,
                "-" => "",
                other => panic!("no such body: {other}"),
            },
            statuses: statuses.iter().map(|cell| cell.parse().unwrap()).collect(),
        }
    });
    rows.collect()
}

/// A token of each role, in the order of the table.
async fn tokens(app: &TestApp) -> [String; 5] {
    [
        app.admin.clone(),
        app.token(Role::Viewer).await,
        app.token(Role::Service).await,
        app.user_token("alice").await,
        app.user_token("bob").await,
    ]
}

#[tokio::test]
async fn each_role_may_do_what_the_contract_says() {
    let app = TestApp::new().await;
    let tokens = tokens(&app).await;
    for row in rows() {
        // The admin comes last, since it changes what the others must not.
        for (token, status) in zip(&tokens, &row.statuses).rev() {
            let method = row.method.parse().unwrap();
            let answer = app.call(method, row.path, token, row.body).await;
            assert_eq!(answer.status, *status, "{} {}", row.method, row.path);
        }
    }
}

/// No private route is left out of the table.
#[test]
fn the_table_names_every_route() {
    let router = include_str!("../../../../quotalog-http/src/router.rs");
    let routes = router.split('"').filter(|text| {
        let first = text.split('/').nth(1).unwrap_or_default();
        let private = ["quotas", "consume", "defaults", "tokens", "audit"];
        text.starts_with('/') && private.contains(&first)
    });
    let rows = rows();
    let mut routes_len = 0;
    for route in routes {
        routes_len += 1;
        let fits = |path: &str| {
            route.split('/').count() == path.split('/').count()
                && zip(route.split('/'), path.split('/'))
                    .all(|(own, given)| own.starts_with('{') || own == given)
        };
        assert!(rows.iter().any(|row| fits(row.path)), "{route}");
    }
    assert!(routes_len >= 13, "the routes are not found");
}

/// The refusals of the table: each document without its instance, and all of it without the request's id.
async fn refusals(app: &TestApp, tokens: &[String; 5]) -> Vec<(Value, HeaderMap, Bytes)> {
    let mut refusals = Vec::new();
    for row in rows() {
        for (token, _) in zip(tokens, &row.statuses).filter(|(_, status)| **status == 403) {
            let method = row.method.parse().unwrap();
            let answer = app.call(method, row.path, token, row.body).await;
            let mut answer = answer.problem(403, "forbidden");
            answer.headers.remove("x-request-id").unwrap();
            let mut document = answer.json();
            let path = row.path.split('?').next().unwrap();
            assert_eq!(document["instance"].take(), path);
            refusals.push((document, answer.headers, answer.body));
        }
    }
    refusals
}

/// Whether the user or the quota exists, no token that may not look can tell.
#[tokio::test]
async fn a_refusal_is_the_same_whether_or_not_the_quota_exists() {
    let app = TestApp::new().await;
    let tokens = tokens(&app).await;
    let before = refusals(&app, &tokens).await;
    assert!(before.len() > 30);
    for path in ["/quotas/alice/r", "/defaults/r"] {
        app.put(path, r#"{"window":"hourly","limit_count":1}"#)
            .await
            .is(200);
    }
    app.post("/quotas/alice/r/consume", "").await.is(200);
    app.post("/quotas/alice/r/consume", "")
        .await
        .problem(429, "quota-exceeded");
    assert_eq!(refusals(&app, &tokens).await, before);
    // Nor do the routes differ in it.
    for (document, _, _) in &before {
        assert_eq!(document, &before[0].0);
    }
}
