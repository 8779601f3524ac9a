//! `GET /metrics`: what is measured, for Prometheus.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::Response;
use prometheus::TEXT_FORMAT;
use quotalog_auth::Action;

use crate::extract::bearer::Authenticated;
use crate::problem::Problem;
use crate::router::App;

/// Tells what is measured, in the text format of Prometheus.
///
/// With `--metrics-listen` it is on that listener alone, and without a token.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "metrics",
    tag = "Operation",
    responses(
        (status = 200, description = "All series.", body = String, content_type = "text/plain"),
    )
)]
pub(crate) async fn for_admins(
    State(app): State<App>,
    caller: Authenticated,
) -> Result<Response, Problem> {
    caller.may(Action::Administer)?;
    app.ledger.confirm(caller.caller()).await?;
    text(&app)
}

/// On a listener of its own: for anyone who reaches it.
pub(crate) async fn for_anyone(State(app): State<App>) -> Result<Response, Problem> {
    text(&app)
}

fn text(app: &App) -> Result<Response, Problem> {
    let text = app.metrics.text().map_err(Problem::internal)?;
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(TEXT_FORMAT));
    Ok(response)
}
