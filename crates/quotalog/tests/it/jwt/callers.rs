//! Who the holder of a JWT is: what it may do, what is kept for it, what the audit says of it.

use std::sync::Arc;

use hyper::{Method, Request};
use quotalog_auth::Role;
use quotalog_testkit::ManualClock;
use serde_json::{Value, json};
use tonic::Code;

use crate::support::answer::Answer;
use crate::support::app::{NOW, TestApp, instant};
use crate::support::jwt::{Issuer, Kind, has_openssl, hs256, part};
use crate::support::rls::{Rls, call, of_pair, serve};

const HOURLY_100: &str = r#"{"window":"hourly","limit_count":100}"#;
const OF_ALICE: &str = r#"{"items":[{"user_id":"alice","resource":"r"}]}"#;

/// A server that believes an issuer, with policies for `alice` and `bob`.
async fn scene(kind: Kind, role_claim: Option<&str>) -> (TestApp, Issuer) {
    let issuer = Issuer::new(kind);
    let app = TestApp::new().await.believing(issuer.settings(role_claim));
    for path in ["/quotas/alice/r", "/quotas/bob/r"] {
        app.put(path, HOURLY_100).await.is(200);
    }
    (app, issuer)
}

fn token(issuer: &Issuer, subject: &str, changes: Value) -> String {
    let mut claims = issuer.claims(subject, instant(NOW));
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    issuer.token_that_claims(&claims)
}

#[tokio::test]
async fn a_token_of_each_algorithm_is_its_users() {
    if !has_openssl() {
        return;
    }
    for kind in Kind::ALL {
        let (app, issuer) = scene(kind, None).await;
        let alice = issuer.token("alice", instant(NOW));
        // Twice, since the second time it is remembered.
        for usage in 1..=2 {
            let path = "/quotas/alice/r/consume";
            let consumed = app.call(Method::POST, path, &alice, "").await.is(200);
            assert_eq!(consumed.usage(), usage, "{kind:?}");
        }
        for (method, path, status) in [
            (Method::GET, "/quotas/alice", 200),
            (Method::GET, "/quotas/alice/r", 200),
            (Method::GET, "/quotas/alice/r/usage", 200),
            (Method::GET, "/quotas/bob/r", 403),
            (Method::POST, "/quotas/bob/r/consume", 403),
            (Method::POST, "/quotas/alice/r/reset", 403),
            (Method::POST, "/quotas/alice/r/refund", 403),
            (Method::DELETE, "/quotas/alice/r", 403),
            (Method::GET, "/quotas", 403),
            (Method::GET, "/tokens", 403),
            (Method::GET, "/audit", 403),
            (Method::GET, "/metrics", 403),
        ] {
            let answer = app.call(method.clone(), path, &alice, "").await;
            answer.is(status);
        }
        app.call(Method::POST, "/consume", &alice, OF_ALICE)
            .await
            .is(200);
        let bobs = OF_ALICE.replace("alice", "bob");
        app.call(Method::POST, "/consume", &alice, &bobs)
            .await
            .is(403);
    }
}

#[tokio::test]
async fn without_a_named_claim_no_token_is_more_than_a_user() {
    if !has_openssl() {
        return;
    }
    let (app, issuer) = scene(Kind::EdDsa, None).await;
    let everything = json!({
        "role": "admin", "roles": ["admin"], "scope": "admin", "realm_access": {"roles": ["admin"]},
    });
    let alice = token(&issuer, "alice", everything);
    app.call(Method::GET, "/quotas/alice", &alice, "")
        .await
        .is(200);
    app.call(Method::GET, "/quotas", &alice, "").await.is(403);
    app.call(Method::PUT, "/quotas/alice/r", &alice, HOURLY_100)
        .await
        .is(403);
}

#[tokio::test]
async fn a_named_claim_says_the_role() {
    if !has_openssl() {
        return;
    }
    let (app, issuer) = scene(Kind::Es256, Some("/realm_access/roles")).await;
    //                           set  near the limit  consume  refund
    let statuses = |role: Value| {
        let token = token(&issuer, "alice", json!({"realm_access": {"roles": role}}));
        let app = &app;
        async move {
            let mut statuses = Vec::new();
            for (method, path, body) in [
                (Method::PUT, "/quotas/bob/r", HOURLY_100),
                (Method::GET, "/quotas", ""),
                (Method::POST, "/quotas/bob/r/consume", ""),
                (Method::POST, "/quotas/bob/r/refund", ""),
            ] {
                statuses.push(app.call(method, path, &token, body).await.status);
            }
            statuses
        }
    };
    assert_eq!(
        statuses(json!(["offline_access", "admin"])).await,
        [200, 200, 200, 200]
    );
    assert_eq!(statuses(json!("viewer")).await, [403, 200, 403, 403]);
    assert_eq!(statuses(json!(["service"])).await, [403, 403, 200, 200]);
    assert_eq!(statuses(json!("user")).await, [403; 4]);
    assert_eq!(statuses(json!(["offline_access"])).await, [403; 4]);
    for none in [
        json!("root"),
        json!("Admin"),
        json!(["admin", "viewer"]),
        json!(1),
    ] {
        assert_eq!(statuses(none).await, [401; 4]);
    }
    for (role, told) in [
        ("viewer", json!({ "role": "viewer", "user_id": null })),
        ("user", json!({ "role": "user", "user_id": "alice" })),
    ] {
        let claims = json!({"realm_access": {"roles": role}});
        let token = token(&issuer, "alice", claims);
        let answer = app.call(Method::GET, "/whoami", &token, "").await.is(200);
        assert_eq!(answer.json(), told);
    }
}

#[tokio::test]
async fn the_audit_names_issuer_and_subject() {
    if !has_openssl() {
        return;
    }
    let (app, issuer) = scene(Kind::Rs256, Some("role")).await;
    let root = token(
        &issuer,
        "root",
        json!({"role": "admin", "iss": "https://idp.example/"}),
    );
    app.call(Method::POST, "/quotas/bob/r/reset", &root, "")
        .await
        .is(200);
    // Made by an administrator with a JWT, and by one without an issuer.
    let body = r#"{"role":"viewer"}"#;
    app.call(Method::POST, "/tokens", &root, body).await.is(201);
    let nameless = token(&issuer, "environment", json!({"role": "admin"}));
    app.call(Method::DELETE, "/quotas/carol", &nameless, "")
        .await
        .is(204);
    let entries = app.get("/audit?limit=3").await.is(200).json()["entries"].clone();
    let actors = [
        " environment",
        "https://idp.example/ root",
        "https://idp.example/ root",
    ];
    for (entry, id) in entries.as_array().unwrap().iter().zip(actors) {
        assert_eq!(
            entry["actor"],
            json!({"kind": "jwt", "id": id, "name": null})
        );
    }
}

fn keyed(token: &str, key: &str) -> Request<axum::body::Body> {
    Request::post("/consume")
        .header("authorization", format!("Bearer {token}"))
        .header("idempotency-key", key)
        .header("content-type", "application/json")
        .body(OF_ALICE.into())
        .unwrap()
}

fn is_replay(answer: &Answer) -> bool {
    answer.header("idempotency-replayed").is_some()
}

#[tokio::test]
async fn the_key_of_a_batch_is_its_issuers_and_subjects() {
    if !has_openssl() {
        return;
    }
    let (app, issuer) = scene(Kind::EdDsa, Some("role")).await;
    let exp = instant(NOW).unix_s() + 7_200;
    let with = |subject: &str, changes: Value| token(&issuer, subject, changes);
    let first = with("alice", json!({"iss": "https://a.example"}));
    assert!(!is_replay(&app.send(keyed(&first, "k")).await.is(200)));
    // Another token of the same person finds the answer.
    let renewed = with("alice", json!({"iss": "https://a.example", "exp": exp}));
    assert!(is_replay(&app.send(keyed(&renewed, "k")).await.is(200)));
    // Nobody else does.
    for other in [
        with("alice", json!({"iss": "https://b.example"})),
        with("alice", json!({})),
        with(
            "gateway",
            json!({"iss": "https://a.example", "role": "service"}),
        ),
        app.user_token("alice").await,
        app.admin.clone(),
    ] {
        assert!(!is_replay(&app.send(keyed(&other, "k")).await.is(200)));
        assert!(is_replay(&app.send(keyed(&other, "k")).await.is(200)));
    }
    assert_eq!(app.get("/quotas/alice/r").await.usage(), 6);
}

#[tokio::test]
async fn an_erased_user_leaves_nothing_and_may_come_again() {
    if !has_openssl() {
        return;
    }
    let (app, issuer) = scene(Kind::Hs256, None).await;
    let alice = token(&issuer, "alice", json!({"iss": "https://a.example"}));
    app.send(keyed(&alice, "k")).await.is(200);
    let callers = "SELECT count(*) FROM quotalog_idempotency_keys WHERE caller LIKE '%alice%'";
    assert_eq!(app.number(callers), 1);
    app.delete("/quotas/alice").await.is(204);
    assert_eq!(app.number(callers), 0);
    // Only the issuer can end a token of the issuer's.
    let quotas = app
        .call(Method::GET, "/quotas/alice", &alice, "")
        .await
        .is(200);
    assert_eq!(quotas.json()["quotas"], json!([]));
    app.put("/quotas/alice/r", HOURLY_100).await.is(200);
    assert!(!is_replay(&app.send(keyed(&alice, "k")).await.is(200)));
}

#[tokio::test]
async fn a_change_of_our_own_tokens_leaves_jwts_alone() {
    if !has_openssl() {
        return;
    }
    let (app, issuer) = scene(Kind::Hs256, None).await;
    let alice = issuer.token("alice", instant(NOW));
    let path = "/quotas/alice/r/consume";
    app.call(Method::POST, path, &alice, "").await.is(200);
    let (_, id) = app.token_with_id(Role::Viewer, None).await;
    app.revoke(id).await;
    app.call(Method::POST, path, &alice, "").await.is(200);
}

#[tokio::test]
async fn the_stores_clock_has_the_last_word() {
    if !has_openssl() {
        return;
    }
    let issuer = Issuer::new(Kind::EdDsa);
    // A node whose own clock stands still.
    let clock = Arc::new(ManualClock::new(instant(NOW)));
    let app = TestApp::new().await;
    let app = app.believing_by(issuer.settings(None), clock);
    app.put("/quotas/alice/r", HOURLY_100).await.is(200);
    let alice = issuer.token("alice", instant(NOW));
    let calls = [
        (Method::POST, "/quotas/alice/r/consume"),
        (Method::GET, "/quotas/alice/r"),
        (Method::GET, "/quotas/alice"),
        // What it may not do is told only to whom is known.
        (Method::GET, "/quotas"),
    ];
    for (time, refused) in [(NOW, false), ("2026-11-30T20:00:00Z", true)] {
        app.set_time(time);
        for (method, path) in calls.clone() {
            let status = app.call(method, path, &alice, "").await.status;
            assert_eq!(status == 401, refused, "{time} {path}: {status}");
        }
    }
}

#[tokio::test]
async fn a_gateway_may_ask_for_rate_limits_with_a_jwt() {
    if !has_openssl() {
        return;
    }
    let (app, issuer) = scene(Kind::Rs256, Some("role")).await;
    let service = serve(&app).await;
    let asked = async |token: &str| {
        let rls = Rls::connect(service.address, token).await;
        let answer = rls.send(call(vec![of_pair("alice", "r")])).await;
        answer.map(|_| ()).map_err(|status| status.code())
    };
    let gateway = token(&issuer, "gateway", json!({"role": "service"}));
    assert_eq!(asked(&gateway).await, Ok(()));
    let alice = token(&issuer, "alice", json!({}));
    assert_eq!(asked(&alice).await, Err(Code::PermissionDenied));
    let gateways = |changes: Value| {
        let mut claims = changes;
        claims["role"] = "service".into();
        token(&issuer, "gateway", claims)
    };
    let claims = issuer.claims("gateway", instant(NOW)).to_string();
    let unsigned = |algorithm: &str| {
        let header = json!({"alg": algorithm, "typ": "JWT"}).to_string();
        format!("{}.{}", part(header), part(&claims))
    };
    let confused = unsigned("HS256");
    let signature = part(hs256(&issuer.public_key(), &confused));
    for (what, token) in [
        ("expired", gateways(json!({"exp": 1}))),
        ("another's", gateways(json!({"aud": "billing"}))),
        (
            "not yet",
            gateways(json!({"nbf": instant(NOW).unix_s() + 3_600})),
        ),
        ("too long", gateways(json!({"pad": "x".repeat(8_192)}))),
        (
            "of a stranger",
            Issuer::new(Kind::Rs256).token("gateway", instant(NOW)),
        ),
        ("unsigned", format!("{}.", unsigned("none"))),
        (
            "the public key as secret",
            format!("{confused}.{signature}"),
        ),
        ("garbled", "a.b.c".to_owned()),
        ("cut off", gateway[..gateway.len() - 1].to_owned()),
    ] {
        assert_eq!(asked(&token).await, Err(Code::Unauthenticated), "{what}");
    }
    assert_eq!(app.get("/quotas/alice/r").await.usage(), 1);
}
