//! The command line: what a person may type, and what becomes of it. One subcommand a file.

mod backup;
mod bar;
mod completions;
mod copy;
mod default;
mod doctor;
mod export;
mod import;
mod prune;
mod quota;
mod serve;
mod server;
mod table;
mod token;

use std::error::Error;
use std::io::{ErrorKind, Write as _};
use std::num::{IntErrorKind, ParseIntError};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::exit_code::{self, Exit, Failure};
use crate::jwt;
use crate::telemetry::{self, LogFormat, LogLevel};

/// A quota server: may this user use this resource now, and how much is left?
///
/// Counts are exact and on disk before they are answered. Each user/resource pair has a policy, so many
/// units per UTC hour or day, set over HTTP.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = AFTER_HELP)]
struct Arguments {
    #[command(flatten)]
    logs: Logs,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
First steps:
  quotalog serve                                      start on ./quotalog.db, port 8200
  quotalog token create --role user --user-id alice   make a user's token, beside the server
  quotalog quota set alice api-calls --hourly 100     ask the server, with a token in QUOTALOG_TOKEN

Every flag can be set by the variable shown beside it. QUOTALOG_ADMIN_TOKEN (at least 32
characters) is an admin token of the server that is kept in memory only, QUOTALOG_TOKEN the token of
whoever asks one; they have no flags, since other users of the machine can read those. Nor have
QUOTALOG_JWT_SECRET and QUOTALOG_JWT_PUBLIC_KEY, which hold what --jwt-secret-file and
--jwt-public-key-file read from files.

Exit codes: 0 done, 1 other failure, 2 usage, 3 exhausted, 4 not allowed, 5 not found, 6 unreachable
or unavailable.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server.
    Serve(Box<serve::Arguments>),
    /// Make, list and revoke API tokens, also beside a running server.
    #[command(subcommand)]
    Token(token::Command),
    /// Set, check, count and list quotas, by asking a running server.
    #[command(subcommand)]
    Quota(quota::Command),
    /// Set and list the policies that serve all who have none of their own, by asking a running server.
    #[command(subcommand)]
    Default(default::Command),
    /// Delete usage, kept answers and audit entries that are older than their retention.
    ///
    /// The retentions are those given here, by flags or variables, else the defaults; those of a running server
    /// are not known. A server that keeps things for longer than that loses what it was to keep, so give the
    /// same retentions as it has. The server does the same by itself every ten minutes.
    Prune(prune::Arguments),
    /// Copy the database into a new file, also beside a running server.
    Backup(backup::Arguments),
    /// Copy everything from one database into another: from SQLite to PostgreSQL, or back.
    Copy(copy::Arguments),
    /// Write policies, defaults or usage into a file that spreadsheets and scripts read, also beside a
    /// running server.
    Export(export::Arguments),
    /// Set policies, defaults or usage from such a file, all of it or nothing, also beside a running server.
    Import(import::Arguments),
    /// Look the configuration and the database over, and change nothing.
    Doctor(Box<doctor::Arguments>),
    /// Print what a shell needs to complete commands and flags.
    Completions(completions::Arguments),
}

/// How much is logged on standard error, and in which form.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logs")]
struct Logs {
    /// How much to log on standard error.
    #[arg(
        long,
        global = true,
        env = "QUOTALOG_LOG_LEVEL",
        value_enum,
        default_value = "info"
    )]
    log_level: LogLevel,
    /// Lines for people, or JSON for machines.
    #[arg(
        long,
        global = true,
        env = "QUOTALOG_LOG_FORMAT",
        value_enum,
        default_value = "text"
    )]
    log_format: LogFormat,
}

/// Which store a command works on.
#[derive(Debug, Args)]
struct DatabaseArgument {
    /// The database: sqlite: and the path of a file, or postgres://USER@HOST/DATABASE.
    #[arg(
        long,
        env = "QUOTALOG_DATABASE",
        hide_env_values = true,
        value_name = "URL",
        default_value = "sqlite:quotalog.db"
    )]
    database: String,
}

/// How long what was counted, answered and changed is kept.
#[derive(Debug, Args)]
struct RetentionArguments {
    /// How long usage is kept after its window started; at least 2d.
    #[arg(
        long,
        env = "QUOTALOG_USAGE_RETENTION",
        value_name = "DURATION",
        default_value = "35d"
    )]
    usage_retention: String,
    /// How long the answer to a request with an Idempotency-Key is kept; at least 1s.
    #[arg(
        long,
        env = "QUOTALOG_IDEMPOTENCY_RETENTION",
        value_name = "DURATION",
        default_value = "24h"
    )]
    idempotency_retention: String,
    /// How long the audit keeps who changed what; at least 1d.
    #[arg(
        long,
        env = "QUOTALOG_AUDIT_RETENTION",
        value_name = "DURATION",
        default_value = "400d"
    )]
    audit_retention: String,
}

impl RetentionArguments {
    fn check(&self) -> anyhow::Result<quotalog_ledger::store::Retention> {
        crate::config::retention(
            &self.usage_retention,
            &self.idempotency_retention,
            &self.audit_retention,
        )
    }
}

/// Parses the process's arguments, runs the command, and tells how it ended.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return not_parsed(&error),
    };
    telemetry::start(arguments.logs.log_level, arguments.logs.log_format);
    warn_of_unknown_variables();
    let result = match arguments.command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Token(command) => token::run(&command),
        Command::Quota(command) => quota::run(command),
        Command::Default(command) => default::run(command),
        Command::Prune(arguments) => prune::run(&arguments),
        Command::Backup(arguments) => backup::run(&arguments),
        Command::Copy(arguments) => copy::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments, &mut Arguments::command()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// One line, with every cause; where standard error is gone, the exit code still tells.
fn failed(error: &anyhow::Error) -> ExitCode {
    let _unseen = writeln!(std::io::stderr(), "quotalog: {error:#}");
    exit_code::of(error)
}

/// A wrong value reads like those that are found out later; help and a wrong command keep their own form.
fn not_parsed(error: &clap::Error) -> ExitCode {
    if let Some(message) = wrong_value(error) {
        return failed(&Failure::error(Exit::Usage, message));
    }
    let _unseen = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn wrong_value(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else {
        return None;
    };
    let flag = argument.split([' ', '=']).next().unwrap_or_default();
    let command = Arguments::command();
    let variable = arguments_of(&command)
        .into_iter()
        .find(|own| {
            own.get_long()
                .is_some_and(|long| flag.strip_prefix("--") == Some(long))
        })
        .and_then(|own| own.get_env()?.to_str())
        .map_or_else(String::new, |variable| format!(" ({variable})"));
    let advice = match (error.get(ContextKind::ValidValue), error.source()) {
        (_, Some(cause)) => of_number(cause).unwrap_or_else(|| cause.to_string()),
        (Some(ContextValue::Strings(valid)), None) if !valid.is_empty() => {
            format!("write one of: {}", valid.join(", "))
        }
        (Some(_) | None, None) => return None,
    };
    Some(format!("{flag}{variable} is {value:?}: {advice}"))
}

/// What to write where a number should be.
fn of_number(cause: &(dyn Error + 'static)) -> Option<String> {
    let error: &ParseIntError = cause.downcast_ref()?;
    let advice = if *error.kind() == IntErrorKind::PosOverflow {
        "write a smaller number"
    } else {
        "write a whole number, without a sign"
    };
    Some(advice.to_owned())
}

/// Writes one line for the caller or a script. A reader that went away ends nothing; a full disk is a failure, since
/// what was asked for is lost.
fn say(line: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("it is done, but standard output cannot be written")
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes one line of a server, which serves on where nothing can be written.
pub(crate) fn announce(line: &str) {
    let _unread = writeln!(std::io::stdout(), "{line}");
}

/// A variable of ours that no flag has is a misspelt one, and would be ignored in silence.
fn warn_of_unknown_variables() {
    let command = Arguments::command();
    let mut known = vec!["QUOTALOG_ADMIN_TOKEN", server::TOKEN];
    known.extend([jwt::SECRET, jwt::PUBLIC_KEY]);
    let arguments = arguments_of(&command).into_iter();
    known.extend(arguments.filter_map(|argument| argument.get_env()?.to_str()));
    for (name, _) in std::env::vars_os() {
        if let Some(name) = name.to_str()
            && name.starts_with("QUOTALOG_")
            && !known.contains(&name)
        {
            tracing::warn!(
                variable = name,
                "quotalog does not know this variable; see --help"
            );
        }
    }
}

/// The arguments of a command and of all those below it.
fn arguments_of(command: &clap::Command) -> Vec<&clap::Arg> {
    let below = command.get_subcommands().flat_map(arguments_of);
    command.get_arguments().chain(below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_flag_of_the_server_has_a_variable() {
        let command = Arguments::command();
        let serve = command
            .find_subcommand("serve")
            .expect("the command is there");
        for argument in serve.get_arguments().chain(command.get_arguments()) {
            let long = argument.get_long().unwrap_or_default();
            if !matches!(long, "help" | "version" | "") {
                let variable = format!("QUOTALOG_{}", long.to_uppercase().replace('-', "_"));
                assert_eq!(
                    argument.get_env().and_then(|env| env.to_str()),
                    Some(&*variable)
                );
            }
        }
    }
}
