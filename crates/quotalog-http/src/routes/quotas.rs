//! `GET /quotas`: the quotas of all users, page by page; or those nearest to their limit.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use quotalog_auth::Action;
use quotalog_domain::{Pair, Resource, UserId};
use quotalog_ledger::store::QuotaFilter;

use crate::answer;
use crate::cursor;
use crate::extract::bearer::Authenticated;
use crate::extract::query::{self, Parameters, Query};
use crate::fault::{Code, Faults};
use crate::openapi::parameters::{PageQuery, QuotasQuery};
use crate::problem::Problem;
use crate::router::App;
use crate::wire::{QuotaBody, QuotasBody};

/// Lists the quotas of all users.
///
/// By user and resource; or, with `sort`, the fullest first: who is near the limit.
#[utoipa::path(
    get,
    path = "/quotas",
    operation_id = "listQuotas",
    tag = "Lists",
    params(QuotasQuery, PageQuery),
    responses(
        (status = 200, description = "A page of quotas.", body = QuotasBody),
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Authenticated,
    query: Query,
) -> Result<Response, Problem> {
    caller.may(Action::ReadAll)?;
    let mut parameters = query.parameters()?;

    let mut faults = Faults::default();
    let filter = filter(&mut parameters, &mut faults);
    let message = "sort must be: used_percent.";
    let by_used_percent = |text: &str| (text == "used_percent").then_some(());
    let sort = parameters.value("sort", by_used_percent, message, &mut faults);
    if let Some(Some(())) = sort {
        return fullest(&app, &caller, filter, parameters, faults).await;
    }

    let names = filter.as_ref().map(names).unwrap_or_default();
    let list = ["quotas", &names[0], &names[1]];
    let page = parameters.page(&list, read_pair, &mut faults);
    parameters.no_more(&mut faults);
    let (Some(filter), Some(page), true) = (filter, page, faults.is_empty()) else {
        return Err(faults.into());
    };

    let listed = app.ledger.quotas(caller.caller(), filter, page).await?;
    let body = QuotasBody {
        quotas: listed.entries.iter().map(QuotaBody::from).collect(),
        next_cursor: listed
            .next
            .map(|last| cursor::encode(&list, &write_pair(&last))),
    };
    Ok(answer::json(StatusCode::OK, &body))
}

/// The fullest quotas, which change places all the time, so that no cursor could go on after them.
async fn fullest(
    app: &App,
    caller: &Authenticated,
    filter: Option<QuotaFilter>,
    mut parameters: Parameters<'_>,
    mut faults: Faults,
) -> Result<Response, Problem> {
    let len_max = parameters.len_max(&mut faults);
    if parameters.take("cursor").is_some() {
        let message = "A list that is sorted by used_percent has no cursor.";
        faults.add("cursor", Code::Invalid, message);
    }
    parameters.no_more(&mut faults);
    let (Some(filter), Some(len_max), true) = (filter, len_max, faults.is_empty()) else {
        return Err(faults.into());
    };

    let quotas = app.ledger.fullest(caller.caller(), filter, len_max).await?;
    let body = QuotasBody {
        quotas: quotas.iter().map(QuotaBody::from).collect(),
        next_cursor: None,
    };
    Ok(answer::json(StatusCode::OK, &body))
}

fn filter(parameters: &mut Parameters<'_>, faults: &mut Faults) -> Option<QuotaFilter> {
    let resource = parameters.id("resource", faults);
    let percent = |text: &str| query::integer(text).filter(|percent| *percent <= 100);
    let message = "min_used_percent must be an integer from 0 to 100.";
    let min_used_percent = parameters.value("min_used_percent", percent, message, faults);
    Some(QuotaFilter {
        resource: resource?,
        min_used_percent: min_used_percent?,
    })
}

/// What a cursor is bound to; empty is what filters nothing.
fn names(filter: &QuotaFilter) -> [String; 2] {
    let resource = filter.resource.as_ref().map(Resource::as_str);
    let percent = filter.min_used_percent.map(|percent| percent.to_string());
    [
        resource.unwrap_or_default().to_owned(),
        percent.unwrap_or_default(),
    ]
}

/// No id holds a "/", so it parts them without doubt.
fn write_pair(pair: &Pair) -> String {
    format!("{}/{}", pair.user_id.as_str(), pair.resource.as_str())
}

fn read_pair(text: &str) -> Option<Pair> {
    let (user_id, resource) = text.split_once('/')?;
    Some(Pair {
        user_id: UserId::try_from(user_id).ok()?,
        resource: Resource::try_from(resource).ok()?,
    })
}
