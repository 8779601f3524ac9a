//! The quotas of whose limit the largest part is used: who is near the limit.
//!
//! No index tells how full a quota is, since every consume would have to keep it. So this looks at the usage
//! rows of today, all of them but a slice at a time, each in a read transaction of its own: others read in
//! between, and the log can be moved into the database. What is answered is read once more, in one
//! transaction at the end, which also judges the caller's credential again.

use std::collections::BTreeSet;

use quotalog_auth::Credential;
use quotalog_domain::{Pair, Quota, Timestamp, Usage, Window, WindowSpan};
use quotalog_ledger::store::{Judged, Page, QuotaFilter, StoreError};
use quotalog_record::Ranked;
use rusqlite::{OptionalExtension as _, Result, Row};

use crate::ports::judged;
use crate::quota::{Pairs, held};
use crate::raw::Raw;
use crate::store::SqliteStore;
use crate::tx::Tx;
use crate::{instant, list, row};

/// Usage rows of one transaction, each for some 10 µs of a reader's time at a million pairs.
const ROWS_MAX: u32 = 1_000;

pub(crate) const ROWS_OF_START: &str = "SELECT id, user_id, resource, window_start \
     FROM quota_usage WHERE window_start = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
pub(crate) const NEXT_START: &str = "SELECT window_start FROM quota_usage \
     WHERE window_start > ?1 AND window_start < ?2 ORDER BY window_start LIMIT 1";

/// Finds the fullest quotas. One search at a time: another one waits here.
pub(crate) async fn find(
    store: &SqliteStore,
    credential: Credential,
    filter: QuotaFilter,
    len_max: usize,
) -> std::result::Result<Judged<Vec<Quota>>, StoreError> {
    let _turn = store.begin_search().await;
    let asking = credential.clone();
    let began = store.read(move |tx| judged(tx, &asking, |tx| Ok(Window::Daily.span_at(tx.now))));
    let day = match began.await? {
        Ok(day) => day,
        Err(revoked) => return Ok(Err(revoked)),
    };

    let mut search = Search::of(day, filter.clone(), len_max);
    while !search.ended {
        let slice = store.read(move |tx| {
            search.look_at_slice(tx)?;
            Ok(search)
        });
        search = slice.await?;
    }
    let mut pairs = search.pairs();
    if filter.min_used_percent.is_none_or(|percent| percent == 0) {
        add_unused(store, &filter, len_max, &mut pairs).await?;
    }
    let ranking = move |tx: &Tx<'_>| rank(tx, pairs, &filter, len_max);
    store.read(move |tx| judged(tx, &credential, ranking)).await
}

/// A search through the usage of one day, between two of its transactions.
struct Search {
    filter: QuotaFilter,
    len_max: usize,
    /// The `window_start` of the rows in hand, and the last of them that was looked at.
    start: Raw,
    after: i64,
    day_end: String,
    ended: bool,
    /// The fullest that were met, at most `len_max`.
    best: BTreeSet<Ranked>,
}

impl Search {
    fn of(day: WindowSpan, filter: QuotaFilter, len_max: usize) -> Self {
        Self {
            filter,
            len_max,
            start: Raw::text(&instant::to_text(day.start)),
            after: i64::MIN,
            day_end: instant::to_text(day.reset_at),
            ended: false,
            best: BTreeSet::new(),
        }
    }

    /// Looks at the next rows, and moves on.
    fn look_at_slice(&mut self, tx: &Tx<'_>) -> Result<()> {
        let mut pairs = Pairs::new(tx.connection, tx.now)?;
        let mut left = ROWS_MAX;
        while left > 0 && !self.ended {
            let looked_at = self.look_at_rows(tx, &mut pairs, left)?;
            if looked_at < left {
                self.go_to_next_start(tx)?;
            }
            left -= looked_at;
        }
        Ok(())
    }

    /// Looks at rows of the same start, and tells how many there were.
    fn look_at_rows(&mut self, tx: &Tx<'_>, pairs: &mut Pairs<'_>, rows_max: u32) -> Result<u32> {
        let mut of_start = tx.connection.prepare_cached(ROWS_OF_START)?;
        let mut rows = of_start.query((&self.start, self.after, rows_max))?;
        let mut looked_at = 0;
        while let Some(row) = rows.next()? {
            self.consider(tx, pairs, row)?;
            self.after = row.get(0)?;
            looked_at += 1;
        }
        Ok(looked_at)
    }

    fn go_to_next_start(&mut self, tx: &Tx<'_>) -> Result<()> {
        let mut next = tx.connection.prepare_cached(NEXT_START)?;
        let found = next.query_row((&self.start, &self.day_end), |row| {
            Ok(Raw::of(row.get_ref(0)?))
        });
        match found.optional()? {
            Some(start) => (self.start, self.after) = (start, i64::MIN),
            None => self.ended = true,
        }
        Ok(())
    }

    /// Ranks the pair of a row, at the first row of its window and not again at the others: units that are
    /// counted meanwhile would give it two places.
    fn consider(&mut self, tx: &Tx<'_>, pairs: &mut Pairs<'_>, row: &Row<'_>) -> Result<()> {
        let read = |row: &Row<'_>| Ok((row::pair(row, 1)?, row::timestamp(row, 3)?));
        let Some((pair, start)) = held(tx, "quota_usage", row, read)? else {
            return Ok(());
        };
        let wanted = self.filter.resource.as_ref();
        if wanted.is_some_and(|resource| *resource != pair.resource) {
            return Ok(());
        }
        let Some((policy, source)) = pairs.in_force(tx, &pair)? else {
            return Ok(());
        };
        let span = policy.window.span_at(tx.now);
        // Most rows of earlier hours belong to hourly policies, which needs no look at all the usage.
        if !span.contains(start) {
            return Ok(());
        }
        let mut usage = Usage::default();
        let mut first: Option<Timestamp> = None;
        pairs.usage(tx, &pair, |_, window_start, units| {
            usage.load(window_start, units);
            if span.contains(window_start) {
                first = Some(first.map_or(window_start, |first| first.min(window_start)));
            }
        })?;
        let quota = Quota::check(pair, policy, source, &usage, tx.now);
        if first == Some(start) && quota.usage > 0 && self.filter.admits(&quota) {
            self.best.insert(Ranked(quota));
            if self.best.len() > self.len_max {
                self.best.pop_last();
            }
        }
        Ok(())
    }

    fn pairs(self) -> BTreeSet<Pair> {
        let pairs = self.best.into_iter().map(|Ranked(quota)| quota.pair);
        pairs.collect()
    }
}

/// Fills `pairs` up with those of which nothing is used, in their order.
async fn add_unused(
    store: &SqliteStore,
    filter: &QuotaFilter,
    len_max: usize,
    pairs: &mut BTreeSet<Pair>,
) -> std::result::Result<(), StoreError> {
    let mut after = None;
    while pairs.len() < len_max {
        let resource = filter.resource.clone();
        let page = Page {
            after,
            len_max: len_max - pairs.len(),
        };
        let listing = store
            .read(move |tx| list::quotas(tx, resource.as_ref(), |quota| quota.usage == 0, &page));
        let listed = listing.await?;
        pairs.extend(listed.entries.into_iter().map(|quota| quota.pair));
        after = listed.next;
        if after.is_none() {
            break;
        }
    }
    Ok(())
}

/// The quotas of the pairs as they are now, fullest first.
fn rank(
    tx: &Tx<'_>,
    among: BTreeSet<Pair>,
    filter: &QuotaFilter,
    len_max: usize,
) -> Result<Vec<Quota>> {
    let mut pairs = Pairs::new(tx.connection, tx.now)?;
    let mut ranked = Vec::with_capacity(among.len());
    for pair in among {
        if let Some(quota) = pairs.quota(tx, pair)?
            && filter.admits(&quota)
            && list::is_known(tx, &quota)?
        {
            ranked.push(Ranked(quota));
        }
    }
    ranked.sort_unstable();
    let quotas = ranked.into_iter().map(|Ranked(quota)| quota);
    Ok(quotas.take(len_max).collect())
}
