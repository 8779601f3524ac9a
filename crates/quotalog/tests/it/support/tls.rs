//! Certificates made for a test, and clients that trust one of them alone.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rcgen::CertifiedKey;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

/// A certificate for localhost and its key.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
    der: CertificateDer<'static>,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]);
        let CertifiedKey { cert, signing_key } = made.unwrap();
        Self {
            certificate: cert.pem(),
            key: signing_key.serialize_pem(),
            der: cert.der().clone(),
        }
    }

    /// Lays both into a folder, as `cert.pem` and `key.pem`.
    pub(crate) fn lay(&self, folder: &Path) {
        std::fs::create_dir_all(folder).unwrap();
        put(&folder.join("cert.pem"), &self.certificate);
        put(&folder.join("key.pem"), &self.key);
    }

    /// A connection of a client that trusts this certificate alone.
    pub(crate) async fn connect(&self, address: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        self.connect_with(address, &[&TLS13, &TLS12], &[]).await
    }

    /// The same, with these versions of TLS and these protocols over it.
    pub(crate) async fn connect_with(
        &self,
        address: SocketAddr,
        versions: &[&'static SupportedProtocolVersion],
        protocols: &[&str],
    ) -> io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().into())
            .collect();
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }
}

/// Writes a file that is never seen half written.
pub(crate) fn put(path: &Path, text: &str) {
    let draft = path.with_extension("draft");
    std::fs::write(&draft, text).unwrap();
    std::fs::rename(draft, path).unwrap();
}

/// Has a server take its certificate and key from a folder.
pub(crate) fn with_tls<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    command
        .env("QUOTALOG_TLS_CERT", folder.join("cert.pem"))
        .env("QUOTALOG_TLS_KEY", folder.join("key.pem"))
}
