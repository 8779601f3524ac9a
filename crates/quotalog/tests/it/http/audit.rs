//! `GET /audit`: who changed what, with before and after; and what leaves no entry.

use axum::body::Body;
use hyper::Method;
use quotalog_auth::Role;
use serde_json::{Value, json};

use crate::support::app::{TestApp, encoded};

const HOURLY_5: &str = r#"{"window":"hourly","limit_count":5}"#;

/// The entries of one page, newest first.
async fn entries(app: &TestApp, query: &str) -> Vec<Value> {
    let page = app.get(&format!("/audit{query}")).await.is(200).json();
    page["entries"].as_array().expect("entries").clone()
}

/// The actions of one page, newest first.
async fn actions(app: &TestApp, query: &str) -> Vec<String> {
    let entries = entries(app, query).await;
    let actions = entries.iter().map(|entry| entry["action"].as_str());
    actions.map(|action| action.unwrap().to_owned()).collect()
}

/// A named admin's token and its id.
async fn named_admin(app: &TestApp, name: &str) -> (String, String) {
    let body = json!({ "role": "admin", "name": name }).to_string();
    let token = app.post("/tokens", &body).await.is(201).json();
    let text = |member: &str| token[member].as_str().unwrap().to_owned();
    (text("token"), text("id"))
}

#[tokio::test]
async fn a_change_of_policy_is_told_with_before_and_after() {
    let app = TestApp::new().await;
    let (token, id) = named_admin(&app, "Ada, \"ops\"").await;
    app.set_time("2026-11-30T18:25:00.900Z");
    let path = "/quotas/alice/api%2Dcalls";
    app.call(Method::PUT, path, &token, HOURLY_5).await.is(200);
    let daily = r#"{"window":"daily","limit_count":7}"#;
    app.call(Method::PUT, path, &token, daily).await.is(200);
    app.call(Method::DELETE, path, &token, "").await.is(204);
    let entries = entries(&app, "?user_id=alice").await;
    let policy = |window: &str, limit: u64| json!({ "window": window, "limit_count": limit });
    let told = [
        ("policy.delete", policy("daily", 7), Value::Null),
        ("policy.set", policy("hourly", 5), policy("daily", 7)),
        ("policy.set", Value::Null, policy("hourly", 5)),
    ];
    assert_eq!(entries.len(), told.len());
    for (entry, (action, before, after)) in entries.iter().zip(told) {
        let expected = json!({
            "id": entry["id"],
            "at": "2026-11-30T18:25:00Z",
            "actor": { "kind": "token", "id": id, "name": "Ada, \"ops\"" },
            "action": action,
            "user_id": "alice",
            "resource": "api-calls",
            "before": before,
            "after": after,
        });
        assert_eq!(*entry, expected);
    }
    let answer = app.get("/audit").await.is(200);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    // Told in the contract's order of members.
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let order = [
        "\"id\"",
        "\"at\"",
        "\"actor\":{\"kind\"",
        "\"action\"",
        "\"user_id\"",
        "\"resource\"",
        "\"before\"",
        "\"after\"",
    ];
    let mut rest = &*text;
    for member in order {
        rest = rest.split_once(member).expect(member).1;
    }
}

/// What an entry must tell: action, user, resource, before and after.
type Told = (
    &'static str,
    Option<&'static str>,
    Option<&'static str>,
    Value,
    Value,
);

#[track_caller]
fn check_entries(entries: &[Value], told: &[Told]) {
    assert_eq!(entries.len(), told.len());
    for (entry, (action, user_id, resource, before, after)) in entries.iter().zip(told) {
        assert_eq!(entry["action"], *action);
        assert_eq!(entry["user_id"], json!(user_id), "{action}");
        assert_eq!(entry["resource"], json!(resource), "{action}");
        assert_eq!(entry["before"], *before, "{action}");
        assert_eq!(entry["after"], *after, "{action}");
    }
}

#[tokio::test]
async fn each_kind_of_change_has_its_entry() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    app.consume_amount(4).await.is(200);
    for _ in 0..2 {
        let refund = app.post("/quotas/u/r/refund", r#"{"amount":3}"#);
        refund.await.is(200);
    }
    app.post("/quotas/u/r/reset", "").await.is(200);
    app.put("/defaults/r", HOURLY_5).await.is(200);
    app.delete("/defaults/r").await.is(204);
    app.delete("/quotas/u/r").await.is(204);
    let usage = |usage: u64| json!({ "window_start": "2026-11-30T18:00:00Z", "usage": usage });
    let refunded = |after: u64, refunded: u64| {
        let mut facts = usage(after);
        facts["refunded"] = refunded.into();
        facts
    };
    let policy = || json!({ "window": "hourly", "limit_count": 5 });
    let (u, r, null) = (Some("u"), Some("r"), || Value::Null);
    let told = [
        ("policy.delete", u, r, policy(), null()),
        ("default.delete", None, r, policy(), null()),
        ("default.set", None, r, null(), policy()),
        ("quota.reset", u, r, usage(0), usage(0)),
        ("quota.refund", u, r, usage(1), refunded(0, 1)),
        ("quota.refund", u, r, usage(4), refunded(1, 3)),
        ("policy.set", u, r, null(), policy()),
    ];
    check_entries(&entries(&app, "?resource=r").await, &told);
}

#[tokio::test]
async fn a_token_is_told_of_without_its_secret() {
    let app = TestApp::new().await;
    let body =
        r#"{"role":"user","user_id":"u","name":"phone","expires_at":"2026-12-01T00:00:00Z"}"#;
    let created = app.post("/tokens", body).await.is(201).json();
    let id = created["id"].as_str().unwrap();
    app.delete(&format!("/tokens/{id}")).await.is(204);
    let token = || {
        json!({
            "id": id,
            "role": "user",
            "user_id": "u",
            "name": "phone",
            "expires_at": "2026-12-01T00:00:00Z",
        })
    };
    let all = entries(&app, "").await;
    let told = [
        ("token.revoke", Some("u"), None, token(), Value::Null),
        ("token.create", Some("u"), None, Value::Null, token()),
    ];
    check_entries(&all[..2], &told);
    assert_eq!(all[0]["actor"]["kind"], "token");
    assert_eq!(all[0]["actor"]["name"], Value::Null);
    // The test's own admin token, made at the command line.
    assert_eq!(all.len(), 3);
    let operator = json!({ "kind": "command-line", "id": "command-line", "name": null });
    assert_eq!(all[2]["actor"], operator);
    assert_eq!(all[2]["action"], "token.create");
    assert_eq!(all[2]["user_id"], Value::Null);
    assert_eq!(all[2]["after"]["role"], "admin");
    let text = Value::from(all).to_string();
    let secret = created["token"].as_str().unwrap();
    for piece in secret.as_bytes().windows(8) {
        assert!(!text.contains(std::str::from_utf8(piece).unwrap()));
    }
}

#[tokio::test]
async fn what_changes_nothing_leaves_no_entry() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    app.put("/defaults/r", HOURLY_5).await.is(200);
    app.keyed("/quotas/u/r/refund", "k", "").await.is(200);
    app.keyed("/quotas/u/r/reset", "k", "").await.is(200);
    let before = entries(&app, "").await;
    // What already holds is set again.
    app.policy("hourly", 5).await;
    app.put("/defaults/r", HOURLY_5).await.is(200);
    // Replays.
    app.keyed("/quotas/u/r/refund", "k", "").await.is(200);
    app.keyed("/quotas/u/r/reset", "k", "").await.is(200);
    // Counting and looking.
    app.consume().await.is(200);
    app.post("/consume", r#"{"items":[{"user_id":"u","resource":"r"}]}"#)
        .await
        .is(200);
    for path in ["/quotas/u/r", "/quotas/u", "/quotas", "/audit", "/tokens"] {
        app.get(path).await.is(200);
    }
    // Refusals.
    app.consume_amount(5).await.is(429);
    let other = app.keyed("/quotas/u/r/refund", "k", r#"{"amount":2}"#);
    other.await.is(422);
    app.put("/quotas/u/r", "{}").await.is(422);
    app.post("/quotas/u/r/refund", r#"{"amount":0}"#)
        .await
        .is(422);
    app.post("/tokens", r#"{"role":"user"}"#).await.is(422);
    for path in ["/quotas/u/none/refund", "/quotas/u/none/reset"] {
        app.post(path, "").await.is(404);
    }
    for path in ["/quotas/u/none", "/defaults/none", "/tokens/none"] {
        app.delete(path).await.is(404);
    }
    let stale = app.request(Method::DELETE, "/quotas/u/r");
    let stale = stale.header("if-match", "\"x\"").body(Body::empty());
    app.send(stale.unwrap()).await.is(412);
    assert_eq!(entries(&app, "").await, before);
    // Nor a refusal of a role, the making of whose token has an entry.
    let viewer = app.token(Role::Viewer).await;
    app.call(Method::POST, "/quotas/u/r/reset", &viewer, "")
        .await
        .is(403);
    assert_eq!(entries(&app, "").await.len(), before.len() + 1);
}

/// C68: filters match exactly, whatever characters are in them.
#[tokio::test]
async fn c68_the_audit_is_filtered_exactly() {
    let app = TestApp::new().await;
    let names = ["a_b", "axb", "A_B", "100%", "1000", "c\\d", "cd", "%"];
    for user in names {
        let path = format!("/quotas/{}/{}", encoded(user), encoded("r_1"));
        app.put(&path, HOURLY_5).await.is(200);
    }
    app.put("/quotas/a_b/rx1", HOURLY_5).await.is(200);
    app.put("/defaults/r_1", HOURLY_5).await.is(200);
    for user in names {
        let query = format!("?user_id={}", encoded(user));
        let met = entries(&app, &query).await;
        assert_eq!(met.len(), if user == "a_b" { 2 } else { 1 }, "{user}");
        assert!(met.iter().all(|entry| entry["user_id"] == user), "{user}");
    }
    assert_eq!(actions(&app, "?resource=r_1").await.len(), 9);
    assert_eq!(actions(&app, "?resource=rx1").await, ["policy.set"]);
    let both = "?user_id=a_b&resource=r_1";
    assert_eq!(actions(&app, both).await, ["policy.set"]);
    for none in ["?user_id=a", "?user_id=a%25", "?resource=r", "?user_id=_"] {
        assert_eq!(actions(&app, none).await, [""; 0], "{none}");
    }
    // A user's tokens are found by the user.
    app.user_token("axb").await;
    assert_eq!(
        actions(&app, "?user_id=axb").await,
        ["token.create", "policy.set"]
    );
    for name in ["user_id", "resource"] {
        for value in ["", "..", "a/b", "a%00"] {
            let answer = app.get(&format!("/audit?{name}={value}")).await;
            answer.faults(&[&format!("{name} invalid")]);
        }
        let long = format!("/audit?{name}={}", "x".repeat(256));
        app.get(&long).await.faults(&[&format!("{name} too_long")]);
    }
}

#[tokio::test]
async fn c67_a_walk_through_the_audit_meets_each_entry_once() {
    let app = TestApp::new().await;
    for limit in 1..=7 {
        app.policy("hourly", limit).await;
    }
    let mut met = Vec::new();
    let mut path = "/audit?user_id=u&limit=3".to_owned();
    loop {
        let page = app.get(&path).await.is(200).json();
        let entries = page["entries"].as_array().unwrap();
        assert!(entries.len() <= 3);
        met.extend(
            entries
                .iter()
                .map(|entry| entry["after"]["limit_count"].clone()),
        );
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        path = format!("/audit?user_id=u&limit=3&cursor={cursor}");
        for other in ["", "&user_id=v", "&resource=r", "&user_id=u&resource=r"] {
            let answer = app.get(&format!("/audit?cursor={cursor}{other}")).await;
            answer.faults(&["cursor invalid"]);
        }
        // What comes meanwhile is newer than the place of the walk.
        app.policy("daily", 100 + u64::try_from(met.len()).unwrap())
            .await;
    }
    assert_eq!(met, [7, 6, 5, 4, 3, 2, 1]);
    let all = entries(&app, "?limit=1000").await;
    let ids: Vec<i64> = all
        .iter()
        .map(|entry| entry["id"].as_i64().unwrap())
        .collect();
    assert!(ids.is_sorted_by(|newer, older| newer > older), "{ids:?}");
}

/// An entry is on disk with its change, and is read by every process.
#[tokio::test]
async fn the_audit_outlives_its_tokens_and_the_server() {
    let app = TestApp::new().await;
    let (token, id) = named_admin(&app, "gone").await;
    app.call(Method::PUT, "/quotas/u/r", &token, HOURLY_5)
        .await
        .is(200);
    app.delete(&format!("/tokens/{id}")).await.is(204);
    let other = app.beside().await;
    let app = app.restart().await;
    for app in [&app, &other] {
        let entries = entries(app, "?user_id=u").await;
        assert_eq!(entries.len(), 1);
        let actor = json!({ "kind": "token", "id": id, "name": "gone" });
        assert_eq!(entries[0]["actor"], actor);
    }
}
