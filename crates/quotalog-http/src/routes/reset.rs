//! `POST /quotas/{user_id}/{resource}/reset`: usage of the current window to zero.

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
use crate::openapi::schemas::{NoFields, Quota};
use crate::problem::Problem;
use crate::router::App;

/// Sets the usage of the current window to 0.
#[utoipa::path(
    post,
    path = "/quotas/{user_id}/{resource}/reset",
    operation_id = "reset",
    tag = "Counting",
    params(PairPath, KeyHeader),
    request_body = NoFields,
    responses(
        (
            status = 200,
            description = "The window is as new.",
            body = Quota,
            headers(("RateLimit"), ("Idempotency-Replayed"))
        ),
    )
)]
pub(crate) async fn reset(
    State(app): State<App>,
    pair: RawPair,
    caller: Authenticated,
    mut payload: Payload,
    key: KeyField,
    query: Query,
) -> Result<Response, Problem> {
    caller.may(Action::Administer)?;
    let body = payload.object().await?;
    let parameters = query.parameters()?;

    let mut faults = Faults::default();
    let pair = pair.checked(&mut faults);
    fields::no_more(body, &mut faults);
    parameters.no_more(&mut faults);
    let key = key.checked(&mut faults);
    let (Some(pair), Some(key), true) = (pair, key, faults.is_empty()) else {
        return Err(faults.into());
    };

    let command = caller.command(Operation::Reset { pair }, key);
    answer::usage_changed(app.ledger.submit(caller.caller(), command).await?)
}
