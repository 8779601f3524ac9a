//! `GET /problems/{name}`: what the `type` of a problem document leads to, for people.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::Response;

use crate::extract::ids::RawName;
use crate::openapi::parameters::ProblemPath;
use crate::problem::{Problem, ProblemType};

/// Explains a problem to people.
///
/// The `type` of every problem leads here, a 429's aside.
#[utoipa::path(
    get,
    path = "/problems/{name}",
    operation_id = "explainProblem",
    tag = "Operation",
    security(()),
    params(ProblemPath),
    responses(
        (
            status = 200,
            description = "What happened, and what to do.",
            body = String,
            content_type = "text/plain"
        ),
    )
)]
pub(crate) async fn explain(name: RawName) -> Result<Response, Problem> {
    let kind = ProblemType::named(name.as_str()).ok_or_else(Problem::no_such_route)?;
    let text = format!(
        "{} ({})\n\n{}\n",
        kind.title,
        kind.status.as_u16(),
        kind.explanation
    );
    let mut response = Response::new(Body::from(text));
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    Ok(response)
}
