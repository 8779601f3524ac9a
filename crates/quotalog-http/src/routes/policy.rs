//! `PUT`, `GET` and `DELETE /quotas/{user_id}/{resource}`: the policy of a pair, and the check of
//! its quota, which changes nothing.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use quotalog_auth::Action;
use quotalog_domain::{Command, Operation, Refusal};

use crate::answer;
use crate::extract::bearer::Authenticated;
use crate::extract::body::Payload;
use crate::extract::fields;
use crate::extract::ids::RawPair;
use crate::extract::precondition::PreconditionField;
use crate::extract::query::Query;
use crate::fault::Faults;
use crate::openapi::parameters::{PairPath, PreconditionHeaders};
use crate::openapi::schemas::{PolicyBody, Quota};
use crate::problem::Problem;
use crate::router::App;
use crate::wire::QuotaBody;

/// Creates or updates the policy of a pair.
///
/// What was counted stays counted. Doing it twice changes nothing.
#[utoipa::path(
    put,
    path = "/quotas/{user_id}/{resource}",
    operation_id = "setPolicy",
    tag = "Policies",
    params(PairPath, PreconditionHeaders),
    request_body = PolicyBody,
    responses(
        (status = 200, description = "The quota under this policy.", body = Quota, headers(("ETag"))),
    )
)]
pub(crate) async fn set(
    State(app): State<App>,
    pair: RawPair,
    caller: Authenticated,
    mut payload: Payload,
    precondition: PreconditionField,
    query: Query,
) -> Result<Response, Problem> {
    caller.may(Action::Administer)?;
    let mut body = payload.object().await?;
    let precondition = precondition.read()?;
    let parameters = query.parameters()?;

    let mut faults = Faults::default();
    let pair = pair.checked(&mut faults);
    let window = fields::window(&mut body, &mut faults);
    let limit = fields::limit_count(&mut body, &mut faults);
    fields::no_more(body, &mut faults);
    parameters.no_more_beside(&["window", "limit_count"], &mut faults);
    let (Some(pair), Some(window), Some(limit), true) = (pair, window, limit, faults.is_empty())
    else {
        return Err(faults.into());
    };

    let command = Command::new(Operation::SetPolicy {
        pair,
        window,
        limit,
        precondition,
    });
    let decided = app.ledger.submit(caller.caller(), command).await??;
    let quota = answer::expect_quota(decided.answer)?;
    let mut response = answer::json(StatusCode::OK, &QuotaBody::from(&quota));
    answer::add_etag(quota.revision(), &mut response);
    Ok(response)
}

/// Reads a quota, and changes nothing.
///
/// `allowed` tells whether at least one unit is left.
#[utoipa::path(
    get,
    path = "/quotas/{user_id}/{resource}",
    operation_id = "check",
    tag = "Counting",
    params(PairPath),
    responses(
        (status = 200, description = "The quota.", body = Quota, headers(("RateLimit"), ("ETag"))),
    )
)]
pub(crate) async fn check(
    State(app): State<App>,
    pair: RawPair,
    caller: Authenticated,
    query: Query,
) -> Result<Response, Problem> {
    caller.may(Action::ReadUser(pair.user_id()))?;
    let parameters = query.parameters()?;

    let mut faults = Faults::default();
    let pair = pair.checked(&mut faults);
    parameters.no_more(&mut faults);
    let (Some(pair), true) = (pair, faults.is_empty()) else {
        return Err(faults.into());
    };

    let quota = app.ledger.quota(caller.caller(), pair).await?;
    let quota = quota.ok_or_else(Problem::no_policy)?;
    let mut response = answer::quota_with_fields(&quota);
    answer::add_etag(quota.revision(), &mut response);
    Ok(response)
}

/// Removes the policy of a pair.
///
/// What was counted stays counted, so that making the policy again does not refill it.
#[utoipa::path(
    delete,
    path = "/quotas/{user_id}/{resource}",
    operation_id = "deletePolicy",
    tag = "Policies",
    params(PairPath, PreconditionHeaders),
    responses(
        (status = 204, description = "The policy is gone."),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    pair: RawPair,
    caller: Authenticated,
    precondition: PreconditionField,
    query: Query,
) -> Result<Response, Problem> {
    caller.may(Action::Administer)?;
    let precondition = precondition.read()?;
    let parameters = query.parameters()?;

    let mut faults = Faults::default();
    let pair = pair.checked(&mut faults);
    parameters.no_more(&mut faults);
    let (Some(pair), true) = (pair, faults.is_empty()) else {
        return Err(faults.into());
    };

    let command = Command::new(Operation::DeletePolicy { pair, precondition });
    match app.ledger.submit(caller.caller(), command).await? {
        Err(Refusal::NotFound) => Err(Problem::no_own_policy()),
        outcome => outcome
            .map(|_deleted| answer::no_content())
            .map_err(Problem::from),
    }
}
