//! A layer that asks for units before a request gets through. It knows HTTP and gRPC by their content type,
//! and no framework.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use tower_layer::Layer;
use tower_service::Service;

use crate::client::Client;
use crate::error::Error;
use crate::quota::Grant;

/// The body of an answer: the service's own, or that of a refusal.
pub type LayerBody<B> = Either<B, Full<Bytes>>;

/// Whom a request counts for, what, and how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    user_id: String,
    resource: String,
    amount: Option<u64>,
    idempotency_key: Option<String>,
}

/// Puts a quota in front of a service.
///
/// A closure says of each request whom it counts for, or `None` if it counts for nobody. A request whose units
/// fit gets through, with the [`Quota`](crate::Quota) among its extensions and the RateLimit fields on its
/// answer. Otherwise the service never sees it:
///
/// | why | HTTP | gRPC |
/// |---|---|---|
/// | the units do not fit | 429 with `Retry-After` and the RateLimit fields | `RESOURCE_EXHAUSTED` |
/// | no policy and no default serves the pair | 403 | `PERMISSION_DENIED` |
/// | the ids or the amount cannot be | 400 | `INVALID_ARGUMENT` |
/// | the server cannot be asked, and the client fails closed | 503 | `UNAVAILABLE` |
/// | the server does not take the layer's own token | 500 | `INTERNAL` |
///
/// ```
/// # fn example(client: quotalog_client::Client) {
/// use axum::{Router, routing::get};
/// use quotalog_client::{Ask, QuotaLayer};
///
/// let quota = QuotaLayer::new(client, |request| {
///     let user = request.headers.get("x-user")?.to_str().ok()?;
///     Some(Ask::new(user, "api-calls"))
/// });
/// let app: Router = Router::new()
///     .route("/", get(async || "hello"))
///     .layer(quota);
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct QuotaLayer<F> {
    client: Client,
    ask: F,
    passes_without_policy: bool,
}

/// A service behind a quota, made by [`QuotaLayer`].
#[derive(Debug, Clone)]
pub struct QuotaService<S, F> {
    inner: S,
    layer: QuotaLayer<F>,
}

/// What is answered in place of the service.
#[derive(Debug)]
struct Refusal {
    status: StatusCode,
    /// The same in gRPC (`grpc-status`).
    grpc_status: u8,
    title: &'static str,
    detail: String,
    /// The names of the policies that the units do not fit into.
    violated: Vec<&'static str>,
    fields: HeaderMap,
}

impl Ask {
    /// One unit of `resource` for `user_id`.
    pub fn new(user_id: impl Into<String>, resource: impl Into<String>) -> Self {
        Self {
            user_id: user_id.into(),
            resource: resource.into(),
            amount: None,
            idempotency_key: None,
        }
    }

    /// So many units instead.
    #[must_use]
    pub fn amount(mut self, amount: u64) -> Self {
        self.amount = Some(amount);
        self
    }

    /// A key of the request's own, so that its repetition counts once.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }
}

impl<F> QuotaLayer<F>
where
    F: Fn(&Parts) -> Option<Ask>,
{
    /// Asks `client` for what `ask` says of each request.
    pub fn new(client: Client, ask: F) -> Self {
        Self {
            client,
            ask,
            passes_without_policy: false,
        }
    }

    /// Lets requests through that neither a policy nor a default serves. A URL that leads to another place than
    /// the server's then lets all of them through.
    #[must_use]
    pub fn pass_without_policy(mut self) -> Self {
        self.passes_without_policy = true;
        self
    }
}

impl<S, F: Clone> Layer<S> for QuotaLayer<F> {
    type Service = QuotaService<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        QuotaService {
            inner,
            layer: self.clone(),
        }
    }
}

impl<S, F, B, R> Service<Request<B>> for QuotaService<S, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    F: Fn(&Parts) -> Option<Ask>,
    B: Send + 'static,
{
    type Response = Response<LayerBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was polled is ready; its clone need not be.
        let ready = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, ready);
        let (mut parts, body) = request.into_parts();
        let ask = (self.layer.ask)(&parts);
        let client = self.layer.client.clone();
        let passes_without_policy = self.layer.passes_without_policy;
        Box::pin(async move {
            let mut fields = HeaderMap::new();
            if let Some(ask) = ask {
                match ask.send(&client).await {
                    Ok(Grant::Counted(counted)) => {
                        counted.fields.add_to(&mut fields);
                        parts.extensions.insert(counted.quota);
                    }
                    Ok(Grant::LetThrough(_outage)) => {}
                    Err(Error::NotFound(_)) if passes_without_policy => {}
                    Err(error) => {
                        let refusal = Refusal::from(error);
                        return Ok(refusal.answer(&parts.headers).map(Either::Right));
                    }
                }
            }
            let response = inner.call(Request::from_parts(parts, body)).await?;
            let (mut head, body) = response.into_parts();
            for (name, value) in fields {
                // What the service says itself is the last word.
                if let Some(name) = name {
                    head.headers.entry(name).or_insert(value);
                }
            }
            Ok(Response::from_parts(head, Either::Left(body)))
        })
    }
}

impl Ask {
    async fn send(self, client: &Client) -> Result<Grant, Error> {
        let mut consume = client.consume(&self.user_id, &self.resource);
        if let Some(amount) = self.amount {
            consume = consume.amount(amount);
        }
        if let Some(key) = self.idempotency_key {
            consume = consume.idempotency_key(key);
        }
        consume.send().await
    }
}

/// The caller of the service learns what it can act on, and nothing of the server behind it.
impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let mut fields = HeaderMap::new();
        let mut violated = Vec::new();
        let (status, grpc_status, title, detail) = match &error {
            Error::Exhausted(exhausted) => {
                violated.extend(exhausted.quota().map(|quota| quota.window.as_str()));
                exhausted.fields.add_to(&mut fields);
                let wait = exhausted.retry_after.as_secs().max(1);
                fields.insert(RETRY_AFTER, HeaderValue::from(wait));
                let title = "Request cannot be satisfied as assigned quota has been exceeded";
                let detail = format!("Try again in {wait} s.");
                (StatusCode::TOO_MANY_REQUESTS, 8, title, detail)
            }
            Error::NotFound(_) => {
                let detail = "No quota serves this user and resource.".to_owned();
                (StatusCode::FORBIDDEN, 7, "There is no quota", detail)
            }
            Error::Invalid { .. } | Error::Mismatch(_) => {
                let title = "The request cannot be counted";
                (StatusCode::BAD_REQUEST, 3, title, error.to_string())
            }
            Error::Unavailable { .. }
            | Error::OutcomeUnknown { .. }
            | Error::Transport(_)
            | Error::Internal(_) => {
                let wait = error.retry_after().map_or(1, |wait| wait.as_secs().max(1));
                fields.insert(RETRY_AFTER, HeaderValue::from(wait));
                let detail = "The quota cannot be asked for now.".to_owned();
                let title = "The service is unavailable";
                (StatusCode::SERVICE_UNAVAILABLE, 14, title, detail)
            }
            Error::Unauthorized(_)
            | Error::Forbidden(_)
            | Error::Precondition(_)
            | Error::Unexpected { .. } => {
                let detail = "The quota cannot be asked for.".to_owned();
                let title = "The service made a mistake";
                (StatusCode::INTERNAL_SERVER_ERROR, 13, title, detail)
            }
        };
        Self {
            status,
            grpc_status,
            title,
            detail,
            violated,
            fields,
        }
    }
}

impl Refusal {
    /// The answer to a request with these headers, in its own protocol.
    fn answer(self, request: &HeaderMap) -> Response<Full<Bytes>> {
        let mut response = if is_grpc(request) {
            self.grpc()
        } else {
            self.http()
        };
        response.headers_mut().extend(self.fields);
        response
    }

    /// A problem document (RFC 9457).
    fn http(&self) -> Response<Full<Bytes>> {
        let mut document = serde_json::json!({
            "type": "about:blank",
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            let registered = "https://iana.org/assignments/http-problem-types#quota-exceeded";
            document["type"] = registered.into();
            document["violated-policies"] = self.violated.as_slice().into();
        }
        let mut response = Response::new(Full::new(Bytes::from(document.to_string())));
        *response.status_mut() = self.status;
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }

    /// A status without messages: its trailers are its headers (the protocol's "Trailers-Only").
    fn grpc(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::default());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(
            "grpc-status",
            HeaderValue::from(u16::from(self.grpc_status)),
        );
        // The protocol has other bytes than these percent-encoded.
        let encoded = percent_encoding::utf8_percent_encode(&self.detail, GRPC_MESSAGE);
        if let Ok(message) = HeaderValue::from_str(&encoded.to_string()) {
            headers.insert("grpc-message", message);
        }
        response
    }
}

/// What stands encoded in a `grpc-message`.
const GRPC_MESSAGE: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS.add(b'%');

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .map_or(&b""[..], |kind| kind.as_bytes());
    let rest = kind.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}
