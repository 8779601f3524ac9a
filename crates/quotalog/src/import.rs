//! Importing a file: every line is judged and laid ready, all of it is compared with what is there, and then saved in
//! one transaction. A file with a fault changes nothing.

use std::collections::BTreeSet;
use std::io::Read;

use quotalog_domain::LimitError;
use quotalog_ledger::store::StoreError;
use quotalog_record::import::{Import, Subject, Tally, Tell};
use quotalog_record::transfer::ROWS_MAX;

use crate::app;
use crate::exit_code::{Exit, Failure};
use crate::records::{self, Fault, Reader};

/// The most faults that are named.
const NAMED_MAX: usize = 20;
/// The most repeated lines that are looked for.
const REPEATED_MAX: usize = 1_000;

/// What became of a file.
pub(crate) enum Imported {
    /// All of it is saved, or would be.
    Sound(Tally),
    /// Nothing is.
    Faulty(Faults),
}

/// What is wrong with a file.
#[derive(Default)]
pub(crate) struct Faults {
    /// How many there are, at least.
    pub(crate) count: u64,
    /// The first of them, in the order of the lines.
    pub(crate) named: BTreeSet<Fault>,
}

/// How far it is.
pub(crate) enum Step {
    /// So many bytes were read.
    Read { bytes: u64 },
    /// So many entries are compared with what is there.
    Comparing { entries: u64 },
    /// So many entries are saved.
    Saving { entries: u64 },
}

/// Imports a file, or, as a rehearsal, tells what that would do. `done` is told how many entries are through a step.
pub(crate) async fn import<R: Read>(
    mut reader: Reader<R>,
    mut into: Box<dyn Import>,
    subject: Subject,
    is_rehearsal: bool,
    tell: &dyn Fn(Step),
    done: Tell,
) -> anyhow::Result<Imported> {
    let (entries, mut faults) = stage(&mut reader, &mut *into, tell).await?;
    let repeated = into.repeated(REPEATED_MAX).await.map_err(app::failed)?;
    for [first, second] in repeated {
        let key = records::key(subject);
        let text = format!("{key} are those of line {first}.");
        faults.add(Fault { line: second, text });
    }
    if faults.count > 0 {
        return Ok(Imported::Faulty(faults));
    }
    tell(Step::Comparing { entries });
    let compared = into.compare(std::sync::Arc::clone(&done)).await;
    let tally = compared.map_err(app::failed)?;
    for line in &tally.refused {
        let text = format!("{} It may stay, and is not there.", LimitError::TooLarge);
        faults.add(Fault { line: *line, text });
    }
    if faults.count > 0 {
        return Ok(Imported::Faulty(faults));
    }
    if !is_rehearsal && tally.to_save() > 0 {
        let entries = tally.to_save();
        tell(Step::Saving { entries });
        into.save(done).await.map_err(not_saved)?;
    }
    Ok(Imported::Sound(tally))
}

async fn stage<R: Read>(
    reader: &mut Reader<R>,
    into: &mut dyn Import,
    tell: &dyn Fn(Step),
) -> anyhow::Result<(u64, Faults)> {
    let mut faults = Faults::default();
    let mut entries: u64 = 0;
    let mut page = Vec::with_capacity(ROWS_MAX);
    loop {
        let line = reader.next()?;
        let is_last = line.is_none();
        match line {
            Some(Ok(entry)) => page.push(entry),
            Some(Err(found)) => found.into_iter().for_each(|fault| faults.add(fault)),
            None => {}
        }
        if page.len() == ROWS_MAX || (is_last && !page.is_empty()) {
            entries += u64::try_from(page.len()).unwrap_or(u64::MAX);
            let full = std::mem::replace(&mut page, Vec::with_capacity(ROWS_MAX));
            into.stage(full).await.map_err(app::failed)?;
            let bytes = reader.read_bytes();
            tell(Step::Read { bytes });
        }
        if is_last {
            return Ok((entries, faults));
        }
    }
}

fn not_saved(error: StoreError) -> anyhow::Error {
    match error {
        StoreError::OutcomeUnknown(_) => {
            let message = "the commit was sent and no answer came, so that all is imported or nothing; run it again: \
                 what is there already is left as it is";
            Failure::error(Exit::Unavailable, message)
        }
        StoreError::Unavailable(_) | StoreError::Internal(_) => app::failed(error),
    }
}

impl Faults {
    fn add(&mut self, fault: Fault) {
        self.count += 1;
        self.named.insert(fault);
        if self.named.len() > NAMED_MAX {
            self.named.pop_last();
        }
    }
}
