//! `quotalog backup`.

use std::path::PathBuf;

use crate::app;
use crate::config::Database;
use crate::exit_code::{Exit, Failure};

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
    let from = match &database {
        Database::Sqlite(file) => file,
        Database::Postgres(url) => {
            let message = format!(
                "{url} is a database of PostgreSQL, which has backups of its own: pg_dump for a copy, \
                 pg_basebackup and archived logs to lose nothing"
            );
            return Err(Failure::error(Exit::Usage, message));
        }
    };
    app::back_up(from, &arguments.file)?;
    say(&format!("wrote {}", arguments.file.display()))
}
