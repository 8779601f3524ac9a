//! Deletes what is older than its retention, in small steps between the batches of consumes.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{IntCounter, IntCounterVec, Opts};
use quotalog_ledger::store::{Administer, Retention, StoreError};

/// The most rows of one step: a few milliseconds of the writer's time.
const STEP_ROWS_MAX: u32 = 500;
/// The time left to others between two steps.
const PAUSE: Duration = Duration::from_millis(20);
/// How often a server looks for old rows.
const INTERVAL: Duration = Duration::from_mins(10);

/// Prunes until nothing old is left, and tells how many rows were deleted: after each step, and in all.
pub(crate) async fn prune(
    store: &dyn Administer,
    retention: Retention,
    mut deleted: impl FnMut(u64),
) -> Result<u64, StoreError> {
    let mut rows = 0;
    loop {
        let step = store.prune_step(retention, STEP_ROWS_MAX).await?;
        deleted(step.into());
        rows += u64::from(step);
        if step == 0 {
            return Ok(rows);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What the background task has done, for whoever collects it.
pub(crate) struct Pruned {
    rows: IntCounter,
    runs: IntCounterVec,
}

impl Pruned {
    pub(crate) fn new() -> Self {
        let rows = IntCounter::new("quotalog_pruned_rows_total", "Old rows that were deleted.");
        let runs = Opts::new(
            "quotalog_prune_runs_total",
            "Rounds of the background task that deletes old rows, by how they ended.",
        );
        let runs = IntCounterVec::new(runs, &["outcome"]).expect(NAMED);
        for outcome in [DONE, FAILED] {
            runs.with_label_values(&[outcome]);
        }
        Self {
            rows: rows.expect(NAMED),
            runs,
        }
    }

    /// Everything, for a registry.
    pub(crate) fn collectors(&self) -> [Box<dyn Collector>; 2] {
        [Box::new(self.rows.clone()), Box::new(self.runs.clone())]
    }
}

const DONE: &str = "done";
const FAILED: &str = "failed";
const NAMED: &str = "the name is a sound one";

/// Prunes now and every ten minutes, until it is dropped.
pub(crate) async fn keep_pruning(store: &dyn Administer, retention: Retention, pruned: &Pruned) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let result = prune(store, retention, |rows| pruned.rows.inc_by(rows)).await;
        let outcome = if result.is_ok() { DONE } else { FAILED };
        pruned.runs.with_label_values(&[outcome]).inc();
        match result {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "pruned"),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "could not prune; will try again");
            }
        }
    }
}
