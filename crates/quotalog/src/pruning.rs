//! Deletes what is older than its retention, in small steps between the batches of consumes.

use std::time::Duration;

use quotalog_ledger::store::{Administer, Retention, StoreError};

/// The most rows of one step: a few milliseconds of the writer's time.
const STEP_ROWS_MAX: u32 = 500;
/// The time left to others between two steps.
const PAUSE: Duration = Duration::from_millis(20);
/// How often a server looks for old rows.
const INTERVAL: Duration = Duration::from_mins(10);

/// Prunes until nothing old is left, and tells how many rows were deleted.
pub(crate) async fn prune(store: &dyn Administer, retention: Retention) -> Result<u64, StoreError> {
    let mut rows = 0;
    loop {
        let step = store.prune_step(retention, STEP_ROWS_MAX).await?;
        rows += u64::from(step);
        if step == 0 {
            return Ok(rows);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Prunes now and every ten minutes, until it is dropped.
pub(crate) async fn keep_pruning(store: &dyn Administer, retention: Retention) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        match prune(store, retention).await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "pruned"),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "could not prune; will try again");
            }
        }
    }
}
