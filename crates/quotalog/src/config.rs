//! From arguments to a configuration that was checked before anything opens.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quotalog_auth::{Token, TokenHash};
use quotalog_grpc::Keys;
use quotalog_http::{Cors, Origin, TlsFiles};
use quotalog_ledger::store::Retention;

use crate::duration::Seconds;
use crate::exit_code::{Exit, Failure};
use crate::postgres_url::PostgresUrl;

/// The shortest retention of usage: a day and the clock's doubts about it.
const USAGE_RETENTION_MIN: Seconds = Seconds(2 * Seconds::DAY.0);
/// The shortest retention of the audit: somebody must have the time to look.
const AUDIT_RETENTION_MIN: Seconds = Seconds::DAY;
/// The shortest admin token of the environment, in characters.
const ADMIN_TOKEN_LEN_MIN: usize = 32;

/// The setting that names a command's database.
pub(crate) const DATABASE: &str = "--database (QUOTALOG_DATABASE)";

/// Where the data is.
#[derive(Debug, Clone)]
pub(crate) enum Database {
    /// An SQLite file.
    Sqlite(SqliteFile),
    /// A database on a PostgreSQL server.
    Postgres(Box<PostgresUrl>),
}

/// The path of an SQLite file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SqliteFile(pub(crate) PathBuf);

/// The connections to a PostgreSQL server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connections {
    /// How many commit batches.
    pub(crate) lanes: usize,
    /// How many there are for all else.
    pub(crate) readers: usize,
    /// How long one may take to be made, where the URL does not say it; `None` is the store's own choice.
    pub(crate) made_within: Option<Duration>,
}

impl Connections {
    /// A command asks one thing after the other, and nobody's request waits for it: it can bear with a busy server.
    pub(crate) const OF_A_COMMAND: Self = Self {
        lanes: 1,
        readers: 1,
        made_within: Some(Duration::from_secs(4)),
    };
}

/// An address to listen on, and the setting that names it, for the error if it cannot be had.
#[derive(Debug, Clone)]
pub(crate) struct Listen {
    pub(crate) address: String,
    pub(crate) flag: &'static str,
    pub(crate) variable: &'static str,
}

/// What Envoy's rate-limit service needs.
#[derive(Debug, Clone)]
pub(crate) struct RateLimits {
    pub(crate) listen: Listen,
    pub(crate) keys: Keys,
}

/// What `serve` needs.
#[derive(Debug, Clone)]
pub(crate) struct Serve {
    pub(crate) listen: Listen,
    pub(crate) metrics_listen: Option<Listen>,
    pub(crate) rate_limits: Option<RateLimits>,
    pub(crate) cors: Cors,
    pub(crate) requests_per_caller_max: usize,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) head_timeout: Seconds,
    pub(crate) idle_timeout: Seconds,
    pub(crate) connections_max: usize,
    pub(crate) database: Database,
    pub(crate) database_connections: Connections,
    pub(crate) token_file: PathBuf,
    pub(crate) admin_token: Option<TokenHash>,
    pub(crate) jwt: Option<quotalog_jwt::Settings>,
    pub(crate) retention: Retention,
    pub(crate) shutdown_delay: Seconds,
    pub(crate) shutdown_deadline: Seconds,
}

impl Serve {
    /// How many batches are committed at once: an SQLite file takes one after the other.
    pub(crate) fn lanes(&self) -> usize {
        match self.database {
            Database::Sqlite(_) => 1,
            Database::Postgres(_) => self.database_connections.lanes,
        }
    }
}

impl Database {
    /// Reads `sqlite:PATH` or the URL of a PostgreSQL database.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        Self::parse_as(DATABASE, text)
    }

    /// The same, of another setting.
    pub(crate) fn parse_as(setting: &str, text: &str) -> anyhow::Result<Self> {
        let wrong = |what: &str| {
            let message = format!(
                "{setting} {what}; write sqlite: and the path of a file, such \
                 as sqlite:quotalog.db, or postgres://USER@HOST/DATABASE"
            );
            Failure::error(Exit::Usage, message)
        };
        let Some((scheme, path)) = text.split_once(':') else {
            return Err(wrong("names no kind of database"));
        };
        match scheme {
            "sqlite" => {}
            "postgres" | "postgresql" if path.starts_with("//") => {
                let url = PostgresUrl::parse(text, &|name| std::env::var_os(name));
                let url = url.map_err(|error| {
                    let message = format!("{setting} {error}");
                    Failure::error(Exit::Usage, message)
                })?;
                return Ok(Self::Postgres(Box::new(url)));
            }
            "postgres" | "postgresql" => return Err(wrong("names no PostgreSQL server")),
            _ => {
                return Err(wrong(
                    "names a kind of database that quotalog does not know",
                ));
            }
        }
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path.starts_with(":memory:") || path.contains('\0') {
            return Err(wrong(
                "names no file, and a count in memory would not be durable",
            ));
        }
        Ok(Self::Sqlite(SqliteFile(PathBuf::from(path))))
    }

    /// Refuses a file that is not there, so that a misspelt path makes no new one. A PostgreSQL server
    /// refuses by itself a database that it does not have.
    pub(crate) fn must_exist(&self) -> anyhow::Result<()> {
        self.must_exist_as(DATABASE)
    }

    /// The same, of another setting.
    pub(crate) fn must_exist_as(&self, setting: &str) -> anyhow::Result<()> {
        match self {
            Self::Sqlite(file) => file.must_exist(setting),
            Self::Postgres(_) => Ok(()),
        }
    }

    /// Whether both are one file, under whatever names.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        let identity = |database: &Self| match database {
            Self::Sqlite(SqliteFile(path)) => {
                let metadata = path.metadata().ok()?;
                Some((metadata.dev(), metadata.ino()))
            }
            Self::Postgres(_) => None,
        };
        identity(self).is_some_and(|identity_of_self| identity(other) == Some(identity_of_self))
    }

    /// Which kind of database it is, as its URL begins.
    fn scheme(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            Self::Postgres(_) => "postgres",
        }
    }

    /// Kind and place, for the log: neither the user nor the password is in it.
    pub(crate) fn for_log(&self) -> String {
        format!("{} {self}", self.scheme())
    }

    /// Where the first admin token is written by default: beside the file, or in the working directory.
    pub(crate) fn token_file(&self) -> PathBuf {
        let folder = match self {
            Self::Sqlite(SqliteFile(path)) => path.parent(),
            Self::Postgres(_) => None,
        };
        folder.unwrap_or_else(|| Path::new("")).join("admin-token")
    }
}

/// Where it is, for people.
impl fmt::Display for Database {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(file) => write!(formatter, "{}", file.absolute().display()),
            Self::Postgres(url) => url.fmt(formatter),
        }
    }
}

impl SqliteFile {
    fn must_exist(&self, setting: &str) -> anyhow::Result<()> {
        if self.0.exists() {
            return Ok(());
        }
        let message = format!(
            "there is no database at {}; name the right one with {setting}, or start the server, which makes it",
            self.absolute().display()
        );
        Err(Failure::error(Exit::NotFound, message))
    }

    /// The path in full, for people.
    pub(crate) fn absolute(&self) -> PathBuf {
        std::path::absolute(&self.0).unwrap_or_else(|_| self.0.clone())
    }
}

/// Checks the form of an address to listen on; whether it can be had shows when it is taken.
pub(crate) fn listen(
    flag: &'static str,
    variable: &'static str,
    address: &str,
) -> anyhow::Result<Listen> {
    let has_port = address
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if has_port {
        return Ok(Listen {
            address: address.to_owned(),
            flag,
            variable,
        });
    }
    let message = format!(
        "{flag} ({variable}) is {address:?}: write an address and a port, such as 127.0.0.1:8200"
    );
    Err(Failure::error(Exit::Usage, message))
}

/// Reads the origins whose pages may use the server.
pub(crate) fn cors(origins: &[String]) -> anyhow::Result<Cors> {
    let origins = origins.iter().map(|text| {
        Origin::try_from(&**text).map_err(|error| {
            let message = format!(
                "--cors-origin (QUOTALOG_CORS_ORIGIN) {text:?} {error}: write a scheme, a host and perhaps a port, \
                 such as https://app.example or http://localhost:3000"
            );
            Failure::error(Exit::Usage, message)
        })
    });
    origins.collect::<anyhow::Result<_>>().map(Cors::of)
}

/// Reads one duration setting.
pub(crate) fn seconds(flag: &str, variable: &str, text: &str) -> anyhow::Result<Seconds> {
    text.parse().map_err(|error| {
        Failure::error(
            Exit::Usage,
            format!("{flag} ({variable}) is {text:?}: {error}"),
        )
    })
}

/// Reads the duration of a wait, which is no wait at all if it is 0.
pub(crate) fn wait(flag: &str, variable: &str, text: &str) -> anyhow::Result<Seconds> {
    let wait = seconds(flag, variable, text)?;
    if wait.0 == 0 {
        let message = format!(
            "{flag} ({variable}) is {text:?}: it must be at least 1s, or no client is fast enough"
        );
        return Err(Failure::error(Exit::Usage, message));
    }
    Ok(wait)
}

/// Checks that the two keys of a descriptor can be told apart.
pub(crate) fn rls_keys(user: &str, resource: &str) -> anyhow::Result<Keys> {
    let settings = [
        ("--rls-user-key (QUOTALOG_RLS_USER_KEY)", user),
        ("--rls-resource-key (QUOTALOG_RLS_RESOURCE_KEY)", resource),
    ];
    for (setting, key) in settings {
        if key.is_empty() {
            let message = format!("{setting} is empty: write the key of a descriptor's entry");
            return Err(Failure::error(Exit::Usage, message));
        }
    }
    if user == resource {
        let [(user_key, _), (resource_key, _)] = settings;
        let message =
            format!("{user_key} and {resource_key} are both {user:?}: one entry cannot be both");
        return Err(Failure::error(Exit::Usage, message));
    }
    Ok(Keys {
        user: user.to_owned(),
        resource: resource.to_owned(),
    })
}

/// Checks that the certificate and its key are given together; what they hold is read at the start.
pub(crate) fn tls(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> anyhow::Result<Option<TlsFiles>> {
    let (given, missing) = match (certificate, key) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => return Ok(Some(TlsFiles { certificate, key })),
        (Some(_), None) => (
            "--tls-cert (QUOTALOG_TLS_CERT)",
            "--tls-key (QUOTALOG_TLS_KEY)",
        ),
        (None, Some(_)) => (
            "--tls-key (QUOTALOG_TLS_KEY)",
            "--tls-cert (QUOTALOG_TLS_CERT)",
        ),
    };
    let message = format!("{given} is of no use without {missing}: set both, or none");
    Err(Failure::error(Exit::Usage, message))
}

/// Checks the retentions.
pub(crate) fn retention(usage: &str, idempotency: &str, audit: &str) -> anyhow::Result<Retention> {
    let usage = seconds("--usage-retention", "QUOTALOG_USAGE_RETENTION", usage)?;
    if usage < USAGE_RETENTION_MIN {
        let message = format!(
            "--usage-retention (QUOTALOG_USAGE_RETENTION) is {usage}: it must be at least \
             {USAGE_RETENTION_MIN}, so that no window in use is pruned"
        );
        return Err(Failure::error(Exit::Usage, message));
    }
    let idempotency_text = idempotency;
    let idempotency = seconds(
        "--idempotency-retention",
        "QUOTALOG_IDEMPOTENCY_RETENTION",
        idempotency_text,
    )?;
    if idempotency.0 == 0 {
        let message = format!(
            "--idempotency-retention (QUOTALOG_IDEMPOTENCY_RETENTION) is {idempotency_text:?}: it must be at least \
             1s, so that a retry finds its answer; 24h is usual"
        );
        return Err(Failure::error(Exit::Usage, message));
    }
    let audit = seconds("--audit-retention", "QUOTALOG_AUDIT_RETENTION", audit)?;
    if audit < AUDIT_RETENTION_MIN {
        let message = format!(
            "--audit-retention (QUOTALOG_AUDIT_RETENTION) is {audit}: it must be at least \
             {AUDIT_RETENTION_MIN}, or nobody could look up who changed what"
        );
        return Err(Failure::error(Exit::Usage, message));
    }
    Ok(Retention {
        usage_s: usage.get(),
        idempotency_s: idempotency.get(),
        audit_s: audit.get(),
    })
}

/// Reads the admin token of the environment, which is kept as a hash only.
pub(crate) fn admin_token() -> anyhow::Result<Option<TokenHash>> {
    let Some(text) = std::env::var_os("QUOTALOG_ADMIN_TOKEN") else {
        return Ok(None);
    };
    let sound = text
        .to_str()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))
        .filter(|text| text.len() >= ADMIN_TOKEN_LEN_MIN);
    match sound {
        Some(text) => Ok(Some(Token::presented(text).hash())),
        None => Err(Failure::error(
            Exit::Usage,
            "QUOTALOG_ADMIN_TOKEN must be at least 32 visible ASCII characters, such as the output \
             of: openssl rand -hex 32",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_a_scheme_and_a_path() {
        let path = |text| match Database::parse(text).unwrap() {
            Database::Sqlite(SqliteFile(path)) => path,
            Database::Postgres(url) => panic!("{url}"),
        };
        assert_eq!(path("sqlite:quotalog.db"), Path::new("quotalog.db"));
        assert_eq!(path("sqlite:/var/lib/q.db"), Path::new("/var/lib/q.db"));
        assert_eq!(path("sqlite:///var/lib/q.db"), Path::new("/var/lib/q.db"));
        for text in [
            "",
            "quotalog.db",
            "sqlite:",
            "sqlite::memory:",
            "mysql://x",
            "postgres:quotalog",
            "postgres://u:secret@h/d?color=red",
        ] {
            let error = Database::parse(text).unwrap_err().to_string();
            assert!(error.contains("QUOTALOG_DATABASE"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_database_of_postgresql_is_a_url() {
        for text in ["postgres://u@h/d", "postgresql://u:secret@h:1,i:2/d"] {
            let database = Database::parse(text).unwrap();
            assert!(matches!(database, Database::Postgres(_)), "{database:?}");
            assert!(!format!("{database:?}").contains("secret"));
            assert_eq!(database.token_file(), Path::new("admin-token"));
        }
    }

    #[test]
    fn the_token_file_lies_beside_the_database() {
        let file = |text| Database::parse(text).unwrap().token_file();
        assert_eq!(file("sqlite:quotalog.db"), Path::new("admin-token"));
        assert_eq!(
            file("sqlite:/var/lib/q.db"),
            Path::new("/var/lib/admin-token")
        );
    }

    #[test]
    fn a_retention_that_would_prune_too_early_is_refused() {
        assert!(retention("2d", "24h", "1d").is_ok());
        for (usage, idempotency, audit) in [
            ("47h", "24h", "400d"),
            ("35", "24h", "400d"),
            ("35d", "0s", "400d"),
            ("35d", "x", "400d"),
            ("35d", "24h", "23h"),
            ("35d", "24h", "forever"),
        ] {
            let error = retention(usage, idempotency, audit)
                .unwrap_err()
                .to_string();
            assert!(
                !error.contains('\n') && error.contains("QUOTALOG_"),
                "{error}"
            );
        }
    }
}
