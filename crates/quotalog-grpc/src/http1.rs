//! HTTP/1, in which no gRPC can be spoken, is told so, and its connection ended.

use axum::extract::Request;
use axum::http::header::{CONNECTION, HeaderValue};
use axum::http::{StatusCode, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

/// The answer to a request of HTTP/1.
pub(crate) fn refused(request: &Request) -> Option<Response> {
    if request.version() >= Version::HTTP_2 {
        return None;
    }
    let text = "This port speaks gRPC, over HTTP/2 alone.\n";
    let mut response = (StatusCode::HTTP_VERSION_NOT_SUPPORTED, text).into_response();
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Some(response)
}

/// The same as a layer.
pub(crate) async fn refuse(request: Request, next: Next) -> Response {
    match refused(&request) {
        Some(refused) => refused,
        None => next.run(request).await,
    }
}
