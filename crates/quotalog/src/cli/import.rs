//! `quotalog import`.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quotalog_record::import::{Subject, Tally};
use serde_json::json;

use crate::app;
use crate::config::Database;
use crate::exit_code::{Exit, Failure};
use crate::import::{Faults, Imported, Step};
use crate::records::Reader;

use super::bar::Bar;
use super::export::{FormArgument, What, is_standard, noun};
use super::{DatabaseArgument, say};

/// What a person may say about an import.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    database: DatabaseArgument,
    /// What is in the file.
    #[arg(long, value_enum)]
    what: What,
    #[command(flatten)]
    form: FormArgument,
    /// Tell what would be created and changed, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
    /// The file, or - for standard input.
    file: PathBuf,
}

const AFTER_HELP: &str = "\
The columns are those of `quotalog export`, in any order; all of them are needed, and no others are
taken. Every line is checked first. If one is at fault, each fault is named with its line, and
nothing is changed; so nothing is either if the import fails or is killed.

Policies and defaults are set as PUT sets them: what is there already keeps its dates, and what the
file does not name stays. Usage becomes the number in the file, whatever was counted since the file
was written. Every change is in the audit, as the command line's.

Many changes at once keep a running server waiting while they are saved; see docs/operations.md.";

/// Imports a file, beside a running server or without one.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let database = Database::parse(&arguments.database.database)?;
    let format = arguments.form.of(&arguments.file)?;
    let (input, bytes) = open(&arguments.file)?;
    database.must_exist()?;
    let subject = arguments.what.subject();
    let reader = Reader::new(input, format, subject)?;
    let bar = Bar::new();
    bar.begin(bytes, "reading");
    let done = {
        let bar = bar.clone();
        Arc::new(move |entries| bar.add(entries))
    };
    let tell = |step| match step {
        Step::Read { bytes } => bar.set(bytes),
        Step::Comparing { entries } => bar.begin(entries, "comparing"),
        Step::Saving { entries } => bar.begin(entries, "saving"),
    };
    let imported = app::import(&database, subject, reader, arguments.dry_run, &tell, done);
    bar.clear();
    match imported? {
        Imported::Sound(tally) => report(subject, &tally, arguments),
        Imported::Faulty(faults) => Err(refuse(&arguments.file, &faults)),
    }
}

/// What is read, and how long it is, where that can be told.
fn open(path: &Path) -> anyhow::Result<(Box<dyn Read>, u64)> {
    if is_standard(path) {
        return Ok((Box::new(io::stdin()), 0));
    }
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
    let failed = |exit, why: &dyn std::fmt::Display| {
        Failure::error(exit, format!("{} cannot be read ({why})", path.display()))
    };
    match opened {
        Ok((metadata, _)) if metadata.is_dir() => Err(failed(Exit::Usage, &"it is a folder")),
        Ok((metadata, file)) => Ok((Box::new(file), metadata.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(failed(Exit::NotFound, &error))
        }
        Err(error) => Err(failed(Exit::Failure, &error)),
    }
}

/// Names the faults as compilers do, so that an editor finds the line.
fn refuse(path: &Path, faults: &Faults) -> anyhow::Error {
    let mut output = io::stderr().lock();
    for fault in &faults.named {
        let _unseen = writeln!(output, "{}:{}: {}", path.display(), fault.line, fault.text);
    }
    let count = faults.count;
    let named = u64::try_from(faults.named.len()).unwrap_or(u64::MAX);
    let noun = if count == 1 { "fault" } else { "faults" };
    let only = if named < count {
        format!(", of which the first {named} are named")
    } else {
        String::new()
    };
    let path = path.display();
    let message = format!("nothing is imported: {path} has {count} {noun}{only}");
    Failure::error(Exit::Usage, message)
}

fn report(subject: Subject, tally: &Tally, arguments: &Arguments) -> anyhow::Result<()> {
    let Tally {
        created,
        changed,
        unchanged,
        refused: _,
    } = tally;
    if arguments.json {
        let object = json!({
            "created": created, "changed": changed, "unchanged": unchanged, "dry_run": arguments.dry_run,
        });
        return say(&object.to_string());
    }
    let all = created + changed + unchanged;
    let [verb, tense] = if arguments.dry_run {
        ["would import", " would be"]
    } else {
        ["imported", ""]
    };
    say(&format!(
        "{verb} {all} {}: {created}{tense} created, {changed} changed, {unchanged} unchanged",
        noun(subject)
    ))
}
