//! One document of one server, fetched over a connection of its own. Redirects are not followed: they would lead to
//! where nobody has said that keys may come from.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::header::{ACCEPT, HOST, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::{InvalidDnsNameError, ServerName};

use crate::source::DOCUMENT_LEN_MAX;

/// A document and the server that has it.
#[derive(Clone)]
pub(crate) struct Url {
    pub(crate) uri: Uri,
    /// Without the brackets of an IPv6 address.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// None on this machine alone.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

/// Why a document was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No connection, or none that is secure.
    #[error("the server cannot be reached")]
    Connection(#[source] io::Error),
    /// A name that no certificate can bear.
    #[error("the server's name is none")]
    Name(#[source] InvalidDnsNameError),
    /// Not HTTP.
    #[error("the server does not speak HTTP as it should")]
    Http(#[source] hyper::Error),
    /// The server has answered, without the document.
    #[error("the server answered {0}")]
    Status(StatusCode),
    /// The document did not come whole.
    #[error("the document did not come whole")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A document that is longer than we take.
    #[error("the document is longer than {DOCUMENT_LEN_MAX} bytes")]
    TooLong,
}

impl Url {
    /// Fetches the document. The time that may take is the caller's matter.
    pub(crate) async fn get(&self) -> Result<Vec<u8>, FetchError> {
        let stream = self.connect().await.map_err(FetchError::Connection)?;
        let Some(tls) = &self.tls else {
            return self.get_over(stream).await;
        };
        let name = ServerName::try_from(self.host.clone()).map_err(FetchError::Name)?;
        let connector = TlsConnector::from(Arc::clone(tls));
        let stream = connector.connect(name, stream).await;
        self.get_over(stream.map_err(FetchError::Connection)?).await
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name leads nowhere");
        for address in lookup_host((&*self.host, self.port)).await? {
            if self.tls.is_none() && !address.ip().is_loopback() {
                failed = io::Error::other("the name leads to another machine");
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    async fn get_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Vec<u8>, FetchError> {
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(FetchError::Http)?;
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let authority = self
            .uri
            .authority()
            .map_or("", |authority| authority.as_str());
        let request = Request::get(path)
            .header(HOST, authority)
            .header(ACCEPT, "application/jwk-set+json, application/json")
            .header(USER_AGENT, "quotalog")
            .body(Empty::<Bytes>::new())
            .expect("what was parsed as a URL makes a request");
        let answer = async {
            let response = sender.send_request(request).await;
            let response = response.map_err(FetchError::Http)?;
            if response.status() != StatusCode::OK {
                return Err(FetchError::Status(response.status()));
            }
            let body = Limited::new(response.into_body(), DOCUMENT_LEN_MAX);
            let body = body.collect().await.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    FetchError::TooLong
                } else {
                    FetchError::Body(error)
                }
            })?;
            Ok(body.to_bytes().to_vec())
        };
        tokio::pin!(answer);
        // Nothing goes on once the document is there, or the caller's patience at its end.
        tokio::select! {
            answered = &mut answer => answered,
            ended = connection => match ended {
                Ok(()) => answer.await,
                Err(error) => Err(FetchError::Http(error)),
            },
        }
    }
}

/// The URL alone: the authorities that are trusted are hundreds.
impl fmt::Debug for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.uri)
    }
}
