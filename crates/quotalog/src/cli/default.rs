//! `quotalog default set|get|list|delete`: a client of the server, as any other.

use std::io::IsTerminal as _;

use clap::Args;
use quotalog_client::{Client, DefaultPolicy};
use serde_json::value::RawValue;

use super::quota::{say_list, up_to};
use super::server::{PolicyArguments, ServerArguments, check_resource, instant};
use super::{say, table};

/// What can be asked of defaults.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Set the default of a resource.
    Set(Set),
    /// Show the default of a resource.
    Get(Named),
    /// Show all defaults.
    List(List),
    /// Remove the default of a resource.
    Delete(Named),
}

#[derive(Debug, Args)]
pub(super) struct Set {
    /// The resource: any printable text without a slash.
    resource: String,
    #[command(flatten)]
    policy: PolicyArguments,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Debug, Args)]
pub(super) struct Named {
    /// The resource: any printable text without a slash.
    resource: String,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    server: ServerArguments,
}

/// Asks the server.
pub(super) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Set(arguments) => set(&arguments),
        Command::Get(arguments) => get(&arguments),
        Command::List(arguments) => list(&arguments),
        Command::Delete(arguments) => delete(&arguments),
    }
}

fn set(arguments: &Set) -> anyhow::Result<()> {
    let resource = &arguments.resource;
    check_resource(resource)?;
    let policy = arguments.policy.policy()?;
    let ask = async |client: Client| client.set_default(resource, policy).send_raw().await;
    show(&arguments.server, &arguments.server.ask(ask)?)
}

fn get(arguments: &Named) -> anyhow::Result<()> {
    let resource = &arguments.resource;
    check_resource(resource)?;
    let ask = async |client: Client| client.default(resource).send_raw().await;
    show(&arguments.server, &arguments.server.ask(ask)?)
}

fn delete(arguments: &Named) -> anyhow::Result<()> {
    let resource = &arguments.resource;
    check_resource(resource)?;
    let ask = async |client: Client| client.delete_default(resource).send().await;
    arguments.server.ask(ask)
}

fn list(arguments: &List) -> anyhow::Result<()> {
    let ask = async |client: Client| up_to(None, client.defaults().raw()).await;
    let entries = arguments.server.ask(ask)?;
    if arguments.server.json {
        return say_list("defaults", &entries);
    }
    let defaults = entries
        .iter()
        .map(|entry| serde_json::from_str(entry.get()));
    let defaults: Vec<DefaultPolicy> = defaults.collect::<Result<_, _>>()?;
    if defaults.is_empty() && std::io::stdout().is_terminal() {
        say("There are no defaults.")
    } else {
        print(&defaults)
    }
}

fn show(server: &ServerArguments, default: &RawValue) -> anyhow::Result<()> {
    if server.json {
        say(default.get())
    } else {
        print(&[serde_json::from_str(default.get())?])
    }
}

fn print(defaults: &[DefaultPolicy]) -> anyhow::Result<()> {
    let titles = ["RESOURCE", "WINDOW", "LIMIT", "UPDATED"];
    let columns = |default: &DefaultPolicy| {
        [
            default.resource.clone(),
            default.window.to_string(),
            default.limit_count.to_string(),
            instant(default.updated_at.unix_timestamp()),
        ]
    };
    table::print(titles, defaults.iter().map(columns))
}
