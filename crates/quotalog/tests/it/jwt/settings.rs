//! The settings: each kind of key, from a file or a variable, and what a start refuses in one line.

use std::process::Command;

use hyper::Method;
use quotalog_domain::Timestamp;
use quotalog_ledger::clock::{Clock as _, SystemClock};
use serde_json::json;

use crate::cli::{succeeds, text};
use crate::support::answer::Answer;
use crate::support::jwt::{AUDIENCE, Issuer, Kind, has_openssl};
use crate::support::server::{Server, Site, until};
use crate::support::tls::{Pair, put};

pub(super) fn now() -> Timestamp {
    SystemClock.now()
}

/// Asks for the quotas of `alice`.
pub(super) async fn ask(server: &Server, token: &str) -> Answer {
    let mut connection = server.connect().await;
    let answer = connection
        .call(Method::GET, "/quotas/alice", token, "")
        .await;
    answer.unwrap()
}

fn variable(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn each_kind_of_key_comes_from_a_file_or_a_variable() {
    if !has_openssl() {
        return;
    }
    for kind in Kind::ALL {
        let issuer = Issuer::new(kind);
        let (file, file_value, content, content_value) = match kind {
            Kind::Hs256 => (
                "QUOTALOG_JWT_SECRET_FILE",
                issuer.secret_file(),
                "QUOTALOG_JWT_SECRET",
                variable(issuer.secret()),
            ),
            Kind::Rs256 | Kind::Es256 | Kind::EdDsa => (
                "QUOTALOG_JWT_PUBLIC_KEY_FILE",
                issuer.public_key_file(),
                "QUOTALOG_JWT_PUBLIC_KEY",
                variable(issuer.public_key()),
            ),
        };
        for by_file in [true, false] {
            let site = Site::new();
            let server = site.serve_with(|command| {
                command.env("QUOTALOG_JWT_AUDIENCE", AUDIENCE);
                if by_file {
                    command.env(file, &file_value)
                } else {
                    command.env(content, &content_value)
                }
            });
            ask(&server, &issuer.token("alice", now())).await.is(200);
            ask(&server, &issuer.token("bob", now())).await.is(403);
            assert!(
                !site.log().contains("does not know this variable"),
                "{}",
                site.log()
            );
        }
    }
}

#[tokio::test]
async fn what_is_found_of_tokens_is_counted_and_logged_without_them() {
    if !has_openssl() {
        return;
    }
    let issuer = Issuer::new(Kind::Es256);
    let site = Site::new();
    let server = site.serve_with(|command| {
        command
            .args(["--log-level", "trace", "--jwt-audience", AUDIENCE])
            .arg("--jwt-public-key-file")
            .arg(issuer.public_key_file())
    });
    let good = issuer.token("alice", now());
    let mut claims = issuer.claims("alice", now());
    claims["exp"] = json!(1);
    let expired = issuer.token_that_claims(&claims);
    let strangers = Issuer::new(Kind::Es256).token("alice", now());
    for (token, status) in [
        (&good, 200),
        (&good, 200),
        (&expired, 401),
        (&strangers, 401),
    ] {
        ask(&server, token).await.is(status);
    }
    ask(&server, "a.b.c").await.is(401);
    let metrics = server.call(Method::GET, "/metrics", "").await.is(200);
    let metrics = text(&metrics.body);
    for (result, count) in [
        ("accepted", 2),
        ("expired", 1),
        ("signature", 1),
        ("malformed", 1),
        ("audience", 0),
        ("unavailable", 0),
    ] {
        let line = format!("quotalog_jwt_verifications_total{{result=\"{result}\"}} {count}");
        assert!(metrics.contains(&line), "{line}");
    }
    assert!(metrics.contains("quotalog_jwt_keys 1"));
    server.stop();
    let log = site.log();
    for why in ["it has expired", "its signature is wrong"] {
        assert!(log.contains(why), "{why}");
    }
    for token in [&good, &expired, &strangers] {
        // All but the header, which is the same everywhere.
        let (_, secret) = token.split_once('.').unwrap();
        for at in 0..secret.len() - 12 {
            assert!(!log.contains(&secret[at..at + 12]), "{secret} at {at}");
        }
    }
}

/// A server that is told so must not start; the line has these words and no secret.
#[track_caller]
fn refused(words: &[&str], change: impl FnOnce(&mut Command) -> &mut Command) {
    let (code, line) = Site::new().refused(change);
    assert_eq!(code, 2, "{line}");
    for word in words {
        assert!(line.contains(word), "{word}: {line}");
    }
    for secret in ["hunter2", "PRIVATE KEY", "MII"] {
        assert!(!line.contains(secret), "{line}");
    }
}

#[test]
fn settings_that_do_not_fit_together_stop_the_start() {
    let secret = "hunter2-hunter2-hunter2-hunter2-hunter2";
    let with_audience = |command: &mut Command| {
        command.env("QUOTALOG_JWT_AUDIENCE", AUDIENCE);
    };
    refused(&["QUOTALOG_JWT_SECRET", "--jwt-audience"], |command| {
        command.env("QUOTALOG_JWT_SECRET", secret)
    });
    for (flag, value) in [
        ("--jwt-audience", "quotalog"),
        ("--jwt-issuer", "https://idp.example"),
        ("--jwt-role-claim", "role"),
    ] {
        refused(&[flag, "--jwks"], |command| command.args([flag, value]));
        refused(&[flag, "is empty"], |command| {
            with_audience(command);
            command.env("QUOTALOG_JWT_SECRET", secret).args([flag, ""])
        });
    }
    refused(&["QUOTALOG_JWT_SECRET", "--jwks", "both"], |command| {
        with_audience(command);
        command
            .env("QUOTALOG_JWT_SECRET", secret)
            .args(["--jwks", "keys.json"])
    });
    refused(&["QUOTALOG_JWT_SECRET", "32 bytes"], |command| {
        with_audience(command);
        command.env("QUOTALOG_JWT_SECRET", "hunter2-hunter2-hunter2-hunter2")
    });
    for (flag, word) in [
        ("--jwt-secret-file", "No such file"),
        ("--jwt-public-key-file", "No such file"),
        ("--jwks", "No such file"),
    ] {
        refused(&[flag, word], |command| {
            with_audience(command);
            command.args([flag, "/nowhere/key"])
        });
    }
    for (url, word) in [
        ("http://idp.example/jwks.json", "https"),
        ("ftp://idp.example/jwks.json", "https://"),
        ("https://user:hunter2@idp.example/jwks.json", "password"),
    ] {
        refused(&["--jwks", word], |command| {
            with_audience(command);
            command.args(["--jwks", url])
        });
    }
}

#[test]
fn a_key_that_must_not_be_trusted_stops_the_start() {
    if !has_openssl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let issuer = Issuer::new(Kind::Rs256);
    let key = |flag: &'static str, content: &[u8], words: &[&str]| {
        let file = folder.path().join("key");
        std::fs::write(&file, content).unwrap();
        refused(&[&[flag], words].concat(), |command| {
            command
                .env("QUOTALOG_JWT_AUDIENCE", AUDIENCE)
                .arg(flag)
                .arg(&file)
        });
    };
    let openssl = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).output().unwrap();
        succeeds(&output);
        output.stdout
    };
    let public_of = |private: &[u8]| {
        let file = folder.path().join("private");
        std::fs::write(&file, private).unwrap();
        openssl(&["pkey", "-in", file.to_str().unwrap(), "-pubout"])
    };
    let private = std::fs::read(issuer.private_key_file()).unwrap();
    let public = issuer.public_key();
    let pem = "--jwt-public-key-file";
    key(pem, &private, &["private key"]);
    key(pem, &[&*public, &public].concat(), &["more than one"]);
    key(pem, Pair::new().certificate.as_bytes(), &["certificate"]);
    for nothing in [
        &b""[..],
        b"key",
        b"\xff\xfe",
        b"-----BEGIN PUBLIC KEY-----\n",
        &public[..200],
    ] {
        key(pem, nothing, &["BEGIN PUBLIC KEY"]);
    }
    let bits = |bits: &str| openssl(&["genpkey", "-algorithm", "RSA", "-pkeyopt", bits]);
    key(pem, &public_of(&bits("rsa_keygen_bits:1024")), &["2048"]);
    // The other curve of 256 bits is no P-256 either.
    for curve in ["P-384", "secp256k1"] {
        let curve = format!("ec_paramgen_curve:{curve}");
        let private = openssl(&["genpkey", "-algorithm", "EC", "-pkeyopt", &curve]);
        key(pem, &public_of(&private), &["P-256"]);
    }
    let ed448 = openssl(&["genpkey", "-algorithm", "ED448"]);
    key(pem, &public_of(&ed448), &["Ed25519"]);
    let secret = "--jwt-secret-file";
    key(secret, b"hunter2\n", &["32 bytes"]);
    key(secret, &public, &["PEM"]);
    key(secret, &private, &["PEM"]);
    let jwks = "--jwks";
    for garbage in ["", "<html>", "{}", "[]", &"x".repeat(300_000)] {
        key(jwks, garbage.as_bytes(), &[]);
    }
    let secrets = json!({"keys": [{"kty": "oct", "k": "aHVudGVyMg", "alg": "HS256"}]});
    key(jwks, secrets.to_string().as_bytes(), &["no key"]);
}

#[tokio::test]
async fn a_jwks_in_a_file_is_read_again_when_it_changes() {
    if !has_openssl() {
        return;
    }
    let (old, new) = (Issuer::new(Kind::EdDsa), Issuer::new(Kind::Rs256));
    let site = Site::new();
    let file = site.folder.path().join("jwks.json");
    put(&file, &json!({"keys": [old.jwk("old")]}).to_string());
    let server = site.serve_with(|command| {
        command
            .args(["--jwt-audience", AUDIENCE, "--jwks"])
            .arg(&file)
    });
    let (olds, news) = (old.token("alice", now()), new.token("alice", now()));
    ask(&server, &olds).await.is(200);
    ask(&server, &news).await.is(401);
    put(&file, &json!({"keys": [new.jwk("new")]}).to_string());
    until("the new key is in force", async || {
        ask(&server, &news).await.status == 200
    })
    .await;
    // What was remembered of the old one is forgotten.
    ask(&server, &olds).await.is(401);
    put(&file, "garbage");
    until("the garbage is read", async || {
        site.log().contains("stay in force")
    })
    .await;
    ask(&server, &news).await.is(200);
}

#[test]
fn doctor_tells_whether_there_are_keys() {
    if !has_openssl() {
        return;
    }
    let issuer = Issuer::new(Kind::EdDsa);
    let site = Site::new();
    site.token(&["--role", "admin"]);
    let file = site.folder.path().join("jwks.json");
    put(&file, &json!({"keys": [issuer.jwk("a")]}).to_string());
    let examine = |jwks: &str| {
        let arguments = ["doctor", "--jwt-audience", AUDIENCE, "--jwks", jwks];
        let output = site.run(&arguments);
        (
            output.status.code().unwrap(),
            text(&output.stdout).to_owned(),
        )
    };
    let (code, said) = examine(file.to_str().unwrap());
    assert!(code == 0 && said.contains("holds 1 key"), "{said}");
    // A port that nobody listens on.
    let (code, said) = examine("http://127.0.0.1:1/jwks.json");
    assert!(code == 1 && said.contains("cannot be reached"), "{said}");
    put(&file, "garbage");
    let (code, said) = examine(file.to_str().unwrap());
    assert!(code == 1 && said.contains("no JWKS"), "{said}");
}
