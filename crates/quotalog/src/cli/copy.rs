//! `quotalog copy`.

use serde_json::json;

use crate::app;
use crate::config::Database;
use crate::copy::{Copied, Step};

use super::bar::Bar;
use super::say;

const FROM: &str = "--from";
const TO: &str = "--to";

/// What a person may say about a copy.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    /// The database to read: sqlite: and the path of a file, or postgres://USER@HOST/DATABASE.
    #[arg(long, value_name = "URL")]
    from: String,
    /// The database to write, in the same form. It must be empty; a file is made if there is none.
    #[arg(long, value_name = "URL")]
    to: String,
    /// Leave rows behind that quotalog cannot hold, such as another program may have written. Without
    /// it they are named, and nothing is copied.
    #[arg(long)]
    leave_behind: bool,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Everything goes: policies, usage, defaults, tokens, kept answers and the audit. The tokens work on
the other side at once. It is read as it is at one moment and not changed, so stop the servers that
write into it first: what they count later is not copied.

All of it is one transaction, which is committed when what was read back equals what was read. A
copy that fails or is broken off leaves the target empty; run it again.

A password on the command line is seen by other users of the machine: use PGPASSWORD or a passfile.";

/// Copies everything from one database into another.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let from = Database::parse_as(FROM, &arguments.from)?;
    let to = Database::parse_as(TO, &arguments.to)?;
    from.must_exist_as(FROM)?;
    let bar = Bar::new();
    let copied = app::copy((FROM, &from), (TO, &to), arguments.leave_behind, &|step| {
        tell(&bar, step);
    });
    bar.clear();
    let copied = copied?;
    report(&copied, &from, &to, arguments.json)
}

fn report(copied: &[Copied], from: &Database, to: &Database, as_json: bool) -> anyhow::Result<()> {
    for Copied {
        table, left_behind, ..
    } in copied
    {
        for unfit in &left_behind.named {
            tracing::warn!(table = table.name, %unfit, "a row is left behind");
        }
    }
    let rows: u64 = copied.iter().map(|copied| copied.digest.rows).sum();
    if as_json {
        let tables: Vec<_> = copied.iter().map(json_of).collect();
        let object = json!({
            "from": from.to_string(), "to": to.to_string(), "equal": true, "rows": rows, "tables": tables,
        });
        return say(&object.to_string());
    }
    for copied in copied {
        let left_behind = match copied.left_behind.rows {
            0 => String::new(),
            rows => format!(" and {rows} left behind"),
        };
        say(&format!(
            "{:<14} {:>9}{left_behind}",
            copied.table.noun, copied.digest.rows
        ))?;
    }
    let noun = if rows == 1 { "row" } else { "rows" };
    say(&format!(
        "copied {rows} {noun} from {from} to {to}; both sides are equal"
    ))
}

fn json_of(copied: &Copied) -> serde_json::Value {
    let named = copied.left_behind.named.iter();
    let named: Vec<String> = named.map(ToString::to_string).collect();
    json!({
        "table": copied.table.name,
        "rows": copied.digest.rows,
        "digest": copied.digest.to_string(),
        "left_behind": copied.left_behind.rows,
        "left_behind_named": named,
    })
}

fn tell(bar: &Bar, step: Step) {
    match step {
        Step::Begun { rows } => bar.begin(rows, "copying"),
        Step::Writing(table) => bar.say(&format!("copying {}", table.noun)),
        Step::Checking(table) => bar.say(&format!("checking {}", table.noun)),
        Step::Done { rows } => bar.add(rows),
    }
}
