//! What the parameters of paths, query strings and header fields may be.

#![expect(
    dead_code,
    reason = "a type that is described alone has fields that nobody reads"
)]

use utoipa::IntoParams;

use super::schemas::{Resource, UserId};

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct UserPath {
    /// Whose quotas, percent-encoded once.
    user_id: UserId,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct PairPath {
    /// Whose quota, percent-encoded once.
    user_id: UserId,
    /// Of what, percent-encoded once.
    resource: Resource,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct ResourcePath {
    /// Of what, percent-encoded once.
    resource: Resource,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(crate) struct KeyHeader {
    /// Makes a retry safe: the same key counts once, and is answered as the first time. A quoted string and the bare
    /// text mean the same.
    #[param(
        pattern = r#"^(?:[!#-~][!-~]{0,254}|"(?:[!#-\[\]-~]|\\["\\]){1,255}")$"#,
        nullable = false,
        example = "8d1f2c3e-65f0-4c0b-9d7e-0a4b7c1d2e3f"
    )]
    #[param(rename = "Idempotency-Key")]
    key: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(crate) struct PreconditionHeaders {
    /// Go on only if the present `ETag` is one of these; `*` for any. Not beside `If-None-Match`.
    #[param(
        rename = "If-Match",
        pattern = r#"^(?:\*|[ \t,]*(?:(?:W/)?"[!#-~\u0080-\u00ff]*"(?:[ \t]*,[ \t,]*(?:W/)?"[!#-~\u0080-\u00ff]*")*[ \t,]*)?)$"#,
        nullable = false,
        example = "\"hourly-100-1793523600-1796026500\""
    )]
    if_match: Option<String>,
    /// Go on only if the present `ETag` is none of these; with `*`, only if there is nothing yet. Not beside `If-Match`.
    #[param(
        rename = "If-None-Match",
        pattern = r#"^(?:\*|[ \t,]*(?:(?:W/)?"[!#-~\u0080-\u00ff]*"(?:[ \t]*,[ \t,]*(?:W/)?"[!#-~\u0080-\u00ff]*")*[ \t,]*)?)$"#,
        nullable = false,
        example = "*"
    )]
    if_none_match: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// The most entries of the page.
    #[param(minimum = 1, maximum = 1000, default = 100, nullable = false)]
    limit: Option<u32>,
    /// Where to go on: the `next_cursor` of the page before, with the same filters.
    #[param(min_length = 1, nullable = false)]
    cursor: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct QuotasQuery {
    /// Only those of this resource.
    #[param(nullable = false)]
    resource: Option<Resource>,
    /// Only those of whose limit at least so much is used, in percent.
    #[param(minimum = 0, maximum = 100, nullable = false)]
    min_used_percent: Option<u32>,
    /// The fullest first, `limit` of them and without a cursor.
    #[param(nullable = false)]
    sort: Option<Sort>,
}

/// The one order there is beside that of the ids.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum Sort {
    UsedPercent,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct UsageQuery {
    /// The first instant whose windows are told of.
    #[param(format = DateTime, nullable = false, example = "2026-11-30T00:00:00Z")]
    from: Option<String>,
    /// The first instant whose windows are not.
    #[param(format = DateTime, nullable = false, example = "2026-12-01T00:00:00Z")]
    to: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditQuery {
    /// Only what concerns this user.
    #[param(nullable = false)]
    user_id: Option<UserId>,
    /// Only what concerns this resource.
    #[param(nullable = false)]
    resource: Option<Resource>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct TokenPath {
    /// The token's id, as the list tells it.
    #[param(example = "1c1a0ab62708915a")]
    id: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct ProblemPath {
    /// The problem, as its `type` names it.
    #[param(example = "quota-exceeded")]
    name: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct FilePath {
    /// The file, as the page names it.
    #[param(example = "start.js")]
    file: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct FolderPath {
    /// The folder, as the page names it.
    #[param(example = "vendor")]
    folder: String,
    /// The file in it.
    #[param(example = "preact.js")]
    file: String,
}
