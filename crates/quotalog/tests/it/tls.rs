//! TLS: both versions of HTTP over it, certificates that change, and what is refused.

use std::os::unix::fs::symlink;
use std::path::Path;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio_rustls::rustls::ProtocolVersion;
use tokio_rustls::rustls::version::{TLS12, TLS13};

use crate::support::answer::Answer;
use crate::support::raw::{RawConnection, request};
use crate::support::server::{ADMIN, Connection, Server, Site, until};
use crate::support::tls::{Pair, put, with_tls};

/// A server with a certificate from the site's folder `tls`.
fn serve(site: &Site, pair: &Pair) -> Server {
    let folder = site.folder.path().join("tls");
    pair.lay(&folder);
    site.serve_with(|command| with_tls(command, &folder))
}

async fn call(pair: &Pair, server: &Server, method: Method, path: &str, body: &str) -> Answer {
    let stream = pair.connect(server.address).await.unwrap();
    let mut connection = Connection::over(stream).await.unwrap();
    connection.call(method, path, ADMIN, body).await.unwrap()
}

async fn is_in_force(pair: &Pair, server: &Server) -> bool {
    pair.connect(server.address).await.is_ok()
}

#[tokio::test]
async fn both_versions_of_http_are_spoken_over_both_of_tls() {
    let (site, pair) = (Site::new(), Pair::new());
    let server = serve(&site, &pair);
    assert!(server.printed.contains("quotalog listens on https://"));
    let policy = r#"{"window":"daily","limit_count":100}"#;
    call(&pair, &server, Method::PUT, "/quotas/u/r", policy)
        .await
        .is(200);

    for (version, named) in [
        (&TLS12, ProtocolVersion::TLSv1_2),
        (&TLS13, ProtocolVersion::TLSv1_3),
    ] {
        let stream = pair
            .connect_with(server.address, &[version], &["http/1.1"])
            .await;
        let stream = stream.unwrap();
        let (_, session) = stream.get_ref();
        assert_eq!(session.protocol_version(), Some(named));
        assert_eq!(session.alpn_protocol(), Some(&b"http/1.1"[..]));
        let mut connection = Connection::over(stream).await.unwrap();
        for _ in 0..3 {
            let consume = connection.call(Method::POST, "/quotas/u/r/consume", ADMIN, "");
            consume.await.unwrap().is(200);
        }

        let stream = pair
            .connect_with(server.address, &[version], &["h2", "http/1.1"])
            .await;
        let stream = stream.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (mut sender, speaking) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(speaking);
        for _ in 0..3 {
            let consume = Request::post("https://localhost/quotas/u/r/consume")
                .header("authorization", format!("Bearer {ADMIN}"))
                .body(Empty::<Bytes>::new())
                .unwrap();
            let response = sender.send_request(consume).await.unwrap();
            Answer::read(response).await.unwrap().is(200);
        }
    }
    assert_eq!(site.stored("u", "r").values().sum::<u64>(), 12);
    assert_eq!(server.stop().code(), Some(0));
}

#[tokio::test]
async fn who_does_not_speak_tls_is_turned_away() {
    let (site, pair) = (Site::new(), Pair::new());
    let server = serve(&site, &pair);
    for sent in [
        request("GET", "/healthz", ADMIN, ""),
        "PRI * HTTP/2.0\r\n\r\n".to_owned(),
    ] {
        let mut plain = RawConnection::open(server.address);
        plain.send(sent);
        // At most an alert comes, which is no answer.
        assert!(plain.ends().len() < 16);
    }
    // Neither one that leaves in its handshake, nor one that trusts another.
    let mut gone = RawConnection::open(server.address);
    gone.send(b"\x16\x03\x01");
    gone.send_no_more();
    assert!(gone.ends().len() < 16);
    assert!(!is_in_force(&Pair::new(), &server).await);
    call(&pair, &server, Method::GET, "/healthz", "")
        .await
        .is(200);
    assert!(!site.log().contains(" ERROR quotalog"), "{}", site.log());
}

#[tokio::test]
async fn a_handshake_has_its_time() {
    let (site, pair) = (Site::new(), Pair::new());
    let folder = site.folder.path().join("tls");
    pair.lay(&folder);
    let server = site.serve_with(|command| {
        with_tls(command, &folder)
            .env("QUOTALOG_HEAD_TIMEOUT", "1s")
            .env("QUOTALOG_IDLE_TIMEOUT", "1d")
    });
    for sent in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"] {
        let mut slow = RawConnection::open(server.address);
        slow.send(sent);
        assert_eq!(slow.ends(), b"");
    }
}

#[tokio::test]
async fn a_new_certificate_comes_into_force_at_sighup_and_by_itself() {
    let (site, first) = (Site::new(), Pair::new());
    let server = serve(&site, &first);
    let before = first.connect(server.address).await.unwrap();
    let mut before = Connection::over(before).await.unwrap();

    let second = Pair::new();
    second.lay(&site.folder.path().join("tls"));
    server.signal("HUP");
    until("the second", async || is_in_force(&second, &server).await).await;
    assert!(!is_in_force(&first, &server).await);

    let third = Pair::new();
    third.lay(&site.folder.path().join("tls"));
    until("the third", async || is_in_force(&third, &server).await).await;
    assert!(!is_in_force(&second, &server).await);

    // Who is connected stays so.
    let still = before.call(Method::GET, "/readyz", ADMIN, "").await;
    still.unwrap().is(200);
}

#[tokio::test]
async fn links_that_are_changed_lead_to_a_new_certificate() {
    let site = Site::new();
    let folder = site.folder.path();
    let pairs = [Pair::new(), Pair::new()];
    pairs[0].lay(&folder.join("1"));
    pairs[1].lay(&folder.join("2"));
    // As Kubernetes lays a secret: the files are links through a link to a folder.
    symlink("1", folder.join("now")).unwrap();
    for name in ["cert.pem", "key.pem"] {
        symlink(Path::new("now").join(name), folder.join(name)).unwrap();
    }
    let server = site.serve_with(|command| with_tls(command, folder));
    assert!(is_in_force(&pairs[0], &server).await);
    symlink("2", folder.join("next")).unwrap();
    std::fs::rename(folder.join("next"), folder.join("now")).unwrap();
    until("the second", async || is_in_force(&pairs[1], &server).await).await;
}

#[tokio::test]
async fn a_broken_certificate_leaves_the_one_before_in_force_and_is_told_once() {
    let (site, first) = (Site::new(), Pair::new());
    let server = serve(&site, &first);
    let folder = site.folder.path().join("tls");
    let told = || site.log().matches("the one before stays in force").count();
    let other = Pair::new();
    let breaks: [&dyn Fn(); 4] = [
        &|| put(&folder.join("cert.pem"), &other.certificate),
        &|| put(&folder.join("cert.pem"), ""),
        &|| put(&folder.join("key.pem"), "-----BEGIN PRIVATE KEY-----"),
        &|| std::fs::remove_file(folder.join("cert.pem")).unwrap(),
    ];
    for (before, breaks) in breaks.iter().enumerate() {
        breaks();
        until("it is told", async || told() > before).await;
        assert!(is_in_force(&first, &server).await);
    }
    // However often it is looked at.
    for looks in 1..=3 {
        server.signal("HUP");
        let looked = || site.log().matches("are as before").count();
        until("looked", async || looked() >= looks).await;
    }
    assert_eq!(told(), 4, "{}", site.log());
    other.lay(&folder);
    until("the other", async || is_in_force(&other, &server).await).await;
    assert!(!site.log().contains("PRIVATE"), "{}", site.log());
}

#[tokio::test]
async fn without_tls_a_sighup_ends_nothing() {
    let site = Site::new();
    let server = site.serve();
    for signals in 1..=2 {
        server.signal("HUP");
        let heard = || site.log().matches("SIGHUP").count();
        until("heard", async || heard() >= signals).await;
        server.call(Method::GET, "/readyz", "").await.is(200);
    }
    assert_eq!(server.stop().code(), Some(0));
}

#[tokio::test]
async fn a_pair_that_is_none_refuses_the_start_with_what_to_change() {
    let (site, pair, other) = (Site::new(), Pair::new(), Pair::new());
    let folder = site.folder.path().join("tls");
    let certificate = pair.certificate.as_str();
    let (key, cut_key) = (pair.key.as_str(), &pair.key[..60]);
    let encrypted = pair.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let old_encrypted = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n\
                         -----END RSA PRIVATE KEY-----\n";
    let no_der = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let no_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let (of_certificate, of_key) = (
        "--tls-cert (QUOTALOG_TLS_CERT): ",
        "--tls-key (QUOTALOG_TLS_KEY): ",
    );
    for (certificate, key, words) in [
        (
            certificate,
            other.key.as_str(),
            ["--tls-cert and --tls-key", "not that of"],
        ),
        ("", key, [of_certificate, "holds no certificate"]),
        (key, key, [of_certificate, "holds no certificate"]),
        (
            "-----BEGIN CERTIFICATE-----",
            key,
            [of_certificate, "no sound PEM"],
        ),
        (no_der, key, [of_certificate, "cannot use"]),
        (certificate, "", [of_key, "holds no private key"]),
        (certificate, certificate, [of_key, "holds no private key"]),
        (certificate, cut_key, [of_key, "no sound PEM"]),
        (certificate, no_key, [of_key, "cannot use"]),
        (certificate, encrypted.as_str(), [of_key, "openssl pkey"]),
        (certificate, old_encrypted, [of_key, "openssl pkey"]),
    ] {
        std::fs::create_dir_all(&folder).unwrap();
        put(&folder.join("cert.pem"), certificate);
        put(&folder.join("key.pem"), key);
        let (code, line) = site.refused(|command| with_tls(command, &folder));
        assert_eq!(code, 2, "{line}");
        for word in words {
            assert!(line.contains(word), "{word} is not in: {line}");
        }
    }
    pair.lay(&folder);
    for (file, flag) in [("cert.pem", of_certificate), ("key.pem", of_key)] {
        std::fs::rename(folder.join(file), folder.join("away")).unwrap();
        let (code, line) = site.refused(|command| with_tls(command, &folder));
        assert_eq!(code, 2, "{line}");
        assert!(line.contains(flag) && line.contains(file) && line.contains("No such file"));
        std::fs::rename(folder.join("away"), folder.join(file)).unwrap();
    }
    assert!(!site.database().exists());
}
