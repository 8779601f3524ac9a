//! The client: where the server is, who asks, and how long an answer is waited for.

use std::fmt;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Uri};

use crate::connect::{Connections, Settings as ConnectionSettings};
use crate::error::BoxError;

const USER_AGENT: &str = concat!("quotalog-client/", env!("CARGO_PKG_VERSION"));

/// A client of one server, with one token.
///
/// Clones share their connections. Dropping a call's future cuts its request off: what was sent may have
/// counted by then.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    pub(crate) patience: Patience,
}

pub(crate) struct Shared {
    pub(crate) connections: Connections,
    /// The server's URL without a slash at its end.
    pub(crate) base: String,
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) user_agent: HeaderValue,
}

/// How much of a failing server is borne.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) deadline: Duration,
    pub(crate) attempt_timeout: Duration,
    pub(crate) attempts_max: u32,
    pub(crate) on_outage: OnOutage,
}

/// What a consume is answered when the server could not be asked before the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnOutage {
    /// The error: whoever asked is refused, and no limit is ever exceeded.
    #[default]
    FailClosed,
    /// [`Grant::LetThrough`](crate::Grant::LetThrough): the work goes on, uncounted.
    FailOpen,
}

/// Makes a [`Client`].
#[derive(Clone)]
pub struct Builder {
    url: String,
    token: Option<String>,
    user_agent: String,
    connections: ConnectionSettings,
    patience: Patience,
}

/// Why there can be no such client.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The server's URL is none.
    #[error("{url:?} is no URL of a server: write it as in http://127.0.0.1:8200")]
    Url {
        /// What was given.
        url: String,
    },
    /// The token holds characters that no token has.
    #[error("the token must be visible ASCII characters, without a blank")]
    Token,
    /// The user agent cannot stand in a header.
    #[error("the user agent must be visible ASCII characters and blanks")]
    UserAgent,
    /// The given authorities cannot be read.
    #[error("the certificate of the authority cannot be used")]
    Authorities(#[source] BoxError),
    /// None was given, and the system has none.
    #[error("this system trusts no authority: name the server's own")]
    NoAuthorities,
}

impl Client {
    /// Starts to make a client of the server at `url`, such as `https://quotas.example:8200`.
    ///
    /// A path in it is put before every path of the server, for one behind a proxy.
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder {
            url: url.into(),
            token: None,
            user_agent: USER_AGENT.to_owned(),
            connections: ConnectionSettings {
                connect_timeout: Duration::from_secs(3),
                // Less than the server's own 75 s, so that it seldom closes what is about to be used.
                idle_timeout: Duration::from_secs(60),
                idle_max: 64,
                authorities: None,
            },
            patience: Patience {
                deadline: Duration::from_secs(15),
                // The server itself answers within 10 s, whatever becomes of its store.
                attempt_timeout: Duration::from_secs(12),
                attempts_max: u32::MAX,
                on_outage: OnOutage::FailClosed,
            },
        }
    }

    /// The same client, for calls that must end within `deadline`, retries and pauses included.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        let mut client = self.clone();
        client.patience.deadline = deadline;
        client
    }

    /// The same client, for consumes that are answered so when the server cannot be asked.
    #[must_use]
    pub fn with_on_outage(&self, on_outage: OnOutage) -> Self {
        let mut client = self.clone();
        client.patience.on_outage = on_outage;
        client
    }
}

impl Builder {
    /// The API token to show with each request.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Trust these authorities alone, in PEM, instead of the system's.
    #[must_use]
    pub fn authorities_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.connections.authorities = Some(pem.into());
        self
    }

    /// What the client calls itself.
    #[must_use]
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = user_agent.into();
        self
    }

    /// How long a call may take, retries and pauses included; 15 s if left out.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.patience.deadline = deadline;
        self
    }

    /// How long one attempt waits for its answer; 12 s if left out, which a server that answers never needs.
    #[must_use]
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.patience.attempt_timeout = timeout;
        self
    }

    /// How often a call is tried at most, the first time included; left out, until its deadline.
    #[must_use]
    pub fn attempts_max(mut self, attempts: u32) -> Self {
        self.patience.attempts_max = attempts;
        self
    }

    /// How long a connection may take to open; 3 s if left out.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connections.connect_timeout = timeout;
        self
    }

    /// How many idle connections are kept; 64 if left out. Each carries one request at a time.
    #[must_use]
    pub fn idle_connections_max(mut self, connections: usize) -> Self {
        self.connections.idle_max = connections;
        self
    }

    /// How long an idle connection is kept; 60 s if left out.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.connections.idle_timeout = timeout;
        self
    }

    /// What a consume is answered when the server cannot be asked.
    #[must_use]
    pub fn on_outage(mut self, on_outage: OnOutage) -> Self {
        self.patience.on_outage = on_outage;
        self
    }

    /// Makes the client. Nothing is connected yet.
    ///
    /// # Errors
    /// If the URL, the token, the user agent or the authorities cannot be used.
    pub fn build(self) -> Result<Client, BuildError> {
        let (base, secure) = base(&self.url)?;
        let authorization = self.token.as_deref().map(authorization).transpose()?;
        let user_agent = HeaderValue::from_str(&self.user_agent);
        Ok(Client {
            shared: Arc::new(Shared {
                connections: self.connections.connections(secure)?,
                base,
                authorization,
                user_agent: user_agent.map_err(|_unfit| BuildError::UserAgent)?,
            }),
            patience: self.patience,
        })
    }
}

impl fmt::Debug for Client {
    /// Hides the token.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Client")
            .field("url", &self.shared.base)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Builder {
    /// Hides the token.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Builder")
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

fn authorization(token: &str) -> Result<HeaderValue, BuildError> {
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(BuildError::Token);
    }
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value = value.map_err(|_unfit| BuildError::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

/// The URL that paths are appended to, and whether it asks for TLS.
fn base(url: &str) -> Result<(String, bool), BuildError> {
    let unfit = || BuildError::Url {
        // Whoever writes a password into a URL does not want to read it again in a log.
        url: match url.split_once('@') {
            Some((_secret, rest)) => format!("…@{rest}"),
            None => url.to_owned(),
        },
    };
    let parsed: Uri = url.parse().map_err(|_unfit| unfit())?;
    let (Some(scheme), Some(authority)) = (parsed.scheme_str(), parsed.authority()) else {
        return Err(unfit());
    };
    let secure = match scheme {
        "https" => true,
        "http" => false,
        _ => return Err(unfit()),
    };
    let rest = authority.as_str().strip_prefix(authority.host());
    let port = rest.map(|rest| rest.strip_prefix(':').unwrap_or(rest));
    let sound = !authority.host().is_empty()
        && port.is_some_and(|port| port.is_empty() || port.parse::<NonZeroU16>().is_ok())
        && !url.contains(['@', '?', '#', '\\']);
    if !sound {
        return Err(unfit());
    }
    let path = parsed.path().trim_end_matches('/');
    Ok((format!("{scheme}://{authority}{path}"), secure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_server_and_perhaps_a_path() {
        let check = |url: &str, expected: &str| {
            assert_eq!(base(url).unwrap().0, expected);
        };
        check("http://127.0.0.1:8200", "http://127.0.0.1:8200");
        check("http://127.0.0.1:8200/", "http://127.0.0.1:8200");
        check("HTTPS://quotas.example", "https://quotas.example");
        check("http://[::1]//", "http://[::1]");
        check("https://[::1]:8200/a/b/", "https://[::1]:8200/a/b");
        assert!(base("https://h").unwrap().1 && !base("http://h").unwrap().1);
        for url in [
            "",
            "localhost:8200",
            "/quotas",
            "ftp://h",
            "http://",
            "http:///quotas",
            "//h",
            "http:h",
            "http://[",
            "http://[::1",
            "http://[::1]x",
            "http://h:x",
            "http://h:0",
            "http://h:99999",
            "http://h/?",
            "http://h/?a=b",
            "http://h/#x",
            "http://h/@x",
            "http://h h",
            "http://h/ x",
            "http://h\\x",
            "http://user:pa55word@h",
        ] {
            let error = base(url).unwrap_err().to_string();
            assert!(error.contains("write it as in"), "{error}");
            assert!(!error.contains("pa55word"), "{error}");
        }
    }

    #[test]
    fn a_token_that_no_header_can_carry_is_refused_and_a_sound_one_never_shown() {
        let build = |token: &str| Client::builder("http://h").token(token).build();
        for token in ["", "a b", "a\nb", "a\n", "é"] {
            assert!(matches!(build(token), Err(BuildError::Token)), "{token:?}");
        }
        let builder = Client::builder("http://h").token("ql_5ecret");
        assert!(!format!("{builder:?}").contains("5ecret"));
        let client = builder.build().unwrap();
        assert!(!format!("{client:?}").contains("5ecret"));
    }

    #[test]
    fn an_authority_must_be_a_certificate() {
        for pem in [
            "",
            "no PEM",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            let built = Client::builder("https://h").authorities_pem(pem).build();
            assert!(matches!(built, Err(BuildError::Authorities(_))), "{pem}");
        }
    }
}
