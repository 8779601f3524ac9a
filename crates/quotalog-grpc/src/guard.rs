//! What is done for every rate-limit call before its message is read: who calls is judged, and its turn and the
//! caller's deadline are kept.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use quotalog_auth::{Action, Caller};
use quotalog_front::{bearer_token, caught};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::answer::OverLimit;
use crate::deadline;
use crate::router::App;
use crate::status;

/// Has a call answered, whatever happens, with a code that says what happened.
pub(crate) async fn judged(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let began_at = Instant::now();
    let working_time = deadline::working_time(request.headers());
    let answering = caught(answered(&app, request, next));
    let answered = match working_time {
        Some(time) => tokio::time::timeout(time, answering).await,
        None => Ok(answering.await),
    };
    let response = match answered {
        Ok(Ok(Ok(response))) => known(response),
        Ok(Ok(Err(status))) => status::answer(status),
        Ok(Err(panicked)) => status::answer(status::of_our_fault(panicked)),
        Err(_elapsed) => status::answer(status::too_late()),
    };
    let over_limit = response.extensions().get::<OverLimit>().is_some();
    let code = status::code_of(&response);
    app.metrics.answered(code, over_limit, began_at.elapsed());
    response
}

async fn answered(app: &App, mut request: Request, next: Next) -> Result<Response, Status> {
    let caller = caller(app, request.headers()).await?;
    let admitted = app.admission.admit(&caller).await;
    let _admitted = admitted.map_err(status::overloaded)?;
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

/// Who calls, if it may.
async fn caller(app: &App, headers: &HeaderMap) -> Result<Caller, Status> {
    let lines = headers.get_all(AUTHORIZATION).iter();
    let token = bearer_token(lines.map(HeaderValue::as_bytes));
    let token = token.ok_or_else(status::unauthenticated)?;
    let caller = app.ledger.authenticate(&token).await;
    let caller = caller.map_err(status::of_ledger)?;
    let caller = caller.ok_or_else(status::unauthenticated)?;
    if caller.role.may(Action::ConsumeForAll) {
        return Ok(caller);
    }
    // The token was remembered, and may have been revoked since.
    let confirmed = app.ledger.confirm(&caller).await;
    confirmed.map_err(status::of_ledger)?;
    Err(status::permission_denied())
}

/// The answer with a code that means something: the library calls UNKNOWN what it cannot read of a message.
fn known(response: Response) -> Response {
    if status::code_of(&response) == Code::Unknown {
        return status::answer(Status::internal("The message could not be read."));
    }
    response
}
