//! TLS: the certificate and its key, read from files that may change while the server runs.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{self, ServerConfig};

/// The largest file that is read; a chain of certificates takes some kilobytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

const NO_PEM: &str = "is broken: it is no sound PEM";
const UNSUPPORTED_KEY: &str = "holds a key that TLS cannot use; make one of the kind ECDSA (P-256 or P-384), \
                               RSA (2048 bits or more) or Ed25519";

/// Where the certificate and its key lie, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, then those of its issuers.
    pub certificate: PathBuf,
    /// The private key of the server's certificate.
    pub key: PathBuf,
}

/// The certificate in force. Clones share it.
#[derive(Debug, Clone)]
pub struct Tls {
    files: Arc<TlsFiles>,
    in_force: Arc<InForce>,
    config: Arc<ServerConfig>,
    /// What was last read, whether or not it came into force.
    read: Arc<Mutex<Contents>>,
}

/// Why a certificate cannot be used. The texts are for whoever keeps the files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file of the certificate is at fault.
    #[error("{} {fault}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
    /// The file of the key is at fault.
    #[error("{} {fault}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
    /// Each would do, but not together.
    #[error(
        "the key in {} is not that of the first certificate in {}; name two files of one pair, the server's \
         own certificate first",
        .0.key.display(), .0.certificate.display()
    )]
    Mismatch(TlsFiles),
}

/// Both files' contents, or why they cannot be read.
#[derive(Clone, PartialEq, Eq)]
struct Contents {
    certificate: Result<Vec<u8>, String>,
    key: Result<Vec<u8>, String>,
}

/// Hands each handshake the certificate that is in force by then.
#[derive(Debug)]
struct InForce(RwLock<Arc<CertifiedKey>>);

impl Tls {
    /// Reads both files.
    ///
    /// # Errors
    /// If they cannot be read, or are no pair that TLS can use.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let contents = Contents::read(&files);
        let in_force = Arc::new(InForce(RwLock::new(contents.certified(&files)?)));
        Ok(Self {
            files: Arc::new(files),
            config: Arc::new(config(Arc::clone(&in_force))),
            in_force,
            read: Arc::new(Mutex::new(contents)),
        })
    }

    /// Reads both files again, and has what they hold come into force. None if they are as they were last
    /// time.
    ///
    /// # Errors
    /// As of [`Tls::load`]; then the certificate before stays in force.
    pub fn load_changed(&self) -> Option<Result<(), TlsError>> {
        let contents = Contents::read(&self.files);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if contents == *read {
            return None;
        }
        let certified = contents.certified(&self.files);
        *read = contents;
        Some(certified.map(|certified| self.in_force.replace(certified)))
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }
}

fn config(in_force: Arc<InForce>) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .expect("ring has cipher suites for both versions")
        .with_no_client_auth()
        .with_cert_resolver(in_force);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

impl InForce {
    fn replace(&self, certified: Arc<CertifiedKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = certified;
    }
}

impl ResolvesServerCert for InForce {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certified = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&certified))
    }
}

impl Contents {
    fn read(files: &TlsFiles) -> Self {
        Self {
            certificate: read(&files.certificate),
            key: read(&files.key),
        }
    }

    fn certified(&self, files: &TlsFiles) -> Result<Arc<CertifiedKey>, TlsError> {
        let of_certificate = |fault| TlsError::Certificate {
            path: files.certificate.clone(),
            fault,
        };
        let of_key = |fault| TlsError::Key {
            path: files.key.clone(),
            fault,
        };
        let chain = self.certificate.clone().and_then(|pem| chain(&pem));
        let chain = chain.map_err(of_certificate)?;
        let key = self.key.clone().and_then(|pem| key(&pem));
        let key = ring::sign::any_supported_type(&key.map_err(of_key)?);
        let key = key.map_err(|_unsupported| of_key(UNSUPPORTED_KEY.to_owned()))?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) => Ok(Arc::new(certified)),
            Err(rustls::Error::InconsistentKeys(_)) => Err(TlsError::Mismatch(files.clone())),
            Err(error) => Err(of_certificate(format!(
                "holds a certificate that TLS cannot use: {error}"
            ))),
        }
    }
}

impl fmt::Debug for Contents {
    /// Shows neither.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Contents").finish_non_exhaustive()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let read = |path| -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?
            .take(FILE_BYTES_MAX)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read(path).map_err(|error| format!("cannot be read: {error}"))
}

fn chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|_broken| NO_PEM.to_owned())?;
    if chain.is_empty() {
        return Err(
            "holds no certificate in PEM; it must hold the server's own, then those of its issuers"
                .to_owned(),
        );
    }
    Ok(chain)
}

fn key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let says = |words: &[u8]| pem.windows(words.len()).any(|window| window == words);
    if says(b"BEGIN ENCRYPTED PRIVATE KEY") || says(b"Proc-Type: 4,ENCRYPTED") {
        return Err(
            "is encrypted, and nobody is there to give its passphrase; decrypt it with: openssl pkey"
                .to_owned(),
        );
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
        if matches!(error, pem::Error::NoItemsFound) {
            "holds no private key in PEM".to_owned()
        } else {
            NO_PEM.to_owned()
        }
    })
}
