//! `PUT` and `DELETE /quotas/{userId}/{resource}`: policies, and what they leave alone.

use axum::body::Body;
use hyper::Method;
use quotalog_domain::Window;

use crate::support::answer::Answer;
use crate::support::app::TestApp;

const HOURLY_5: &str = r#"{"window":"hourly","limit_count":5}"#;

/// Sends a request for `u`/`r` with these `If-Match` lines.
async fn precondition(app: &TestApp, method: Method, tags: &[&str], body: &str) -> Answer {
    let lines: Vec<_> = tags.iter().map(|tag| ("if-match", *tag)).collect();
    conditional(app, method, "/quotas/u/r", &lines, body).await
}

/// Sends a request with these fields.
pub(super) async fn conditional(
    app: &TestApp,
    method: Method,
    path: &str,
    lines: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut request = app.request(method, path);
    for (name, value) in lines {
        request = request.header(*name, *value);
    }
    let request = request.header("content-type", "application/json");
    app.send(request.body(Body::from(body.to_owned())).unwrap())
        .await
}

pub(super) fn etag(answer: &Answer) -> String {
    answer.header("etag").expect("an ETag").to_owned()
}

#[tokio::test]
async fn c21_a_limit_below_what_is_used_leaves_nothing() {
    let app = TestApp::new().await;
    app.policy("daily", 100).await;
    app.consume_amount(40).await.is(200);
    let set = app.policy("daily", 10).await;
    assert_eq!((set.usage(), set.remaining()), (40, 0));
    let check = app.check().await;
    assert_eq!((check.usage(), check.remaining()), (40, 0));
    assert_eq!(check.json()["allowed"], false);
    assert_eq!(
        check.header("ratelimit-policy"),
        Some(r#""daily";q=10;w=86400"#)
    );
    assert_eq!(check.header("ratelimit"), Some(r#""daily";r=0;t=20400"#));
    let denied = app.consume().await.problem(429, "quota-exceeded");
    let list = app.get("/quotas/u").await.is(200);
    for answer in [&check, &denied, &list] {
        let text = String::from_utf8_lossy(&answer.body);
        assert!(!text.contains(":-"), "{text}");
        for value in answer.headers.values() {
            assert!(!value.to_str().unwrap().contains("=-"));
        }
    }
    assert_eq!(app.policy("daily", 41).await.remaining(), 1);
    app.consume().await.is(200);
}

#[tokio::test]
async fn c23_saving_a_policy_again_refills_nothing() {
    let app = TestApp::new().await;
    app.policy("daily", 5).await;
    for _ in 0..3 {
        app.consume().await.is(200);
    }
    for _ in 0..5 {
        assert_eq!(app.policy("daily", 5).await.usage(), 3);
    }
    let app = app.restart().await;
    let check = app.check().await;
    assert_eq!((check.usage(), check.remaining()), (3, 2));
    for limit in [1, 1_000_000, 5] {
        assert_eq!(app.policy("daily", limit).await.usage(), 3);
    }
}

#[tokio::test]
async fn deleting_and_making_a_policy_again_refills_nothing() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    app.consume_amount(4).await.is(200);
    let gone = app.delete("/quotas/u/r").await.is(204);
    assert!(gone.body.is_empty());
    app.get("/quotas/u/r").await.problem(404, "not-found");
    app.consume().await.problem(404, "not-found");
    app.delete("/quotas/u/r").await.problem(404, "not-found");
    assert_eq!(app.policy("hourly", 5).await.usage(), 4);
    app.consume().await.is(200);
    app.consume().await.problem(429, "quota-exceeded");
}

#[tokio::test]
async fn a_policy_is_set_idempotently() {
    let app = TestApp::at("2026-11-30T08:00:00Z").await;
    let first = app.policy("hourly", 5).await;
    assert_eq!(first.header("content-type"), Some("application/json"));
    app.set_time("2026-11-30T09:00:00Z");
    let again = app.policy("hourly", 5).await;
    assert_eq!(etag(&again), etag(&first));
    for member in ["created_at", "updated_at"] {
        assert_eq!(again.json()[member], "2026-11-30T08:00:00Z");
    }
    let changed = app.policy("hourly", 6).await.json();
    assert_eq!(changed["created_at"], "2026-11-30T08:00:00Z");
    assert_eq!(changed["updated_at"], "2026-11-30T09:00:00Z");
    assert_eq!(app.number("SELECT count(*) FROM quota_policies"), 1);
}

#[tokio::test]
async fn an_etag_changes_with_the_policy_and_not_with_usage() {
    let app = TestApp::new().await;
    let set = etag(&app.policy("hourly", 5).await);
    assert!(set.starts_with('"') && set.ends_with('"'), "{set}");
    app.consume().await.is(200);
    app.post("/quotas/u/r/reset", "").await.is(200);
    app.consume().await.is(200);
    app.set_time("2026-12-01T18:20:00Z");
    assert_eq!(etag(&app.check().await), set);
    let raised = etag(&app.policy("hourly", 6).await);
    assert_ne!(raised, set);
    let widened = etag(&app.policy("daily", 6).await);
    assert_ne!(widened, raised);
    assert_eq!(etag(&app.check().await), widened);
}

#[tokio::test]
async fn a_put_can_be_made_to_depend_on_the_policy() {
    let app = TestApp::new().await;
    // Without a policy no condition holds.
    for tag in ["*", "\"x\""] {
        precondition(&app, Method::PUT, &[tag], HOURLY_5)
            .await
            .problem(412, "precondition-failed");
    }
    app.get("/quotas/u/r").await.problem(404, "not-found");
    let first = etag(&app.policy("hourly", 1).await);
    let weak = format!("W/{first}");
    for tags in [
        &["\"x\""][..],
        &[&weak],
        &["\"x\", \"y\""],
        &[""],
        &["\"*\""],
    ] {
        let put = precondition(&app, Method::PUT, tags, HOURLY_5).await;
        put.problem(412, "precondition-failed");
    }
    assert_eq!(app.check().await.json()["limit_count"], 1);
    precondition(&app, Method::PUT, &["*"], HOURLY_5)
        .await
        .is(200);
    // The tag of a state that is gone.
    app.set_time("2026-11-30T18:21:00Z");
    let now = etag(&app.policy("hourly", 2).await);
    let put = precondition(&app, Method::PUT, &[&first], HOURLY_5).await;
    put.problem(412, "precondition-failed");
    let list = format!("\"x\" , W/{now},,{now}");
    let changed = precondition(&app, Method::PUT, &[&list], HOURLY_5)
        .await
        .is(200);
    let put = precondition(&app, Method::PUT, &["\"x\"", &etag(&changed)], HOURLY_5).await;
    put.is(200);
    for malformed in ["x", "\"x", "*, \"x\"", "\"x\" \"y\""] {
        let put = precondition(&app, Method::PUT, &[malformed], HOURLY_5).await;
        put.problem(400, "malformed-request");
    }
}

#[tokio::test]
async fn a_delete_can_be_made_to_depend_on_the_policy() {
    let app = TestApp::new().await;
    for tag in ["*", "\"x\""] {
        precondition(&app, Method::DELETE, &[tag], "")
            .await
            .problem(404, "not-found");
    }
    let tag = etag(&app.policy("hourly", 5).await);
    for wrong in ["\"x\"", &format!("W/{tag}")] {
        precondition(&app, Method::DELETE, &[wrong], "")
            .await
            .problem(412, "precondition-failed");
    }
    precondition(&app, Method::DELETE, &["\"x\"", &tag], "")
        .await
        .is(204);
    app.policy("hourly", 5).await;
    precondition(&app, Method::DELETE, &["*"], "").await.is(204);
    app.get("/quotas/u/r").await.problem(404, "not-found");
}

#[tokio::test]
async fn a_policy_can_be_made_only_where_there_is_none() {
    let app = TestApp::new().await;
    let put = async |tag: &str| {
        let line = ("if-none-match", tag);
        conditional(&app, Method::PUT, "/quotas/u/r", &[line], HOURLY_5).await
    };
    put("*").await.is(200);
    put("*").await.problem(412, "precondition-failed");
    let tag = etag(&app.policy("daily", 7).await);
    put(&tag).await.problem(412, "precondition-failed");
    let weak = format!("\"x\", W/{tag}");
    put(&weak).await.problem(412, "precondition-failed");
    assert_eq!(app.check().await.json()["limit_count"], 7);
    put("\"x\"").await.is(200);
    put("x").await.problem(400, "malformed-request");
    let both = [("if-none-match", "*"), ("if-match", "*")];
    let put = conditional(&app, Method::PUT, "/quotas/u/r", &both, HOURLY_5).await;
    put.problem(400, "malformed-request");
    let none = [("if-none-match", "*")];
    let delete = conditional(&app, Method::DELETE, "/quotas/u/r", &none, "").await;
    delete.problem(412, "precondition-failed");
    app.get("/quotas/u/r").await.is(200);
}

/// A default is no policy of the pair's own.
#[tokio::test]
async fn a_condition_never_holds_for_a_default() {
    let app = TestApp::new().await;
    app.default("r", Window::Hourly, 5).await;
    for tag in ["*", "\"x\""] {
        precondition(&app, Method::PUT, &[tag], HOURLY_5)
            .await
            .problem(412, "precondition-failed");
        precondition(&app, Method::DELETE, &[tag], "")
            .await
            .problem(404, "not-found");
    }
    app.delete("/quotas/u/r").await.problem(404, "not-found");
    assert_eq!(app.check().await.json()["source"], "default");
}

/// On other routes the field says nothing.
#[tokio::test]
async fn a_condition_is_for_policies_alone() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    precondition(&app, Method::GET, &["\"x\""], "")
        .await
        .is(200);
    let request = app.request(Method::POST, "/quotas/u/r/consume");
    let request = request.header("if-match", "\"x\"").body(Body::empty());
    app.send(request.unwrap()).await.is(200);
}

#[tokio::test]
async fn c26_a_reset_empties_the_present_window_of_its_pair_alone() {
    let app = TestApp::at("2026-11-30T10:30:00Z").await;
    for path in ["/quotas/u/r", "/quotas/u/s", "/quotas/v/r"] {
        app.put(path, HOURLY_5).await.is(200);
    }
    app.consume_amount(4).await.is(200);
    app.set_time("2026-11-30T11:30:00Z");
    app.consume_amount(3).await.is(200);
    for path in ["/quotas/u/s/consume", "/quotas/v/r/consume"] {
        app.post(path, r#"{"amount":2}"#).await.is(200);
    }
    for _ in 0..2 {
        let reset = app.post("/quotas/u/r/reset", "").await.is(200);
        assert_eq!((reset.usage(), reset.remaining()), (0, 5));
        assert_eq!(reset.json()["allowed"], true);
    }
    assert_eq!(app.consume().await.is(200).usage(), 1);
    assert_eq!(app.get("/quotas/u/s").await.is(200).usage(), 2);
    assert_eq!(app.get("/quotas/v/r").await.is(200).usage(), 2);
    app.set_time("2026-11-30T10:45:00Z");
    assert_eq!(app.check().await.usage(), 4);

    app.put("/quotas/u/unused", HOURLY_5).await.is(200);
    let unused = app.post("/quotas/u/unused/reset", "").await.is(200);
    assert_eq!(unused.usage(), 0);
    app.post("/quotas/u/none/reset", "")
        .await
        .problem(404, "not-found");
}

/// What another program stored is served as it is, and what is no policy passed over.
#[tokio::test]
async fn an_older_policy_is_obeyed_as_it_was_stored() {
    let app = TestApp::new().await;
    let path = app.folder.path().join("quotalog.db");
    let file = rusqlite::Connection::open(path).unwrap();
    let insert = |resource: &str, window: &str, limit: i64| {
        let at = "2026-11-30 18:00:00";
        file.execute(
            "INSERT INTO quota_policies \
             (user_id, resource, window, limit_count, created_at, updated_at) \
             VALUES ('u', ?1, ?2, ?3, ?4, ?4)",
            (resource, window, limit, at),
        )
        .unwrap();
    };
    insert("r", "hourly", 5_000_000);
    insert("most", "daily", i64::MAX);
    insert("weekly", "weekly", 5);
    insert("none", "daily", 0);
    file.execute(
        "INSERT INTO quota_usage (user_id, resource, window_start, usage, created_at, updated_at) \
         VALUES ('u', 'most', '2026-11-30 00:00:00', ?1, '', '')",
        [i64::MAX - 1],
    )
    .unwrap();

    assert_eq!(app.check().await.json()["limit_count"], 5_000_000);
    let consumed = app.consume_amount(1_000_000).await.is(200);
    assert_eq!(consumed.remaining(), 4_000_000);
    let most = "/quotas/u/most/consume";
    app.post(most, r#"{"amount":2}"#)
        .await
        .problem(429, "quota-exceeded");
    assert_eq!(app.post(most, "").await.is(200).remaining(), 0);
    app.post(most, "").await.problem(429, "quota-exceeded");
    for resource in ["weekly", "none"] {
        let path = format!("/quotas/u/{resource}");
        app.get(&path).await.problem(404, "not-found");
        app.post(&format!("{path}/consume"), "")
            .await
            .problem(404, "not-found");
    }
    let list = app.get("/quotas/u").await.is(200).json();
    assert_eq!(list["quotas"].as_array().unwrap().len(), 2);
    app.put("/quotas/u/weekly", HOURLY_5).await.is(200);
    app.post("/quotas/u/weekly/consume", "").await.is(200);
}
