//! What the front measures of its answers, and the text in which everything measured is read.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use prometheus::core::Collector;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder};
use quotalog_ledger::Ledger;

/// Upper bounds of the histogram of answers, in seconds.
const SECONDS: [f64; 13] = [
    0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The label of requests that no route is found for.
pub(crate) const NO_ROUTE: &str = "none";

/// Everything that is measured. Cheap to clone; clones are the same.
///
/// A label is a route as `router.rs` writes it, a method that routes know, or a status: never an id, nor
/// anything else that callers choose, so that there are no more series than routes.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    seconds: HistogramVec,
}

impl Metrics {
    /// The front's own measures and those of `ledger`.
    ///
    /// # Panics
    /// Never: each name is a sound one, and given once.
    #[must_use]
    pub fn new(ledger: &Ledger) -> Self {
        let requests = Opts::new(
            "quotalog_http_requests_total",
            "Requests that were answered, by route, method and status.",
        );
        let seconds = HistogramOpts::new(
            "quotalog_http_request_duration_seconds",
            "From a request that came whole to its answer, by route.",
        );
        let labels = &["route", "method", "status"];
        let metrics = Self {
            registry: Registry::new(),
            requests: IntCounterVec::new(requests, labels).expect(NAMED),
            seconds: HistogramVec::new(seconds.buckets(SECONDS.to_vec()), &labels[..1])
                .expect(NAMED),
        };
        metrics.expect(NO_ROUTE);
        metrics.add(Box::new(metrics.requests.clone()));
        metrics.add(Box::new(metrics.seconds.clone()));
        for collector in ledger.collectors() {
            metrics.add(collector);
        }
        metrics
    }

    /// Adds what another part of the program measures.
    ///
    /// # Panics
    /// If there is a measure of that name already.
    pub fn add(&self, collector: Box<dyn Collector>) {
        let added = self.registry.register(collector);
        added.expect("each measure has a name of its own and is added once");
    }

    /// Begins to measure a route, so that its series are there before its first request.
    pub(crate) fn expect(&self, route: &str) {
        self.seconds.with_label_values(&[route]);
    }

    /// Counts an answer.
    pub(crate) fn answered(
        &self,
        route: &str,
        method: &Method,
        status: StatusCode,
        took: Duration,
    ) {
        let labels = [route, name_of(method), status.as_str()];
        self.requests.with_label_values(&labels).inc();
        let seconds = self.seconds.with_label_values(&labels[..1]);
        seconds.observe(took.as_secs_f64());
    }

    /// Everything as Prometheus reads it.
    pub(crate) fn text(&self) -> prometheus::Result<String> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

/// The method, if some route knows it.
fn name_of(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

const NAMED: &str = "the name is a sound one";
