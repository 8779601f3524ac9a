//! `POST /consume`: counts the units of several pairs, all of them or none.

use axum::extract::State;
use axum::response::Response;
use quotalog_auth::Action;
use quotalog_domain::{Item, Operation, Pair, Refusal};

use crate::answer;
use crate::extract::bearer::Authenticated;
use crate::extract::body::Payload;
use crate::extract::fields;
use crate::extract::idempotency_key::KeyField;
use crate::extract::query::Query;
use crate::fault::{Code, Faults};
use crate::json::{Object, Value};
use crate::openapi::parameters::KeyHeader;
use crate::openapi::schemas::{self, BatchBody, BatchExceeded, BatchQuotas};
use crate::problem::Problem;
use crate::router::App;

/// The most items of a batch.
const ITEMS_LEN_MAX: usize = 100;

/// Counts units of several pairs, all of them or none.
///
/// A pair that is named twice is asked for the sum. A batch has no RateLimit fields.
#[utoipa::path(
    post,
    path = "/consume",
    operation_id = "consumeBatch",
    tag = "Counting",
    params(KeyHeader),
    request_body = BatchBody,
    responses(
        (
            status = 200,
            description = "The units of all items were granted.",
            body = BatchQuotas,
            headers(("Idempotency-Replayed"))
        ),
        (status = 404, description = "No policy and no default serves some pair.", body = schemas::Problem),
        (
            status = 429,
            description = "The units of some pair do not fit into what is left.",
            body = BatchExceeded,
            headers(("Retry-After"))
        ),
    )
)]
pub(crate) async fn consume(
    State(app): State<App>,
    caller: Authenticated,
    mut payload: Payload,
    key: KeyField,
    query: Query,
) -> Result<Response, Problem> {
    caller.may(Action::ConsumeForSome)?;
    let mut body = payload.object().await?;
    let parameters = query.parameters()?;
    let items = RawItems::of(&mut body)?;
    for user_id in items.user_ids() {
        caller.may(Action::Consume(&user_id))?;
    }

    let mut faults = Faults::default();
    let items = items.checked(&mut faults);
    fields::no_more(body, &mut faults);
    parameters.no_more_beside(&["items"], &mut faults);
    let key = key.checked(&mut faults);
    let (Some(items), Some(key), true) = (items, key, faults.is_empty()) else {
        return Err(faults.into());
    };

    let command = caller.command(Operation::ConsumeBatch { items }, key);
    match app.ledger.submit(caller.caller(), command).await? {
        Ok(decided) => answer::batch_counted(decided),
        Err(Refusal::AmountExceedsLimit(positions)) => Err(exceed_limit(&positions)),
        Err(refusal) => Err(refusal.into()),
    }
}

/// The items as they came: the outer `None` is no array, an inner one no object.
struct RawItems<'a>(Option<Vec<Option<Object<'a>>>>);

impl<'a> RawItems<'a> {
    /// Takes the items out of the body.
    fn of(body: &mut Object<'a>) -> Result<Self, Problem> {
        let Some(elements) = body.take("items").and_then(Value::array) else {
            return Ok(Self(None));
        };
        let items: Result<_, _> = elements.into_iter().map(Value::object).collect();
        items
            .map(|items| Self(Some(items)))
            .map_err(|_twice| Problem::malformed("An item has a field twice."))
    }

    /// The users that are named, as far as they are texts: whose the units are is judged before
    /// what is wrong with the rest.
    fn user_ids(&self) -> impl Iterator<Item = String> {
        let items = self.0.iter().flatten().flatten();
        items.filter_map(|item| item.get("user_id").and_then(Value::string))
    }

    fn checked(self, faults: &mut Faults) -> Option<Vec<Item>> {
        let items = self.0.filter(|items| !items.is_empty());
        let Some(items) = items else {
            let message = "items must be an array of 1 to 100 items.";
            faults.add("items", Code::Invalid, message);
            return None;
        };
        if items.len() > ITEMS_LEN_MAX {
            let message = "items must not hold more than 100 items.";
            faults.add("items", Code::TooMany, message);
            return None;
        }
        let mut checked = Vec::with_capacity(items.len());
        for (position, fields) in items.into_iter().enumerate() {
            checked.extend(item(position, fields, faults));
        }
        Some(checked)
    }
}

fn item(position: usize, fields: Option<Object<'_>>, faults: &mut Faults) -> Option<Item> {
    let place = place(position);
    let Some(mut fields) = fields else {
        let message = "An item must be an object.";
        faults.add(place, Code::Invalid, message);
        return None;
    };
    let mut own = Faults::default();
    let user_id = fields::id("user_id", fields.take("user_id"), &mut own);
    let resource = fields::id("resource", fields.take("resource"), &mut own);
    let amount = fields::amount(&mut fields, &mut own);
    fields::no_more(fields, &mut own);
    faults.add_within(&place, own);
    Some(Item {
        pair: Pair {
            user_id: user_id?,
            resource: resource?,
        },
        amount: amount?,
    })
}

/// What could never be granted, found where the limit is known.
fn exceed_limit(positions: &[usize]) -> Problem {
    let mut faults = Faults::default();
    for position in positions {
        let message = "The amounts of this pair must not exceed the limit of its policy.";
        let field = format!("{}.amount", place(*position));
        faults.add(field, Code::ExceedsLimit, message);
    }
    Problem::from(faults).judged_by_store()
}

/// The name of an item in faults.
fn place(position: usize) -> String {
    format!("items[{position}]")
}
