//! `GET /whoami`: what the server makes of a token.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use quotalog_domain::UserId;

use crate::answer;
use crate::extract::bearer::Authenticated;
use crate::extract::query::Query;
use crate::fault::Faults;
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
    let parameters = query.parameters()?;
    let mut faults = Faults::default();
    parameters.no_more(&mut faults);
    if !faults.is_empty() {
        return Err(faults.into());
    }

    app.ledger.confirm(caller.caller()).await?;
    let role = caller.role();
    let body = WhoamiBody {
        role: role.kind().as_str(),
        user_id: role.user_id().map(UserId::as_str),
    };
    Ok(answer::json(StatusCode::OK, &body))
}
