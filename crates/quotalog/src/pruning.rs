//! Deletes what is older than its retention, in small steps between the batches of consumes.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{IntCounter, IntCounterVec, Opts};
use quotalog_ledger::store::{Administer, PruneStep, Retention, StoreError, StoreFuture};

/// The most rows of one step: a few milliseconds of the writer's time.
const STEP_ROWS_MAX: u32 = 500;
/// By so many rows steps grow again, with each that gets through, when one of this length did not.
const STEP_ROWS_GROWTH: u32 = 10;
/// The time left to others between two steps.
const PAUSE: Duration = Duration::from_millis(20);
/// How often a server looks for old rows.
const INTERVAL: Duration = Duration::from_mins(10);
/// How soon a server looks again when it could not. Each failure after the first doubles it, up to [`INTERVAL`].
const RETRY_FIRST: Duration = Duration::from_secs(1);

/// What a round of steps has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Round {
    /// How many rows were deleted.
    pub(crate) rows: u64,
    /// Whether another process was met that prunes too.
    pub(crate) met_another: bool,
}

/// Prunes until nothing old is left. What another process is about to delete is waited for.
pub(crate) async fn prune(
    store: &dyn Administer,
    retention: Retention,
) -> Result<Round, StoreError> {
    let mut all = Round::default();
    loop {
        let step = |rows_max| store.prune_step(retention, rows_max);
        let round = round(step, |rows| all.rows += rows).await?;
        if !round.met_another {
            return Ok(all);
        }
        all.met_another = true;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Prunes now and every ten minutes, until it is dropped.
pub(crate) async fn keep_pruning(store: &dyn Administer, retention: Retention, pruned: &Pruned) {
    keep_going(|rows_max| store.prune_step(retention, rows_max), pruned).await;
}

async fn keep_going<'s>(mut step: impl FnMut(u32) -> StoreFuture<'s, PruneStep>, pruned: &Pruned) {
    let mut retry_in = RETRY_FIRST;
    loop {
        let result = round(&mut step, |rows| pruned.rows.inc_by(rows)).await;
        pruned.enter(&result);
        let pause = match result {
            Ok(round) => {
                if round.rows > 0 {
                    tracing::info!(rows = round.rows, "pruned");
                }
                retry_in = RETRY_FIRST;
                INTERVAL
            }
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                let pause = retry_in;
                let retry_in_s = pause.as_secs();
                tracing::warn!(error, retry_in_s, "could not prune; will try again");
                retry_in = (retry_in * 2).min(INTERVAL);
                pause
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Prunes until nothing old is left, or until another process is met that prunes: one at a time is enough.
///
/// A step that the store did not take may have been too large for it, so that its half is tried.
async fn round<'s>(
    mut step: impl FnMut(u32) -> StoreFuture<'s, PruneStep>,
    mut deleted: impl FnMut(u64),
) -> Result<Round, StoreError> {
    let mut round = Round::default();
    let mut rows_max = STEP_ROWS_MAX;
    loop {
        match step(rows_max).await {
            Ok(PruneStep::Deleted(0)) => return Ok(round),
            Ok(PruneStep::Deleted(rows)) => {
                deleted(rows.into());
                round.rows += u64::from(rows);
                rows_max = (rows_max + STEP_ROWS_GROWTH).min(STEP_ROWS_MAX);
            }
            Ok(PruneStep::LeftToAnother) => {
                round.met_another = true;
                return Ok(round);
            }
            Err(StoreError::Unavailable(error)) if rows_max > 1 => {
                tracing::debug!(error, rows_max, "half of a step is tried");
                rows_max /= 2;
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What the background task has done, for whoever collects it.
pub(crate) struct Pruned {
    rows: IntCounter,
    rounds: IntCounterVec,
}

impl Pruned {
    pub(crate) fn new() -> Self {
        let rows = IntCounter::new("quotalog_pruned_rows_total", "Old rows that were deleted.");
        let rounds = Opts::new(
            "quotalog_prune_runs_total",
            "Rounds of the background task that deletes old rows, by how they ended.",
        );
        let rounds = IntCounterVec::new(rounds, &["outcome"]).expect(NAMED);
        for outcome in [DONE, LEFT, FAILED] {
            rounds.with_label_values(&[outcome]);
        }
        Self {
            rows: rows.expect(NAMED),
            rounds,
        }
    }

    fn enter(&self, result: &Result<Round, StoreError>) {
        let outcome = match result {
            Ok(round) if round.met_another => LEFT,
            Ok(_) => DONE,
            Err(_) => FAILED,
        };
        self.rounds.with_label_values(&[outcome]).inc();
    }

    /// Everything, for a registry.
    pub(crate) fn collectors(&self) -> [Box<dyn Collector>; 2] {
        [Box::new(self.rows.clone()), Box::new(self.rounds.clone())]
    }
}

const DONE: &str = "done";
/// Another process was pruning.
const LEFT: &str = "left";
const FAILED: &str = "failed";
const NAMED: &str = "the name is a sound one";

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// A store of so many old rows, which does as the test says with the steps that it gets.
    struct Steps<F> {
        answer: F,
        taken: Vec<(Duration, u32)>,
        begun: Instant,
    }

    impl<F: FnMut(u32) -> Result<PruneStep, StoreError>> Steps<F> {
        fn new(answer: F) -> Self {
            Self {
                answer,
                taken: Vec::new(),
                begun: Instant::now(),
            }
        }

        fn step(&mut self, rows_max: u32) -> StoreFuture<'static, PruneStep> {
            self.taken.push((self.begun.elapsed(), rows_max));
            let answer = (self.answer)(rows_max);
            Box::pin(async { answer })
        }
    }

    fn unavailable() -> StoreError {
        StoreError::Unavailable("too slow".into())
    }

    fn failed() -> StoreError {
        StoreError::Internal("a trigger raised".into())
    }

    fn runs(pruned: &Pruned) -> [u64; 3] {
        [DONE, LEFT, FAILED].map(|outcome| pruned.rounds.with_label_values(&[outcome]).get())
    }

    /// When the rounds began within `patience`, in seconds; their pauses between steps aside.
    async fn begun(
        answer: impl FnMut(u32) -> Result<PruneStep, StoreError>,
        pruned: &Pruned,
        patience: Duration,
    ) -> Vec<u64> {
        let mut steps = Steps::new(answer);
        let rounds = keep_going(|rows_max| steps.step(rows_max), pruned);
        let ended = tokio::time::timeout(patience, rounds).await;
        assert!(ended.is_err(), "it goes on for ever");
        let begun = steps.taken.iter().map(|(at, _)| at.as_secs());
        begun.collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_that_failed_is_tried_again_soon_and_then_less_and_less_often() {
        let pruned = Pruned::new();
        let patience = Duration::from_secs(3_000);
        let begun = begun(|_| Err(failed()), &pruned, patience).await;
        assert_eq!(
            begun,
            [
                0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 1_023, 1_623, 2_223, 2_823
            ]
        );
        assert_eq!(runs(&pruned), [0, 0, 14]);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_success_the_next_failure_is_the_first_one_again() {
        let pruned = Pruned::new();
        let mut answers = [false, false, true, false, true].into_iter();
        let answer = |_| match answers.next() {
            Some(false) => Err(failed()),
            Some(true) | None => Ok(PruneStep::Deleted(0)),
        };
        let begun = begun(answer, &pruned, Duration::from_secs(610)).await;
        assert_eq!(begun, [0, 1, 3, 603, 604]);
        assert_eq!(runs(&pruned), [2, 0, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_prunes_is_left_to_it_until_the_next_round() {
        let pruned = Pruned::new();
        let mut answers = [
            PruneStep::Deleted(7),
            PruneStep::LeftToAnother,
            PruneStep::Deleted(5),
            PruneStep::Deleted(0),
        ]
        .into_iter();
        let answer = |_| Ok(answers.next().unwrap_or(PruneStep::Deleted(0)));
        let begun = begun(answer, &pruned, Duration::from_secs(900)).await;
        assert_eq!(begun, [0, 0, 600, 600]);
        assert_eq!(runs(&pruned), [1, 1, 0]);
        assert_eq!(pruned.rows.get(), 12);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_that_is_too_large_is_halved_and_grows_again() {
        let mut left = 1_000;
        let mut steps = Steps::new(|rows_max| {
            if rows_max > 130 {
                return Err(unavailable());
            }
            let rows = rows_max.min(left);
            left -= rows;
            Ok(PruneStep::Deleted(rows))
        });
        let ended = round(|rows_max| steps.step(rows_max), |_| {}).await;
        let expected = Round {
            rows: 1_000,
            met_another: false,
        };
        assert_eq!(ended.expect("it finishes"), expected);
        let asked: Vec<u32> = steps.taken.iter().map(|(_, rows_max)| *rows_max).collect();
        assert_eq!(asked[..6], [500, 250, 125, 135, 67, 77]);
        assert_eq!(
            steps.taken.last().map(|(_, rows_max)| *rows_max > 67),
            Some(true)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_takes_no_step_at_all_fails_the_round() {
        let mut steps = Steps::new(|_| Err(unavailable()));
        let ended = round(|rows_max| steps.step(rows_max), |_| {}).await;
        assert!(
            matches!(ended, Err(StoreError::Unavailable(_))),
            "{ended:?}"
        );
        let asked: Vec<u32> = steps.taken.iter().map(|(_, rows_max)| *rows_max).collect();
        assert_eq!(asked, [500, 250, 125, 62, 31, 15, 7, 3, 1]);
    }
}
