//! Exporting rows into a file: a page at a time, as they are at one moment.

use std::io::Write;

use anyhow::Context as _;
use quotalog_record::import::Subject;
use quotalog_record::transfer::Source;

use crate::app;
use crate::copy::LeftBehind;
use crate::records::{self, Writer};

/// What was written.
#[derive(Default)]
pub(crate) struct Exported {
    pub(crate) rows: u64,
    /// Rows that quotalog cannot hold, and passes over.
    pub(crate) left_behind: LeftBehind,
}

/// How far it is.
pub(crate) enum Step {
    /// There are so many rows.
    Begun { rows: u64 },
    /// So many rows more are done.
    Done { rows: u64 },
}

/// Writes every row of the subject, and returns what was written to.
pub(crate) async fn export<W: Write>(
    from: &mut dyn Source,
    mut to: Writer<W>,
    subject: Subject,
    tell: &dyn Fn(Step),
) -> anyhow::Result<(W, Exported)> {
    let table = records::table(subject);
    let rows = from.count(table).await.map_err(app::failed)?;
    tell(Step::Begun { rows });
    let mut exported = Exported::default();
    from.open(table).await.map_err(app::failed)?;
    loop {
        let page = from.next_rows().await.map_err(app::failed)?;
        if page.is_empty() {
            let output = to.finish().context(UNWRITTEN)?;
            return Ok((output, exported));
        }
        let rows = u64::try_from(page.len()).unwrap_or(u64::MAX);
        for row in page {
            match row {
                Ok(row) => {
                    to.write(&row).context(UNWRITTEN)?;
                    exported.rows += 1;
                }
                Err(unfit) => exported.left_behind.add(unfit),
            }
        }
        tell(Step::Done { rows });
    }
}

/// What an error of the operating system is about.
pub(crate) const UNWRITTEN: &str = "the file cannot be written";
