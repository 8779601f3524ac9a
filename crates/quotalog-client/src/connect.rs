//! Connections to the server: a pool of them, with TLS or without.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::client::BuildError;

/// The connections of a client.
pub(crate) type Connections = Pool<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Which connections to make, and how many to keep.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) connect_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) idle_max: usize,
    /// PEM of the only authorities to trust; those of the system if there is none.
    pub(crate) authorities: Option<Vec<u8>>,
}

impl Settings {
    /// `secure` says whether the server speaks TLS; the system's authorities are not read for nothing.
    pub(crate) fn connections(&self, secure: bool) -> Result<Connections, BuildError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(self.connect_timeout));
        let roots = match &self.authorities {
            Some(pem) => given(pem)?,
            None if secure => of_the_system()?,
            None => RootCertStore::empty(),
        };
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring has cipher suites for every version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        // One request at a time on each: a connection that hangs then costs one request, which ends it.
        Ok(Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(self.idle_timeout)
            .pool_max_idle_per_host(self.idle_max)
            .build(connector))
    }
}

fn given(pem: &[u8]) -> Result<RootCertStore, BuildError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| BuildError::Authorities(error.into()))?;
        let added = roots.add(certificate);
        added.map_err(|error| BuildError::Authorities(error.into()))?;
    }
    if roots.is_empty() {
        return Err(BuildError::Authorities(
            "it holds no certificate in PEM".into(),
        ));
    }
    Ok(roots)
}

/// Those that cannot be read are passed over, as long as there are others.
fn of_the_system() -> Result<RootCertStore, BuildError> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        return Err(BuildError::NoAuthorities);
    }
    Ok(roots)
}
