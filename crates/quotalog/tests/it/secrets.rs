//! No piece of a token anywhere but where its holder reads it: not in logs at the most talkative level, not
//! in answers, not in the database or the files beside it.

use std::collections::HashSet;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request};

use crate::cli::succeeds;
use crate::support::server::{Server, Site};

/// Pieces of this length must not be found.
const PIECE_LEN: usize = 8;

/// What was sent and answered, and which secrets were in it.
#[derive(Default)]
struct Transcript {
    secrets: Vec<String>,
    answers: Vec<u8>,
}

impl Transcript {
    /// The first piece of a secret that is in `bytes`.
    fn leak(&self, bytes: &[u8]) -> Option<String> {
        let pieces: HashSet<&[u8]> = self
            .secrets
            .iter()
            .flat_map(|secret| secret.as_bytes().windows(PIECE_LEN))
            .collect();
        let mut found = bytes
            .windows(PIECE_LEN)
            .filter(|piece| pieces.contains(piece));
        found
            .next()
            .map(|piece| String::from_utf8_lossy(piece).into_owned())
    }

    /// Sends every kind of call with one `Authorization` line.
    async fn calls(&mut self, server: &Server, authorization: &str) {
        let policy = r#"{"window":"daily","limit_count":3}"#;
        let calls = [
            (Method::PUT, "/quotas/alice/r", policy),
            (Method::GET, "/quotas/alice/r", ""),
            (Method::GET, "/quotas/alice", ""),
            (Method::POST, "/quotas/alice/r/consume", ""),
            (Method::POST, "/quotas/alice/r/consume", r#"{"amount":2}"#),
            (Method::POST, "/quotas/alice/r/consume", r#"{"amount":9}"#),
            (Method::POST, "/quotas/alice/r/consume", "nonsense"),
            (Method::POST, "/quotas/alice/r/refund", ""),
            (Method::GET, "/quotas/alice/r/usage", ""),
            (
                Method::POST,
                "/consume",
                r#"{"items":[{"user_id":"alice","resource":"r"}]}"#,
            ),
            (Method::POST, "/quotas/alice/r/reset", ""),
            (Method::DELETE, "/quotas/alice/r", ""),
            (Method::DELETE, "/quotas/alice", ""),
            (Method::GET, "/quotas", ""),
            (Method::GET, "/audit", ""),
            (Method::PUT, "/defaults/r", policy),
            (Method::GET, "/defaults/r", ""),
            (Method::GET, "/defaults", ""),
            (Method::DELETE, "/defaults/r", ""),
            (Method::GET, "/tokens", ""),
            (Method::POST, "/tokens", r#"{"role":"root"}"#),
            (Method::DELETE, "/tokens/0123456789abcdef", ""),
            (Method::GET, "/healthz", ""),
            (Method::GET, "/readyz", ""),
            (Method::GET, "/metrics", ""),
            (Method::GET, "/openapi.json", ""),
            (Method::GET, "/docs", ""),
            (Method::GET, "/dashboard", ""),
            (Method::GET, "/nowhere", ""),
            (Method::PATCH, "/quotas/alice/r", ""),
            (Method::GET, "/quotas/%FF/r", ""),
        ];
        for (method, path, body) in calls {
            self.call(server, method, path, authorization, body).await;
        }
    }

    async fn call(
        &mut self,
        server: &Server,
        method: Method,
        path: &str,
        authorization: &str,
        body: &str,
    ) {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("authorization", authorization)
            .header("idempotency-key", format!("key-{}", self.answers.len()));
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        let request = request
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        let answer = server.connect().await.send(request).await.unwrap();
        assert!(answer.status < 500, "{path}: {answer:?}");
        self.answers
            .extend_from_slice(format!("{:?}", answer.headers).as_bytes());
        self.answers.extend_from_slice(&answer.body);
    }
}

fn secret(token: &serde_json::Value) -> String {
    token["token"].as_str().unwrap().to_owned()
}

/// Sends every kind of call with good, revoked, unknown and misspelt tokens.
async fn every_call(site: &Site, level: &[&str]) -> Transcript {
    // Random ones, whose pieces are nowhere by chance.
    let elsewhere = Site::new();
    let environment = elsewhere.token(&["--role", "admin"]);
    let unknown = elsewhere.token(&["--role", "admin"]);
    let admin = site.token(&["--role", "admin"]);
    let revoked = site.token(&["--role", "admin", "--json"]);
    let revoked: serde_json::Value = serde_json::from_str(&revoked).unwrap();
    let mut transcript = Transcript::default();
    let server = site.serve_with(|command| {
        command
            .args(level)
            .env("QUOTALOG_ADMIN_TOKEN", &environment)
    });

    // One more by the API, whose answer is the one place that shows it.
    let mut connection = server.connect().await;
    let body = r#"{"role":"user","user_id":"alice"}"#;
    let made = connection.call(Method::POST, "/tokens", &admin, body).await;
    let user = secret(&made.unwrap().is(201).json());

    let before = format!("Bearer {}", secret(&revoked));
    transcript.calls(&server, &before).await;
    let revoking = ["token", "revoke", revoked["id"].as_str().unwrap()];
    let revoking = site.command(&revoking).args(level).output().unwrap();
    succeeds(&revoking);
    transcript.answers.extend(revoking.stderr);

    let tokens = [
        environment,
        admin.clone(),
        user.clone(),
        secret(&revoked),
        unknown,
    ];
    for token in &tokens {
        transcript.calls(&server, &format!("Bearer {token}")).await;
    }
    for authorization in [
        format!("Bearer {}x", &admin),
        format!("Bearer {}", &admin[..admin.len() - 1]),
        format!("Bearer {}", admin.to_lowercase()),
        format!("Basic {admin}"),
        format!("Bearer {admin} {user}"),
        admin.clone(),
    ] {
        transcript.calls(&server, &authorization).await;
    }
    let in_query = format!("/quotas/alice?access_token={user}");
    for authorization in ["Bearer nobody", &format!("Bearer {user}")] {
        let call = transcript.call(&server, Method::GET, &in_query, authorization, "");
        call.await;
    }
    transcript.secrets.extend(tokens);
    transcript.secrets.push(admin.to_lowercase());
    server.kill();
    transcript
}

#[tokio::test]
async fn no_piece_of_a_token_is_logged_answered_or_stored() {
    for format in ["text", "json"] {
        let site = Site::new();
        let level = ["--log-level", "trace", "--log-format", format];
        let transcript = every_call(&site, &level).await;
        let leak = transcript.leak(&transcript.answers);
        assert_eq!(leak, None, "{format}: answered");
        let log = site.log();
        assert!(log.lines().count() > 300, "{format}: little was logged");
        assert_eq!(transcript.leak(log.as_bytes()), None, "{format}: logged");
        for entry in std::fs::read_dir(site.folder.path()).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            let leak = transcript.leak(&bytes);
            assert_eq!(leak, None, "{format}: in {}", path.display());
        }
    }
}
