//! Why a database cannot be used: one line each, saying what to change.

/// Why a store was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No server answers, or it takes no connections now. The same may work later.
    #[error("PostgreSQL cannot be reached ({0})")]
    Unreachable(String),
    /// The server does not let us in, or does not let us make the tables.
    #[error("PostgreSQL refuses ({0}); change the URL, or what the role may do")]
    Refused(String),
    /// The certificates of the authorities are none.
    #[error(
        "the certificates to check PostgreSQL's own with cannot be used ({0}); name another file"
    )]
    Authorities(String),
    /// A newer program has changed the tables.
    #[error(
        "the database has schema {found}, and this program knows schemas up to {known}; run a newer version of it"
    )]
    NewerSchema {
        /// The schema of the database.
        found: i32,
        /// The newest schema that this program knows.
        known: i32,
    },
    /// An older program has made the tables, and nothing may be changed now.
    #[error(
        "the database has schema {found}, and schema {known} is needed; start this version on it once, such as by \
         `quotalog token list`"
    )]
    OlderSchema {
        /// The schema of the database.
        found: i32,
        /// The newest schema that this program knows.
        known: i32,
    },
    /// Tables are to be made or changed, which takes a session and not a pooler.
    #[error(
        "the database has schema {found}, and schema {known} is needed; start this version once straight on \
         PostgreSQL, without pooler=transaction, such as by `quotalog token list`"
    )]
    Pooled {
        /// The schema of the database.
        found: i32,
        /// The newest schema that this program knows.
        known: i32,
    },
    /// What is to be done takes a session, and a pooler gives none.
    #[error("this takes a session of its own; name PostgreSQL itself, without pooler=transaction")]
    NeedsSession,
    /// None of our tables is there, and none may be made now.
    #[error(
        "the database holds no tables of quotalog; name another one, or start quotalog on it once"
    )]
    NoTables,
    /// It is copied already, or into itself.
    #[error("the database is being copied, from or to; it cannot be copied into itself")]
    Copied,
    /// The record of the migrations is not one that this program wrote.
    #[error("the database has a schema of another kind ({0}); name another database")]
    ForeignSchema(String),
    /// The database cannot hold every id.
    #[error(
        "the database has the encoding {0}, in which not every id can be kept; name one that was made with \
         ENCODING 'UTF8'"
    )]
    Encoding(String),
    /// The server is older than what we need.
    #[error("PostgreSQL is version {found}, and this program needs {needed} or newer; upgrade it")]
    TooOld {
        /// The server's version.
        found: String,
        /// The oldest version that works.
        needed: u32,
    },
    /// Anything else that PostgreSQL says.
    #[error("the database cannot be opened ({0})")]
    Postgres(String),
}

impl OpenError {
    /// Whether the same may work later without this program being set otherwise: the database is starting, failing
    /// over, or full of connections, or somebody else is to bring its tables up to date.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Pooled { .. })
    }
}
