//! Where a JWKS is, and how it is read: a file, or a URL of the issuer's.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::http::uri::InvalidUri;
use tokio::io::AsyncReadExt as _;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::fetch::{FetchError, Url};
use crate::key_set::KeySet;

/// The most bytes of a JWKS. A hundred keys with their certificates fit in.
pub(crate) const DOCUMENT_LEN_MAX: usize = 256 * 1024;

/// How long reading it may take.
pub(crate) const LOAD_TIME_MAX: Duration = Duration::from_secs(3);

/// Where a JWKS is.
#[derive(Debug, Clone)]
pub struct Source(Place);

#[derive(Debug, Clone)]
enum Place {
    File(PathBuf),
    Url(Box<Url>),
}

/// Why there is no JWKS.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Keys that anybody on the way could have exchanged.
    #[error(
        "keys are fetched over https alone, or over http from this machine (127.0.0.1, [::1], localhost)"
    )]
    NotSecure,
    /// A URL of another kind.
    #[error("it is neither the path of a file nor a URL that starts with https://")]
    Scheme,
    /// Not a URL.
    #[error("it is not a URL")]
    Url(#[source] InvalidUri),
    /// A URL without a host, or with a user's name.
    #[error("its URL must have a host, and no user's name or password")]
    Authority,
    /// Nobody can vouch for the issuer's server.
    #[error(
        "the system has no certificates of authorities, by which to know the server (ca-certificates)"
    )]
    NoAuthorities,
    /// The file cannot be read.
    #[error("the file cannot be read")]
    File(#[source] io::Error),
    /// The server did not give it.
    #[error("it cannot be fetched")]
    Fetch(#[source] FetchError),
    /// It took too long.
    #[error("it did not come within {} s", LOAD_TIME_MAX.as_secs())]
    TimedOut,
    /// More than any issuer has.
    #[error("it is longer than {DOCUMENT_LEN_MAX} bytes")]
    TooLong,
    /// Another document.
    #[error("it is no JWKS: a JSON object with an array `keys`")]
    NoJwks,
    /// A JWKS that lets nobody in.
    #[error("it holds no key for RS256, ES256 or EdDSA")]
    NoKeys,
}

impl Source {
    /// Reads the path of a file, or a URL. What is there is not looked at yet.
    ///
    /// # Errors
    /// [`SourceError`] when it is a URL that keys must not come from.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        let Some((scheme, _)) = text.split_once("://") else {
            return Ok(Self(Place::File(PathBuf::from(text))));
        };
        let is_secure = match &*scheme.to_ascii_lowercase() {
            "https" => true,
            "http" => false,
            _ => return Err(SourceError::Scheme),
        };
        let uri: Uri = text.parse().map_err(SourceError::Url)?;
        let authority = uri.authority().ok_or(SourceError::Authority)?;
        let host = authority.host();
        if host.is_empty() || authority.as_str().contains('@') {
            return Err(SourceError::Authority);
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if !is_secure && !is_here(host) {
            return Err(SourceError::NotSecure);
        }
        let tls = is_secure.then(tls).transpose()?;
        Ok(Self(Place::Url(Box::new(Url {
            host: host.to_owned(),
            port: authority
                .port_u16()
                .unwrap_or(if is_secure { 443 } else { 80 }),
            uri,
            tls,
        }))))
    }

    /// Whether it is a file, which can be read at any time.
    #[must_use]
    pub fn is_file(&self) -> bool {
        matches!(self.0, Place::File(_))
    }

    /// Reads it once, for somebody who wants to know whether it can be used. Returns how many keys it holds.
    ///
    /// # Errors
    /// [`SourceError`] when it cannot.
    pub async fn examine(&self) -> Result<usize, SourceError> {
        let keys = KeySet::from_jwks(&self.load().await?).ok_or(SourceError::NoJwks)?;
        match keys.keys.len() {
            0 => Err(SourceError::NoKeys),
            count => Ok(count),
        }
    }

    /// The document as it is now.
    pub(crate) async fn load(&self) -> Result<Vec<u8>, SourceError> {
        let loading = async {
            match &self.0 {
                Place::File(path) => {
                    let file = tokio::fs::File::open(path).await;
                    let mut document = Vec::new();
                    let limit = u64::try_from(DOCUMENT_LEN_MAX + 1).unwrap_or(u64::MAX);
                    let mut file = file.map_err(SourceError::File)?.take(limit);
                    let read = file.read_to_end(&mut document).await;
                    read.map_err(SourceError::File)?;
                    Ok(document)
                }
                Place::Url(url) => url.get().await.map_err(SourceError::Fetch),
            }
        };
        let loaded = tokio::time::timeout(LOAD_TIME_MAX, loading).await;
        let document = loaded.map_err(|_elapsed| SourceError::TimedOut)??;
        if document.len() > DOCUMENT_LEN_MAX {
            return Err(SourceError::TooLong);
        }
        Ok(document)
    }
}

/// Whether a host is this machine by its name; where the name leads is judged when it is connected to.
fn is_here(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// TLS that trusts the authorities of the system. Those that cannot be read are passed over, as long as there are
/// others.
fn tls() -> Result<Arc<ClientConfig>, SourceError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(SourceError::NoAuthorities);
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has cipher suites for every version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_from_a_file_over_https_or_from_this_machine() {
        for text in ["jwks.json", "/etc/quotalog/jwks.json", "a:b"] {
            assert!(Source::parse(text).unwrap().is_file(), "{text}");
        }
        for text in [
            "http://127.0.0.1:8080/jwks.json",
            "http://[::1]/jwks.json",
            "HTTP://LocalHost/",
        ] {
            assert!(!Source::parse(text).unwrap().is_file(), "{text}");
        }
        for text in [
            "http://idp.example/jwks.json",
            "http://127.0.0.1.idp.example/",
            "http://localhost.idp.example/",
            "http://10.0.0.1/",
        ] {
            assert!(
                matches!(Source::parse(text), Err(SourceError::NotSecure)),
                "{text}"
            );
        }
        for text in ["ftp://idp.example/", "file:///etc/passwd", "://x"] {
            assert!(
                matches!(Source::parse(text), Err(SourceError::Scheme)),
                "{text}"
            );
        }
        for text in ["https://", "https:///x", "https://user:secret@idp.example/"] {
            let error = Source::parse(text).unwrap_err();
            assert!(
                matches!(error, SourceError::Url(_) | SourceError::Authority),
                "{text}"
            );
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_is_not_waited_for() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let loaded = Source::parse(&url).unwrap().load().await;
        assert!(matches!(loaded, Err(SourceError::TimedOut)), "{loaded:?}");
    }
}
