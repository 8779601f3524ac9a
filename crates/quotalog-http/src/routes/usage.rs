//! `GET /quotas/{user_id}/{resource}/usage`: the stored usage rows of a pair, newest first.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use quotalog_auth::Action;
use quotalog_domain::Timestamp;
use quotalog_ledger::store::UsageRange;

use crate::answer;
use crate::cursor;
use crate::extract::bearer::Authenticated;
use crate::extract::ids::RawPair;
use crate::extract::query::{Parameters, Query};
use crate::fault::Faults;
use crate::instant;
use crate::openapi::parameters::{PageQuery, PairPath, UsageQuery};
use crate::problem::Problem;
use crate::router::App;
use crate::wire::{UsageBody, UsageRowBody};

/// Lists what a pair has used, window by window, newest first.
///
/// With or without a policy. Windows are kept for `--usage-retention`.
#[utoipa::path(
    get,
    path = "/quotas/{user_id}/{resource}/usage",
    operation_id = "listUsage",
    tag = "Lists",
    params(PairPath, UsageQuery, PageQuery),
    responses(
        (status = 200, description = "A page of windows.", body = UsageBody),
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    raw_pair: RawPair,
    caller: Authenticated,
    query: Query,
) -> Result<Response, Problem> {
    caller.may(Action::ReadUser(raw_pair.user_id()))?;
    let mut parameters = query.parameters()?;

    let mut faults = Faults::default();
    let pair = raw_pair.checked(&mut faults);
    let range = range(&mut parameters, &mut faults);
    let (from, to) = range.map(names).unwrap_or_default();
    let list = ["usage", raw_pair.user_id(), raw_pair.resource(), &from, &to];
    let page = parameters.page(&list, read_instant, &mut faults);
    parameters.no_more(&mut faults);
    let (Some(pair), Some(range), Some(page), true) = (pair, range, page, faults.is_empty()) else {
        return Err(faults.into());
    };

    let listed = app
        .ledger
        .usage_history(caller.caller(), pair, range, page)
        .await?;
    let body = UsageBody {
        user_id: raw_pair.user_id(),
        resource: raw_pair.resource(),
        windows: listed.entries.iter().map(UsageRowBody::from).collect(),
        next_cursor: listed
            .next
            .map(|last| cursor::encode(&list, &write_instant(last))),
    };
    Ok(answer::json(StatusCode::OK, &body))
}

fn range(parameters: &mut Parameters<'_>, faults: &mut Faults) -> Option<UsageRange> {
    let mut bound = |name, message| parameters.value(name, instant::parse_bound, message, faults);
    let from = bound(
        "from",
        "from must be an instant of RFC 3339, whose + is written %2B.",
    );
    let to = bound(
        "to",
        "to must be an instant of RFC 3339, whose + is written %2B.",
    );
    Some(UsageRange {
        from: from?,
        to: to?,
    })
}

/// What a cursor is bound to: the instants, however they were written; empty is what bounds nothing.
fn names(range: UsageRange) -> (String, String) {
    let name = |bound: Option<Timestamp>| bound.map(write_instant).unwrap_or_default();
    (name(range.from), name(range.to))
}

fn write_instant(instant: Timestamp) -> String {
    instant.unix_us().to_string()
}

fn read_instant(text: &str) -> Option<Timestamp> {
    text.parse().ok().map(Timestamp::from_unix_us)
}
