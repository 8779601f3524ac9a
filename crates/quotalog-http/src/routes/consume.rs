//! `POST /quotas/{user_id}/{resource}/consume`: counts units, all or nothing.

use axum::extract::State;
use axum::response::Response;
use quotalog_auth::Action;
use quotalog_domain::Operation;

use crate::answer;
use crate::extract::bearer::Authenticated;
use crate::extract::body::Payload;
use crate::extract::fields;
use crate::extract::idempotency_key::KeyField;
use crate::extract::ids::RawPair;
use crate::extract::query::Query;
use crate::fault::Faults;
use crate::openapi::parameters::{KeyHeader, PairPath};
use crate::openapi::schemas::{AmountBody, Quota, QuotaExceeded};
use crate::problem::Problem;
use crate::router::App;

/// Counts units, all of them or none.
///
/// What was answered 200 is on disk. After a 429 nothing was counted. An `amount` above the whole limit is a 422, since
/// it could never be granted.
#[utoipa::path(
    post,
    path = "/quotas/{user_id}/{resource}/consume",
    operation_id = "consume",
    tag = "Counting",
    params(PairPath, KeyHeader),
    request_body = AmountBody,
    responses(
        (
            status = 200,
            description = "The units were granted.",
            body = Quota,
            headers(("RateLimit"), ("Idempotency-Replayed"))
        ),
        (
            status = 429,
            description = "The units do not fit into what is left.",
            body = QuotaExceeded,
            headers(("RateLimit"), ("Retry-After"))
        ),
    )
)]
pub(crate) async fn consume(
    State(app): State<App>,
    pair: RawPair,
    caller: Authenticated,
    mut payload: Payload,
    key: KeyField,
    query: Query,
) -> Result<Response, Problem> {
    caller.may(Action::Consume(pair.user_id()))?;
    let mut body = payload.object().await?;
    let parameters = query.parameters()?;

    let mut faults = Faults::default();
    let pair = pair.checked(&mut faults);
    let amount = fields::amount(&mut body, &mut faults);
    fields::no_more(body, &mut faults);
    parameters.no_more_beside(&["amount"], &mut faults);
    let key = key.checked(&mut faults);
    let (Some(pair), Some(amount), Some(key), true) = (pair, amount, key, faults.is_empty()) else {
        return Err(faults.into());
    };

    let command = caller.command(Operation::Consume { pair, amount }, key);
    answer::usage_changed(app.ledger.submit(caller.caller(), command).await?)
}
