//! `GET /audit`: who changed what, newest first.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use quotalog_auth::Action;
use quotalog_domain::{Resource, UserId};
use quotalog_ledger::store::{AuditFilter, AuditId};

use crate::answer;
use crate::cursor;
use crate::extract::bearer::Authenticated;
use crate::extract::query::{Parameters, Query};
use crate::fault::Faults;
use crate::openapi::parameters::{AuditQuery, PageQuery};
use crate::problem::Problem;
use crate::router::App;
use crate::wire::{AuditBody, AuditEntryBody};

/// Lists who changed what, newest first.
///
/// Every change of a policy, default or token, every reset, refund and erasure, with before and after.
#[utoipa::path(
    get,
    path = "/audit",
    operation_id = "listAudit",
    tag = "Administration",
    params(AuditQuery, PageQuery),
    responses(
        (status = 200, description = "A page of entries.", body = AuditBody),
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Authenticated,
    query: Query,
) -> Result<Response, Problem> {
    caller.may(Action::Administer)?;
    let mut parameters = query.parameters()?;

    let mut faults = Faults::default();
    let filter = filter(&mut parameters, &mut faults);
    let (user_id, resource) = filter.as_ref().map(names).unwrap_or_default();
    let list = ["audit", &user_id, &resource];
    let read_key = |last: &str| last.parse().ok().map(AuditId);
    let page = parameters.page(&list, read_key, &mut faults);
    parameters.no_more(&mut faults);
    let (Some(filter), Some(page), true) = (filter, page, faults.is_empty()) else {
        return Err(faults.into());
    };

    let listed = app.ledger.audit(caller.caller(), filter, page).await?;
    let encode = |AuditId(last)| cursor::encode(&list, &last.to_string());
    let body = AuditBody {
        entries: listed.entries.iter().map(AuditEntryBody::from).collect(),
        next_cursor: listed.next.map(encode),
    };
    Ok(answer::json(StatusCode::OK, &body))
}

fn filter(parameters: &mut Parameters<'_>, faults: &mut Faults) -> Option<AuditFilter> {
    let user_id = parameters.id("user_id", faults);
    let resource = parameters.id("resource", faults);
    Some(AuditFilter {
        user_id: user_id?,
        resource: resource?,
    })
}

/// What a cursor is bound to; empty is what filters nothing.
fn names(filter: &AuditFilter) -> (String, String) {
    let user_id = filter.user_id.as_ref().map(UserId::as_str);
    let resource = filter.resource.as_ref().map(Resource::as_str);
    (
        user_id.unwrap_or_default().to_owned(),
        resource.unwrap_or_default().to_owned(),
    )
}
