//! What is done for every rate-limit call before its message is read: who calls is judged, and its turn and the
//! caller's deadline are kept.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use axum::response::Response;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;
use quotalog_auth::{Action, Caller};
use quotalog_front::caught;
use quotalog_ledger::{Asker, Deadline};
use tokio::time::Instant;
use tonic::{Code, Status};
use tower::Service;

use crate::answer::OverLimit;
use crate::deadline;
use crate::router::App;
use crate::service::RateLimits;
use crate::{http1, status};

/// The rate-limit service behind its guard.
#[derive(Clone)]
pub(crate) struct Guarded {
    pub(crate) app: Arc<App>,
    pub(crate) service: RateLimitServiceServer<RateLimits>,
}

/// Whose call it is, and by when it is answered at the latest. Its message is part of it: a caller that sends it late
/// has waited.
#[derive(Clone)]
pub(crate) struct Call {
    caller: Caller,
    deadline: Deadline,
}

impl Call {
    pub(crate) fn asker(&self) -> Asker<'_> {
        Asker {
            caller: &self.caller,
            deadline: self.deadline,
        }
    }
}

impl Service<Request> for Guarded {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let (app, service) = (Arc::clone(&self.app), self.service.clone());
        Box::pin(async move { Ok(judged(&app, service, request).await) })
    }
}

/// Has a call answered, whatever happens, with a code that says what happened.
async fn judged(
    app: &App,
    service: RateLimitServiceServer<RateLimits>,
    request: Request,
) -> Response {
    if let Some(refused) = http1::refused(&request) {
        return refused;
    }
    let began_at = Instant::now();
    let working_time = deadline::working_time(request.headers());
    let deadline = Deadline::of_arrival(began_at);
    let answering = caught(answered(app, service, request, deadline));
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

async fn answered(
    app: &App,
    mut service: RateLimitServiceServer<RateLimits>,
    mut request: Request,
    deadline: Deadline,
) -> Result<Response, Status> {
    let caller = caller(app, request.headers(), deadline).await?;
    let call = Call { caller, deadline };
    let admitted = app.admission.admit(call.asker()).await;
    let _admitted = admitted.map_err(status::overloaded)?;
    request.extensions_mut().insert(call);
    match service.call(request).await {
        Ok(response) => Ok(response.map(Body::new)),
        Err(never) => match never {},
    }
}

/// Who calls, if it may.
async fn caller(app: &App, headers: &HeaderMap, deadline: Deadline) -> Result<Caller, Status> {
    let lines = headers.get_all(AUTHORIZATION).iter();
    let lines = lines.map(HeaderValue::as_bytes);
    let caller = app.authentication.caller(lines, deadline).await;
    let caller = caller.map_err(status::of_ledger)?;
    let caller = caller.ok_or_else(status::unauthenticated)?;
    if caller.role.may(Action::ConsumeForAll) {
        return Ok(caller);
    }
    // The token was remembered, and may have been revoked since.
    let asker = Asker {
        caller: &caller,
        deadline,
    };
    let confirmed = app.ledger.confirm(asker).await;
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
