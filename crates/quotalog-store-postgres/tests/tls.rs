//! Connections with TLS: encrypted, and to the server that is meant.

mod support;

use quotalog_store_postgres::{PostgresClock, TlsMode};
use quotalog_testkit::postgres::{Cluster, Setup};
use rcgen::CertifiedKey;

use support::config;

/// A certificate that speaks for the host, and its key.
fn certificate(host: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed([host.to_owned()]);
    let CertifiedKey { cert, signing_key } = made.expect("a certificate");
    (cert.pem(), signing_key.serialize_pem())
}

fn verified(authority: &str) -> TlsMode {
    TlsMode::VerifyFull {
        authorities_pem: authority.as_bytes().to_vec(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_who_its_certificate_says() {
    let (authority, key) = certificate("localhost");
    let (other, _) = certificate("localhost");
    let setup = Setup::new()
        .file("server.crt", authority.clone())
        .file("server.key", key)
        .setting("ssl", "on");
    let Some(cluster) = Cluster::own(&setup) else {
        return;
    };
    let database = cluster.database();
    for (host, tls, encrypted) in [
        ("localhost", TlsMode::Disable, Some(false)),
        ("localhost", TlsMode::Prefer, Some(true)),
        ("localhost", TlsMode::Require, Some(true)),
        ("127.0.0.1", TlsMode::Require, Some(true)),
        ("localhost", verified(&authority), Some(true)),
        ("127.0.0.1", verified(&authority), None),
        ("localhost", verified(&other), None),
        ("localhost", verified("no certificate"), None),
    ] {
        let mut config = config(&database, PostgresClock::Database);
        let url = database.url().replace("127.0.0.1", host);
        config.url = url.parse().expect("a URL");
        config.tls = tls.clone();
        let opened = support::open(config).await;
        match (opened, encrypted) {
            (Ok(store), Some(encrypted)) => {
                let ours = database.ask(
                    "SELECT s.ssl FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
                     WHERE a.application_name = 'quotalog'",
                );
                let expected = if encrypted { "t" } else { "f" };
                assert_eq!(ours, expected, "{host} {tls:?}");
                store.close().await;
                while database.ask(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'quotalog'",
                ) != "0"
                {
                    tokio::task::yield_now().await;
                }
            }
            (Err(error), None) => assert!(!error.may_pass(), "{host} {tls:?}: {error}"),
            (Ok(_), None) => panic!("{host} {tls:?}: it opens"),
            (Err(error), Some(_)) => panic!("{host} {tls:?}: {error}"),
        }
    }
}
