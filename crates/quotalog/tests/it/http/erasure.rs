//! `DELETE /quotas/{userId}`: everything of a user, gone; that it was done stays.

use axum::body::Body;
use hyper::{Method, Request};

use crate::support::answer::Answer;
use crate::support::app::{TestApp, encoded};

const HOURLY_5: &str = r#"{"window":"hourly","limit_count":5}"#;
/// One unit of `u`/`r` and one of `v`/`r`.
const BOTH: &str = r#"{"items":[{"user_id":"u","resource":"r"},{"user_id":"v","resource":"r"}]}"#;

async fn usage(app: &TestApp, path: &str) -> u64 {
    app.get(path).await.is(200).usage()
}

fn is_replay(answer: &Answer) -> bool {
    answer.header("idempotency-replayed").is_some()
}

#[tokio::test]
async fn nothing_of_an_erased_user_is_left() {
    let app = TestApp::new().await;
    let other = app.beside().await;
    for path in ["/quotas/u/r", "/quotas/u/s", "/quotas/v/r"] {
        app.put(path, HOURLY_5).await.is(200);
        let consume = format!("{path}/consume");
        app.post(&consume, r#"{"amount":2}"#).await.is(200);
    }
    app.put("/defaults/d", HOURLY_5).await.is(200);
    app.post("/quotas/u/d/consume", "").await.is(200);
    let tokens = [
        app.user_token("u").await,
        app.user_token("u").await,
        app.user_token("v").await,
    ];
    let own = async |app: &TestApp, token: &str, user: &str| {
        let path = format!("/quotas/{user}/r");
        app.call(Method::GET, &path, token, "").await
    };
    for (token, user) in tokens.iter().zip(["u", "u", "v"]) {
        own(&app, token, user).await.is(200);
        own(&other, token, user).await.is(200);
    }

    let erased = app.delete("/quotas/u").await.is(204);
    assert!(erased.body.is_empty());
    assert_eq!(erased.header("cache-control"), Some("no-store"));
    for resource in ["r", "s"] {
        let path = format!("/quotas/u/{resource}");
        app.get(&path).await.problem(404, "not-found");
        app.post(&format!("{path}/consume"), "")
            .await
            .problem(404, "not-found");
    }
    assert_eq!(usage(&app, "/quotas/u/d").await, 0, "the default's usage");
    for path in ["/quotas/u", "/quotas/u/r/usage", "/quotas/u/d/usage"] {
        let page = app.get(path).await.is(200).json();
        let list = if path.ends_with("usage") {
            "windows"
        } else {
            "quotas"
        };
        assert!(page[list].as_array().unwrap().is_empty(), "{path}");
    }
    // Its tokens end at once, on every process; another's do not.
    for app in [&app, &other] {
        for token in &tokens[..2] {
            own(app, token, "u").await.problem(401, "unauthorized");
        }
        own(app, &tokens[2], "v").await.is(200);
    }
    assert_eq!(usage(&app, "/quotas/v/r").await, 2);
    for table in ["quota_policies", "quota_usage"] {
        let sql = format!("SELECT count(*) FROM {table} WHERE user_id = 'u'");
        assert_eq!(app.number(&sql), 0, "{table}");
    }
    // The name is free again, and nothing comes back with it.
    assert_eq!(app.policy("hourly", 5).await.usage(), 0);
    own(&app, &tokens[0], "u")
        .await
        .problem(401, "unauthorized");
}

/// Kept answers name the user too, those of batches also among others.
#[tokio::test]
async fn no_kept_answer_of_an_erased_user_is_replayed() {
    let app = TestApp::new().await;
    let set = async || {
        for path in ["/quotas/u/r", "/quotas/v/r"] {
            app.put(path, HOURLY_5).await.is(200);
        }
    };
    set().await;
    let consume = ["/quotas/u/r/consume", "/quotas/v/r/consume"];
    for path in consume {
        app.keyed(path, "k", "").await.is(200);
    }
    let v = r#"{"items":[{"user_id":"v","resource":"r"}]}"#;
    app.keyed("/consume", "both", BOTH).await.is(200);
    app.keyed("/consume", "v", v).await.is(200);
    app.keyed("/quotas/u/r/refund", "k", "").await.is(200);
    app.delete("/quotas/u").await.is(204);
    // The same key is another request now, of a user that is not known.
    app.keyed(consume[0], "k", "")
        .await
        .problem(404, "not-found");
    app.keyed("/consume", "both", BOTH)
        .await
        .problem(404, "not-found");
    set().await;
    assert!(!is_replay(&app.keyed(consume[0], "k", "").await.is(200)));
    assert!(!is_replay(
        &app.keyed("/consume", "both", BOTH).await.is(200)
    ));
    let refund = app.keyed("/quotas/u/r/refund", "k", "").await.is(200);
    assert!(!is_replay(&refund));
    // Those that do not name it stay.
    assert!(is_replay(&app.keyed(consume[1], "k", "").await.is(200)));
    assert!(is_replay(&app.keyed("/consume", "v", v).await.is(200)));
}

#[tokio::test]
async fn an_unknown_user_is_erased_as_well() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    app.delete("/quotas/nobody").await.is(204);
    app.delete("/quotas/u").await.is(204);
    app.delete("/quotas/u").await.is(204);
    let audit = app.get("/audit?user_id=nobody").await.is(200).json();
    assert_eq!(audit["entries"][0]["action"], "user.erase");
    assert_eq!(audit["entries"].as_array().unwrap().len(), 1);
    for id in ["%00", "..", "%2e%2e"] {
        let answer = app.delete(&format!("/quotas/{id}")).await;
        answer.faults(&["user_id invalid"]);
    }
    let long = format!("/quotas/{}", "x".repeat(256));
    app.delete(&long).await.faults(&["user_id too_long"]);
}

/// C35, C68: bytes decide whom it is about.
#[tokio::test]
async fn c68_an_erasure_meets_its_user_alone() {
    let app = TestApp::new().await;
    let names = [
        "a_b", "axb", "A_B", "a%", "a%25", "a", "a_b ", "é", "e\u{301}",
    ];
    for name in names {
        let path = format!("/quotas/{}/r", encoded(name));
        app.put(&path, HOURLY_5).await.is(200);
        app.keyed(&format!("{path}/consume"), "k", "").await.is(200);
    }
    for name in ["a_b", "a%", "é"] {
        app.delete(&format!("/quotas/{}", encoded(name)))
            .await
            .is(204);
    }
    for name in names {
        let path = format!("/quotas/{}/r", encoded(name));
        if ["a_b", "a%", "é"].contains(&name) {
            app.get(&path).await.problem(404, "not-found");
        } else {
            let again = app.keyed(&format!("{path}/consume"), "k", "").await;
            assert!(is_replay(&again.is(200)), "{name}");
        }
    }
}

#[tokio::test]
async fn the_audit_keeps_that_a_user_was_erased_and_by_whom() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    app.user_token("u").await;
    let refused = Request::delete("/quotas/u").body(Body::empty());
    app.send(refused.unwrap())
        .await
        .problem(401, "unauthorized");
    app.delete("/quotas/u").await.is(204);
    let audit = app.get("/audit?user_id=u").await.is(200).json();
    let erased = &audit["entries"][0];
    assert_eq!(erased["action"], "user.erase");
    assert_eq!(erased["user_id"], "u");
    assert_eq!(erased["resource"], serde_json::Value::Null);
    assert_eq!(erased["after"], serde_json::Value::Null);
    assert_eq!(erased["before"]["policies"], 1);
    assert_eq!(erased["before"]["tokens"], 1);
    assert_eq!(erased["actor"]["kind"], "token");
    assert_eq!(erased["at"], crate::support::app::NOW);
}
