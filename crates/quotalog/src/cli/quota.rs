//! `quotalog quota set|get|list|consume|reset|refund|delete`: a client of the server, as any other.

use std::io::IsTerminal as _;

use clap::{Args, ValueEnum};
use quotalog_client::{Client, Error, Pages, Quota};
use serde_json::value::RawValue;

use super::server::{PolicyArguments, ServerArguments, check_resource, check_user, instant};
use super::{say, table};

/// The most entries of a page.
const PAGE_LEN_MAX: usize = 1_000;
/// How many of the fullest are shown, unless told otherwise.
const FULLEST_LEN: usize = 100;

/// What can be asked of quotas.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Set the policy of a user for a resource. What was used stays used.
    Set(Set),
    /// Show what is used and what is left, and change nothing.
    Get(Get),
    /// Show all quotas, or those of one user.
    List(List),
    /// Count units, all or none.
    Consume(Change),
    /// Set the usage of the present window to zero.
    Reset(Reset),
    /// Give units of the present window back.
    Refund(Change),
    /// Remove the policy. What was used stays used.
    Delete(Delete),
}

/// Whose quota, and of what.
#[derive(Debug, Args)]
struct Pair {
    /// The user's id: any printable text without a slash.
    user: String,
    /// The resource: any printable text without a slash.
    resource: String,
}

#[derive(Debug, Args)]
pub(super) struct Set {
    #[command(flatten)]
    pair: Pair,
    #[command(flatten)]
    policy: PolicyArguments,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Debug, Args)]
pub(super) struct Get {
    #[command(flatten)]
    pair: Pair,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Debug, Args)]
pub(super) struct Delete {
    #[command(flatten)]
    pair: Pair,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Debug, Args)]
pub(super) struct Change {
    #[command(flatten)]
    pair: Pair,
    /// How many units [default: 1].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    amount: Option<u64>,
    /// Under this key the same command counts once, however often it is run.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Debug, Args)]
pub(super) struct Reset {
    #[command(flatten)]
    pair: Pair,
    /// Under this key the same command resets once, however often it is run.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Debug, Args)]
pub(super) struct List {
    /// The user's id.
    user: Option<String>,
    /// Only quotas of this resource.
    #[arg(long, value_name = "RESOURCE", conflicts_with = "user")]
    resource: Option<String>,
    /// Only quotas of which at least so much of the limit is used.
    #[arg(
        long,
        value_name = "PERCENT",
        conflicts_with = "user",
        value_parser = clap::value_parser!(u8).range(0..=100)
    )]
    min_used_percent: Option<u8>,
    /// The fullest first, 100 of them unless --limit says otherwise.
    #[arg(long, value_enum, conflicts_with = "user")]
    sort: Option<Sort>,
    /// The most quotas to show [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    #[command(flatten)]
    server: ServerArguments,
}

/// An order other than that of the ids.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Sort {
    /// By the part of the limit that is used.
    #[value(name = "used-percent")]
    UsedPercent,
}

/// Asks the server.
pub(super) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Set(arguments) => set(&arguments),
        Command::Get(arguments) => get(&arguments),
        Command::List(arguments) => list(&arguments),
        Command::Consume(arguments) => consume(&arguments),
        Command::Reset(arguments) => reset(arguments),
        Command::Refund(arguments) => refund(&arguments),
        Command::Delete(arguments) => delete(&arguments),
    }
}

impl Pair {
    fn checked(&self) -> anyhow::Result<(&str, &str)> {
        check_user(&self.user)?;
        check_resource(&self.resource)?;
        Ok((&self.user, &self.resource))
    }
}

fn set(arguments: &Set) -> anyhow::Result<()> {
    let (user, resource) = arguments.pair.checked()?;
    let policy = arguments.policy.policy()?;
    let ask = async |client: Client| client.set_policy(user, resource, policy).send_raw().await;
    show(&arguments.server, &arguments.server.ask(ask)?)
}

fn get(arguments: &Get) -> anyhow::Result<()> {
    let (user, resource) = arguments.pair.checked()?;
    let ask = async |client: Client| client.check(user, resource).send_raw().await;
    show(&arguments.server, &arguments.server.ask(ask)?)
}

fn consume(arguments: &Change) -> anyhow::Result<()> {
    let (user, resource) = arguments.pair.checked()?;
    let ask = async |client: Client| {
        let mut consume = client.consume(user, resource);
        if let Some(amount) = arguments.amount {
            consume = consume.amount(amount);
        }
        if let Some(key) = &arguments.idempotency_key {
            consume = consume.idempotency_key(key);
        }
        consume.send_raw().await
    };
    show(&arguments.server, &arguments.server.ask(ask)?)
}

fn refund(arguments: &Change) -> anyhow::Result<()> {
    let (user, resource) = arguments.pair.checked()?;
    let ask = async |client: Client| {
        let mut refund = client.refund(user, resource);
        if let Some(amount) = arguments.amount {
            refund = refund.amount(amount);
        }
        if let Some(key) = &arguments.idempotency_key {
            refund = refund.idempotency_key(key);
        }
        refund.send_raw().await
    };
    show(&arguments.server, &arguments.server.ask(ask)?)
}

fn reset(arguments: Reset) -> anyhow::Result<()> {
    let (user, resource) = arguments.pair.checked()?;
    let ask = async |client: Client| {
        let mut reset = client.reset(user, resource);
        if let Some(key) = arguments.idempotency_key {
            reset = reset.idempotency_key(key);
        }
        reset.send_raw().await
    };
    show(&arguments.server, &arguments.server.ask(ask)?)
}

fn delete(arguments: &Delete) -> anyhow::Result<()> {
    let (user, resource) = arguments.pair.checked()?;
    let ask = async |client: Client| client.delete_policy(user, resource).send().await;
    arguments.server.ask(ask)
}

fn list(arguments: &List) -> anyhow::Result<()> {
    if let Some(user) = &arguments.user {
        check_user(user)?;
    }
    if let Some(resource) = &arguments.resource {
        check_resource(resource)?;
    }
    let limit = arguments
        .limit
        .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let entries = arguments.server.ask(async |client: Client| {
        let pages = match (&arguments.user, arguments.sort) {
            (Some(user), _) => client.user_quotas(user),
            (None, sort) => {
                let mut quotas = client.quotas();
                if let Some(resource) = &arguments.resource {
                    quotas = quotas.resource(resource);
                }
                if let Some(percent) = arguments.min_used_percent {
                    quotas = quotas.min_used_percent(percent);
                }
                match sort {
                    Some(Sort::UsedPercent) => {
                        let fullest = quotas.fullest(limit.unwrap_or(FULLEST_LEN));
                        return fullest.raw().all().await;
                    }
                    None => quotas.pages(),
                }
            }
        };
        up_to(limit, pages.raw()).await
    })?;
    if arguments.server.json {
        return say_list("quotas", &entries);
    }
    let quotas = entries
        .iter()
        .map(|quota| serde_json::from_str(quota.get()));
    let quotas: Vec<Quota> = quotas.collect::<Result<_, _>>()?;
    if quotas.is_empty() && std::io::stdout().is_terminal() {
        say("There are no quotas.")
    } else {
        print(&quotas)
    }
}

/// The entries of all pages, or so many of them.
pub(super) async fn up_to(
    limit: Option<usize>,
    pages: Pages<Box<RawValue>>,
) -> Result<Vec<Box<RawValue>>, Error> {
    let limit = limit.unwrap_or(usize::MAX);
    let mut pages = pages.page_len(limit.min(PAGE_LEN_MAX));
    let mut entries = Vec::new();
    while entries.len() < limit
        && let Some(page) = pages.next().await?
    {
        entries.extend(page);
    }
    entries.truncate(limit);
    Ok(entries)
}

/// Prints entries as one page of the server, whose members are just as it wrote them.
pub(super) fn say_list(member: &str, entries: &[Box<RawValue>]) -> anyhow::Result<()> {
    let entries: Vec<_> = entries.iter().map(|entry| entry.get()).collect();
    say(&format!(
        "{{\"{member}\":[{}],\"next_cursor\":null}}",
        entries.join(",")
    ))
}

fn show(server: &ServerArguments, quota: &RawValue) -> anyhow::Result<()> {
    if server.json {
        say(quota.get())
    } else {
        print(&[serde_json::from_str(quota.get())?])
    }
}

fn print(quotas: &[Quota]) -> anyhow::Result<()> {
    let titles = [
        "USER",
        "RESOURCE",
        "WINDOW",
        "LIMIT",
        "USED",
        "REMAINING",
        "RESETS",
        "SOURCE",
    ];
    let columns = |quota: &Quota| {
        [
            quota.user_id.clone(),
            quota.resource.clone(),
            quota.window.to_string(),
            quota.limit_count.to_string(),
            quota.usage.to_string(),
            quota.remaining.to_string(),
            instant(quota.reset_at.unix_timestamp()),
            quota.source.as_str().to_owned(),
        ]
    };
    table::print(titles, quotas.iter().map(columns))
}
