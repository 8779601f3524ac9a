//! What the front measures of its calls.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts};
use tonic::Code;

/// Upper bounds of the histogram of calls, in seconds: around the 20 ms that a proxy waits by default.
const SECONDS: [f64; 12] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];

/// Calls since the start of the process. Cheap to clone; clones are the same.
#[derive(Clone)]
pub struct Metrics {
    calls: IntCounterVec,
    granted: IntCounter,
    denied: IntCounter,
    seconds: Histogram,
}

impl Metrics {
    /// With all series there from the start that a well-meant caller can cause, so that an alert can tell 0 from
    /// nothing.
    ///
    /// # Panics
    /// Never: each name is a sound one.
    #[must_use]
    pub fn new() -> Self {
        let calls = Opts::new(
            "quotalog_rate_limit_calls_total",
            "Calls of ShouldRateLimit, by verdict or by the code of their failure.",
        );
        let seconds = HistogramOpts::new(
            "quotalog_rate_limit_call_duration_seconds",
            "From the head of a call of ShouldRateLimit to its answer.",
        );
        let calls = IntCounterVec::new(calls, &["code"]).expect(NAMED);
        let metrics = Self {
            granted: calls.with_label_values(&[name_of(Code::Ok)]),
            denied: calls.with_label_values(&[OVER_LIMIT]),
            calls,
            seconds: Histogram::with_opts(seconds.buckets(SECONDS.to_vec())).expect(NAMED),
        };
        for code in [
            name_of(Code::InvalidArgument),
            name_of(Code::Unauthenticated),
            name_of(Code::PermissionDenied),
            name_of(Code::Unavailable),
            name_of(Code::Internal),
        ] {
            metrics.calls.with_label_values(&[code]);
        }
        metrics
    }

    /// Everything, for a registry.
    #[must_use]
    pub fn collectors(&self) -> Vec<Box<dyn Collector>> {
        vec![Box::new(self.calls.clone()), Box::new(self.seconds.clone())]
    }

    /// Counts a call that was answered with `code`, and whether its verdict was that it does not fit.
    pub(crate) fn answered(&self, code: Code, over_limit: bool, took: Duration) {
        if code != Code::Ok {
            self.calls.with_label_values(&[name_of(code)]).inc();
        } else if over_limit {
            self.denied.inc();
        } else {
            self.granted.inc();
        }
        self.seconds.observe(took.as_secs_f64());
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// The verdict that a call does not fit, which to gRPC is an answer like any other.
const OVER_LIMIT: &str = "OVER_LIMIT";

fn name_of(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

const NAMED: &str = "the name is a sound one";
