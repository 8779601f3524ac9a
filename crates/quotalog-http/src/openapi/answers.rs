//! What answers have in common: header fields, and the problems that many routes refuse with.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::problem::ProblemType;

const PROBLEM_JSON: &str = "application/problem+json";

/// The fields that `("RateLimit")` stands for in an annotation.
const RATE_LIMIT: [&str; 5] = [
    "RateLimit-Policy",
    "RateLimit",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
];

/// Every header field that an answer may have, described once.
pub(super) fn headers() -> Value {
    let field = |required: bool, schema: Value, description: &str| json!({ "required": required, "schema": schema, "description": description });
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let number = || json!({ "type": "integer", "minimum": 0 });
    json!({
        "RateLimit-Policy": field(true, text("^\"(hourly|daily)\";q=\\d+;w=(3600|86400)$"),
            "The window, its limit (`q`) and its length in seconds (`w`)."),
        "RateLimit": field(true, text("^\"(hourly|daily)\";r=\\d+;t=\\d+$"),
            "What is left (`r`) and the seconds until the window ends (`t`)."),
        "X-RateLimit-Limit": field(true, number(), "The limit."),
        "X-RateLimit-Remaining": field(true, number(), "What is left."),
        "X-RateLimit-Reset": field(true, number(), "When the window ends, in Unix seconds."),
        "Retry-After": field(true, json!({ "type": "integer", "minimum": 1 }),
            "The whole seconds after which it is worth trying again."),
        "ETag": field(false, text("^\"[!#-~]*\"$"),
            "The version of what was answered; of a quota, that of the pair's own policy, which a quota that a default serves has not."),
        "Idempotency-Replayed": field(false, json!({ "type": "string", "const": "true" }),
            "Whether this is the kept answer of an earlier request with the same key."),
        "WWW-Authenticate": field(true, json!({ "type": "string", "const": "Bearer" }),
            "How to send a token."),
        "Cache-Control": field(false, json!({ "type": "string", "enum": ["no-store", "no-cache"] }),
            "`no-store` where the answer is for its caller alone."),
        "Content-Encoding": field(false, json!({ "type": "string", "const": "gzip" }),
            "How the body is compressed."),
        "X-Request-Id": field(true, text("^[!-~]{1,128}$"),
            "The request's id, which the log names."),
    })
}

/// The problems by their status, for the operations to refer to.
pub(super) fn problems() -> Value {
    let mut by_status: BTreeMap<String, Vec<&ProblemType>> = BTreeMap::new();
    for kind in ProblemType::ALL {
        let kinds = by_status
            .entry(kind.status.as_str().to_owned())
            .or_default();
        kinds.push(kind);
    }
    let described = by_status
        .iter()
        .map(|(status, kinds)| (status.clone(), problem(kinds)));
    let mut responses: Map<String, Value> = described.collect();
    let too_large = "The head of the request is larger than the connection takes: it ends.";
    responses.insert("431".to_owned(), json!({ "description": too_large }));
    Value::Object(responses)
}

fn problem(kinds: &[&ProblemType]) -> Value {
    // In Markdown, `<token>` would be an element.
    let text = |kind: &ProblemType| kind.explanation.replace('<', "\\<");
    let explained = |kind: &&ProblemType| format!("`{}`: {}", kind.name, text(kind));
    let description: Vec<String> = kinds.iter().map(explained).collect();
    let examples = kinds
        .iter()
        .map(|kind| (kind.name.to_owned(), json!({ "value": example(kind) })));
    let examples: Map<String, Value> = examples.collect();
    let status = kinds.first().map_or(0, |kind| kind.status.as_u16());
    let schema = if status == 422 {
        "InvalidProblem"
    } else {
        "Problem"
    };
    let own = match status {
        401 => Some("WWW-Authenticate"),
        503 => Some("Retry-After"),
        _ => None,
    };
    json!({
        "description": description.join("\n\n"),
        "headers": references(own.into_iter().chain(["Cache-Control", "X-Request-Id"])),
        "content": { PROBLEM_JSON: {
            "schema": { "$ref": format!("#/components/schemas/{schema}") },
            "examples": examples,
        }},
    })
}

fn example(kind: &ProblemType) -> Value {
    let mut document = json!({
        "type": format!("/problems/{}", kind.name),
        "title": kind.title,
        "status": kind.status.as_u16(),
        "detail": first_sentence(kind.explanation),
        "instance": "/quotas/alice/api-calls",
    });
    if kind.name == "validation-failed" {
        let message = "limit_count must be a positive integer.";
        document["errors"] =
            json!([{ "field": "limit_count", "code": "invalid", "message": message }]);
    }
    document
}

fn first_sentence(text: &str) -> String {
    let line = text.replace('\n', " ");
    let end = line.find(". ").map_or(line.len(), |stop| stop + 1);
    line.get(..end).unwrap_or_default().to_owned()
}

/// Completes an answer that an annotation describes: its header fields are named there alone.
pub(super) fn complete(status: &str, is_private: bool, answer: &mut Value) {
    let named = answer.get("headers").and_then(Value::as_object);
    let mut named: Vec<String> = named.into_iter().flat_map(Map::keys).cloned().collect();
    if named.iter().any(|name| name == "RateLimit") {
        named.extend(RATE_LIMIT.map(str::to_owned));
    }
    if is_private {
        named.push("Cache-Control".to_owned());
    }
    named.push("X-Request-Id".to_owned());
    answer["headers"] = references(named.iter().map(String::as_str));

    let is_problem = status.starts_with(['4', '5']);
    let content = answer.get_mut("content").and_then(Value::as_object_mut);
    if let Some(content) = content.filter(|_| is_problem)
        && let Some(json) = content.remove("application/json")
    {
        content.insert(PROBLEM_JSON.to_owned(), json);
    }
}

fn references<'a>(names: impl IntoIterator<Item = &'a str>) -> Value {
    let reference = |name: &str| json!({ "$ref": format!("#/components/headers/{name}") });
    let named = names
        .into_iter()
        .map(|name| (name.to_owned(), reference(name)));
    Value::Object(named.collect())
}
