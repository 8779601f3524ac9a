//! Problem documents, their pages, request ids, and what is said of a fault of ours.

use std::collections::BTreeSet;

use axum::body::Body;
use hyper::{Method, Request};
use quotalog_testkit::Fault;
use serde_json::Value;

use crate::support::answer::Answer;
use crate::support::app::TestApp;
use crate::support::log::Log;

/// C47: one language for all refusals.
#[tokio::test]
async fn c47_every_refusal_is_a_problem_document() {
    let (app, store) = TestApp::faulty().await;
    app.policy("hourly", 1).await;
    app.keyed("/quotas/u/r/consume", "k", "").await.is(200);
    let large = " ".repeat(16 * 1024 + 1);
    let consume = "/quotas/u/r/consume";
    let text = app.request(Method::POST, consume);
    let text = text.header("content-type", "text/plain").body("{}".into());
    let stale = app.request(Method::DELETE, "/quotas/u/r");
    let stale = stale.header("if-match", "\"x\"").body(Body::empty());
    let alice = app.user_token("alice").await;
    let anonymous = app.call(Method::POST, consume, "unknown", "").await;
    let other = app.call(Method::GET, "/quotas/u/r", &alice, "").await;
    let mismatch = app.keyed(consume, "k", r#"{"amount":2}"#).await;
    let mut answers = vec![
        (app.get("/quotas/%FF/r?x=1").await, 400, "malformed-request"),
        (anonymous, 401, "unauthorized"),
        (other, 403, "forbidden"),
        (app.get("/nowhere").await, 404, "not-found"),
        (app.get("/quotas/u/none").await, 404, "not-found"),
        (app.delete("/tokens/none").await, 404, "not-found"),
        (app.delete("/tokens").await, 405, "method-not-allowed"),
        (app.send(stale.unwrap()).await, 412, "precondition-failed"),
        (app.post(consume, &large).await, 413, "content-too-large"),
        (app.send(text.unwrap()).await, 415, "unsupported-media-type"),
        (app.consume_amount(0).await, 422, "validation-failed"),
        (mismatch, 422, "idempotency-mismatch"),
        (app.consume().await, 429, "quota-exceeded"),
    ];
    for (fault, status, name) in [
        (Fault::RolledBack, 503, "unavailable"),
        (Fault::LostBeforeCommit, 503, "outcome-unknown"),
        (Fault::Internal, 500, "internal"),
    ] {
        store.fail_nth(1, fault);
        answers.push((app.consume().await, status, name));
    }

    let mut names = BTreeSet::new();
    for (answer, status, name) in answers {
        let problem = answer.problem(status, name).json();
        check_members(&problem, name);
        check_page(&app, &problem, name).await;
        names.insert(name.to_owned());
    }
    // A body that does not come is waited for for half a minute: the tests of bodies have a clock of their own.
    names.insert("request-timeout".to_owned());
    assert_eq!(names, documented());
}

#[track_caller]
fn check_members(problem: &Value, name: &str) {
    let common = ["type", "title", "status", "detail", "instance"];
    let members = problem.as_object().unwrap().keys().map(String::as_str);
    let members: BTreeSet<&str> = members.filter(|member| !common.contains(member)).collect();
    let expected: &[&str] = match name {
        "validation-failed" => &["errors"],
        "quota-exceeded" => &[
            "violated-policies",
            "user_id",
            "resource",
            "window",
            "limit_count",
            "usage",
            "remaining",
            "allowed",
            "window_start",
            "reset_at",
            "source",
            "created_at",
            "updated_at",
        ],
        _ => &[],
    };
    assert_eq!(members, expected.iter().copied().collect(), "{name}");
    let instance = problem["instance"].as_str().unwrap();
    assert!(instance.starts_with('/'), "{instance}");
    assert!(!instance.contains('?'), "{instance}");
}

/// What `type` leads to tells the same title and status, without a token.
async fn check_page(app: &TestApp, problem: &Value, name: &str) {
    let page = Request::get(format!("/problems/{name}")).body(Body::empty());
    let page = app.send(page.unwrap()).await.is(200);
    let plain = Some("text/plain; charset=utf-8");
    assert_eq!(page.header("content-type"), plain);
    let text = String::from_utf8(page.body.to_vec()).unwrap();
    assert!(text.contains(problem["title"].as_str().unwrap()), "{text}");
    assert!(text.contains(&problem["status"].to_string()), "{text}");
    assert!(text.lines().count() >= 3, "{text}");
}

/// The types that the documentation names.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../../../../docs/problems.md");
    page.lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(|heading| heading.split(' ').next().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn the_fields_of_a_429_are_those_of_the_quota() {
    let app = TestApp::new().await;
    app.policy("daily", 5).await;
    app.consume_amount(4).await.is(200);
    let check = app.check().await.json();
    let denied = app.consume_amount(2).await.problem(429, "quota-exceeded");
    let denied = denied.json();
    for (member, value) in check.as_object().unwrap() {
        if member == "allowed" {
            assert_eq!(denied[member], false);
        } else {
            assert_eq!(&denied[member], value, "{member}");
        }
    }
    assert_eq!(denied["violated-policies"], serde_json::json!(["daily"]));
}

/// A sound id is the caller's, another is replaced; each answer has one.
#[tokio::test]
async fn every_answer_bears_a_request_id() {
    let app = TestApp::new().await;
    app.policy("hourly", 1).await;
    let ask = async |method: Method, path: &str, id: &[&[u8]]| {
        let mut request = app.request(method, path);
        for id in id {
            request = request.header("x-request-id", *id);
        }
        let answer = app.send(request.body(Body::empty()).unwrap()).await;
        answer
            .header("x-request-id")
            .expect("a request id")
            .to_owned()
    };
    let requests = [
        (Method::GET, "/quotas/u/r"),
        (Method::HEAD, "/quotas/u/r"),
        (Method::POST, "/quotas/u/r/consume"),
        (Method::POST, "/quotas/u/r/consume"),
        (Method::GET, "/quotas/%FF"),
        (Method::GET, "/nowhere"),
        (Method::PATCH, "/quotas/u/r"),
        (Method::GET, "/quotas/%00"),
        (Method::GET, "/healthz"),
        (Method::GET, "/problems/internal"),
    ];
    let longest = [b'x'; 128];
    let mut made = BTreeSet::new();
    for (method, path) in requests {
        for id in [&b"7f3a"[..], b"a/b=c,d\"e\"~!", &longest] {
            assert_eq!(ask(method.clone(), path, &[id]).await.as_bytes(), id);
        }
        let too_long = [b'x'; 129];
        let unsound: [&[&[u8]]; 7] = [
            &[],
            &[&b""[..]],
            &[&b"a b"[..]],
            &[&b"a\tb"[..]],
            &["\u{e9}".as_bytes()],
            &[&too_long[..]],
            &[&b"a"[..], b"b"],
        ];
        for ids in unsound {
            let id = ask(method.clone(), path, ids).await;
            assert!((1..=128).contains(&id.len()));
            assert!(id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
            assert!(made.insert(id), "an id twice");
        }
    }
}

#[tokio::test]
async fn a_fault_of_ours_is_logged_once_with_the_request_id() {
    let log = Log::start();
    let (app, store) = TestApp::faulty().await;
    app.policy("hourly", 5).await;
    let routes = [
        (Method::POST, "/quotas/u/r/consume", ""),
        (Method::GET, "/quotas/u/r", ""),
        (Method::GET, "/quotas/u", ""),
        (
            Method::PUT,
            "/quotas/u/r",
            r#"{"window":"daily","limit_count":5}"#,
        ),
        (Method::DELETE, "/quotas/u/r", ""),
        (Method::POST, "/tokens", r#"{"role":"viewer"}"#),
        (Method::GET, "/tokens", ""),
        (Method::DELETE, "/tokens/x", ""),
        (Method::GET, "/whoami", ""),
        (Method::DELETE, "/quotas/u/%00", ""),
    ];
    for (number, (method, path, body)) in routes.into_iter().enumerate() {
        let logged_before = log.lines(&store.mark()).len();
        store.fail_nth(1, Fault::Internal);
        let id = format!("{}-{number}", store.mark().replace(' ', "-"));
        let request = app.request(method, path).header("x-request-id", &id);
        let request = request.header("content-type", "application/json");
        let answer = app.send(request.body(Body::from(body)).unwrap()).await;
        let answer = answer.problem(500, "internal");
        assert_eq!(answer.header("x-request-id"), Some(&*id));
        assert!(!String::from_utf8_lossy(&answer.body).contains("injected"));
        let lines = log.lines(&store.mark());
        assert_eq!(lines.len(), logged_before + 1, "{path}: {lines:?}");
        let line = lines.last().unwrap();
        assert!(line.contains("ERROR") && line.contains(&id), "{line}");
    }
    let check = app.check().await;
    assert_eq!(
        (check.usage(), check.json()["window"] == "hourly"),
        (0, true)
    );
}

/// A refusal says what would not be refused.
#[tokio::test]
async fn a_refusal_tells_the_way_out() {
    let app = TestApp::new().await;
    let alice = app.user_token("alice").await;
    let says = |answer: &Answer, what: &str| {
        let document = answer.json();
        let text = document["errors"][0]["message"].as_str();
        let text = text.or(document["detail"].as_str()).unwrap();
        assert!(text.contains(what), "{text}");
    };
    let get = async |path: &str| app.call(Method::GET, path, &alice, "").await;
    says(&get("/audit").await, "of a role that may not");
    says(&get("/quotas/a%2Fb/r").await, "%2F");
    says(&get("/quotas/alice?lmit=5").await, ": limit, cursor.");
    says(
        &get("/quotas/alice?cursor=x").await,
        "with the same filters",
    );
    let unknown = app
        .call(Method::GET, "/quotas/alice", "ql_unknown", "")
        .await;
    says(
        &unknown.problem(401, "unauthorized"),
        "Authorization: Bearer <token>",
    );
}

#[tokio::test]
async fn health_and_readiness_are_for_anyone() {
    let (app, store) = TestApp::faulty().await;
    let ask = async |path: &str| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        app.send(request).await
    };
    ask("/healthz").await.is(200);
    ask("/readyz").await.is(200);
    for fault in [Fault::RolledBack, Fault::Internal] {
        store.fail_always(fault);
        ask("/healthz").await.is(200);
        ask("/readyz").await.problem(503, "unavailable");
    }
    store.mend();
    ask("/readyz").await.is(200);
    app.policy("hourly", 5).await;
    app.draining.start();
    ask("/healthz").await.is(200);
    let stopping = ask("/readyz").await.problem(503, "unavailable");
    assert!(
        stopping.json()["detail"]
            .as_str()
            .unwrap()
            .contains("stopping")
    );
    // What still comes is served.
    app.consume().await.is(200);
}
