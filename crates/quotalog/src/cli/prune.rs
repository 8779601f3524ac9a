//! `quotalog prune`.

use crate::app;
use crate::config::Database;
use crate::pruning;

use super::{DatabaseArgument, RetentionArguments, say};

/// What a person may say about pruning.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    database: DatabaseArgument,
    #[command(flatten)]
    retention: RetentionArguments,
}

/// Prunes once. The server does the same every ten minutes.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let database = Database::parse(&arguments.database.database)?;
    let retention = arguments.retention.check()?;
    database.must_exist()?;
    let rows = app::on_store(&database, async |store| {
        pruning::prune(store, retention, |_| {})
            .await
            .map_err(app::failed)
    })?;
    let noun = if rows == 1 { "row" } else { "rows" };
    say(&format!("deleted {rows} {noun}"));
    Ok(())
}
