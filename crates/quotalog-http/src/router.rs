//! Every path on one screen, and what the handlers share.

use axum::Router;
use axum::routing::{MethodRouter, delete, get, post, put};
use quotalog_front::{Admission, Authentication, Draining};
use quotalog_ledger::Ledger;

use crate::cors::Cors;
use crate::front::FrontLayer;
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::routes::{
    audit, batch, consume, dashboard, defaults, docs, health, metrics, openapi, policy, problems,
    quotas, refund, reset, tokens, usage, user_quotas, whoami,
};

/// What the routes work with.
#[derive(Clone)]
pub struct App {
    /// The way to the store.
    pub ledger: Ledger,
    /// Whether the server is about to stop.
    pub draining: Draining,
    /// Who sends a request.
    pub authentication: Authentication,
    /// How much of the server one caller may take.
    pub admission: Admission,
    /// The origins whose pages may use the server.
    pub cors: Cors,
    /// What is measured.
    pub metrics: Metrics,
    /// Whether [`metrics_router`] has a listener, and `/metrics` is there alone.
    pub metrics_apart: bool,
}

/// A path and the methods that it knows.
type Route = (&'static str, MethodRouter<App>);

/// The whole HTTP interface.
pub fn router(app: App) -> Router {
    let one_policy = put(policy::set).get(policy::check).delete(policy::delete);
    let one_default = put(defaults::set)
        .get(defaults::get)
        .delete(defaults::delete);
    let one_user = get(user_quotas::list).delete(user_quotas::erase);
    let mut routes: Vec<Route> = vec![
        ("/quotas", get(quotas::list)),
        ("/quotas/{user_id}", one_user),
        ("/quotas/{user_id}/{resource}", one_policy),
        (
            "/quotas/{user_id}/{resource}/consume",
            post(consume::consume),
        ),
        ("/quotas/{user_id}/{resource}/refund", post(refund::refund)),
        ("/quotas/{user_id}/{resource}/reset", post(reset::reset)),
        ("/quotas/{user_id}/{resource}/usage", get(usage::list)),
        ("/consume", post(batch::consume)),
        ("/defaults", get(defaults::list)),
        ("/defaults/{resource}", one_default),
        ("/audit", get(audit::list)),
        ("/tokens", post(tokens::create).get(tokens::list)),
        ("/tokens/{id}", delete(tokens::revoke)),
        ("/whoami", get(whoami::tell)),
        ("/healthz", get(health::alive)),
        ("/readyz", get(health::ready)),
        ("/problems/{name}", get(problems::explain)),
        ("/openapi.json", get(openapi::document)),
        ("/docs", get(docs::page)),
        ("/docs/{file}", get(docs::file)),
        ("/dashboard", get(dashboard::page)),
        ("/dashboard/{file}", get(dashboard::file)),
        ("/dashboard/{folder}/{file}", get(dashboard::file_of_folder)),
    ];
    if !app.metrics_apart {
        routes.push(("/metrics", get(metrics::for_admins)));
    }
    behind_front(routes, app)
}

/// `/metrics` for a listener of its own, where nobody is asked for a token.
pub fn metrics_router(app: App) -> Router {
    // It is for collectors, not for pages.
    let cors = Cors::default();
    let app = App { cors, ..app };
    behind_front(vec![("/metrics", get(metrics::for_anyone))], app)
}

fn behind_front(routes: Vec<Route>, app: App) -> Router {
    let mut router = Router::new();
    for (path, methods) in routes {
        app.metrics.expect(path);
        router = router.route(path, methods);
    }
    router
        .fallback(async || Problem::no_such_route())
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
        .with_state(app.clone())
        .layer(FrontLayer::new(app))
}
