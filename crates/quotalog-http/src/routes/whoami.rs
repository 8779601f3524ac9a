//! `GET /whoami`: what the server makes of a token.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::answer;
use crate::extract::bearer::Authenticated;
use crate::extract::query::Query;
use crate::problem::Problem;
use crate::router::App;
use crate::wire::WhoamiBody;

/// Tells the role of the token that asks, and its user.
#[utoipa::path(
    get,
    path = "/whoami",
    operation_id = "whoami",
    tag = "Administration",
    responses(
        (status = 200, description = "The role.", body = WhoamiBody),
    )
)]
pub(crate) async fn tell(
    State(app): State<App>,
    caller: Authenticated,
    query: Query,
) -> Result<Response, Problem> {
    query.has_none()?;
    app.ledger.confirm(caller.caller()).await?;
    let body = WhoamiBody::from(caller.role());
    Ok(answer::json(StatusCode::OK, &body))
}
