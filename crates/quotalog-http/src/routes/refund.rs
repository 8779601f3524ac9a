//! `POST /quotas/{user_id}/{resource}/refund`: gives units of the current window back.

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
use crate::openapi::schemas::{AmountBody, Quota};
use crate::problem::Problem;
use crate::router::App;

/// Gives units of the current window back.
///
/// Usage stops at 0.
#[utoipa::path(
    post,
    path = "/quotas/{user_id}/{resource}/refund",
    operation_id = "refund",
    tag = "Counting",
    params(PairPath, KeyHeader),
    request_body = AmountBody,
    responses(
        (
            status = 200,
            description = "The units are back.",
            body = Quota,
            headers(("RateLimit"), ("Idempotency-Replayed"))
        ),
    )
)]
pub(crate) async fn refund(
    State(app): State<App>,
    pair: RawPair,
    caller: Authenticated,
    mut payload: Payload,
    key: KeyField,
    query: Query,
) -> Result<Response, Problem> {
    caller.may(Action::Refund)?;
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

    let command = caller.command(Operation::Refund { pair, amount }, key);
    answer::usage_changed(app.ledger.submit(caller.caller(), command).await?)
}
