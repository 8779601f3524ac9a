//! `quotalog export`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use quotalog_record::import::Subject;

use crate::app;
use crate::config::Database;
use crate::exit_code::{Exit, Failure};
use crate::export::Step;
use crate::records::{self, Format};

use super::bar::Bar;
use super::{DatabaseArgument, say};

/// What a person may say about an export.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    database: DatabaseArgument,
    /// What to write.
    #[arg(long, value_enum)]
    what: What,
    #[command(flatten)]
    form: FormArgument,
    /// The new file, or - for standard output. One that is there is not overwritten.
    file: PathBuf,
}

/// What a file is about.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum What {
    /// The policies of users, one for each user and resource.
    Policies,
    /// The defaults, one for each resource.
    Defaults,
    /// What was counted, one number for each user, resource and window.
    Usage,
}

/// The form of a file.
#[derive(Debug, clap::Args)]
pub(super) struct FormArgument {
    /// The form of the file. Left out, it is the ending of the file's name.
    #[arg(long, value_enum)]
    format: Option<Format>,
}

const AFTER_HELP: &str = "\
Columns of CSV, members of JSON lines:
  policies  user_id,resource,window,limit_count
  defaults  resource,window,limit_count
  usage     user_id,resource,window_start,usage

In CSV, an id that a spreadsheet would take for a formula has a ' before it, which import takes away
again: every id comes back to the byte. All is as it was at one moment, also beside a running server.
What quotalog cannot hold, as another program may have written, is passed over, and told.";

/// Writes a file of what the database holds, beside a running server or without one.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let database = Database::parse(&arguments.database.database)?;
    let format = arguments.form.of(&arguments.file)?;
    database.must_exist()?;
    let subject = arguments.what.subject();
    let file = (!is_standard(&arguments.file)).then_some(&*arguments.file);
    let bar = Bar::new();
    let exported = app::export(&database, subject, file, format, &|step| match step {
        Step::Begun { rows } => bar.begin(rows, &format!("writing {}", noun(subject))),
        Step::Done { rows } => bar.add(rows),
    });
    bar.clear();
    let exported = exported?;
    for unfit in &exported.left_behind.named {
        let table = records::table(subject).name;
        tracing::warn!(table, %unfit, "a row is passed over");
    }
    let passed_over = exported.left_behind.rows;
    if passed_over > 0 {
        tracing::warn!(
            rows = passed_over,
            "rows that cannot be held are not in the file"
        );
    }
    if let Some(file) = file {
        let (rows, noun) = (exported.rows, noun(subject));
        say(&format!("wrote {rows} {noun} to {}", file.display()))?;
    }
    Ok(())
}

/// What people call the lines of a file.
pub(super) fn noun(subject: Subject) -> &'static str {
    match subject {
        Subject::Policies => "policies",
        Subject::Defaults => "defaults",
        Subject::Usage => "rows of usage",
    }
}

/// Whether the name stands for standard input or output.
pub(super) fn is_standard(file: &Path) -> bool {
    file.as_os_str() == "-"
}

impl What {
    pub(super) fn subject(self) -> Subject {
        match self {
            Self::Policies => Subject::Policies,
            Self::Defaults => Subject::Defaults,
            Self::Usage => Subject::Usage,
        }
    }
}

impl FormArgument {
    /// The form of the file, as it is given or as its name tells.
    pub(super) fn of(&self, file: &Path) -> anyhow::Result<Format> {
        let told = match file.extension().and_then(OsStr::to_str) {
            Some("csv") => Some(Format::Csv),
            Some("jsonl" | "ndjson") => Some(Format::Jsonl),
            Some(_) | None => None,
        };
        self.format.or(told).ok_or_else(|| {
            let message = format!(
                "--format is needed, csv or jsonl: the name {} does not tell",
                file.display()
            );
            Failure::error(Exit::Usage, message)
        })
    }
}
