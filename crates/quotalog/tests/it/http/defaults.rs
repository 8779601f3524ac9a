//! `/defaults`: the policies that serve whoever has none of their own.

use hyper::Method;
use serde_json::json;

use super::policies::{conditional, etag};
use crate::support::app::{TestApp, encoded};

const DEFAULT: &str = "/defaults/r";
const HOURLY_5: &str = r#"{"window":"hourly","limit_count":5}"#;
const DAILY_2: &str = r#"{"window":"daily","limit_count":2}"#;

#[tokio::test]
async fn a_default_is_set_changed_and_removed() {
    let app = TestApp::at("2026-11-01T09:00:00.750Z").await;
    let set = app.put(DEFAULT, DAILY_2).await.is(200);
    let expected = concat!(
        r#"{"resource":"r","window":"daily","limit_count":2,"#,
        r#""created_at":"2026-11-01T09:00:00Z","updated_at":"2026-11-01T09:00:00Z"}"#
    );
    assert_eq!(set.body, expected);
    assert_eq!(set.header("content-type"), Some("application/json"));
    assert_eq!(set.header("cache-control"), Some("no-store"));
    assert_eq!(set.header("ratelimit"), None);
    app.set_time("2026-11-30T18:20:00Z");
    // Setting what already holds changes nothing, not even the date.
    assert_eq!(app.put(DEFAULT, DAILY_2).await.is(200).body, expected);
    assert_eq!(app.get(DEFAULT).await.is(200).body, expected);
    let changed = app.put(DEFAULT, HOURLY_5).await.is(200).json();
    assert_eq!(changed["window"], "hourly");
    assert_eq!(changed["created_at"], "2026-11-01T09:00:00Z");
    assert_eq!(changed["updated_at"], "2026-11-30T18:20:00Z");

    let check = app.check().await.json();
    assert_eq!(check["source"], "default");
    for date in ["created_at", "updated_at"] {
        assert_eq!(check[date], changed[date], "the dates are the default's");
    }
    let shown = app.get(DEFAULT).await.is(200);
    assert_eq!(shown.json(), changed);
    assert!(shown.header("etag").is_some());
    let gone = app.delete(DEFAULT).await.is(204);
    assert!(gone.body.is_empty());
    app.get(DEFAULT).await.problem(404, "not-found");
    app.get("/quotas/u/r").await.problem(404, "not-found");
    app.delete(DEFAULT).await.problem(404, "not-found");
}

#[tokio::test]
async fn a_change_of_a_default_can_be_made_to_depend_on_its_state() {
    let app = TestApp::new().await;
    let send = async |method: Method, name: &str, tag: &str, body: &str| {
        conditional(&app, method, DEFAULT, &[(name, tag)], body).await
    };
    let put = send(Method::PUT, "if-match", "*", DAILY_2).await;
    put.problem(412, "precondition-failed");
    let put = send(Method::PUT, "if-none-match", "*", DAILY_2).await;
    let first = etag(&put.is(200));
    assert_eq!(etag(&app.get(DEFAULT).await), first);
    let put = send(Method::PUT, "if-none-match", "*", HOURLY_5).await;
    put.problem(412, "precondition-failed");
    let put = send(Method::PUT, "if-match", &first, HOURLY_5).await;
    let second = etag(&put.is(200));
    for (method, body) in [(Method::PUT, DAILY_2), (Method::DELETE, "")] {
        let stale = send(method.clone(), "if-match", &first, body).await;
        stale.problem(412, "precondition-failed");
        let malformed = send(method, "if-match", "x", body).await;
        malformed.problem(400, "malformed-request");
    }
    assert_eq!(app.get(DEFAULT).await.json()["limit_count"], 5);
    let deleted = send(Method::DELETE, "if-match", &second, "").await;
    deleted.is(204);
    let again = send(Method::DELETE, "if-match", &second, "").await;
    again.problem(404, "not-found");
}

/// C24, of defaults: a default is looked up, never copied.
#[tokio::test]
async fn c24_a_new_default_holds_at_once_for_all_it_serves() {
    let app = TestApp::new().await;
    let other = app.beside().await;
    app.put(DEFAULT, DAILY_2).await.is(200);
    for user in ["u", "v"] {
        let consume = format!("/quotas/{user}/r/consume");
        other.post(&consume, r#"{"amount":2}"#).await.is(200);
        other
            .post(&consume, "")
            .await
            .problem(429, "quota-exceeded");
    }
    app.put(DEFAULT, r#"{"window":"daily","limit_count":3}"#)
        .await
        .is(200);
    for user in ["u", "v"] {
        let consume = format!("/quotas/{user}/r/consume");
        assert_eq!(other.post(&consume, "").await.is(200).usage(), 3);
    }
    // A policy of its own goes before it, and usage is the pair's under either.
    app.policy("daily", 10).await;
    let own = other.post("/quotas/u/r/consume", "").await.is(200);
    assert_eq!((own.usage(), own.remaining()), (4, 6));
    app.delete(DEFAULT).await.is(204);
    other
        .post("/quotas/v/r/consume", "")
        .await
        .problem(404, "not-found");
    assert_eq!(app.consume().await.is(200).usage(), 5);
    // Made again, it refills nothing.
    app.put(DEFAULT, DAILY_2).await.is(200);
    assert_eq!(app.get("/quotas/v/r").await.is(200).usage(), 3);
    app.delete("/quotas/u/r").await.is(204);
    assert_eq!(app.check().await.usage(), 5);
}

/// C43, C45: a default is read as strictly as a policy.
#[tokio::test]
async fn c43_a_default_is_read_strictly() {
    let app = TestApp::new().await;
    app.put(DEFAULT, DAILY_2).await.is(200);
    let both = ["window invalid", "limit_count invalid"];
    for body in ["", "{}", r#"{"window":"weekly","limit_count":0}"#] {
        app.put(DEFAULT, body).await.faults(&both);
    }
    let answer = app.put(
        "/defaults/%00",
        r#"{"window":1,"limit_count":1000001,"user_id":"u"}"#,
    );
    answer.await.faults(&[
        "resource invalid",
        "window invalid",
        "limit_count too_large",
        "user_id unknown_field",
    ]);
    app.put("/defaults/r", "{")
        .await
        .problem(400, "malformed-request");
    for id in ["..", "%2e", "a%0Ab"] {
        let path = format!("/defaults/{id}");
        app.put(&path, DAILY_2).await.faults(&["resource invalid"]);
        app.get(&path).await.faults(&["resource invalid"]);
        app.delete(&path).await.faults(&["resource invalid"]);
    }
    let long = format!("/defaults/{}", "x".repeat(256));
    app.put(&long, DAILY_2).await.faults(&["resource too_long"]);
    app.get(&long).await.faults(&["resource too_long"]);
    app.delete(&long).await.faults(&["resource too_long"]);
    assert_eq!(app.check().await.json()["limit_count"], 2);
}

/// C33, C35: bytes decide.
#[tokio::test]
async fn c35_a_default_serves_its_own_resource_alone() {
    let app = TestApp::new().await;
    let names = ["r", "R", "50%25off", "a+b", "%C3%A9", "e%CC%81", "consume"];
    for (position, name) in names.iter().enumerate() {
        let body = format!(r#"{{"window":"hourly","limit_count":{}}}"#, position + 1);
        app.put(&format!("/defaults/{name}"), &body).await.is(200);
    }
    for (position, name) in names.iter().enumerate() {
        let check = app.get(&format!("/quotas/u/{name}")).await.is(200);
        assert_eq!(check.json()["limit_count"], position + 1, "{name}");
    }
    app.get("/quotas/u/a%20b").await.problem(404, "not-found");
}

#[tokio::test]
async fn defaults_are_listed_in_the_order_of_bytes() {
    let app = TestApp::new().await;
    let empty = app.get("/defaults").await.is(200);
    let expected = json!({ "defaults": [], "next_cursor": null });
    assert_eq!(empty.json(), expected);
    assert_eq!(empty.header("cache-control"), Some("no-store"));
    let names = ["10", "9", "B", "a", "a b", "é", "日本語"];
    for name in names.iter().rev() {
        let path = format!("/defaults/{}", encoded(name));
        app.put(&path, HOURLY_5).await.is(200);
    }
    for limit in [1, 2, 6, 7, 1000] {
        let mut met = Vec::new();
        let mut path = format!("/defaults?limit={limit}");
        loop {
            let page = app.get(&path).await.is(200).json();
            let defaults = page["defaults"].as_array().unwrap();
            assert!((1..=limit).contains(&defaults.len()));
            for default in defaults {
                let name = default["resource"].as_str().unwrap().to_owned();
                let shown = app.get(&format!("/defaults/{}", encoded(&name))).await;
                assert_eq!(shown.is(200).json(), *default);
                met.push(name);
            }
            let Some(cursor) = page["next_cursor"].as_str() else {
                break;
            };
            path = format!("/defaults?cursor={cursor}&limit={limit}");
        }
        assert_eq!(met, names);
    }
}
