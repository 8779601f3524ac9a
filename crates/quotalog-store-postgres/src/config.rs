//! Which database, and how it is used.

use std::fmt;
use std::sync::Arc;

use quotalog_domain::Timestamp;
use quotalog_ledger::clock::Clock;

/// Which database, and how it is used.
#[derive(Debug, Clone)]
pub struct PostgresConfig {
    /// Where it is and who asks: hosts, user, password, the database's name.
    pub url: tokio_postgres::Config,
    /// How connections are encrypted; it says which mode of the URL is in force.
    pub tls: TlsMode,
    /// Whether a pooler is in between that gives each transaction a session of its own choice.
    pub is_pooled: bool,
    /// Connections that commit batches, at least 1.
    pub lanes: usize,
    /// Connections that answer questions, change tokens, erase and prune, at least 1.
    pub readers: usize,
    /// Kept answers older than this, in seconds, are not replayed.
    pub idempotency_retention_s: i64,
    /// Where the time comes from.
    pub clock: PostgresClock,
}

/// How connections are encrypted, and how far the server is trusted to be the right one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsMode {
    /// Not at all.
    Disable,
    /// Where the server can; whoever it is.
    Prefer,
    /// Always; whoever the server is.
    Require,
    /// Always, with a server whose certificate one of these authorities has signed for the host's name.
    VerifyFull {
        /// Certificates in PEM.
        authorities_pem: Vec<u8>,
    },
}

/// Where the time comes from.
#[derive(Clone)]
pub enum PostgresClock {
    /// The database, whose clock is the one clock of all nodes.
    Database,
    /// A clock that is set: for tests.
    Fixed(Arc<dyn Clock>),
}

impl PostgresClock {
    /// The instant of a transaction that begins now; `None` if the database is to say it.
    pub(crate) fn instant(&self) -> Option<Timestamp> {
        match self {
            Self::Database => None,
            Self::Fixed(clock) => Some(clock.now()),
        }
    }
}

impl fmt::Debug for PostgresClock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Database => "Database",
            Self::Fixed(_) => "Fixed",
        })
    }
}
