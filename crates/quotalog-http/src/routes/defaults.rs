//! `PUT`, `GET` and `DELETE /defaults/{resource}`, `GET /defaults`: the policies that serve whoever
//! has none of their own.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use quotalog_auth::Action;
use quotalog_domain::{Command, DefaultPolicy, Operation, Refusal, Resource};

use crate::answer;
use crate::cursor;
use crate::extract::bearer::Authenticated;
use crate::extract::body::Payload;
use crate::extract::fields;
use crate::extract::ids::RawName;
use crate::extract::precondition::PreconditionField;
use crate::extract::query::Query;
use crate::fault::Faults;
use crate::openapi::parameters::{PageQuery, PreconditionHeaders, ResourcePath};
use crate::openapi::schemas::PolicyBody;
use crate::problem::Problem;
use crate::router::App;
use crate::wire::{DefaultBody, DefaultsBody};

/// Creates or updates the default of a resource.
///
/// It serves every user who has no policy of their own there, at once.
#[utoipa::path(
    put,
    path = "/defaults/{resource}",
    operation_id = "setDefault",
    tag = "Policies",
    params(ResourcePath, PreconditionHeaders),
    request_body = PolicyBody,
    responses(
        (status = 200, description = "The default.", body = DefaultBody, headers(("ETag"))),
    )
)]
pub(crate) async fn set(
    State(app): State<App>,
    name: RawName,
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
    let resource = name.checked_resource(&mut faults);
    let window = fields::window(&mut body, &mut faults);
    let limit = fields::limit_count(&mut body, &mut faults);
    fields::no_more(body, &mut faults);
    parameters.no_more_beside(&["window", "limit_count"], &mut faults);
    let (Some(resource), Some(window), Some(limit), true) =
        (resource, window, limit, faults.is_empty())
    else {
        return Err(faults.into());
    };

    let command = Command::new(Operation::SetDefault {
        resource,
        window,
        limit,
        precondition,
    });
    let decided = app.ledger.submit(caller.caller(), command).await??;
    Ok(one(&answer::expect_default(decided.answer)?))
}

/// Reads the default of a resource.
#[utoipa::path(
    get,
    path = "/defaults/{resource}",
    operation_id = "getDefault",
    tag = "Policies",
    params(ResourcePath),
    responses(
        (status = 200, description = "The default.", body = DefaultBody, headers(("ETag"))),
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    name: RawName,
    caller: Authenticated,
    query: Query,
) -> Result<Response, Problem> {
    caller.may(Action::ReadDefaults)?;
    let parameters = query.parameters()?;

    let mut faults = Faults::default();
    let resource = name.checked_resource(&mut faults);
    parameters.no_more(&mut faults);
    let (Some(resource), true) = (resource, faults.is_empty()) else {
        return Err(faults.into());
    };

    let default = app.ledger.default_policy(caller.caller(), resource).await?;
    Ok(one(&default.ok_or_else(Problem::no_default)?))
}

fn one(default: &DefaultPolicy) -> Response {
    let mut response = answer::json(StatusCode::OK, &DefaultBody::from(default));
    answer::add_etag(default.policy.revision(), &mut response);
    response
}

/// Lists the defaults, by resource.
#[utoipa::path(
    get,
    path = "/defaults",
    operation_id = "listDefaults",
    tag = "Lists",
    params(PageQuery),
    responses(
        (status = 200, description = "A page of defaults.", body = DefaultsBody),
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Authenticated,
    query: Query,
) -> Result<Response, Problem> {
    caller.may(Action::ReadDefaults)?;
    let mut parameters = query.parameters()?;

    let mut faults = Faults::default();
    let read_key = |last: &str| Resource::try_from(last).ok();
    let page = parameters.page(&["defaults"], read_key, &mut faults);
    parameters.no_more(&mut faults);
    let (Some(page), true) = (page, faults.is_empty()) else {
        return Err(faults.into());
    };

    let listed = app.ledger.defaults(caller.caller(), page).await?;
    let encode = |last: Resource| cursor::encode(&["defaults"], last.as_str());
    let body = DefaultsBody {
        defaults: listed.entries.iter().map(DefaultBody::from).collect(),
        next_cursor: listed.next.map(encode),
    };
    Ok(answer::json(StatusCode::OK, &body))
}

/// Removes the default of a resource.
#[utoipa::path(
    delete,
    path = "/defaults/{resource}",
    operation_id = "deleteDefault",
    tag = "Policies",
    params(ResourcePath, PreconditionHeaders),
    responses(
        (status = 204, description = "The default is gone."),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    name: RawName,
    caller: Authenticated,
    precondition: PreconditionField,
    query: Query,
) -> Result<Response, Problem> {
    caller.may(Action::Administer)?;
    let precondition = precondition.read()?;
    let parameters = query.parameters()?;

    let mut faults = Faults::default();
    let resource = name.checked_resource(&mut faults);
    parameters.no_more(&mut faults);
    let (Some(resource), true) = (resource, faults.is_empty()) else {
        return Err(faults.into());
    };

    let command = Command::new(Operation::DeleteDefault {
        resource,
        precondition,
    });
    match app.ledger.submit(caller.caller(), command).await? {
        Err(Refusal::NotFound) => Err(Problem::no_default()),
        outcome => outcome
            .map(|_deleted| answer::no_content())
            .map_err(Problem::from),
    }
}
