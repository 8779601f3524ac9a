//! `GET /quotas/{user_id}`: a user's quotas, by resource, page by page; and `DELETE`, which erases
//! the user.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use quotalog_auth::Action;
use quotalog_domain::Resource;

use crate::answer;
use crate::cursor;
use crate::extract::bearer::Authenticated;
use crate::extract::ids::RawPair;
use crate::extract::query::Query;
use crate::fault::Faults;
use crate::openapi::parameters::{PageQuery, UserPath};
use crate::problem::Problem;
use crate::router::App;
use crate::wire::{QuotaBody, UserQuotasBody};

/// Lists the quotas of a user.
///
/// The policies, and what was counted under a default; by resource. A user without any has an empty list.
#[utoipa::path(
    get,
    path = "/quotas/{user_id}",
    operation_id = "listUserQuotas",
    tag = "Lists",
    params(UserPath, PageQuery),
    responses(
        (status = 200, description = "A page of the user's quotas.", body = UserQuotasBody),
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    user: RawPair,
    caller: Authenticated,
    query: Query,
) -> Result<Response, Problem> {
    caller.may(Action::ReadUser(user.user_id()))?;
    let mut parameters = query.parameters()?;

    let mut faults = Faults::default();
    let list = ["user-quotas", user.user_id()];
    let user_id = user.checked_user_id(&mut faults);
    let read_key = |last: &str| Resource::try_from(last).ok();
    let page = parameters.page(&list, read_key, &mut faults);
    parameters.no_more(&mut faults);
    let (Some(user_id), Some(page), true) = (user_id, page, faults.is_empty()) else {
        return Err(faults.into());
    };

    let listed = app
        .ledger
        .user_quotas(caller.caller(), user_id, page)
        .await?;
    let body = UserQuotasBody {
        user_id: user.user_id(),
        quotas: listed.entries.iter().map(QuotaBody::from).collect(),
        next_cursor: listed.next.map(|last| cursor::encode(&list, last.as_str())),
    };
    Ok(answer::json(StatusCode::OK, &body))
}

/// Erases a user, known or not.
///
/// Policies, usage, tokens, and kept answers that name it; the audit keeps that it was done.
#[utoipa::path(
    delete,
    path = "/quotas/{user_id}",
    operation_id = "eraseUser",
    tag = "Policies",
    params(UserPath),
    responses(
        (status = 204, description = "Nothing of the user is left."),
    )
)]
pub(crate) async fn erase(
    State(app): State<App>,
    user: RawPair,
    caller: Authenticated,
    query: Query,
) -> Result<Response, Problem> {
    caller.may(Action::Administer)?;
    let parameters = query.parameters()?;

    let mut faults = Faults::default();
    let user_id = user.checked_user_id(&mut faults);
    parameters.no_more(&mut faults);
    let (Some(user_id), true) = (user_id, faults.is_empty()) else {
        return Err(faults.into());
    };

    app.ledger.erase_user(caller.caller(), user_id).await?;
    Ok(answer::no_content())
}
