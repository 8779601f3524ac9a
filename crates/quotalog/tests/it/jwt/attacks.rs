//! Tokens that must not be believed, each of them for each algorithm: all are answered alike.

use axum::body::Body;
use hyper::{HeaderMap, Method, Request};
use quotalog_domain::Timestamp;
use serde_json::{Value, json};

use crate::support::app::{NOW, TestApp, instant};
use crate::support::jwt::{Issuer, Kind, has_openssl, hs256, part};

/// A server that believes an issuer of this kind, with a policy for `alice`.
struct Scene {
    app: TestApp,
    issuer: Issuer,
    now: Timestamp,
}

impl Scene {
    async fn of(kind: Kind) -> Self {
        let mut issuer = Issuer::new(kind);
        issuer.name = Some("https://idp.example");
        let app = TestApp::new().await.believing(issuer.settings(None));
        let policy = r#"{"window":"hourly","limit_count":100}"#;
        app.put("/quotas/alice/r", policy).await.is(200);
        Self {
            app,
            issuer,
            now: instant(NOW),
        }
    }

    fn good(&self) -> String {
        self.issuer.token("alice", self.now)
    }

    /// A token with these claims changed, which the issuer has signed; null takes one away.
    fn claiming(&self, changes: Value) -> String {
        let mut claims = self.issuer.claims("alice", self.now);
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
            if value.is_null() {
                claims.as_object_mut().unwrap().remove(name);
            }
        }
        self.issuer.token_that_claims(&claims)
    }

    /// A token with another header, which the issuer has signed.
    fn with_header(&self, header: Value) -> String {
        let claims = self.issuer.claims("alice", self.now);
        self.issuer.sign(&header, &claims)
    }

    async fn consume(&self, token: &str) -> (u16, HeaderMap, Value) {
        let path = "/quotas/alice/r/consume";
        let mut answer = self.app.call(Method::POST, path, token, "").await;
        answer.headers.remove("x-request-id");
        (answer.status, answer.headers.clone(), answer.json())
    }

    /// None of the tokens is believed, nothing is counted, and no answer tells more than that to a token of nobody.
    async fn refuses(&self, tokens: &[(&str, String)]) {
        let nobody = self.consume("nobody").await;
        assert_eq!(nobody.0, 401);
        assert_eq!(nobody.1["www-authenticate"], "Bearer");
        for (what, token) in tokens {
            let kind = self.issuer.kind;
            assert_eq!(self.consume(token).await, nobody, "{kind:?}: {what}");
        }
        let quota = self.app.get("/quotas/alice/r").await.is(200);
        assert_eq!(quota.usage(), 0);
        assert_eq!(self.consume(&self.good()).await.0, 200, "the good one");
    }
}

#[tokio::test]
async fn a_token_that_is_not_for_now_or_not_for_us_is_refused() {
    if !has_openssl() {
        return;
    }
    for kind in Kind::ALL {
        let scene = Scene::of(kind).await;
        let now = scene.now.unix_s();
        let claiming = |what: &'static str, changes| (what, scene.claiming(changes));
        scene
            .refuses(&[
                claiming("expired", json!({"exp": now - 3_600})),
                claiming("never expires", json!({"exp": null})),
                claiming("expires at a text", json!({"exp": (now + 60).to_string()})),
                claiming("not yet", json!({"nbf": now + 3_600})),
                claiming("another's", json!({"aud": "billing"})),
                claiming("nobody's", json!({"aud": null})),
                claiming("others'", json!({"aud": ["billing", "mail"]})),
                claiming("another issuer", json!({"iss": "https://idp.example.evil"})),
                claiming("no issuer", json!({"iss": null})),
                claiming("a list of issuers", json!({"iss": ["https://idp.example"]})),
                claiming("no subject", json!({"sub": null})),
                claiming("an empty subject", json!({"sub": ""})),
                claiming("a subject with a slash", json!({"sub": "alice/../bob"})),
                claiming("a subject with a control", json!({"sub": "alice\n"})),
                claiming("a number as subject", json!({"sub": 7})),
                claiming("a long subject", json!({"sub": "x".repeat(256)})),
            ])
            .await;
    }
}

#[tokio::test]
async fn a_token_expires_by_the_servers_clock_though_it_was_believed_before() {
    if !has_openssl() {
        return;
    }
    let scene = Scene::of(Kind::EdDsa).await;
    let token = scene.good();
    assert_eq!(scene.consume(&token).await.0, 200);
    for (time, status) in [
        ("2026-11-30T19:20:29Z", 200),
        ("2026-11-30T19:20:30Z", 401),
        ("2026-11-30T18:20:00Z", 200),
    ] {
        scene.app.set_time(time);
        assert_eq!(scene.consume(&token).await.0, status, "{time}");
    }
}

#[tokio::test]
async fn the_token_does_not_choose_its_algorithm() {
    if !has_openssl() {
        return;
    }
    for kind in Kind::ALL {
        let scene = Scene::of(kind).await;
        let claims = scene.issuer.claims("alice", scene.now).to_string();
        let mut tokens = Vec::new();
        for name in [
            "none", "None", "NONE", "nOnE", "", "HS384", "HS512", "RS384", "PS256", "ES384",
        ] {
            let header = json!({"alg": name, "typ": "JWT"});
            let message = format!("{}.{}", part(header.to_string()), part(&claims));
            tokens.push(("unsigned", format!("{message}.")));
            tokens.push((
                "the right signature of another name",
                scene.with_header(header),
            ));
        }
        tokens.push(("no alg", scene.with_header(json!({"typ": "JWT"}))));
        tokens.push((
            "a list of algs",
            scene.with_header(json!({"alg": [kind.name()]})),
        ));
        for other in Kind::ALL.into_iter().filter(|other| *other != kind) {
            let header = json!({"alg": other.name()});
            tokens.push((
                "the right signature, named otherwise",
                scene.with_header(header),
            ));
            let token = Issuer::new(other).token("alice", scene.now);
            tokens.push(("another's key of another kind", token));
        }
        let mut stranger = Issuer::new(kind);
        stranger.name = scene.issuer.name;
        tokens.push(("a stranger's key", stranger.token("alice", scene.now)));
        if kind != Kind::Hs256 {
            // What is public must be no secret, in whichever form.
            let pem = scene.issuer.public_key();
            let text = String::from_utf8(pem.clone()).unwrap();
            let jwk = scene.issuer.jwk("a").to_string();
            let message = format!("{}.{}", part(r#"{"alg":"HS256"}"#), part(&claims));
            for secret in [&*pem, text.trim().as_bytes(), jwk.as_bytes(), b"\0"] {
                let signature = part(hs256(secret, &message));
                tokens.push(("the public key as secret", format!("{message}.{signature}")));
            }
            // A key that the token brings along is nobody's.
            let header = json!({
                "alg": kind.name(), "jwk": stranger.jwk("a"), "jku": "http://127.0.0.1:1/", "kid": "a",
            });
            let claims = stranger.claims("alice", scene.now);
            tokens.push(("a key in the header", stranger.sign(&header, &claims)));
        }
        scene.refuses(&tokens).await;
    }
}

#[tokio::test]
async fn a_token_of_another_form_is_refused() {
    if !has_openssl() {
        return;
    }
    for kind in Kind::ALL {
        let scene = Scene::of(kind).await;
        let good = scene.good();
        let parts: Vec<&str> = good.split('.').collect();
        let [header, payload, signature] = parts[..] else {
            panic!("{good}");
        };
        let bobs = part(scene.issuer.claims("bob", scene.now).to_string());
        let mut tokens = vec![
            ("another payload", format!("{header}.{bobs}.{signature}")),
            ("no signature", format!("{header}.{payload}.")),
            ("two parts", format!("{header}.{payload}")),
            ("one part", header.to_owned()),
            ("four parts", format!("{good}.{signature}")),
            ("five parts", format!("{good}.{signature}.{signature}")),
            ("dots alone", "..".to_owned()),
            ("no header", format!(".{payload}.{signature}")),
            ("padding", format!("{good}=")),
            ("a blank inside", format!("{header}. {payload}.{signature}")),
            ("a quote", format!("\"{good}\"")),
            ("cut off", good[..good.len() - 1].to_owned()),
            ("longer", format!("{good}AAAA")),
            ("upside down", good.chars().rev().collect()),
            ("lower case", good.to_lowercase()),
        ];
        // The last character has bits that say nothing: only one way to write them is taken.
        let last = good.chars().last().unwrap();
        let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let next = alphabet
            .find(last)
            .map(|at| &alphabet[at + 1..at + 2])
            .unwrap();
        tokens.push((
            "another way to write it",
            format!("{}{next}", &good[..good.len() - 1]),
        ));
        if kind == Kind::Es256 {
            let message = format!("{header}.{payload}");
            let zeros = part([0; 64]);
            tokens.push(("a signature of zeros", format!("{message}.{zeros}")));
        }
        scene.refuses(&tokens).await;
    }
}

#[tokio::test]
async fn a_signature_makes_no_sense_of_nonsense() {
    if !has_openssl() {
        return;
    }
    for kind in Kind::ALL {
        let scene = Scene::of(kind).await;
        let name = kind.name();
        let alices = scene.issuer.claims("alice", scene.now).to_string();
        let bobs = scene.issuer.claims("bob", scene.now).to_string();
        let twice = bobs.replacen('{', r#"{"sub":"alice","#, 1);
        let hidden = bobs.replacen('{', r#"{"\u0073ub":"alice","#, 1);
        let fine = format!(r#"{{"alg":"{name}"}}"#);
        let signed = |header: &str, claims: &str| scene.issuer.sign_text(header, claims);
        let tokens = [
            ("a member twice", signed(&fine, &twice)),
            ("a member twice, hidden", signed(&fine, &hidden)),
            (
                "alg twice",
                signed(&format!(r#"{{"alg":"none","alg":"{name}"}}"#), &alices),
            ),
            (
                "crit",
                signed(&format!(r#"{{"alg":"{name}","crit":["exp"]}}"#), &alices),
            ),
            (
                "another kind of token",
                signed(
                    &format!(r#"{{"alg":"{name}","typ":"logout+jwt"}}"#),
                    &alices,
                ),
            ),
            ("a list as claims", signed(&fine, "[]")),
            ("no JSON as claims", signed(&fine, "alice")),
            ("nothing as claims", signed(&fine, "")),
            ("a deep nest as claims", signed(&fine, &"[".repeat(2_000))),
            ("no JSON as header", signed("alg", &alices)),
            (
                "a byte-order mark",
                signed(&fine, &format!("\u{feff}{alices}")),
            ),
        ];
        scene.refuses(&tokens).await;
    }
}

#[tokio::test]
async fn a_token_that_is_too_long_is_refused_unread() {
    if !has_openssl() {
        return;
    }
    let scene = Scene::of(Kind::Hs256).await;
    let of_len = |len: usize| {
        let padded = |padding: usize| scene.claiming(json!({"pad": "x".repeat(padding)}));
        let bare = padded(0).len();
        let around = (len - bare) * 3 / 4;
        let mut fitting = (around.saturating_sub(4)..around + 4).map(padded);
        fitting.rfind(|token| token.len() <= len).unwrap()
    };
    let longest = of_len(8 * 1024);
    assert!(longest.len() > 8 * 1024 - 4);
    let too_long = of_len(8 * 1024 + 4);
    assert!(too_long.len() > 8 * 1024);
    scene
        .refuses(&[("too long", too_long), ("far too long", of_len(60_000))])
        .await;
    assert_eq!(scene.consume(&longest).await.0, 200);
}

#[tokio::test]
async fn a_token_elsewhere_than_in_its_one_field_is_not_read() {
    if !has_openssl() {
        return;
    }
    let scene = Scene::of(Kind::Hs256).await;
    let good = scene.good();
    let path = format!("/quotas/alice/r?access_token={good}");
    let request = Request::get(&path).body(Body::empty()).unwrap();
    scene.app.send(request).await.is(401);
    let bearer = format!("Bearer {good}");
    let request = Request::get("/quotas/alice/r").header("authorization", &bearer);
    let request = request.header("authorization", &bearer);
    let twice = request.body(Body::empty()).unwrap();
    scene.app.send(twice).await.is(401);
    for (scheme, status) in [
        ("Basic", 401),
        ("Token", 401),
        ("bearer", 200),
        ("BEARER", 200),
    ] {
        let request = Request::get("/quotas/alice/r");
        let request = request.header("authorization", format!("{scheme} {good}"));
        let answer = scene.app.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, status, "{scheme}");
    }
}

/// Whoever was not told to believe JWTs believes none, and one of our own tokens never is one.
#[tokio::test]
async fn without_keys_no_jwt_is_believed_and_with_them_our_tokens_still_are() {
    if !has_openssl() {
        return;
    }
    let issuer = Issuer::new(Kind::Hs256);
    let app = TestApp::new().await;
    let token = issuer.token("alice", instant(NOW));
    app.call(Method::GET, "/quotas/alice", &token, "")
        .await
        .is(401);
    let app = app.believing(issuer.settings(None));
    app.call(Method::GET, "/quotas/alice", &token, "")
        .await
        .is(200);
    let own = app.user_token("alice").await;
    app.call(Method::GET, "/quotas/alice", &own, "")
        .await
        .is(200);
    for token in [
        format!("{own}.a.b"),
        format!("ql_{token}"),
        format!("{own}{token}"),
    ] {
        app.call(Method::GET, "/quotas/alice", &token, "")
            .await
            .is(401);
    }
}
