//! The OpenAPI document and its page. That every answer of these tests is as the document says is looked at where
//! they are sent: `support/described.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use axum::body::Body;
use hyper::{Method, Request};
use serde_json::Value;

use crate::support::answer::Answer;
use crate::support::app::TestApp;
use crate::support::described;

async fn ask(app: &TestApp, path: &str, tag: Option<&str>) -> Answer {
    let request = Request::get(path).header("if-none-match", tag.unwrap_or("\"other\""));
    app.send(request.body(Body::empty()).unwrap()).await
}

/// `docs/openapi.json` is the document, for those who make clients of it and for the eyes of reviewers.
#[tokio::test]
async fn the_document_is_the_one_in_docs() {
    let app = TestApp::new().await;
    let answer = ask(&app, "/openapi.json", None).await.is(200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let document = answer.json();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));

    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    if std::env::var_os("RENEW_OPENAPI").is_some() {
        let text = serde_json::to_string_pretty(&document).unwrap();
        std::fs::write(&file, text + "\n").unwrap();
    }
    let kept = std::fs::read(&file).unwrap_or_default();
    let kept: Value = serde_json::from_slice(&kept).unwrap_or_default();
    assert!(
        document == kept,
        "docs/openapi.json differs from the code. To write it anew and read the diff: \
         RENEW_OPENAPI=1 cargo test -p quotalog --test it http::openapi::"
    );
}

/// The metrics name every route of the router, and a 405 the methods of each.
#[tokio::test]
async fn the_document_and_the_router_know_the_same_routes() {
    let app = TestApp::new().await;
    let metrics = app.get("/metrics").await.is(200);
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    let labels = text.lines().filter_map(|line| {
        let series = line.strip_prefix("quotalog_http_request_duration_seconds_count{route=\"")?;
        series.split('"').next()
    });
    let mut routed = BTreeMap::new();
    for route in labels.filter(|route| *route != "none") {
        let path = route.replace(['{', '}'], "");
        let answer = app.call(Method::PATCH, &path, "", "").await.is(405);
        let allowed = answer.header("allow").expect("Allow").split(',');
        let allowed = allowed.map(|method| method.trim().to_lowercase());
        let methods: BTreeSet<String> = allowed.filter(|method| method != "head").collect();
        routed.insert(route.to_owned(), methods);
    }
    let paths = described::document()["paths"].as_object().unwrap();
    let described = paths.iter().map(|(path, operations)| {
        let operations = operations.as_object().unwrap().keys();
        (path.clone(), operations.cloned().collect())
    });
    let described: BTreeMap<String, BTreeSet<String>> = described.collect();
    assert_eq!(routed, described);
    assert!(routed.len() > 15, "{routed:?}");
}

/// What generators of clients trip over.
#[test]
fn every_operation_is_whole() {
    let document = described::document();
    let mut ids = BTreeSet::new();
    let tags: BTreeSet<&str> = document["tags"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tag| tag["name"].as_str().unwrap())
        .collect();
    let mut used = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let name = format!("{method} {path}");
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id), "{id} twice");
            assert!(
                operation["summary"]
                    .as_str()
                    .is_some_and(|text| text.ends_with('.')),
                "{name}"
            );
            for tag in operation["tags"].as_array().unwrap() {
                used.insert(tag.as_str().unwrap());
            }
            let in_path: BTreeSet<&str> = path
                .split('/')
                .filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
                .collect();
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let mut described = BTreeSet::new();
            for parameter in parameters {
                assert!(parameter["description"].is_string(), "{name} {parameter}");
                assert!(
                    !parameter["schema"].to_string().contains("null"),
                    "{name} {parameter}"
                );
                if parameter["in"] == "path" {
                    assert_eq!(parameter["required"], true);
                    described.insert(parameter["name"].as_str().unwrap());
                }
            }
            assert_eq!(in_path, described, "{name}");
            let statuses: BTreeSet<&str> = operation["responses"]
                .as_object()
                .unwrap()
                .keys()
                .map(String::as_str)
                .collect();
            let common: &[&str] = match path.split('/').nth(1).unwrap() {
                "quotas" | "consume" | "defaults" | "tokens" | "audit" => {
                    &["400", "401", "403", "422", "431", "500", "503"]
                }
                _ => &["400", "431", "500"],
            };
            assert!(
                common.iter().all(|status| statuses.contains(status)),
                "{name}: {statuses:?}"
            );
        }
    }
    assert_eq!(tags, used);
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(
            document.pointer(pointer).is_some(),
            "{pointer} leads nowhere"
        );
    }
}

/// The examples are answers and bodies that could be.
#[test]
fn examples_are_as_their_schemas_say() {
    let document = described::document();
    let mut checked = 0;
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        if let Some(example) = schema.get("example") {
            let pointer = format!("/components/schemas/{name}");
            described::valid(&pointer, example).unwrap_or_else(|error| panic!("{name}: {error}"));
            checked += 1;
        }
    }
    for (status, response) in document["components"]["responses"].as_object().unwrap() {
        let content = &response["content"]["application/problem+json"];
        for (name, example) in content["examples"].as_object().into_iter().flatten() {
            let pointer =
                format!("/components/responses/{status}/content/application~1problem+json/schema");
            described::valid(&pointer, &example["value"])
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
}

/// Nothing is loaded from elsewhere, and nothing in the page itself runs.
#[tokio::test]
async fn the_page_and_its_files_are_served_here() {
    let app = TestApp::new().await;
    let page = ask(&app, "/docs", None).await.is(200);
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    for loose in ["unsafe", "http", "*"] {
        assert!(!policy.contains(loose), "{policy}");
    }
    let html = String::from_utf8(page.body.to_vec()).unwrap();
    assert!(
        !html.contains("://") && !html.contains("style=") && !html.contains("onload"),
        "{html}"
    );

    let links = html.split(['"']).filter(|text| text.starts_with('/'));
    let mut files = BTreeSet::new();
    for path in links {
        let file = ask(&app, path, None).await.is(200);
        let tag = file.header("etag").unwrap().to_owned();
        assert_eq!(file.header("cache-control"), Some("no-cache"), "{path}");
        if path.starts_with("/docs/") {
            assert_eq!(file.header("x-content-type-options"), Some("nosniff"));
        }
        let gzipped = file.header("content-encoding") == Some("gzip");
        assert_eq!(file.body.starts_with(&[0x1f, 0x8b]), gzipped, "{path}");
        let weak = format!("\"x\", W/{tag}");
        for tag in [&*tag, &weak, "*"] {
            let kept = ask(&app, path, Some(tag)).await.is(304);
            assert_eq!(kept.header("etag"), file.header("etag"));
            assert!(kept.body.is_empty());
        }
        files.insert(path.to_owned());
    }
    assert_eq!(files.len(), 4, "{files:?}");
    for path in [
        "/docs/",
        "/docs/page.html",
        "/docs/start.js/",
        "/openapi.json/",
        "/docs/..%2Fstart.js",
    ] {
        ask(&app, path, None).await.problem(404, "not-found");
    }
}
