//! The quotas of whose limit the largest part is used: who is near the limit.
//!
//! No index tells how full a quota is, since every consume would have to keep it. So this walks through all
//! pairs, a slice at a time, each in a transaction of its own. What is answered is read once more, in one
//! transaction at the end.

use std::collections::BTreeSet;

use quotalog_auth::Credential;
use quotalog_domain::{Pair, Quota};
use quotalog_ledger::store::{Judged, QuotaFilter, StoreError};
use quotalog_record::Ranked;
use tokio_postgres::Error;

use crate::list::{self, Among, Walk};
use crate::quota::Keys;
use crate::store::Inner;
use crate::tx::{For, Tx};

/// Pairs of one transaction, each for some 10 µs of the server's time.
const PAIRS_MAX: i64 = 1_000;

/// Finds the fullest quotas. One search at a time: another one waits here.
pub(crate) async fn find(
    store: &Inner,
    credential: &Credential,
    filter: &QuotaFilter,
    len_max: usize,
) -> Result<Judged<Vec<Quota>>, StoreError> {
    let _turn = store.search.lock().await;
    let among = filter
        .resource
        .as_ref()
        .map_or(Among::All, Among::OfResource);
    let mut walk = Walk::new(among, None);
    let mut best: BTreeSet<Ranked> = BTreeSet::new();
    let mut ended = false;
    while !ended {
        let tx = match Tx::judged(store, For::Reading, credential).await? {
            Ok(tx) => tx,
            Err(revoked) => return Ok(Err(revoked)),
        };
        let slice = async {
            let rows = walk.next(&tx, PAIRS_MAX).await?;
            let was_last = list::is_short(&rows, PAIRS_MAX);
            Ok((list::known(&tx, &rows).await?, was_last))
        };
        let (known, was_last) = tx.work(slice).await?;
        tx.roll_back().await?;
        for quota in known.into_iter().filter_map(|(_, quota)| quota) {
            if filter.admits(&quota) {
                best.insert(Ranked(quota));
                if best.len() > len_max {
                    best.pop_last();
                }
            }
        }
        ended = was_last;
    }
    let tx = match Tx::judged(store, For::Reading, credential).await? {
        Ok(tx) => tx,
        Err(revoked) => return Ok(Err(revoked)),
    };
    let pairs: BTreeSet<Pair> = best.into_iter().map(|Ranked(quota)| quota.pair).collect();
    let quotas = tx.work(rank(&tx, &pairs, filter)).await?;
    tx.roll_back().await?;
    Ok(Ok(quotas))
}

/// The quotas of the pairs as they are now, fullest first.
async fn rank(
    tx: &Tx<'_>,
    pairs: &BTreeSet<Pair>,
    filter: &QuotaFilter,
) -> Result<Vec<Quota>, Error> {
    let keys = Keys::of(pairs);
    let rows = tx
        .connection()
        .query(list::PAIRS_NAMED, &[&keys.user_ids, &keys.resources])
        .await?;
    let known = list::known(tx, &rows).await?;
    let quotas = known.into_iter().filter_map(|(_, quota)| quota);
    let mut ranked: Vec<Ranked> = quotas
        .filter(|quota| filter.admits(quota))
        .map(Ranked)
        .collect();
    ranked.sort_unstable();
    Ok(ranked.into_iter().map(|Ranked(quota)| quota).collect())
}
