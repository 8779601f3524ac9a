//! Copying everything from one database into another: a page of rows at a time, then read back and compared, then
//! committed. Until the commit the other database holds nothing of it.

use quotalog_ledger::store::StoreError;
use quotalog_record::transfer::{Digest, ERASURES, Source, TABLES, Table, Target, Unfit};

use crate::app;
use crate::exit_code::{Exit, Failure};

/// The most rows of a table that are named if they cannot be held.
const NAMED_MAX: usize = 5;

/// What became of one table.
pub(crate) struct Copied {
    pub(crate) table: &'static Table,
    /// What was written, and read back.
    pub(crate) digest: Digest,
    pub(crate) left_behind: LeftBehind,
}

/// Rows that cannot be held.
#[derive(Default)]
pub(crate) struct LeftBehind {
    pub(crate) rows: u64,
    /// The first few of them.
    pub(crate) named: Vec<Unfit>,
}

/// How far it is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// There is so much to do: each row is written once and read back once.
    Begun { rows: u64 },
    /// A table is written.
    Writing(&'static Table),
    /// A table is read back.
    Checking(&'static Table),
    /// So many rows more are done.
    Done { rows: u64 },
}

/// Copies everything. `left_behind` says whether rows that cannot be held may stay where they are.
pub(crate) async fn copy(
    from: &mut dyn Source,
    mut to: Box<dyn Target>,
    may_leave: bool,
    tell: &dyn Fn(Step),
) -> anyhow::Result<Vec<Copied>> {
    must_be_empty(&mut *to).await?;
    must_have_erased(from).await?;
    tell(Step::Begun {
        rows: count(from).await? * 2,
    });
    let mut copied = Vec::new();
    for table in &TABLES {
        tell(Step::Writing(table));
        copied.push(copy_table(from, &mut *to, table, tell).await?);
        let last_place = from.last_place(table).await.map_err(app::failed)?;
        let raised = to.go_on_after(table, last_place).await;
        raised.map_err(app::failed)?;
    }
    if !may_leave {
        must_be_whole(&copied)?;
    }
    check(&mut *to, &copied, tell).await?;
    to.commit().await.map_err(|error| match error {
        StoreError::OutcomeUnknown(_) => {
            let message = "the commit was sent and no answer came, so that all is copied or nothing; \
                 run it again: it refuses a database that is not empty";
            Failure::error(Exit::Unavailable, message)
        }
        StoreError::Unavailable(_) | StoreError::Internal(_) => app::failed(error),
    })?;
    Ok(copied)
}

async fn must_be_empty(to: &mut dyn Target) -> anyhow::Result<()> {
    let mut found = Vec::new();
    for table in TABLES.iter().filter(|table| !table.is_single()) {
        let rows = to.count(table).await.map_err(app::failed)?;
        if rows > 0 {
            found.push(format!("{}: {rows}", table.noun));
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    let message = format!(
        "--to is not empty ({}), and nothing is mixed or overwritten; name an empty database",
        found.join(", ")
    );
    Err(Failure::error(Exit::Usage, message))
}

async fn count(from: &mut dyn Source) -> anyhow::Result<u64> {
    let mut all: u64 = 0;
    for table in &TABLES {
        let rows = from.count(table).await.map_err(app::failed)?;
        all = all.saturating_add(rows);
    }
    Ok(all)
}

async fn copy_table(
    from: &mut dyn Source,
    to: &mut dyn Target,
    table: &'static Table,
    tell: &dyn Fn(Step),
) -> anyhow::Result<Copied> {
    let mut copied = Copied {
        table,
        digest: Digest::default(),
        left_behind: LeftBehind::default(),
    };
    from.open(table).await.map_err(app::failed)?;
    loop {
        let page = from.next_rows().await.map_err(app::failed)?;
        if page.is_empty() {
            return Ok(copied);
        }
        let done = rows(page.len());
        let mut held = Vec::with_capacity(page.len());
        for row in page {
            match row {
                Ok(row) => {
                    copied.digest.add(&row);
                    held.push(row);
                }
                Err(unfit) => copied.left_behind.add(unfit),
            }
        }
        if !held.is_empty() {
            to.write(table, held).await.map_err(app::failed)?;
        }
        tell(Step::Done { rows: done });
    }
}

async fn must_have_erased(from: &mut dyn Source) -> anyhow::Result<()> {
    if from.count(&ERASURES).await.map_err(app::failed)? == 0 {
        return Ok(());
    }
    let message = "the erasure of a user is not finished in --from; run a server on it until its metric \
                   quotalog_erasing is 0, then copy";
    Err(Failure::error(Exit::Failure, message))
}

fn must_be_whole(copied: &[Copied]) -> anyhow::Result<()> {
    let rows: u64 = copied.iter().map(|table| table.left_behind.rows).sum();
    if rows == 0 {
        return Ok(());
    }
    let named = copied.iter().flat_map(|copied| {
        let named = copied.left_behind.named.iter();
        named.map(|unfit| format!("{} {unfit}", copied.table.name))
    });
    let named: Vec<String> = named.collect();
    let and_more = if rows > self::rows(named.len()) {
        "; and more"
    } else {
        ""
    };
    let message = format!(
        "nothing is copied: {rows} of the rows cannot be held, and quotalog passes them over ({}{and_more}); mend or \
         delete them, or leave them behind with --leave-behind",
        named.join("; ")
    );
    Err(Failure::error(Exit::Failure, message))
}

/// Reads back what was written. Nothing is committed that is not equal.
async fn check(to: &mut dyn Target, copied: &[Copied], tell: &dyn Fn(Step)) -> anyhow::Result<()> {
    let mut differing = Vec::new();
    for Copied { table, digest, .. } in copied {
        tell(Step::Checking(table));
        let mut read_back = Digest::default();
        let mut unheld: u64 = 0;
        to.open(table).await.map_err(app::failed)?;
        loop {
            let page = to.next_rows().await.map_err(app::failed)?;
            if page.is_empty() {
                break;
            }
            let done = rows(page.len());
            for row in page {
                match row {
                    Ok(row) => read_back.add(&row),
                    Err(_) => unheld += 1,
                }
            }
            tell(Step::Done { rows: done });
        }
        // The row that a new database has stays if there is none to put in its place.
        let kept = table.is_single() && digest.rows == 0;
        if !kept && (read_back != *digest || unheld > 0) {
            differing.push(format!(
                "{}: {} rows with digest {digest} became {} with digest {read_back}",
                table.noun,
                digest.rows,
                read_back.rows + unheld
            ));
        }
    }
    if differing.is_empty() {
        return Ok(());
    }
    let message = format!(
        "nothing is copied: what was read back is not what was written ({})",
        differing.join("; ")
    );
    Err(Failure::error(Exit::Failure, message))
}

fn rows(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

impl LeftBehind {
    pub(crate) fn add(&mut self, unfit: Unfit) {
        self.rows += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(unfit);
        }
    }
}
