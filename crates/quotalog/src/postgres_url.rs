//! The URL of a PostgreSQL database, as PostgreSQL's own clients read it, and where its password comes from.
//!
//! What is wrong with a URL is told without the URL, since that may hold the password.

use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;
use quotalog_store_postgres::TlsMode;
use quotalog_store_postgres::url::{Config, Host, TargetSessionAttrs};

/// The port of a URL that names none.
const PORT: u16 = 5432;

/// A database on a PostgreSQL server, and how to get there.
#[derive(Debug, Clone)]
pub(crate) struct PostgresUrl {
    pub(crate) server: Config,
    pub(crate) tls: TlsMode,
    /// Whether a pooler is in between that gives each transaction a session of its own choice.
    pub(crate) is_pooled: bool,
}

/// What is wrong with a URL, as the end of a sentence that begins with its setting.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UrlError {
    #[error("holds more than one @; write %40 for one in a name or a password")]
    ManyAts,
    #[error("cannot be read: {0}")]
    Unreadable(String),
    #[error("names no host")]
    NoHost,
    #[error("names no user, and neither PGUSER nor USER is set")]
    NoUser,
    #[error("names {0} twice")]
    Repeated(String),
    #[error("has an sslmode that is none of disable, prefer, require and verify-full")]
    SslMode,
    #[error(
        "has sslmode=verify-full, which needs the file of a certificate authority: sslrootcert"
    )]
    NoAuthorities,
    #[error("has an sslrootcert, which is of use with sslmode=verify-full alone")]
    UnusedAuthorities,
    #[error("names the certificates {}, which cannot be read ({error})", path.display())]
    Authorities { path: PathBuf, error: io::Error },
    #[error(
        "has a pooler that is not transaction; leave it out where each connection is a session"
    )]
    Pooler,
    #[error("has target_session_attrs=read-only, and quotalog writes; write read-write")]
    ReadOnly,
    #[error("is to find its password in {}, which cannot be read ({error})", path.display())]
    Passfile { path: PathBuf, error: io::Error },
    #[error(
        "is to find its password in {}, which others than its owner may use; chmod it to 0600",
        .0.display()
    )]
    OpenPassfile(PathBuf),
    #[error(
        "names hosts for which {} has different passwords; give them the same, or set PGPASSWORD",
        .0.display()
    )]
    ManyPasswords(PathBuf),
}

/// How a URL's variables are looked up: by name.
pub(crate) type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The parameters that are ours to read: the driver does not know them, or not all of their values.
#[derive(Default)]
struct Ours {
    ssl_mode: Option<OsString>,
    ssl_root_cert: Option<OsString>,
    passfile: Option<OsString>,
    pooler: Option<OsString>,
}

impl PostgresUrl {
    /// Reads a URL. The password is the URL's, else that of `PGPASSWORD`, else that of the passfile.
    pub(crate) fn parse(text: &str, variables: Variables<'_>) -> Result<Self, UrlError> {
        // Another one would end the password early, and show the rest of it as the host.
        if text.matches('@').count() > 1 {
            return Err(UrlError::ManyAts);
        }
        let (text, ours) = Ours::taken_out_of(text)?;
        let mut server = text.parse::<Config>().map_err(|error| {
            let cause = error.source().map(ToString::to_string);
            UrlError::Unreadable(cause.unwrap_or_else(|| error.to_string()))
        })?;
        if server.get_hosts().is_empty() && server.get_hostaddrs().is_empty() {
            return Err(UrlError::NoHost);
        }
        complete(&mut server, variables)?;
        if server.get_password().is_none()
            && let Some(password) = password(&server, ours.passfile.as_deref(), variables)?
        {
            server.password(password);
        }
        let tls = tls(&ours)?;
        let is_pooled = match ours.pooler.as_deref().map(OsStr::as_bytes) {
            None => false,
            Some(b"transaction") => true,
            Some(_) => return Err(UrlError::Pooler),
        };
        Ok(Self {
            server,
            tls,
            is_pooled,
        })
    }
}

/// Where it is, for people: the hosts and the database's name.
impl fmt::Display for PostgresUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<_> = hosts(&self.server)
            .map(|(host, port)| format!("{host}:{port}"))
            .collect();
        let database = self.server.get_dbname().unwrap_or_default();
        write!(formatter, "{}/{database}", hosts.join(","))
    }
}

impl Ours {
    /// The URL without our parameters, and those.
    fn taken_out_of(text: &str) -> Result<(String, Self), UrlError> {
        let mut ours = Self::default();
        // A question mark before the @ is the password's.
        let host_at = text.find('@').unwrap_or(0);
        let (head, tail) = text.split_at(host_at);
        let Some((place, parameters)) = tail.split_once('?') else {
            return Ok((text.to_owned(), ours));
        };
        let mut others = Vec::new();
        for parameter in parameters.split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or(("", ""));
            let own = match name {
                "sslmode" => &mut ours.ssl_mode,
                "sslrootcert" => &mut ours.ssl_root_cert,
                "passfile" => &mut ours.passfile,
                "pooler" => &mut ours.pooler,
                _ => {
                    others.push(parameter);
                    continue;
                }
            };
            let value = OsString::from_vec(percent_decode_str(value).collect());
            if own.replace(value).is_some() {
                return Err(UrlError::Repeated(name.to_owned()));
            }
        }
        let mark = if others.is_empty() { "" } else { "?" };
        Ok((format!("{head}{place}{mark}{}", others.join("&")), ours))
    }
}

/// Adds what a URL may leave out.
fn complete(server: &mut Config, variables: Variables<'_>) -> Result<(), UrlError> {
    if server.get_user().is_none() {
        let user = ["PGUSER", "USER"].into_iter().find_map(|name| {
            let user = variables(name)?.into_string().ok()?;
            (!user.is_empty()).then_some(user)
        });
        server.user(user.ok_or(UrlError::NoUser)?);
    }
    if server.get_dbname().is_none() {
        let user = server.get_user().unwrap_or_default().to_owned();
        server.dbname(user);
    }
    let wanted = server.get_target_session_attrs();
    if wanted == TargetSessionAttrs::ReadOnly {
        return Err(UrlError::ReadOnly);
    }
    // All but one of several hosts are standbys, and we write.
    if hosts(server).count() > 1 {
        server.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    Ok(())
}

fn tls(ours: &Ours) -> Result<TlsMode, UrlError> {
    let mode = ours.ssl_mode.as_deref().map(OsStr::as_bytes);
    let mode = match (mode, &ours.ssl_root_cert) {
        (Some(b"verify-full"), None) => return Err(UrlError::NoAuthorities),
        (Some(b"verify-full"), Some(path)) => {
            let authorities_pem = std::fs::read(path).map_err(|error| UrlError::Authorities {
                path: path.into(),
                error,
            })?;
            return Ok(TlsMode::VerifyFull { authorities_pem });
        }
        (Some(b"disable"), _) => TlsMode::Disable,
        (Some(b"prefer") | None, _) => TlsMode::Prefer,
        (Some(b"require"), _) => TlsMode::Require,
        (Some(_), _) => return Err(UrlError::SslMode),
    };
    match ours.ssl_root_cert {
        None => Ok(mode),
        // Whoever names it believes that the server is checked.
        Some(_) => Err(UrlError::UnusedAuthorities),
    }
}

/// The password that the URL does not hold.
fn password(
    server: &Config,
    passfile: Option<&OsStr>,
    variables: Variables<'_>,
) -> Result<Option<Vec<u8>>, UrlError> {
    let set = |name| variables(name).filter(|value| !value.is_empty());
    if let Some(password) = set("PGPASSWORD") {
        return Ok(Some(password.into_vec()));
    }
    let named = passfile.map(OsStr::to_owned).or_else(|| set("PGPASSFILE"));
    let (path, is_named) = match (named, set("HOME")) {
        (Some(path), _) => (PathBuf::from(path), true),
        (None, Some(home)) => (Path::new(&home).join(".pgpass"), false),
        (None, None) => return Ok(None),
    };
    let text = match read_private(&path) {
        Ok(text) => text,
        Err(UrlError::Passfile { .. }) if !is_named => return Ok(None),
        Err(error) => return Err(error),
    };
    let user = server.get_user().unwrap_or_default();
    let database = server.get_dbname().unwrap_or_default();
    let mut found: Vec<String> = hosts(server)
        .filter_map(|(host, port)| entry(&text, [&host, &port.to_string(), database, user]))
        .collect();
    found.dedup();
    match &*found {
        [] => Ok(None),
        [password] => Ok(Some(password.clone().into_bytes())),
        // The driver knows one for all hosts.
        [..] => Err(UrlError::ManyPasswords(path)),
    }
}

fn read_private(path: &Path) -> Result<String, UrlError> {
    let failed = |error| UrlError::Passfile {
        path: path.to_owned(),
        error,
    };
    let mode = std::fs::metadata(path)
        .map_err(failed)?
        .permissions()
        .mode();
    let text = std::fs::read_to_string(path).map_err(failed)?;
    if mode & 0o077 != 0 {
        return Err(UrlError::OpenPassfile(path.to_owned()));
    }
    Ok(text)
}

/// The password of the first line that fits: `host:port:database:user:password`, where `*` fits anything, and
/// a backslash takes the character after it as it is.
fn entry(passfile: &str, wanted: [&str; 4]) -> Option<String> {
    passfile
        .lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| {
            let mut rest = line;
            for value in wanted {
                let (field, after) = split_field(rest)?;
                if field != "*" && unescaped(field) != value {
                    return None;
                }
                rest = after;
            }
            Some(unescaped(rest)).filter(|password| !password.is_empty())
        })
}

/// The text before the first colon that no backslash stands before, and the text after it.
fn split_field(text: &str) -> Option<(&str, &str)> {
    let mut is_escaped = false;
    let colon = text.find(|character| {
        let ends = character == ':' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        ends
    })?;
    Some((&text[..colon], &text[colon + 1..]))
}

fn unescaped(text: &str) -> String {
    let mut characters = text.chars();
    let mut unescaped = String::with_capacity(text.len());
    while let Some(character) = characters.next() {
        let taken = match character {
            '\\' => characters.next(),
            other => Some(other),
        };
        unescaped.extend(taken);
    }
    unescaped
}

/// The hosts by name, if they have any, with their ports.
fn hosts(server: &Config) -> impl Iterator<Item = (String, u16)> {
    let (names, addresses) = (server.get_hosts(), server.get_hostaddrs());
    (0..names.len().max(addresses.len())).map(move |place| {
        let host = match (names.get(place), addresses.get(place)) {
            (Some(Host::Tcp(name)), _) => name.clone(),
            (Some(Host::Unix(folder)), _) => folder.display().to_string(),
            (None, Some(address)) => address.to_string(),
            (None, None) => String::new(),
        };
        let ports = server.get_ports();
        let port = ports.get(place).or_else(|| ports.first());
        (host, port.copied().unwrap_or(PORT))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    const NONE: Variables<'static> = &|_| None;

    #[track_caller]
    fn parsed(text: &str) -> PostgresUrl {
        PostgresUrl::parse(text, NONE).unwrap()
    }

    #[track_caller]
    fn refused(text: &str) -> String {
        PostgresUrl::parse(text, NONE).unwrap_err().to_string()
    }

    fn password_of(url: &PostgresUrl) -> Option<&str> {
        let password = url.server.get_password();
        password.map(|password| std::str::from_utf8(password).unwrap())
    }

    #[test]
    fn a_pooler_is_named_by_its_mode() {
        assert!(!parsed("postgres://u@h").is_pooled);
        assert!(parsed("postgres://u@h/d?sslmode=disable&pooler=transaction").is_pooled);
        for mode in ["session", "statement", "", "true"] {
            let said = refused(&format!("postgres://u@h/d?pooler={mode}"));
            assert!(said.contains("transaction"), "{said}");
        }
    }

    #[test]
    fn a_url_names_hosts_a_database_and_a_user() {
        let url = parsed("postgres://u:p%40ss@a:1,b/q?sslmode=disable&connect_timeout=2");
        assert_eq!(url.to_string(), "a:1,b:5432/q");
        assert_eq!(url.server.get_user(), Some("u"));
        assert_eq!(password_of(&url), Some("p@ss"));
        assert_eq!(url.tls, TlsMode::Disable);
        assert!(url.server.get_connect_timeout().is_some());
        assert!(!format!("{url:?}").contains("p@ss"));

        let url = parsed("postgresql://u@[::1]:7");
        assert_eq!(url.to_string(), "::1:7/u");
        assert_eq!(url.tls, TlsMode::Prefer);
        let url = parsed("postgres:///q?user=u&host=/run/postgresql&sslmode=require");
        assert_eq!(url.to_string(), "/run/postgresql:5432/q");
        assert_eq!(url.tls, TlsMode::Require);
        // The question mark is the password's.
        let url = parsed("postgres://u:p?sslmode=disable@h/q");
        assert_eq!(password_of(&url), Some("p?sslmode=disable"));
        assert_eq!(url.tls, TlsMode::Prefer);
    }

    #[test]
    fn of_several_hosts_the_one_that_writes_is_meant() {
        let wanted = |text| parsed(text).server.get_target_session_attrs();
        let (any, writes) = (TargetSessionAttrs::Any, TargetSessionAttrs::ReadWrite);
        assert_eq!(wanted("postgres://u@a/q"), any);
        assert_eq!(wanted("postgres://u@a,b/q"), writes);
        let url = "postgres://u@a/q?target_session_attrs=read-write";
        assert_eq!(wanted(url), writes);
        let url = "postgres://u@a,b/q?target_session_attrs=read-only";
        assert!(refused(url).contains("read-write"));
    }

    #[test]
    fn what_is_wrong_is_named_and_the_password_is_not() {
        for (url, names) in [
            ("postgres://u:s3cret@h/q?colour=red", "`colour`"),
            (
                "postgres://u:s3cret@h/q?target_session_attrs=x",
                "`target_session_attrs`",
            ),
            ("postgres://u:s3cret@h:port/q", "`port`"),
            ("postgres://u:s3cret@h/q?sslmode=verify-ca", "sslmode"),
            ("postgres://u:s3cret@h/q?sslmode=verify-full", "sslrootcert"),
            ("postgres://u:s3cret@h/q?sslrootcert=ca.pem", "verify-full"),
            (
                "postgres://u:s3cret@h/q?sslmode=prefer&sslmode=disable",
                "sslmode twice",
            ),
            (
                "postgres://u:s3cret@h/q?sslmode=verify-full&sslrootcert=/no/ca.pem",
                "/no/ca.pem",
            ),
            ("postgres://u:s3cret@h/q?passfile", "unterminated"),
            ("postgres://u:s3c@ret@h/q", "%40"),
            ("postgres://u:s3cret@/q", "host"),
            ("postgres://h/q", "user"),
        ] {
            let error = refused(url);
            assert!(error.contains(names), "{url}: {error}");
            assert!(!error.contains("s3c") && !error.contains("ret@"), "{error}");
        }
    }

    #[test]
    fn a_password_comes_from_the_url_the_variable_or_the_passfile() {
        let folder = tempfile::tempdir().unwrap();
        let passfile = folder.path().join("my passes");
        let write = |text: &str, mode| {
            std::fs::write(&passfile, text).unwrap();
            std::fs::set_permissions(&passfile, Permissions::from_mode(mode)).unwrap();
        };
        write("h:*:q:u:filed\r\nother:*:*:*:another\n", 0o600);
        let with_file = |name: &str| (name == "PGPASSFILE").then(|| passfile.clone().into());
        let with_both = |name: &str| match name {
            "PGPASSWORD" => Some("set".into()),
            _ => with_file(name),
        };
        let found = |url: &str, variables: Variables<'_>| {
            let url = PostgresUrl::parse(url, variables)?;
            Ok::<_, UrlError>(password_of(&url).map(str::to_owned))
        };
        let is = |url, variables, password: Option<&str>| {
            assert_eq!(found(url, variables).unwrap().as_deref(), password, "{url}");
        };
        is("postgres://u:own@h/q", &with_both, Some("own"));
        is("postgres://u@h/q", &with_both, Some("set"));
        is("postgres://u@h/q", &with_file, Some("filed"));
        is("postgres://u@other:7/any", &with_file, Some("another"));
        is("postgres://v@h/q", &with_file, None);
        is("postgres://u@h/q", NONE, None);
        let path = passfile.to_str().unwrap().replace(' ', "%20");
        let url = format!("postgres://u@h/q?passfile={path}");
        is(&url, NONE, Some("filed"));

        let error = found("postgres://u@h,other/q", &with_file).unwrap_err();
        assert!(error.to_string().contains("different passwords"), "{error}");
        write("*:*:*:*:filed", 0o644);
        let error = found("postgres://u@h/q", &with_file).unwrap_err();
        assert!(error.to_string().contains("0600"), "{error}");
        std::fs::remove_file(&passfile).unwrap();
        let error = found("postgres://u@h/q", &with_file).unwrap_err();
        assert!(error.to_string().contains("my passes"), "{error}");

        // The one at home need not be there.
        let home = |name: &str| (name == "HOME").then(|| folder.path().into());
        is("postgres://u@h/q", &home, None);
        let at_home = folder.path().join(".pgpass");
        std::fs::write(&at_home, "*:*:*:*:homely").unwrap();
        std::fs::set_permissions(&at_home, Permissions::from_mode(0o600)).unwrap();
        is("postgres://u@h/q", &home, Some("homely"));
    }

    #[test]
    fn a_passfile_is_read_as_postgresql_reads_it() {
        let wanted = ["h", "5432", "q", "u"];
        for (file, password) in [
            ("h:5432:q:u:secret", Some("secret")),
            ("*:*:*:*:a:b", Some("a:b")),
            (r"*:*:*:*:a\:b\\c", Some(r"a:b\c")),
            ("# h:5432:q:u:no\nh:5432:q:u:yes", Some("yes")),
            ("h:5433:q:u:no\nh:5432:*:u:yes\n*:*:*:*:late", Some("yes")),
            (r"\h:5432:q:u:secret", Some("secret")),
            ("h:5432:q:u:", None),
            ("h:5432:q", None),
            ("H:5432:q:u:no", None),
            ("", None),
        ] {
            assert_eq!(entry(file, wanted).as_deref(), password, "{file}");
        }
        let odd = ["fe80::1", "1", "a*", r"x\y"];
        assert_eq!(entry(r"fe80\:\:1:1:a*:x\\y:s", odd).as_deref(), Some("s"));
    }

    #[test]
    fn a_user_that_is_left_out_is_looked_up() {
        let variables = |name: &str| (name == "PGUSER").then(|| "me".into());
        let url = PostgresUrl::parse("postgres://h", &variables).unwrap();
        assert_eq!(url.server.get_user(), Some("me"));
        assert_eq!(url.to_string(), "h:5432/me");
    }
}
