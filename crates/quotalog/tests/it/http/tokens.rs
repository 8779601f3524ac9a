//! Tokens: how they come, what each role may do, how they are made, listed and ended.

use axum::body::Body;
use hyper::{Method, Request};
use quotalog_auth::Role;
use serde_json::{Value, json};

use crate::support::answer::Answer;
use crate::support::app::{TestApp, instant};

const HOURLY_100: &str = r#"{"window":"hourly","limit_count":100}"#;

/// Asks for `u`/`r` with these `Authorization` lines.
async fn authorized(app: &TestApp, lines: &[&str]) -> Answer {
    let mut request = Request::get("/quotas/u/r");
    for line in lines {
        request = request.header("authorization", *line);
    }
    app.send(request.body(Body::empty()).unwrap()).await
}

#[track_caller]
fn unauthorized(answer: Answer) {
    let answer = answer.problem(401, "unauthorized");
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
}

#[tokio::test]
async fn c54_the_scheme_is_read_in_any_letter_case_and_the_token_exactly() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    let token = &app.admin;
    for scheme in ["Bearer", "bearer", "BEARER", "bEaReR"] {
        authorized(&app, &[&format!("{scheme} {token}")])
            .await
            .is(200);
    }
    let swapped: String = token
        .chars()
        .map(|letter| {
            if letter.is_ascii_lowercase() {
                letter.to_ascii_uppercase()
            } else {
                letter.to_ascii_lowercase()
            }
        })
        .collect();
    let (upper, lower) = (token.to_uppercase(), token.to_lowercase());
    let sound = format!("Bearer {token}");
    let refused: [&[&str]; 16] = [
        &[],
        &[&sound, &sound],
        &[&sound, "Bearer x"],
        &[&format!("Bearer {swapped}")],
        &[&format!("Bearer {upper}")],
        &[&format!("Bearer {lower}")],
        &[&format!("Bearer {token}x")],
        &[&format!("Bearer {}", &token[..token.len() - 1])],
        &[&format!("Bearer \"{token}\"")],
        &[&format!("Bearer {token}, Bearer {token}")],
        &[&format!("Basic {token}")],
        &[&format!("Token {token}")],
        &[token],
        &["Bearer"],
        &["Bearer "],
        &[""],
    ];
    for lines in refused {
        unauthorized(authorized(&app, lines).await);
    }
    for path in [
        format!("/quotas/u/r?access_token={token}"),
        format!("/quotas/u/r?token={token}"),
    ] {
        unauthorized(
            app.send(Request::get(path).body(Body::empty()).unwrap())
                .await,
        );
    }
    let cookie = Request::get("/quotas/u/r").header("cookie", format!("token={token}"));
    unauthorized(app.send(cookie.body(Body::empty()).unwrap()).await);
}

#[tokio::test]
async fn a_token_is_made_shown_once_listed_and_revoked() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    let body =
        r#"{"role":"user","user_id":"u","name":"phone","expires_at":"2026-12-01T00:00:00+01:00"}"#;
    let made = app.post("/tokens", body).await.is(201);
    assert_eq!(made.header("cache-control"), Some("no-store"));
    let made = made.json();
    let secret = made["token"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("ql_") && secret.len() >= 3 + 43);
    assert_eq!(made["role"], "user");
    assert_eq!(made["user_id"], "u");
    assert_eq!(made["name"], "phone");
    assert_eq!(made["created_at"], "2026-11-30T18:20:00Z");
    assert_eq!(made["expires_at"], "2026-11-30T23:00:00Z");
    app.call(Method::POST, "/quotas/u/r/consume", &secret, "")
        .await
        .is(200);

    let list = app.get("/tokens").await.is(200);
    assert!(!String::from_utf8_lossy(&list.body).contains(&secret));
    let list = list.json();
    assert_eq!(list["next_cursor"], Value::Null);
    let mut expected = made.clone();
    expected.as_object_mut().unwrap().remove("token");
    let entries = list["tokens"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[1], expected);
    let members = entries[0].as_object().unwrap();
    for member in ["user_id", "name", "expires_at"] {
        assert_eq!(members[member], Value::Null);
    }

    let path = format!("/tokens/{}", made["id"].as_str().unwrap());
    let revoked = app.delete(&path).await.is(204);
    assert!(revoked.body.is_empty());
    unauthorized(app.call(Method::GET, "/quotas/u/r", &secret, "").await);
    app.delete(&path).await.problem(404, "not-found");
    let left = app.get("/tokens").await.is(200).json();
    assert_eq!(left["tokens"].as_array().unwrap().len(), 1);
}

/// Asks for a token, and checks which faults that has.
async fn check_new(app: &TestApp, body: &str, faults: &[&str]) {
    let answer = app.post("/tokens", body).await;
    if faults.is_empty() {
        assert_eq!(answer.status, 201, "{body}");
    } else {
        answer.faults(faults);
    }
}

#[tokio::test]
async fn a_new_token_has_a_role_and_its_user() {
    let app = TestApp::new().await;
    for body in [
        "",
        "{}",
        r#"{"role":"Admin"}"#,
        r#"{"role":"owner"}"#,
        r#"{"role":1}"#,
        r#"{"role":null,"user_id":"u"}"#,
    ] {
        check_new(&app, body, &["role invalid"]).await;
    }
    for role in ["admin", "viewer", "service"] {
        check_new(&app, &format!(r#"{{"role":"{role}"}}"#), &[]).await;
        let body = format!(r#"{{"role":"{role}","user_id":"u"}}"#);
        check_new(&app, &body, &["user_id invalid"]).await;
    }
    check_new(&app, r#"{"role":"user"}"#, &["user_id invalid"]).await;
    for user_id in [
        r#""""#,
        "7",
        r#"".""#,
        r#""..""#,
        r#""a/b""#,
        r#""a\u0000""#,
    ] {
        let body = format!(r#"{{"role":"user","user_id":{user_id}}}"#);
        check_new(&app, &body, &["user_id invalid"]).await;
    }
    let long = format!(r#"{{"role":"user","user_id":"{}"}}"#, "x".repeat(256));
    check_new(&app, &long, &["user_id too_long"]).await;
    let all = r#"{"role":"x","user_id":7,"name":"","expires_at":"x","admin":1}"#;
    let faults = [
        "role invalid",
        "user_id invalid",
        "name invalid",
        "expires_at invalid",
        "admin unknown_field",
    ];
    check_new(&app, all, &faults).await;
    let stored = app.get("/tokens").await.is(200).json();
    assert_eq!(stored["tokens"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn a_new_token_may_have_a_name_and_an_end() {
    let app = TestApp::new().await;
    let longest = "é".repeat(100);
    let too_long = format!(r#""{longest}x""#);
    for name in [r#""""#, "7", r#""a\n""#, r#""\u0085""#, &too_long] {
        let body = format!(r#"{{"role":"viewer","name":{name}}}"#);
        check_new(&app, &body, &["name invalid"]).await;
    }
    // A secret in the wrong place, which every list would show.
    let body = format!(r#"{{"role":"viewer","name":"ql_{}"}}"#, "A".repeat(43));
    check_new(&app, &body, &["name invalid"]).await;
    let body = format!(r#"{{"role":"viewer","name":"{longest}"}}"#);
    check_new(&app, &body, &[]).await;
    for end in [
        r#""2026-11-30T18:20:00Z""#,
        r#""2026-11-30T18:19:59Z""#,
        r#""2020-01-01T00:00:00Z""#,
        r#""2026-12-01""#,
        r#""2026-12-01T00:00:00""#,
        r#""2026-12-01 00:00:00Z""#,
        r#""2026-13-01T00:00:00Z""#,
        r#""tomorrow""#,
        r#""""#,
        "1796149200",
    ] {
        let body = format!(r#"{{"role":"viewer","expires_at":{end}}}"#);
        check_new(&app, &body, &["expires_at invalid"]).await;
    }
    let body = r#"{"role":"viewer","expires_at":"2026-11-30T18:20:01Z"}"#;
    check_new(&app, body, &[]).await;
}

#[tokio::test]
async fn a_token_ends_on_its_second() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    let end = Some("2026-11-30T18:30:00Z");
    let (token, _) = app.token_with_id(Role::Service, end).await;
    let ask = async |method, path, body| app.call(method, path, &token, body).await;
    app.set_time("2026-11-30T18:29:59.999Z");
    ask(Method::POST, "/quotas/u/r/consume", "").await.is(200);
    app.set_time("2026-11-30T18:30:00Z");
    unauthorized(ask(Method::POST, "/quotas/u/r/consume", "").await);
    unauthorized(ask(Method::GET, "/quotas/u/r", "").await);
    unauthorized(ask(Method::GET, "/quotas/u", "").await);
    unauthorized(ask(Method::PUT, "/quotas/u/r", "").await);
    assert_eq!(app.check().await.usage(), 1);
    // Forgotten too: the token is not judged by its first answer.
    app.clock.set(instant("2026-11-30T18:31:00Z"));
    unauthorized(ask(Method::GET, "/quotas/u/r", "").await);
}

#[tokio::test]
async fn a_token_is_told_what_it_is_good_for() {
    let app = TestApp::new().await;
    let odd = "日本 a+b%2F\"\u{202e}";
    let tokens = [
        (
            app.admin.clone(),
            json!({ "role": "admin", "user_id": null }),
        ),
        (
            app.token(Role::Viewer).await,
            json!({ "role": "viewer", "user_id": null }),
        ),
        (
            app.token(Role::Service).await,
            json!({ "role": "service", "user_id": null }),
        ),
        (
            app.user_token(odd).await,
            json!({ "role": "user", "user_id": odd }),
        ),
    ];
    for (token, expected) in tokens {
        let answer = app.call(Method::GET, "/whoami", &token, "").await.is(200);
        assert_eq!(answer.json(), expected);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        for query in ["?token=x", "?user_id=u"] {
            let answer = app
                .call(Method::GET, &format!("/whoami{query}"), &token, "")
                .await;
            let name = query[1..].split('=').next().unwrap();
            answer.faults(&[&format!("{name} unknown_parameter")]);
        }
    }
    unauthorized(app.call(Method::GET, "/whoami", "unknown", "").await);
}

/// Whatever would be answered, also what is judged without the store.
#[tokio::test]
async fn a_revoked_token_is_refused_from_the_next_request_on() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    app.consume_amount(5).await.is(200);
    let large = " ".repeat(16 * 1024 + 1);
    let batch = r#"{"items":[{"user_id":"u","resource":"r"}]}"#;
    let text = "text/plain";
    let json = "application/json";
    //  what it is answered while it is valid
    let requests = [
        (Method::GET, "/quotas/u/r", json, "", 200),
        (Method::GET, "/quotas/u", json, "", 200),
        (Method::POST, "/quotas/u/r/consume", json, "", 429),
        (
            Method::POST,
            "/quotas/u/r/consume",
            json,
            r#"{"amount":6}"#,
            422,
        ),
        (Method::GET, "/quotas/u/r/usage", json, "", 200),
        (Method::GET, "/defaults", json, "", 200),
        (Method::GET, "/defaults/none", json, "", 404),
        (Method::POST, "/quotas/u/r/refund", json, "", 200),
        (Method::POST, "/quotas/u/r/consume", json, "", 200),
        (Method::POST, "/consume", json, batch, 429),
        (Method::POST, "/consume", json, r#"{"items":[7]}"#, 422),
        (Method::GET, "/whoami", json, "", 200),
        (Method::GET, "/whoami?x=1", json, "", 422),
        (Method::GET, "/quotas", json, "", 403),
        (Method::GET, "/audit", json, "", 403),
        (Method::DELETE, "/quotas/u", json, "", 403),
        (Method::GET, "/quotas/u/none", json, "", 404),
        (Method::POST, "/quotas/u/none/consume", json, "", 404),
        (Method::PUT, "/quotas/u/r", json, HOURLY_100, 403),
        (Method::POST, "/tokens", json, "", 403),
        (Method::POST, "/quotas/u/r/consume", json, &large, 413),
        (Method::POST, "/quotas/u/r/consume", text, "{}", 415),
        (Method::POST, "/quotas/u/r/consume", json, "{", 400),
        (Method::POST, "/quotas/u/r/consume", json, r#"{"x":1}"#, 422),
        (Method::GET, "/quotas/u?limit=0", json, "", 422),
        (Method::GET, "/quotas/u?limit=%", json, "", 400),
        (Method::GET, "/quotas/u/%00", json, "", 422),
    ];
    for (method, path, media_type, body, status) in requests {
        let (token, id) = app.token_with_id(Role::Service, None).await;
        let ask = async || {
            let request = Request::builder().method(method.clone()).uri(path);
            let request = request
                .header("authorization", format!("Bearer {token}"))
                .header("content-type", media_type);
            app.send(request.body(Body::from(body.to_owned())).unwrap())
                .await
        };
        let valid = ask().await;
        assert_eq!(valid.status, status, "{method} {path}");
        app.revoke(id).await;
        for _ in 0..2 {
            unauthorized(ask().await);
        }
        // Path and method tell nothing, and are judged first.
        let wrong = app.call(Method::PATCH, "/quotas/u/r", &token, "").await;
        wrong.problem(405, "method-not-allowed");
    }
    assert_eq!(app.check().await.usage(), 5);
}

/// Its last answers are still remembered by this process when another one revokes it.
#[tokio::test]
async fn a_revoked_admin_reads_and_changes_nothing() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    app.consume().await.is(200);
    let requests = [
        (Method::GET, "/quotas", ""),
        (Method::GET, "/quotas?sort=used_percent", ""),
        (Method::GET, "/quotas/u/r/usage", ""),
        (Method::GET, "/audit", ""),
        (Method::GET, "/defaults", ""),
        (Method::GET, "/whoami", ""),
        (Method::PUT, "/defaults/r", HOURLY_100),
        (Method::PUT, "/quotas/u/r", HOURLY_100),
        (Method::POST, "/quotas/u/r/refund", ""),
        (Method::POST, "/quotas/u/r/reset", ""),
        (Method::DELETE, "/quotas/u/r", ""),
        (Method::DELETE, "/quotas/u", ""),
        (Method::POST, "/tokens", r#"{"role":"admin"}"#),
    ];
    for (method, path, body) in requests {
        let (token, id) = app.token_with_id(Role::Admin, None).await;
        app.call(Method::GET, "/tokens", &token, "").await.is(200);
        app.revoke(id).await;
        unauthorized(app.call(method, path, &token, body).await);
    }
    let check = app.check().await;
    assert_eq!((check.usage(), check.remaining()), (1, 4));
    app.get("/defaults/r").await.problem(404, "not-found");
}

#[tokio::test]
async fn a_token_that_revokes_itself_has_the_last_word() {
    let app = TestApp::new().await;
    let (token, id) = app.token_with_id(Role::Admin, None).await;
    let path = format!("/tokens/{}", id.as_str());
    let revoked = app.call(Method::DELETE, &path, &token, "").await;
    revoked.is(204);
    unauthorized(app.call(Method::GET, "/tokens", &token, "").await);
}

/// On every process of the store, at once.
#[tokio::test]
async fn tokens_are_the_same_for_every_process() {
    let app = TestApp::new().await;
    app.policy("hourly", 100).await;
    let other = app.beside().await;
    let (token, id) = app.token_with_id(Role::Service, None).await;
    let consume = "/quotas/u/r/consume";
    for process in [&other, &app, &other] {
        process
            .call(Method::POST, consume, &token, "")
            .await
            .is(200);
    }
    // Unknown at first, and known as soon as it is made elsewhere.
    unauthorized(other.call(Method::GET, "/tokens", "unknown", "").await);
    let (late, _) = app.token_with_id(Role::Admin, None).await;
    other.call(Method::GET, "/tokens", &late, "").await.is(200);
    other
        .delete(&format!("/tokens/{}", id.as_str()))
        .await
        .is(204);
    for process in [&app, &other] {
        unauthorized(process.call(Method::POST, consume, &token, "").await);
    }
    assert_eq!(app.check().await.usage(), 3);
}

/// C56: no part of a secret lies in the file.
#[tokio::test]
async fn c56_a_secret_is_nowhere_in_the_database() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    let made = app.post("/tokens", r#"{"role":"service"}"#).await.is(201);
    let secret = made.json()["token"].as_str().unwrap().to_owned();
    app.call(Method::POST, "/quotas/u/r/consume", &secret, "")
        .await
        .is(200);
    let mut files = 0;
    for entry in std::fs::read_dir(app.folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        files += 1;
        for piece in secret.as_bytes()[3..].windows(8) {
            let found = bytes.windows(8).any(|window| window == piece);
            assert!(!found, "a piece of the secret is in the file");
        }
    }
    assert!(files > 0);
}
