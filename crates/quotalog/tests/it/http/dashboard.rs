//! `GET /dashboard` and its files: for anyone, kept by browsers until they change, and under a strict policy.

use axum::body::Body;
use hyper::{Method, Request};

use crate::support::answer::Answer;
use crate::support::app::TestApp;

/// One request without a token.
async fn ask(app: &TestApp, method: Method, path: &str, held: Option<&str>) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(tag) = held {
        request = request.header("if-none-match", tag);
    }
    app.send(request.body(Body::empty()).unwrap()).await
}

/// The paths that a page or a stylesheet names in double quotes, if they are its own.
fn named(text: &str) -> Vec<String> {
    let quoted = text.split('"').skip(1).step_by(2);
    let own = quoted.filter(|path| path.starts_with("dashboard/"));
    own.map(|path| format!("/{path}")).collect()
}

#[tokio::test]
async fn the_page_and_all_it_names_are_for_anyone_under_a_strict_policy() {
    let app = TestApp::new().await;
    let page = ask(&app, Method::GET, "/dashboard", None).await.is(200);
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let mut paths = named(std::str::from_utf8(&page.body).unwrap());
    assert!(paths.len() >= 6, "{paths:?}");
    for module in ["api", "kit", "text/ja", "text/pt-BR", "vendor/preact-hooks"] {
        paths.push(format!("/dashboard/{module}.js"));
    }
    paths.push("/dashboard".to_owned());
    for path in paths {
        let answer = ask(&app, Method::GET, &path, None).await.is(200);
        let policy = answer.header("content-security-policy").unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "frame-ancestors 'none'",
            "form-action 'none'",
            "base-uri 'none'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("http"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert!(!answer.body.is_empty(), "{path}");
    }
}

#[tokio::test]
async fn a_file_is_sent_again_only_if_it_is_another() {
    let app = TestApp::new().await;
    for path in ["/dashboard", "/dashboard/app.js", "/dashboard/style.css"] {
        let first = ask(&app, Method::GET, path, None).await.is(200);
        assert_eq!(first.header("cache-control"), Some("no-cache"));
        let tag = first.header("etag").unwrap();
        for held in [
            tag.to_owned(),
            format!("W/{tag}"),
            format!("\"other\", {tag}"),
            "*".to_owned(),
        ] {
            let again = ask(&app, Method::GET, path, Some(&held)).await.is(304);
            assert!(again.body.is_empty());
            assert_eq!(again.header("etag"), Some(tag));
            assert!(again.header("content-security-policy").is_some());
        }
        let changed = ask(&app, Method::GET, path, Some("\"other\"")).await;
        assert_eq!(changed.is(200).body, first.body);

        let head = ask(&app, Method::HEAD, path, None).await.is(200);
        assert!(head.body.is_empty());
        for name in ["etag", "content-type", "content-security-policy"] {
            assert_eq!(head.header(name), first.header(name));
        }
        let len = first.body.len().to_string();
        assert_eq!(head.header("content-length"), Some(&*len));
    }
}

#[tokio::test]
async fn what_is_no_file_of_it_is_no_path() {
    let app = TestApp::new().await;
    for path in [
        "/dashboard/",
        "/dashboard/nothing.js",
        "/dashboard/index.html",
        "/dashboard/../dashboard.rs",
        "/dashboard/%2e%2e/dashboard.rs",
        "/dashboard/vendor",
        "/dashboard/vendor/",
        "/dashboard/vendor/README.md",
        "/dashboard/vendor%2Fpreact.js",
        "/dashboard/vendor/preact.js/",
        "/dashboard/app.js/",
    ] {
        let answer = ask(&app, Method::GET, path, None).await;
        answer.problem(404, "not-found");
    }
    for method in [Method::POST, Method::PUT, Method::DELETE] {
        for path in ["/dashboard", "/dashboard/app.js"] {
            let answer = ask(&app, method.clone(), path, None).await;
            let answer = answer.problem(405, "method-not-allowed");
            assert_eq!(answer.header("allow"), Some("GET,HEAD"));
        }
    }
}
