//! Every path on one screen, and what the handlers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::routing::{delete, get, post, put};
use quotalog_ledger::Ledger;

use crate::front::FrontLayer;
use crate::problem::Problem;
use crate::routes::{
    audit, batch, consume, defaults, health, policy, problems, quotas, refund, reset, tokens,
    usage, user_quotas,
};

/// What the routes work with.
#[derive(Clone)]
pub struct App {
    /// The way to the store.
    pub ledger: Ledger,
    /// Whether the server is about to stop.
    pub draining: Draining,
}

/// Set once the server is about to stop, so that `/readyz` sends new requests elsewhere.
#[derive(Debug, Clone, Default)]
pub struct Draining(Arc<AtomicBool>);

impl Draining {
    /// From now on the server is not ready.
    pub fn start(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether the server is about to stop.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The whole HTTP interface.
pub fn router(app: App) -> Router {
    let one_policy = put(policy::set).get(policy::check).delete(policy::delete);
    let one_default = put(defaults::set)
        .get(defaults::get)
        .delete(defaults::delete);
    let one_user = get(user_quotas::list).delete(user_quotas::erase);
    Router::new()
        .route("/quotas", get(quotas::list))
        .route("/quotas/{user_id}", one_user)
        .route("/quotas/{user_id}/{resource}", one_policy)
        .route(
            "/quotas/{user_id}/{resource}/consume",
            post(consume::consume),
        )
        .route("/quotas/{user_id}/{resource}/refund", post(refund::refund))
        .route("/quotas/{user_id}/{resource}/reset", post(reset::reset))
        .route("/quotas/{user_id}/{resource}/usage", get(usage::list))
        .route("/consume", post(batch::consume))
        .route("/defaults", get(defaults::list))
        .route("/defaults/{resource}", one_default)
        .route("/audit", get(audit::list))
        .route("/tokens", post(tokens::create).get(tokens::list))
        .route("/tokens/{id}", delete(tokens::revoke))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/problems/{name}", get(problems::explain))
        .fallback(async || Problem::no_such_route())
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
        .with_state(app.clone())
        .layer(FrontLayer::new(app))
}
