//! What is done for every request, whatever its route: the one layer around all handlers.
//!
//! It gives the request its id, answers a browser's preflight, reads the path, catches a panic, has a credential confirmed where the store has not
//! judged it, writes the problem document, and reads what the handler has left of the body.

use std::borrow::Cow;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::http::Version;
use axum::http::header::{CACHE_CONTROL, CONNECTION, HeaderValue};
use axum::http::request::Parts;
use axum::response::Response;
use quotalog_front::caught;
use quotalog_ledger::Ledger;
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::cors::Cors;
use crate::exchange::Exchange;
use crate::extract::body::{BodyEnd, Unread};
use crate::message;
use crate::metrics::{Metrics, NO_ROUTE};
use crate::path;
use crate::problem::Problem;
use crate::request_id::{RequestIds, X_REQUEST_ID};
use crate::router::App;

/// Puts [`Front`] around a route.
#[derive(Clone)]
pub(crate) struct FrontLayer(Arc<Shared>);

/// A route, and what is done around it.
#[derive(Clone)]
pub(crate) struct Front<S> {
    inner: S,
    shared: Arc<Shared>,
}

struct Shared {
    ledger: Ledger,
    cors: Cors,
    metrics: Metrics,
    request_ids: RequestIds,
}

impl FrontLayer {
    pub(crate) fn new(app: App) -> Self {
        Self(Arc::new(Shared {
            ledger: app.ledger,
            cors: app.cors,
            metrics: app.metrics,
            request_ids: RequestIds::new(),
        }))
    }
}

impl<S> Layer<S> for FrontLayer {
    type Service = Front<S>;

    fn layer(&self, inner: S) -> Front<S> {
        Front {
            inner,
            shared: Arc::clone(&self.0),
        }
    }
}

impl<S> Service<Request> for Front<S>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // The service that was polled ready is the one to call.
        let next = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, next);
        Box::pin(answer(Arc::clone(&self.shared), inner, request))
    }
}

/// A request, and when it arrived.
struct Arrived {
    parts: Parts,
    body: Body,
    at: Instant,
}

async fn answer<S>(shared: Arc<Shared>, inner: S, request: Request) -> Result<Response, Infallible>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    let arrived_at = Instant::now();
    let (parts, body) = request.into_parts();
    let request_id = shared.request_ids.of(&parts.headers);
    let route = parts.extensions.get::<MatchedPath>().cloned();
    let (method, uri, version) = (parts.method.clone(), parts.uri.clone(), parts.version);

    let origin = shared.cors.allowed(&parts.headers);
    let (mut response, body_end, exchange) = match message::check(version, &parts.headers) {
        Ok(()) => {
            let arrived = Arrived {
                parts,
                body,
                at: arrived_at,
            };
            judged(&shared, inner, arrived, &request_id).await
        }
        Err(fault) => {
            // Where a message of an unsound form ends is not certain, so nothing after its head is read.
            let body_end = BodyEnd {
                was_read_whole: false,
                waited: Duration::ZERO,
            };
            (Problem::from(fault).answer(uri.path()), body_end, None)
        }
    };
    // How long a client takes for its body is not ours.
    let took = arrived_at.elapsed().saturating_sub(body_end.waited);

    let status = response.status();
    let headers = response.headers_mut();
    if is_private(uri.path()) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    if !body_end.was_read_whole && version < Version::HTTP_2 {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let route = route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str);
    shared.metrics.answered(route, &method, status, took);
    let asker = exchange.as_ref().and_then(Exchange::asker);
    tracing::debug!(
        %method,
        route,
        status = status.as_u16(),
        duration_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        token_id = asker.map(|asker| asker.caller.credential.id()),
        request_id = request_id.to_str().unwrap_or_default(),
        "answered"
    );
    headers.insert(X_REQUEST_ID, request_id);
    shared.cors.add_fields(origin, headers);
    Ok(response)
}

/// The answer to a message of a sound form, once nothing more of its body is waited for; and what is known of the
/// request, if its path could be read.
async fn judged<S>(
    shared: &Shared,
    inner: S,
    Arrived { parts, body, at }: Arrived,
    request_id: &HeaderValue,
) -> (Response, BodyEnd, Option<Exchange>)
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    let unread = Unread::of(&parts.headers, body);
    if let Some(response) = shared.cors.preflight(&parts) {
        return (response, unread.discard().await, None);
    }
    let uri = parts.uri.clone();
    match path::decode(uri.path()) {
        Ok(decoded) => {
            let exchange = Exchange::new(uri.clone(), owned(decoded), unread, at);
            let response = handled(&shared.ledger, inner, parts, &exchange, request_id).await;
            let body_end = exchange.unread().discard().await;
            (response, body_end, Some(exchange))
        }
        Err(fault) => {
            let response = Problem::from(fault).answer(uri.path());
            drop(parts);
            (response, unread.discard().await, None)
        }
    }
}

/// Has the route answer, and writes the problem if there is one.
async fn handled<S>(
    ledger: &Ledger,
    mut inner: S,
    mut parts: Parts,
    exchange: &Exchange,
    request_id: &HeaderValue,
) -> Response
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    parts.extensions.insert(exchange.clone());
    let request = Request::from_parts(parts, Body::empty());
    let problem = match caught(async move { inner.call(request).await }).await {
        Ok(Ok(mut response)) => match response.extensions_mut().remove::<Problem>() {
            None => return response,
            Some(problem) => problem,
        },
        Ok(Err(never)) => match never {},
        Err(panicked) => Problem::internal(panicked),
    };
    let problem = confirmed(ledger, exchange, problem).await;
    if let Some(cause) = problem.cause() {
        let request_id = request_id.to_str().unwrap_or_default();
        tracing::error!(
            error = cause,
            request_id,
            "a request failed by a fault of ours"
        );
    }
    problem.answer(exchange.raw_path())
}

/// The problem, or that the caller's token no longer holds: a refusal that was made without asking
/// the store rests on a remembered token, which may have been revoked since.
async fn confirmed(ledger: &Ledger, exchange: &Exchange, problem: Problem) -> Problem {
    match exchange.asker() {
        Some(asker) if problem.needs_confirmation() => match ledger.confirm(asker).await {
            Ok(()) => problem,
            Err(error) => error.into(),
        },
        Some(_) | None => problem,
    }
}

fn owned(decoded: Cow<'_, str>) -> Option<Box<str>> {
    match decoded {
        Cow::Borrowed(_) => None,
        Cow::Owned(decoded) => Some(decoded.into()),
    }
}

/// Whether answers for this path are for their caller alone, problems included.
pub(crate) fn is_private(path: &str) -> bool {
    let first = path.split('/').nth(1).unwrap_or_default();
    matches!(
        first,
        "quotas" | "consume" | "defaults" | "tokens" | "audit" | "whoami"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_about_quotas_and_tokens_are_private() {
        for path in [
            "/quotas/u/r",
            "/quotas",
            "/tokens",
            "/consume",
            "/defaults/r",
            "/audit",
            "/whoami",
        ] {
            assert!(is_private(path), "{path}");
        }
        for path in ["/", "/healthz", "/quotasx", "/problems/quotas"] {
            assert!(!is_private(path), "{path}");
        }
    }
}
