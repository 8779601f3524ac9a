//! Which server a command asks, with which token, and what its answers mean to a script.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use quotalog_client::{BuildError, Client, Error, Policy};
use quotalog_domain::{Resource, Timestamp, UserId};

use crate::app;
use crate::exit_code::{Exit, Failure};

/// The variable of the token.
pub(super) const TOKEN: &str = "QUOTALOG_TOKEN";

/// A person waits for it.
const DEADLINE: Duration = Duration::from_secs(30);
/// A server that is not there is said to be so in a moment.
const ATTEMPTS_MAX: u32 = 4;

/// The server to ask.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct ServerArguments {
    /// The server.
    #[arg(
        long,
        env = "QUOTALOG_URL",
        hide_env_values = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:8200"
    )]
    url: String,
    /// A file with the token; it goes before QUOTALOG_TOKEN, which is taken without it.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The certificates of the authorities to trust instead of the system's, in PEM.
    #[arg(long, env = "QUOTALOG_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Print the server's JSON, for scripts.
    #[arg(long)]
    pub(super) json: bool,
}

const AFTER_HELP: &str = "\
The token is read from QUOTALOG_TOKEN. An id that begins with a dash stands after `--`.";

/// A window and its limit.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct PolicyArguments {
    /// So many units in each hour of UTC.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    hourly: Option<u64>,
    /// So many units in each day of UTC.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    daily: Option<u64>,
}

impl PolicyArguments {
    pub(super) fn policy(&self) -> anyhow::Result<Policy> {
        match (self.hourly, self.daily) {
            (Some(limit), None) => Ok(Policy::hourly(limit)),
            (None, Some(limit)) => Ok(Policy::daily(limit)),
            (None, None) | (Some(_), Some(_)) => Err(Failure::error(
                Exit::Usage,
                "write one of --hourly N and --daily N",
            )),
        }
    }
}

impl ServerArguments {
    /// Asks the server, and has a failure say what to do.
    pub(super) fn ask<T, F>(&self, ask: impl FnOnce(Client) -> F) -> anyhow::Result<T>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let token = self.token()?;
        let mut builder = Client::builder(&self.url)
            .user_agent(concat!("quotalog/", env!("CARGO_PKG_VERSION")))
            .deadline(DEADLINE)
            .attempts_max(ATTEMPTS_MAX);
        if let Some(token) = &token {
            builder = builder.token(token);
        }
        if let Some(file) = &self.ca_file {
            builder = builder.authorities_pem(read("--ca-file", file)?);
        }
        let client = builder.build().map_err(|error| self.unfit(error))?;
        let answer = app::runtime()?.block_on(async { ask(client).await });
        answer.map_err(|error| self.failed(&error, token.is_some()))
    }

    fn token(&self) -> anyhow::Result<Option<String>> {
        match &self.token_file {
            Some(file) => {
                let text = String::from_utf8(read("--token-file", file)?);
                let unfit = || format!("--token-file {} holds no token", file.display());
                let text = text.map_err(|_binary| Failure::error(Exit::Usage, unfit()))?;
                Ok(Some(text.trim().to_owned()))
            }
            None => match std::env::var(TOKEN) {
                Ok(token) => Ok(Some(token)),
                Err(std::env::VarError::NotPresent) => Ok(None),
                Err(std::env::VarError::NotUnicode(_)) => {
                    let message = format!("{TOKEN} holds no token");
                    Err(Failure::error(Exit::Usage, message))
                }
            },
        }
    }

    fn unfit(&self, error: BuildError) -> anyhow::Error {
        let of = match &error {
            BuildError::Url { .. } => "--url (QUOTALOG_URL)",
            BuildError::Token => match self.token_file {
                Some(_) => "--token-file",
                None => TOKEN,
            },
            BuildError::Authorities(_) | BuildError::NoAuthorities => {
                "--ca-file (QUOTALOG_CA_FILE)"
            }
            BuildError::UserAgent => "the user agent",
        };
        let message = format!("{of}: {:#}", anyhow::Error::new(error));
        Failure::error(Exit::Usage, message)
    }

    /// One line, with the way out.
    fn failed(&self, error: &Error, with_token: bool) -> anyhow::Error {
        let (exit, advice) = match error {
            Error::Exhausted(_) => (Exit::Exhausted, String::new()),
            Error::NotFound(_) => (Exit::NotFound, String::new()),
            Error::Unauthorized(_) | Error::Forbidden(_) => {
                return Failure::error(Exit::NotAllowed, refusal(error, with_token));
            }
            Error::Invalid { .. } => (Exit::Usage, String::new()),
            Error::Mismatch(_) => (Exit::Usage, " Use a new key for a new request.".to_owned()),
            Error::Unavailable { .. } => (Exit::Unavailable, " Try again.".to_owned()),
            Error::OutcomeUnknown { .. } => {
                let advice = "; look with `quota get`, or give an --idempotency-key to try again";
                (Exit::Unavailable, advice.to_owned())
            }
            Error::Transport(_) => {
                let advice = format!("; is {} the server's --url (QUOTALOG_URL)?", self.url);
                (Exit::Unavailable, advice)
            }
            Error::Precondition(_) | Error::Internal(_) | Error::Unexpected { .. } => {
                (Exit::Failure, String::new())
            }
        };
        let message = format!("{}{advice}", chain(error));
        // What a server says may hold anything; a script reads one line.
        Failure::error(exit, message.replace(char::is_control, " "))
    }
}

/// Why the server took no token, or not this one. Its own words are for a program that sends a field.
fn refusal(error: &Error, with_token: bool) -> String {
    let (why, advice) = if matches!(error, Error::Forbidden(_)) {
        (
            "the token is of a role that may not do this, or not for this user",
            "`quotalog token create` makes one of another role".to_owned(),
        )
    } else if with_token {
        (
            "the token is unknown, revoked or expired",
            format!("{TOKEN} or --token-file gives another"),
        )
    } else {
        ("a token is needed", format!("set {TOKEN}"))
    };
    format!("{why}; {advice}")
}

/// An error and what caused it.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let told = error.to_string();
        if !text.contains(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        cause = error.source();
    }
    text
}

fn read(flag: &str, file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).map_err(|error| {
        let message = format!("{flag} {}: {error}", file.display());
        Failure::error(Exit::Usage, message)
    })
}

/// Checks a user id before it is sent.
pub(super) fn check_user(text: &str) -> anyhow::Result<()> {
    let checked = UserId::try_from(text);
    checked
        .map(|_sound| ())
        .map_err(|error| Failure::error(Exit::Usage, format!("USER is {text:?}: it {error}")))
}

/// Checks a resource before it is sent.
pub(super) fn check_resource(text: &str) -> anyhow::Result<()> {
    let checked = Resource::try_from(text);
    checked
        .map(|_sound| ())
        .map_err(|error| Failure::error(Exit::Usage, format!("RESOURCE is {text:?}: it {error}")))
}

/// An instant of an answer, as the server writes it.
pub(super) fn instant(unix_s: i64) -> String {
    quotalog_front::instant::format(Timestamp::from_unix_s(unix_s))
}
