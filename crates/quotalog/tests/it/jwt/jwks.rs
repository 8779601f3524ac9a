//! Keys that an issuer's server publishes: fetched, exchanged, out of reach.

use std::path::Path;
use std::time::Instant;

use hyper::Method;
use serde_json::json;

use super::settings::{ask, now};
use crate::support::jwt::{AUDIENCE, Issuer, Kind, has_openssl};
use crate::support::key_server::KeyServer;
use crate::support::server::{Server, Site, until};
use crate::support::tls::Pair;

fn document(keys: &[serde_json::Value]) -> String {
    json!({ "keys": keys }).to_string()
}

/// A token whose header names a key.
fn token(issuer: &Issuer, key: &str) -> String {
    let header = json!({"alg": issuer.kind.name(), "kid": key});
    issuer.sign(&header, &issuer.claims("alice", now()))
}

/// A server that fetches from `url`, and trusts the certificates of a file alone.
fn serve(site: &Site, url: &str, authorities: Option<&Path>) -> Server {
    site.serve_with(|command| {
        if let Some(file) = authorities {
            command
                .env("SSL_CERT_FILE", file)
                .env_remove("SSL_CERT_DIR");
        }
        command.args(["--jwt-audience", AUDIENCE, "--jwks", url])
    })
}

/// A site, and a key server whose certificate lies there.
async fn secure(document: &str) -> (Site, KeyServer, String) {
    let (site, pair) = (Site::new(), Pair::new());
    pair.lay(&site.folder.path().join("tls"));
    let keys = KeyServer::start(Some(&pair), document).await;
    let url = format!("https://localhost:{}/jwks.json", keys.address.port());
    (site, keys, url)
}

/// Asks until the keys have come, which a request waits for only so long.
async fn believed(server: &Server, token: &str) {
    until("the token is believed", async || {
        ask(server, token).await.status == 200
    })
    .await;
}

#[tokio::test]
async fn new_keys_are_fetched_when_a_token_names_one_and_old_ones_are_forgotten() {
    if !has_openssl() {
        return;
    }
    let (old, new) = (Issuer::new(Kind::Rs256), Issuer::new(Kind::Es256));
    let (site, keys, url) = secure(&document(&[old.jwk("2026-11"), json!({"kty": "new"})])).await;
    let server = serve(&site, &url, Some(&site.folder.path().join("tls/cert.pem")));
    let olds = token(&old, "2026-11");
    believed(&server, &olds).await;
    assert_eq!(keys.asked(), 1);
    // Both at first, then the new one alone: one fetch for the first token that names it.
    keys.publishes(&document(&[old.jwk("2026-11"), new.jwk("2026-12")]));
    let news = token(&new, "2026-12");
    believed(&server, &news).await;
    assert_eq!(keys.asked(), 2);
    ask(&server, &olds).await.is(200);
    // A token that lies about its key is not believed, and causes no fetch.
    ask(&server, &token(&new, "2026-11")).await.is(401);
    ask(&server, &token(&old, "2026-12")).await.is(401);
    assert_eq!(keys.asked(), 2);
    assert!(site.log().contains("passed_over=1"), "{}", site.log());
}

#[tokio::test]
async fn a_thousand_tokens_of_unknown_keys_cause_a_fetch_or_two() {
    if !has_openssl() {
        return;
    }
    let issuer = Issuer::new(Kind::EdDsa);
    let keys = KeyServer::start(None, &document(&[issuer.jwk("a")])).await;
    let site = Site::new();
    let url = format!("http://{}/jwks.json", keys.address);
    let server = serve(&site, &url, None);
    let good = token(&issuer, "a");
    believed(&server, &good).await;
    let before = (keys.asked(), Instant::now());
    // One signature serves for all: none is looked at.
    let (_, rest) = good.split_once('.').unwrap();
    let mut asking = tokio::task::JoinSet::new();
    for flood in 0..20 {
        let mut connection = server.connect().await;
        let rest = rest.to_owned();
        asking.spawn(async move {
            for number in 0..50 {
                let header = json!({"alg": "EdDSA", "kid": format!("{flood}-{number}")});
                let header = crate::support::jwt::part(header.to_string());
                let token = format!("{header}.{rest}");
                let asked = connection.call(Method::GET, "/quotas/alice", &token, "");
                asked.await.unwrap().is(401);
            }
        });
    }
    asking.join_all().await;
    let fetches = keys.asked() - before.0;
    // One at once, and one more for each 10 s that the flood may have taken.
    let allowed = 2 + before.1.elapsed().as_secs() / 10;
    let fetches = u64::try_from(fetches).unwrap();
    assert!((1..=allowed).contains(&fetches), "{fetches} of {allowed}");
    ask(&server, &good).await.is(200);
}

#[tokio::test]
async fn without_keys_jwts_are_unavailable_and_all_else_is_served() {
    if !has_openssl() {
        return;
    }
    let issuer = Issuer::new(Kind::EdDsa);
    let keys = KeyServer::start(None, "").await;
    keys.answers("503 Service Unavailable", "", "");
    let site = Site::new();
    let user = site.token(&["--role", "user", "--user-id", "alice"]);
    let server = serve(&site, &format!("http://{}/", keys.address), None);
    let good = token(&issuer, "a");
    ask(&server, &good).await.problem(503, "unavailable");
    // What could be no good token under any keys is told so.
    ask(&server, "a.b.c").await.is(401);
    ask(&server, &user).await.is(200);
    server.call(Method::GET, "/readyz", "").await.is(200);
    let metrics = server.call(Method::GET, "/metrics", "").await;
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    assert!(metrics.contains("quotalog_jwt_keys 0"));
    assert!(!metrics.contains("quotalog_jwks_refreshes_total{result=\"failed\"} 0"));
    assert!(
        site.log().contains("503 Service Unavailable"),
        "{}",
        site.log()
    );
    // It is tried again by itself.
    keys.publishes(&document(&[issuer.jwk("a")]));
    until("the keys are there", async || {
        ask(&server, &good).await.status == 200
    })
    .await;
    // From now on they are trusted though the server fails, and a key that is not among them cannot be judged.
    keys.answers("500 Internal Server Error", "", "");
    let unknown = token(&issuer, "b");
    until("the keys were asked for again", async || {
        ask(&server, &unknown).await.status == 503
    })
    .await;
    ask(&server, &good).await.is(200);
    let log = site.log();
    assert!(log.contains("500 Internal Server Error"), "{log}");
    assert!(log.contains("the keys before stay in force"), "{log}");
    let metrics = server.call(Method::GET, "/metrics", "").await;
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    assert!(metrics.contains("quotalog_jwt_keys 1"));
}

#[tokio::test]
async fn keys_are_taken_of_nobody_else() {
    if !has_openssl() {
        return;
    }
    let issuer = Issuer::new(Kind::EdDsa);
    let good = token(&issuer, "a");
    let jwks = document(&[issuer.jwk("a")]);
    // A server whose certificate is not trusted.
    let (site, keys, url) = secure(&jwks).await;
    let other = site.folder.path().join("other.pem");
    std::fs::write(&other, Pair::new().certificate).unwrap();
    let server = serve(&site, &url, Some(&other));
    ask(&server, &good).await.problem(503, "unavailable");
    assert_eq!(keys.asked(), 0);
    assert!(site.log().contains("cannot be reached"), "{}", site.log());

    // One that sends us elsewhere, or more than any issuer has.
    let elsewhere = KeyServer::start(None, &jwks).await;
    for (status, field, body) in [
        (
            "302 Found",
            format!("location: http://{}/\r\n", elsewhere.address),
            String::new(),
        ),
        ("200 OK", String::new(), " ".repeat(300_000) + &jwks),
        ("200 OK", String::new(), "<html>".to_owned()),
        ("200 OK", String::new(), format!("{jwks}{jwks}")),
    ] {
        let keys = KeyServer::start(None, "").await;
        keys.answers(status, &field, &body);
        let site = Site::new();
        let server = serve(&site, &format!("http://{}/", keys.address), None);
        ask(&server, &good).await.problem(503, "unavailable");
        assert!(
            site.log().contains("the JWKS cannot be read"),
            "{}",
            site.log()
        );
    }
    assert_eq!(elsewhere.asked(), 0);
}
