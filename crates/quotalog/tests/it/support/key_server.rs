//! A server of an issuer, which publishes its keys over https or http, and counts how often it is asked.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::tls::Pair;

/// The server, which ends with the test.
pub(crate) struct KeyServer {
    pub(crate) address: SocketAddr,
    inside: Arc<Inside>,
    task: JoinHandle<()>,
}

struct Inside {
    /// The head and the body that everybody is answered.
    answer: Mutex<String>,
    asked: AtomicUsize,
}

impl KeyServer {
    /// On a port of its own, over TLS if there is a certificate.
    pub(crate) async fn start(pair: Option<&Pair>, document: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let inside = Arc::new(Inside {
            answer: Mutex::new(String::new()),
            asked: AtomicUsize::new(0),
        });
        let acceptor = pair.map(acceptor);
        let shared = Arc::clone(&inside);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, inside) = (acceptor.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    match acceptor {
                        None => answer(stream, &inside).await,
                        // Whoever does not trust the certificate leaves.
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => answer(stream, &inside).await,
                            Err(_left) => {}
                        },
                    }
                });
            }
        });
        let server = Self {
            address,
            inside,
            task,
        };
        server.publishes(document);
        server
    }

    /// Answers with this document from now on.
    pub(crate) fn publishes(&self, document: &str) {
        self.answers("200 OK", "content-type: application/json\r\n", document);
    }

    pub(crate) fn answers(&self, status: &str, fields: &str, body: &str) {
        let len = body.len();
        *self.inside.answer.lock().unwrap() = format!(
            "HTTP/1.1 {status}\r\n{fields}content-length: {len}\r\nconnection: close\r\n\r\n{body}"
        );
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.inside.asked.load(Ordering::SeqCst)
    }
}

impl Drop for KeyServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, inside: &Inside) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_left) => return,
        }
    }
    inside.asked.fetch_add(1, Ordering::SeqCst);
    let answer = inside.answer.lock().unwrap().clone();
    // Whoever has read enough leaves.
    let _left = stream.write_all(answer.as_bytes()).await;
    let _left = stream.shutdown().await;
}

fn acceptor(pair: &Pair) -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}
