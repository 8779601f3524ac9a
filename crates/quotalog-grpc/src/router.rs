//! The services of the listener, and what they work with.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitServiceServer, SERVICE_NAME,
};
use quotalog_front::{Admission, Authentication, Draining};
use quotalog_ledger::Ledger;
use tonic::Status;

use crate::descriptor::Keys;
use crate::guard::Guarded;
use crate::metrics::Metrics;
use crate::service::RateLimits;
use crate::{health, http1, status};

/// The largest message of a call. What 100 descriptors with the longest ids need fits in twice.
const MESSAGE_BYTES_MAX: usize = 128 * 1024;

/// What the services work with.
#[derive(Clone)]
pub struct App {
    /// The way to the store.
    pub ledger: Ledger,
    /// Whether the server is about to stop.
    pub draining: Draining,
    /// Who sends a call.
    pub authentication: Authentication,
    /// How much of the server one caller may take, over all fronts.
    pub admission: Admission,
    /// Which entries of a descriptor name the pair.
    pub keys: Keys,
    /// What is measured.
    pub metrics: Metrics,
}

/// All services of the listener. Must be called inside a tokio runtime.
pub fn router(app: App) -> Router {
    let rate_limits = RateLimits {
        ledger: app.ledger.clone(),
        keys: app.keys.clone(),
    };
    let service =
        RateLimitServiceServer::new(rate_limits).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let health = health::service(app.ledger.clone(), app.draining.clone(), SERVICE_NAME);
    let others = Router::new()
        .route_service(&methods_of(health::NAME), health)
        .fallback(async || status::answer(Status::unimplemented("There is no such service.")))
        .layer(from_fn(http1::refuse));
    let guarded = Guarded {
        app: Arc::new(app),
        service,
    };
    others.route_service(&methods_of(SERVICE_NAME), guarded)
}

fn methods_of(service: &str) -> String {
    format!("/{service}/{{*method}}")
}
