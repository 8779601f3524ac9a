//! `quotalog token create|list|revoke`.

use std::io::{IsTerminal as _, Write as _};

use quotalog_auth::{
    Credential, NewToken, Role, RoleError, RoleKind, Token, TokenId, TokenName, TokenRecord,
};
use quotalog_domain::{Timestamp, UserId};
use quotalog_ledger::store::{Page, Revoked, Store, TokenOrder};

use crate::app;
use crate::config::Database;
use crate::exit_code::{Exit, Failure};

use super::{DatabaseArgument, say};

/// The most tokens read at once.
const PAGE_LEN: usize = 1_000;

/// What can be done with tokens.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Make a token in a database that is there, and print it, once.
    Create(Create),
    /// Show all tokens, without their secrets.
    List(List),
    /// Delete a token; the running server refuses its very next request.
    Revoke(Revoke),
}

#[derive(Debug, clap::Args)]
pub(super) struct Create {
    #[command(flatten)]
    database: DatabaseArgument,
    /// What it may do: admin (all), viewer (read every quota, history and default, but neither tokens nor
    /// the audit), service (check, list, consume and refund for every user, and read histories and defaults),
    /// or user (check, list and consume its own, and read its history).
    #[arg(long, value_parser = parse_role)]
    role: RoleKind,
    /// The user of a token of the role user.
    #[arg(long, value_name = "ID")]
    user_id: Option<String>,
    /// What people shall call it.
    #[arg(long)]
    name: Option<String>,
    /// From when on it is refused, such as 2027-01-01T00:00:00Z [default: never].
    #[arg(long, value_name = "INSTANT")]
    expires_at: Option<String>,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct List {
    #[command(flatten)]
    database: DatabaseArgument,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct Revoke {
    #[command(flatten)]
    database: DatabaseArgument,
    /// The token's id, as `token list` shows it.
    id: String,
}

fn parse_role(text: &str) -> Result<RoleKind, RoleError> {
    RoleKind::try_from(text)
}

/// Runs one of the commands on the store itself.
pub(super) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Create(arguments) => create(arguments),
        Command::List(arguments) => list(arguments),
        Command::Revoke(arguments) => revoke(arguments),
    }
}

fn create(arguments: &Create) -> anyhow::Result<()> {
    let database = Database::parse(&arguments.database.database)?;
    let (token, new) = arguments.token()?;
    database.must_exist()?;
    let record = app::on_store(&database, async |store| {
        let created = store.create_token(Credential::CommandLine, new).await;
        held(created.map_err(app::failed)?)?.map_err(|error| wrong("--expires-at", &error))
    })?;
    if arguments.json {
        let mut object = json(&record);
        object["token"] = token.reveal().into();
        return say(&object.to_string());
    }
    // The token alone on standard output, so that a script can keep it.
    let _unseen = writeln!(
        std::io::stderr(),
        "Made token {} of the role {}. It is shown only now; keep it safe.",
        record.id.as_str(),
        record.role.kind().as_str(),
    );
    say(token.reveal())
}

fn list(arguments: &List) -> anyhow::Result<()> {
    let database = Database::parse(&arguments.database.database)?;
    database.must_exist()?;
    let tokens = app::on_store(&database, async |store| all(store).await)?;
    if arguments.json {
        let tokens: Vec<_> = tokens.iter().map(json).collect();
        say(&serde_json::json!({ "tokens": tokens }).to_string())
    } else if tokens.is_empty() && std::io::stdout().is_terminal() {
        say("There are no tokens.")
    } else {
        table(&tokens)
    }
}

async fn all(store: &dyn Store) -> anyhow::Result<Vec<TokenRecord>> {
    let mut tokens = Vec::new();
    let mut after: Option<TokenOrder> = None;
    loop {
        let page = Page {
            after,
            len_max: PAGE_LEN,
        };
        let listed = store.tokens(Credential::CommandLine, page).await;
        let listed = held(listed.map_err(app::failed)?)?;
        tokens.extend(listed.entries);
        after = listed.next;
        if after.is_none() {
            return Ok(tokens);
        }
    }
}

fn revoke(arguments: &Revoke) -> anyhow::Result<()> {
    let database = Database::parse(&arguments.database.database)?;
    database.must_exist()?;
    let revoked = app::on_store(&database, async |store| {
        let id = TokenId::named(&arguments.id);
        let revoked = store.revoke_token(Credential::CommandLine, id).await;
        held(revoked.map_err(app::failed)?)
    })?;
    if revoked {
        return Ok(());
    }
    let message = format!(
        "there is no token {:?}; `quotalog token list` shows all",
        arguments.id
    );
    Err(Failure::error(Exit::NotFound, message))
}

impl Create {
    fn token(&self) -> anyhow::Result<(Token, NewToken)> {
        let user_id = self
            .user_id
            .as_deref()
            .map(|text| UserId::try_from(text).map_err(|error| wrong("--user-id", &error)))
            .transpose()?;
        let role = Role::new(self.role, user_id).map_err(|error| wrong("--user-id", &error))?;
        let name = self.name.as_deref().map(name).transpose()?;
        let expires_at = self.expires_at.as_deref().map(instant).transpose()?;
        Ok(Token::generate(role, name, expires_at)?)
    }
}

/// Names are listed and stored as they are, so none may be a secret that was put in the wrong place.
fn name(text: &str) -> anyhow::Result<TokenName> {
    if Token::resembles(text) {
        let message = "--name must not be a token; if this is one that is in use, revoke it";
        return Err(Failure::error(Exit::Usage, message));
    }
    TokenName::try_from(text).map_err(|error| wrong("--name", &error))
}

fn instant(text: &str) -> anyhow::Result<Timestamp> {
    quotalog_front::instant::parse(text).ok_or_else(|| {
        let message = format!("--expires-at is {text:?}: write it as in 2027-01-01T00:00:00Z");
        Failure::error(Exit::Usage, message)
    })
}

fn wrong(flag: &str, error: &dyn std::error::Error) -> anyhow::Error {
    Failure::error(Exit::Usage, format!("{flag}: {error}"))
}

/// The command line's credential always holds; a store that says otherwise is at fault.
fn held<T>(judged: Result<T, Revoked>) -> anyhow::Result<T> {
    judged.map_err(anyhow::Error::new)
}

fn json(token: &TokenRecord) -> serde_json::Value {
    serde_json::json!({
        "id": token.id.as_str(),
        "role": token.role.kind().as_str(),
        "user_id": token.user_id().map(UserId::as_str),
        "name": token.name.as_ref().map(TokenName::as_str),
        "created_at": quotalog_front::instant::format(token.created_at),
        "expires_at": token.expires_at.map(quotalog_front::instant::format),
    })
}

fn table(tokens: &[TokenRecord]) -> anyhow::Result<()> {
    let columns = |token: &TokenRecord| {
        [
            token.id.as_str().to_owned(),
            token.role.kind().as_str().to_owned(),
            token.user_id().map_or("-", UserId::as_str).to_owned(),
            quotalog_front::instant::format(token.created_at),
            token
                .expires_at
                .map_or_else(|| "never".to_owned(), quotalog_front::instant::format),
            token
                .name
                .as_ref()
                .map_or("-", TokenName::as_str)
                .to_owned(),
        ]
    };
    let titles = ["ID", "ROLE", "USER", "CREATED", "EXPIRES", "NAME"];
    super::table::print(titles, tokens.iter().map(columns))
}
