//! `GET /openapi.json`: the description of this interface, for programs.

use std::sync::LazyLock;

use axum::http::HeaderMap;
use axum::response::Response;

use crate::answer::Unchanging;
use crate::openapi;

/// Describes this interface, in OpenAPI 3.1.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "openapi",
    tag = "Operation",
    security(()),
    responses(
        (status = 200, description = "This document.", body = Object, headers(("ETag"), ("Cache-Control"))),
        (status = 304, description = "It is still the same.", headers(("ETag"), ("Cache-Control"))),
    )
)]
pub(crate) async fn document(headers: HeaderMap) -> Response {
    static DOCUMENT: LazyLock<Unchanging> =
        LazyLock::new(|| Unchanging::new("application/json", openapi::json()));
    DOCUMENT.answer(&headers)
}
