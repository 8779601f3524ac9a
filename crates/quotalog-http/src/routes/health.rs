//! `GET /healthz` and `GET /readyz`: for those who watch the process, without a token.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use quotalog_ledger::Deadline;
use serde::Serialize;

use crate::answer;
use crate::openapi::schemas::{self, Health};
use crate::problem::Problem;
use crate::router::App;

#[derive(Serialize)]
struct HealthBody {
    status: &'static str,
}

/// Tells that the process lives.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "alive",
    tag = "Operation",
    security(()),
    responses(
        (status = 200, description = "It lives.", body = Health),
    )
)]
pub(crate) async fn alive() -> Response {
    answer::json(StatusCode::OK, &HealthBody { status: "alive" })
}

/// Tells whether the store answers and the server is not about to stop.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "ready",
    tag = "Operation",
    security(()),
    responses(
        (status = 200, description = "It can serve.", body = Health),
        (status = 503, description = "It cannot serve now.", body = schemas::Problem, headers(("Retry-After"))),
    )
)]
pub(crate) async fn ready(State(app): State<App>) -> Result<Response, Problem> {
    if app.draining.has_started() {
        return Err(Problem::stopping());
    }
    app.ledger
        .ready(Deadline::from_now())
        .await
        .map_err(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the store is not ready"
            );
            Problem::unavailable()
        })?;
    Ok(answer::json(
        StatusCode::OK,
        &HealthBody { status: "ready" },
    ))
}
