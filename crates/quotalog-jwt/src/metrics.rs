//! What is measured of tokens and keys.

use prometheus::core::Collector;
use prometheus::{IntCounterVec, IntGauge, Opts};

use crate::refusal::Refusal;

/// Counts since the start of the process. No label holds anything that a token says.
#[derive(Clone)]
pub(crate) struct Metrics {
    verifications: IntCounterVec,
    refreshes: IntCounterVec,
    /// How many keys are trusted now.
    pub(crate) keys: IntGauge,
}

/// A token that was verified, now or not long ago.
const ACCEPTED: &str = "accepted";
/// A token that no keys were there for.
const UNAVAILABLE: &str = "unavailable";

impl Metrics {
    pub(crate) fn new() -> Self {
        let verifications = IntCounterVec::new(
            Opts::new(
                "quotalog_jwt_verifications_total",
                "JWTs that were presented, by what was found.",
            ),
            &["result"],
        );
        let refreshes = IntCounterVec::new(
            Opts::new(
                "quotalog_jwks_refreshes_total",
                "Times that the JWKS was read, by what came of it.",
            ),
            &["result"],
        );
        let keys = IntGauge::new("quotalog_jwt_keys", "Keys that JWTs are verified with now.");
        let metrics = Self {
            verifications: verifications.expect(NAMED),
            refreshes: refreshes.expect(NAMED),
            keys: keys.expect(NAMED),
        };
        // Every series there will be is there from the start, so that an alert can tell 0 from nothing.
        let refusals = Refusal::ALL.map(Refusal::as_str);
        for result in refusals.into_iter().chain([ACCEPTED, UNAVAILABLE]) {
            metrics.verifications.with_label_values(&[result]);
        }
        for result in ["ok", "failed"] {
            metrics.refreshes.with_label_values(&[result]);
        }
        metrics
    }

    pub(crate) fn collectors(&self) -> Vec<Box<dyn Collector>> {
        vec![
            Box::new(self.verifications.clone()),
            Box::new(self.refreshes.clone()),
            Box::new(self.keys.clone()),
        ]
    }

    pub(crate) fn accepted(&self) {
        self.verifications.with_label_values(&[ACCEPTED]).inc();
    }

    pub(crate) fn refused(&self, refusal: Refusal) {
        let result = refusal.as_str();
        self.verifications.with_label_values(&[result]).inc();
    }

    pub(crate) fn unavailable(&self) {
        self.verifications.with_label_values(&[UNAVAILABLE]).inc();
    }

    pub(crate) fn refreshed(&self, well: bool) {
        let result = if well { "ok" } else { "failed" };
        self.refreshes.with_label_values(&[result]).inc();
    }
}

const NAMED: &str = "the name is a sound one";
