//! The OpenAPI document: what stands above each handler, completed by what all routes share.
//!
//! A handler's annotation tells of its success and of what only it refuses. What every route refuses, and the header
//! fields that a name stands for, are added here, so that no annotation can forget them.

mod answers;
pub(crate) mod parameters;
pub(crate) mod schemas;

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use crate::front::is_private;
use crate::routes::{
    audit, batch, consume, dashboard, defaults, docs, health, metrics, openapi, policy, problems,
    quotas, refund, reset, tokens, usage, user_quotas, whoami,
};

/// The name under which operations refer to the bearer token.
const TOKEN: &str = "token";

/// What the document begins with, in Markdown.
const INTRODUCTION: &str = "\
quotalog counts units of what users may use, hour by hour or day by day: exactly, durably and fast. Units are granted \
all or nothing, a grant is on disk before it is answered, and the grants of a window never exceed its limit.

- **Tokens.** Send `Authorization: Bearer <token>`. Roles: `admin` may do everything; `viewer` reads every quota and \
default; `service` checks, consumes and refunds for every user, and reads defaults; `user` checks, lists and consumes \
the quotas of the one user it is bound to.
- **Ids** are percent-encoded once in a path; `+` is a plus. One that holds a `/` is a 404.
- **Refusals** are problem documents (RFC 9457). A path that does not know a method answers 405 with `Allow`. HEAD \
works where GET does.
- **Retries** of a consume, refund or reset are safe with an `Idempotency-Key`.
- **Request ids.** `X-Request-Id` is the caller's, if it is 1 to 128 visible ASCII characters, else a new one; the log \
names it.";

#[derive(OpenApi)]
#[openapi(
    info(title = "quotalog", description = INTRODUCTION, license(name = "MIT OR Apache-2.0")),
    servers((url = "/", description = "This server.")),
    tags(
        (name = "Counting", description = "Check a quota, and count units."),
        (name = "Policies", description = "Say how much a user may use; defaults for those who have no policy of their own."),
        (name = "Lists", description = "Who has what, and who has used how much. All lists come in pages."),
        (name = "Administration", description = "Tokens, and the audit."),
        (name = "Operation", description = "For those who run the server, and this description. Anyone may read these, the metrics aside."),
    ),
    paths(
        policy::check, consume::consume, batch::consume, refund::refund, reset::reset,
        policy::set, policy::delete, user_quotas::erase,
        defaults::set, defaults::get, defaults::delete,
        quotas::list, user_quotas::list, usage::list, defaults::list,
        audit::list, tokens::create, tokens::list, tokens::revoke, whoami::tell,
        health::alive, health::ready, metrics::for_admins, problems::explain,
        openapi::document, docs::page, docs::file,
        dashboard::page, dashboard::file, dashboard::file_of_folder,
    ),
    components(schemas(schemas::Problem, schemas::InvalidProblem, parameters::Sort)),
)]
struct Annotations;

/// The document, as JSON.
pub(crate) fn json() -> &'static [u8] {
    static JSON: LazyLock<Vec<u8>> = LazyLock::new(|| document().to_string().into_bytes());
    &JSON
}

fn document() -> Value {
    let annotated = serde_json::to_value(Annotations::openapi());
    let mut document = annotated.expect("the document is plain structs with texts as keys");
    document["security"] = json!([{ TOKEN: [] }]);
    document["components"]["securitySchemes"] = json!({ TOKEN: {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of `POST /tokens` or `quotalog token create`, or a JWT of an issuer that the operator \
            trusts; never in the query string.",
    }});
    document["components"]["headers"] = answers::headers();
    document["components"]["responses"] = answers::problems();
    let schemas = document["components"]["schemas"].clone();
    for (path, operations) in members(&mut document["paths"]) {
        for (_method, operation) in members(operations) {
            complete(path, operation, &schemas);
        }
    }
    document
}

/// Adds to one operation what it has in common with others.
fn complete(path: &str, operation: &mut Value, schemas: &Value) {
    let is_private = is_private(path);
    for (status, answer) in members(&mut operation["responses"]) {
        answers::complete(status, is_private, answer);
    }
    let takes_body = operation.get("requestBody").is_some();
    if takes_body {
        let body = &mut operation["requestBody"];
        body["required"] = json!(!may_be_left_out(body, schemas));
    }
    let asks_for = |what: &dyn Fn(&Value) -> bool| {
        let parameters = operation["parameters"].as_array();
        parameters.is_some_and(|parameters| parameters.iter().any(what))
    };
    let has_id = asks_for(&|parameter| parameter["in"] == "path");
    let has_precondition = asks_for(&|parameter| parameter["name"] == "If-Match");
    let needs_token = operation.get("security").is_none();
    let refusals: [(bool, &[&str]); 6] = [
        (true, &["400", "431", "500"]),
        (needs_token, &["401", "403", "503"]),
        (is_private, &["422"]),
        (has_id, &["404"]),
        (has_precondition, &["412"]),
        (takes_body, &["408", "413", "415"]),
    ];
    let Some(responses) = operation["responses"].as_object_mut() else {
        return;
    };
    for status in refusals
        .iter()
        .filter(|(does, _)| *does)
        .flat_map(|(_, statuses)| *statuses)
    {
        let refusal = || json!({ "$ref": format!("#/components/responses/{status}") });
        responses.entry(*status).or_insert_with(refusal);
    }
}

/// Whether a body has nothing that must be there, so that no body means the same.
fn may_be_left_out(body: &Value, schemas: &Value) -> bool {
    let reference = body["content"]["application/json"]["schema"]["$ref"].as_str();
    let name = reference.and_then(|reference| reference.rsplit('/').next());
    let schema = name.and_then(|name| schemas.get(name));
    schema.is_some_and(|schema| schema["type"] == "object" && schema.get("required").is_none())
}

/// The members of an object; none of anything else.
fn members(value: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    value.as_object_mut().into_iter().flat_map(Map::iter_mut)
}
