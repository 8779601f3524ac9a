//! `quotalog backup`.

use std::path::PathBuf;

use crate::app;
use crate::config::Database;

use super::{DatabaseArgument, say};

/// What a person may say about a backup.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    database: DatabaseArgument,
    /// The new file. One that is there is not overwritten.
    file: PathBuf,
}

/// Copies the database, beside a running server or without one.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let database = Database::parse(&arguments.database.database)?;
    database.must_exist()?;
    app::back_up(&database, &arguments.file)?;
    say(&format!("wrote {}", arguments.file.display()));
    Ok(())
}
