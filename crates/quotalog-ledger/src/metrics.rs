//! What the ledger measures of itself, for whoever collects it.

use std::sync::Arc;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, PullingGauge,
    exponential_buckets,
};
use quotalog_domain::{Answer, Operation, Refusal};

use crate::ledger::LedgerError;
use crate::queue::Queue;
use crate::store::{Revoked, Submission, Verdict};

/// Counts and durations since the start of the process. No label holds an id.
#[derive(Clone)]
pub(crate) struct Metrics {
    /// Commands of each batch that was committed.
    batch_len: Histogram,
    /// How long the store took for a batch, its commit included.
    commit_s: Histogram,
    consumes: IntCounterVec,
    granted: IntCounter,
    exhausted: IntCounter,
    units: IntCounter,
    errors: IntCounterVec,
    /// 1 while an erasure is not finished.
    pub(crate) erasing: IntGauge,
}

/// What can become of a consume, single or of many items.
const OUTCOMES: [&str; 10] = [
    GRANTED,
    EXHAUSTED,
    "replayed",
    "key-reused",
    "not-found",
    "exceeds-limit",
    "unauthorized",
    UNAVAILABLE,
    OUTCOME_UNKNOWN,
    INTERNAL,
];
const GRANTED: &str = "granted";
const EXHAUSTED: &str = "exhausted";

/// How the store can fail.
const ERRORS: [&str; 3] = [UNAVAILABLE, OUTCOME_UNKNOWN, INTERNAL];
const UNAVAILABLE: &str = "unavailable";
const OUTCOME_UNKNOWN: &str = "outcome-unknown";
const INTERNAL: &str = "internal";

impl Metrics {
    pub(crate) fn new() -> Self {
        let consumes = IntCounterVec::new(
            Opts::new(
                "quotalog_consumes_total",
                "Consumes, single, batch and of rate-limit calls, by what became of them.",
            ),
            &["outcome"],
        );
        let consumes = consumes.expect(NAMED);
        let errors = IntCounterVec::new(
            Opts::new(
                "quotalog_store_errors_total",
                "Failures of the store, by what they mean for the request.",
            ),
            &["kind"],
        );
        let errors = errors.expect(NAMED);
        // Every series there will be is there from the start, so that an alert can tell 0 from nothing.
        for outcome in OUTCOMES {
            consumes.with_label_values(&[outcome]);
        }
        for kind in ERRORS {
            errors.with_label_values(&[kind]);
        }
        Self {
            batch_len: histogram(
                "quotalog_batch_commands",
                "Commands of each committed transaction.",
                exponential_buckets(1.0, 2.0, 11),
            ),
            commit_s: histogram(
                "quotalog_commit_duration_seconds",
                "How long the store took for a transaction, waiting for other processes included.",
                exponential_buckets(0.000_25, 2.0, 15),
            ),
            granted: consumes.with_label_values(&[GRANTED]),
            exhausted: consumes.with_label_values(&[EXHAUSTED]),
            units: IntCounter::new(
                "quotalog_consumed_units_total",
                "Units that were granted, not counting replays.",
            )
            .expect(NAMED),
            consumes,
            errors,
            erasing: IntGauge::new(
                "quotalog_erasing",
                "1 while the erasure of a user is not finished, else 0.",
            )
            .expect(NAMED),
        }
    }

    /// Everything, for a registry.
    pub(crate) fn collectors(&self, queue: Arc<Queue>) -> Vec<Box<dyn Collector>> {
        let queue_len = PullingGauge::new(
            "quotalog_queue_commands",
            "Commands that wait for a transaction.",
            // No queue is longer than a float can count.
            Box::new(move || u32::try_from(queue.len()).unwrap_or(u32::MAX).into()),
        );
        vec![
            Box::new(queue_len.expect(NAMED)),
            Box::new(self.batch_len.clone()),
            Box::new(self.commit_s.clone()),
            Box::new(self.consumes.clone()),
            Box::new(self.units.clone()),
            Box::new(self.errors.clone()),
            Box::new(self.erasing.clone()),
        ]
    }

    /// Counts a batch that is durable, and what became of its consumes.
    pub(crate) fn committed(&self, batch: &[Submission], verdicts: &[Verdict], took: Duration) {
        // An empty batch is one whose clients have all left.
        if batch.is_empty() {
            return;
        }
        self.commit_s.observe(took.as_secs_f64());
        self.batch_len
            .observe(u32::try_from(batch.len()).unwrap_or(u32::MAX).into());
        for (submission, verdict) in batch.iter().zip(verdicts) {
            if is_consume(&submission.command.operation) {
                self.decided(&submission.command.operation, verdict);
            }
        }
    }

    /// Counts a failure of the store.
    pub(crate) fn failed(&self, error: &LedgerError) {
        if let Some(kind) = kind_of(error) {
            self.errors.with_label_values(&[kind]).inc();
        }
    }

    /// Counts a consume that was answered without a verdict of the store.
    pub(crate) fn consume_failed(&self, error: &LedgerError) {
        if let Some(kind) = kind_of(error) {
            self.consumes.with_label_values(&[kind]).inc();
        }
    }

    fn decided(&self, operation: &Operation, verdict: &Verdict) {
        let outcome = match verdict {
            Ok(Ok(decided)) if !decided.replayed => {
                self.units.inc_by(granted_units(operation, &decided.answer));
                return self.granted.inc();
            }
            Ok(Err(Refusal::Exhausted(_) | Refusal::BatchExhausted(_) | Refusal::OverLimit(_))) => {
                return self.exhausted.inc();
            }
            Ok(Ok(_)) => "replayed",
            Ok(Err(Refusal::KeyReused)) => "key-reused",
            // A consume has no precondition.
            Ok(Err(
                Refusal::NotFound | Refusal::BatchNotFound(_) | Refusal::PreconditionFailed,
            )) => "not-found",
            Ok(Err(Refusal::AmountExceedsLimit(_))) => "exceeds-limit",
            Err(Revoked) => "unauthorized",
        };
        self.consumes.with_label_values(&[outcome]).inc();
    }
}

/// What a failure of the store is called; a token that no longer holds is its verdict.
fn kind_of(error: &LedgerError) -> Option<&'static str> {
    match error {
        LedgerError::Unavailable => Some(UNAVAILABLE),
        LedgerError::OutcomeUnknown => Some(OUTCOME_UNKNOWN),
        LedgerError::Internal(_) => Some(INTERNAL),
        LedgerError::Revoked => None,
    }
}

/// Whether a command is to count units.
pub(crate) fn is_consume(operation: &Operation) -> bool {
    match operation {
        Operation::Consume { .. } | Operation::ConsumeBatch { .. } => true,
        Operation::RateLimit { hits } => hits.iter().any(|hit| hit.amount.is_some()),
        Operation::Refund { .. }
        | Operation::Reset { .. }
        | Operation::SetPolicy { .. }
        | Operation::DeletePolicy { .. }
        | Operation::SetDefault { .. }
        | Operation::DeleteDefault { .. } => false,
    }
}

/// The units that a consume has counted, which was granted with this answer.
fn granted_units(operation: &Operation, answer: &Answer) -> u64 {
    match operation {
        Operation::Consume { amount, .. } => amount.get(),
        Operation::ConsumeBatch { items } => items.iter().map(|item| item.amount.get()).sum(),
        Operation::RateLimit { hits } => match answer {
            // What nothing limits is not counted.
            Answer::Limits(quotas) => {
                let limited = hits.iter().zip(quotas).filter(|(_, quota)| quota.is_some());
                limited.map(|(hit, _)| hit.units()).sum()
            }
            Answer::Quota(_) | Answer::Quotas(_) | Answer::Default(_) | Answer::Deleted => 0,
        },
        Operation::Refund { .. }
        | Operation::Reset { .. }
        | Operation::SetPolicy { .. }
        | Operation::DeletePolicy { .. }
        | Operation::SetDefault { .. }
        | Operation::DeleteDefault { .. } => 0,
    }
}

fn histogram(name: &str, help: &str, buckets: prometheus::Result<Vec<f64>>) -> Histogram {
    let buckets = buckets.expect("the first is positive and each is larger");
    Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets)).expect(NAMED)
}

const NAMED: &str = "the name is a sound one";
