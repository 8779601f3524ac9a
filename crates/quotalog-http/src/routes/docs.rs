//! `GET /docs`: the description of this interface, for people, and the files that its page needs.
//!
//! Nothing is loaded from elsewhere, and nothing that is written in the page itself runs or paints: the policy of the
//! page allows neither.

use axum::http::HeaderMap;
use axum::response::Response;

use crate::answer::Unchanging;
use crate::extract::ids::RawName;
use crate::openapi::parameters::FilePath;
use crate::problem::Problem;

const SCRIPT: &str = "text/javascript; charset=utf-8";

static PAGE: Unchanging =
    Unchanging::new("text/html; charset=utf-8", include_bytes!("docs/page.html"));

static START: Unchanging = Unchanging::new(SCRIPT, include_bytes!("docs/start.js"));

/// Swagger UI, as `build.rs` lifts it out of its release. Every browser takes gzip, so there is no other form of it.
static BUNDLE: Unchanging = Unchanging::gzipped(
    SCRIPT,
    include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui-bundle.js.gz")),
);

static STYLE: Unchanging = Unchanging::gzipped(
    "text/css; charset=utf-8",
    include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui.css.gz")),
);

/// Swagger UI paints its arrows as images of the form `data:`.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Shows this interface to people.
///
/// A token that is entered there is kept until the page is left or loaded again, and nowhere else.
#[utoipa::path(
    get,
    path = "/docs",
    operation_id = "docs",
    tag = "Operation",
    security(()),
    responses(
        (status = 200, description = "The page.", body = String, content_type = "text/html", headers(("ETag"), ("Cache-Control"))),
        (status = 304, description = "It is still the same.", headers(("ETag"), ("Cache-Control"))),
    )
)]
pub(crate) async fn page(headers: HeaderMap) -> Response {
    PAGE.answer_under(POLICY, &headers)
}

/// Answers a file that the page needs.
#[utoipa::path(
    get,
    path = "/docs/{file}",
    operation_id = "docsFile",
    tag = "Operation",
    security(()),
    params(FilePath),
    responses(
        (
            status = 200,
            description = "The file, perhaps compressed.",
            content((String = "text/javascript"), (String = "text/css")),
            headers(("ETag"), ("Cache-Control"), ("Content-Encoding"))
        ),
        (status = 304, description = "It is still the same.", headers(("ETag"), ("Cache-Control"))),
    )
)]
pub(crate) async fn file(name: RawName, headers: HeaderMap) -> Result<Response, Problem> {
    let file = match name.as_str() {
        "start.js" => &START,
        "swagger-ui-bundle.js" => &BUNDLE,
        "swagger-ui.css" => &STYLE,
        _ => return Err(Problem::no_such_route()),
    };
    Ok(file.answer_under(POLICY, &headers))
}
