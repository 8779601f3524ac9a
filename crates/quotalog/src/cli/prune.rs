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

/// Prunes once, to the end. The server does the same every ten minutes.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let database = Database::parse(&arguments.database.database)?;
    let retention = arguments.retention.check()?;
    database.must_exist()?;
    let pruned = app::on_store(&database, async |store| {
        pruning::prune(store, retention).await.map_err(app::failed)
    })?;
    let rows = pruned.rows;
    let noun = if rows == 1 { "row" } else { "rows" };
    let others = if pruned.met_another {
        "; another process was pruning too"
    } else {
        ""
    };
    say(&format!("deleted {rows} {noun}{others}"))
}
