//! Whether an answer is as the OpenAPI document describes it: its status, its header fields and its body.
//!
//! The test application asks this of every answer, so that all tests hold the document and the routes together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, Mutex, PoisonError};

use hyper::Method;
use jsonschema::Validator;
use serde_json::{Value, json};

use super::answer::Answer;

/// The document, as `docs/` has it. A test of its own holds that to what is served.
pub(crate) fn document() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
    });
    &DOCUMENT
}

/// The document with its answers closed, so that a member that it does not describe is a fault here. Clients are
/// better served by an open one, to which a later version may add.
fn closed() -> &'static Value {
    static CLOSED: LazyLock<Value> = LazyLock::new(|| {
        let mut document = document().clone();
        let text = document.to_string();
        let schemas = document["components"]["schemas"].as_object_mut().unwrap();
        for (name, schema) in schemas {
            // A part of another schema is closed by the whole.
            let is_part = text.contains(&format!(
                "\"allOf\":[{{\"$ref\":\"#/components/schemas/{name}\""
            )) || ["Problem", "Quota", "Token"].contains(&&**name);
            if !is_part && (schema.get("properties").is_some() || schema.get("allOf").is_some()) {
                schema["unevaluatedProperties"] = json!(false);
            }
        }
        document
    });
    &CLOSED
}

/// Checks that `value` is as the schema at `pointer` in the document says.
pub(crate) fn valid(pointer: &str, value: &Value) -> Result<(), String> {
    static VALIDATORS: LazyLock<Mutex<BTreeMap<String, Validator>>> = LazyLock::new(Mutex::default);
    let mut validators = VALIDATORS.lock().unwrap_or_else(PoisonError::into_inner);
    let validator = validators.entry(pointer.to_owned()).or_insert_with(|| {
        let mut schema = closed().pointer(pointer).expect("a schema").clone();
        schema["components"] = closed()["components"].clone();
        schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        let mut options = jsonschema::options();
        options = options.should_validate_formats(true);
        options.build(&schema).unwrap()
    });
    validator
        .validate(value)
        .map_err(|error| format!("{error} at {}", error.instance_path()))
}

/// Checks an answer to `method` of `path`, as far as the document knows them.
#[track_caller]
pub(crate) fn check(method: &Method, path: &str, answer: &Answer) {
    let Some(template) = template(path) else {
        return;
    };
    // HEAD is GET without its body.
    let name = if method == Method::HEAD {
        "get".to_owned()
    } else {
        method.as_str().to_lowercase()
    };
    let pointer = format!(
        "/paths/{}/{name}/responses/{}",
        escaped(&template),
        answer.status
    );
    let operation = document()["paths"][&template].get(&name);
    if operation.is_none() {
        let is_preflight = method == Method::OPTIONS && answer.status == 204;
        let is_refused = [400, 404, 405].contains(&answer.status);
        assert!(
            is_preflight || is_refused,
            "{method} {path}: {}",
            answer.status
        );
        return;
    }
    let Some(mut response) = document().pointer(&pointer) else {
        panic!(
            "{name} {template} answers {}, which the document does not describe",
            answer.status
        );
    };
    let mut pointer = pointer;
    if let Some(reference) = response["$ref"].as_str() {
        pointer = reference.trim_start_matches('#').to_owned();
        response = document().pointer(&pointer).unwrap();
    }
    let what = format!("{name} {template} {}", answer.status);
    check_headers(&what, response, answer);
    if answer.body.is_empty() {
        let has_body = response.get("content").is_some();
        assert!(!has_body || method == Method::HEAD, "{what}: no body");
        return;
    }
    let content_type = answer.header("content-type").expect("a type");
    let media_type = content_type.split(';').next().unwrap();
    let content = &response["content"];
    assert!(
        content.get(media_type).is_some(),
        "{what}: {content_type} is not described"
    );
    if media_type.ends_with("json") && path != "/openapi.json" {
        let pointer = format!("{pointer}/content/{}/schema", escaped(media_type));
        let found = valid(&pointer, &answer.json());
        found.unwrap_or_else(|error| panic!("{what}: {error}: {}", answer.json()));
    }
}

#[track_caller]
fn check_headers(what: &str, response: &Value, answer: &Answer) {
    let described = response["headers"].as_object();
    let mut known = BTreeSet::new();
    for (name, reference) in described.into_iter().flatten() {
        let pointer = reference["$ref"].as_str().unwrap().trim_start_matches('#');
        let header = document().pointer(pointer).unwrap();
        known.insert(name.to_lowercase());
        let Some(value) = answer.header(name) else {
            assert_ne!(header["required"], true, "{what}: no {name}");
            continue;
        };
        let value = if header["schema"]["type"] == "integer" {
            value.parse::<u64>().map(Value::from).unwrap()
        } else {
            Value::from(value)
        };
        valid(&format!("{pointer}/schema"), &value)
            .unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
    }
    let all = document()["components"]["headers"]
        .as_object()
        .unwrap()
        .keys();
    for name in all.filter(|name| answer.headers.contains_key(&***name)) {
        assert!(
            known.contains(&name.to_lowercase()),
            "{what}: {name} is not described"
        );
    }
}

/// The path of the document that a request's path belongs to; one without parameters comes first.
fn template(path: &str) -> Option<String> {
    let path = path.split('?').next().unwrap();
    let templates = document()["paths"].as_object().unwrap().keys();
    let matches = |template: &str| {
        let (mut left, mut right) = (template.split('/'), path.split('/'));
        loop {
            match (left.next(), right.next()) {
                (None, None) => return true,
                (Some(left), Some(right)) if left.starts_with('{') || left == right => {}
                _ => return false,
            }
        }
    };
    templates
        .filter(|template| matches(template))
        .min_by_key(|template| template.matches('{').count())
        .cloned()
}

/// A name as a part of a JSON pointer (RFC 6901).
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
