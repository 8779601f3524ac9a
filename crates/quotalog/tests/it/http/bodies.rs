//! Bodies: strict JSON, or none at all.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use hyper::Method;

use crate::support::answer::Answer;
use crate::support::app::TestApp;

const CONSUME: &str = "/quotas/u/r/consume";
const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// Posts a consume with just these fields.
async fn consume(app: &TestApp, fields: &[(&str, &str)], body: impl Into<Body>) -> Answer {
    let mut request = app.request(Method::POST, CONSUME);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    app.send(request.body(body.into()).unwrap()).await
}

/// A body whose length is not known beforehand.
fn chunked(chunks: &[&'static str]) -> Body {
    let chunks: Vec<_> = chunks
        .iter()
        .map(|chunk| Bytes::from_static(chunk.as_bytes()))
        .collect();
    Body::new(Chunks(chunks.into()))
}

struct Chunks(std::collections::VecDeque<Bytes>);

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        std::task::Poll::Ready(self.0.pop_front().map(hyper::body::Frame::data).map(Ok))
    }
}

#[tokio::test]
async fn no_bytes_are_no_body_and_an_empty_object_means_the_same() {
    let app = TestApp::new().await;
    app.policy("hourly", 100).await;
    let text: &[(&str, &str)] = &[("content-type", "text/plain")];
    let no_length: &[(&str, &str)] = &[("content-length", "0")];
    let mut usage = 0;
    for fields in [&[], JSON, text, no_length] {
        for body in [Body::empty(), chunked(&[]), chunked(&["", ""])] {
            usage += 1;
            assert_eq!(consume(&app, fields, body).await.is(200).usage(), usage);
        }
    }
    for body in ["{}", " { } ", "{}\n", "{\"amount\":1}"] {
        usage += 1;
        assert_eq!(consume(&app, JSON, body).await.is(200).usage(), usage);
    }
    let in_two = consume(&app, JSON, chunked(&["{\"amo", "unt\":2}"])).await;
    assert_eq!(in_two.is(200).usage(), usage + 2);
    let reset = app.post("/quotas/u/r/reset", "{}").await.is(200);
    assert_eq!(reset.usage(), 0);
}

#[tokio::test]
async fn a_body_is_application_json() {
    let app = TestApp::new().await;
    app.policy("hourly", 100).await;
    for media_type in [
        "application/json",
        "APPLICATION/JSON",
        "application/json; charset=utf-8",
        "Application/Json;charset=\"UTF-8\";v=1",
    ] {
        let fields = [("content-type", media_type)];
        consume(&app, &fields, "{}").await.is(200);
    }
    let usage = app.check().await.usage();
    for media_type in [
        "text/plain",
        "text/json",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "application/ld+json",
        "application/json, text/plain",
        "",
    ] {
        let fields = [("content-type", media_type)];
        for body in ["{}", "{\"amount\":1}", " "] {
            let answer = consume(&app, &fields, body).await;
            answer.problem(415, "unsupported-media-type");
        }
    }
    let unsound: [&[(&str, &str)]; 3] = [
        &[],
        &[JSON[0], ("content-type", "application/json")],
        &[JSON[0], ("content-encoding", "gzip")],
    ];
    for fields in unsound {
        let answer = consume(&app, fields, "{}").await;
        answer.problem(415, "unsupported-media-type");
    }
    let put = app.request(Method::PUT, "/quotas/u/r");
    let put = put.body(Body::from(r#"{"window":"daily","limit_count":1}"#));
    let answer = app.send(put.unwrap()).await;
    answer.problem(415, "unsupported-media-type");
    let check = app.check().await;
    assert_eq!(
        (check.usage(), check.json()["window"] == "hourly"),
        (usage, true)
    );
}

/// C37: what is not JSON text in UTF-8, or could be read in two ways.
#[tokio::test]
async fn c37_what_is_no_sound_object_is_malformed() {
    let app = TestApp::new().await;
    app.policy("hourly", 100).await;
    let utf_16: Vec<u8> = "{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let utf_16_with_mark = [&b"\xff\xfe"[..], &utf_16].concat();
    let deep = format!("{{\"amount\":{}{}}}", "[".repeat(7_000), "]".repeat(7_000));
    let bodies: [&[u8]; 24] = [
        b" ",
        b"\r\n\t ",
        b"\xef\xbb\xbf{}",
        b"{\"amount\":\"\xff\"}",
        b"{\"amount\":1}\xc3",
        &utf_16,
        &utf_16_with_mark,
        br#"{"amount":"\ud800"}"#,
        br#"{"\udc00":1}"#,
        br#"{"amount":1,"amount":1}"#,
        br#"{"amount":1,"\u0061mount":2}"#,
        b"{\"amount\":1",
        b"{\"amount\":1,}",
        b"{amount:1}",
        b"{'amount':1}",
        b"{} {}",
        b"{}x",
        b"\0",
        b"null",
        b"[]",
        b"7",
        b"\"{}\"",
        b"amount=1",
        deep.as_bytes(),
    ];
    for body in bodies {
        let text = String::from_utf8_lossy(body).into_owned();
        let answer = consume(&app, JSON, Body::from(body.to_vec())).await;
        assert_eq!(answer.status, 400, "{text}");
        answer.problem(400, "malformed-request");
        for path in ["/quotas/u/r", "/quotas/u/r/reset", "/tokens"] {
            let method = if path == "/quotas/u/r" {
                Method::PUT
            } else {
                Method::POST
            };
            let request = app.request(method, path);
            let request = request.header("content-type", "application/json");
            let answer = app
                .send(request.body(Body::from(body.to_vec())).unwrap())
                .await;
            answer.problem(400, "malformed-request");
        }
    }
    assert_eq!(app.check().await.usage(), 0);
}

/// C43 and C44: nothing is bent into an integer or a window, and all faults are told at once.
#[tokio::test]
async fn c43_c44_types_are_strict() {
    let app = TestApp::new().await;
    app.policy("hourly", 7).await;
    let not_integers = [
        "\"5\"",
        "true",
        "false",
        "[5]",
        "{}",
        "null",
        "5.5",
        "9.9",
        "1.0",
        "5.0",
        "5e0",
        "1e3",
        "1E400",
        "-0",
        "0",
        "-1",
        "-5.0",
        "-99999999999999999999",
        "\"\"",
    ];
    for number in not_integers {
        let body = format!(r#"{{"window":"hourly","limit_count":{number}}}"#);
        let answer = app.put("/quotas/u/r", &body).await;
        answer.faults(&["limit_count invalid"]);
        let answer = app
            .post(CONSUME, &format!(r#"{{"amount":{number}}}"#))
            .await;
        answer.faults(&["amount invalid"]);
    }
    for number in ["1000001", "99999999999999999999", "18446744073709551617"] {
        let body = format!(r#"{{"window":"hourly","limit_count":{number}}}"#);
        let answer = app.put("/quotas/u/r", &body).await;
        answer.faults(&["limit_count too_large"]);
        let answer = app
            .post(CONSUME, &format!(r#"{{"amount":{number}}}"#))
            .await;
        answer.faults(&["amount too_large"]);
    }
    for number in [
        "05", "+5", "0x5", "NaN", "5.", ".5", "-", "1e", "Infinity", "1_000",
    ] {
        let body = format!(r#"{{"window":"hourly","limit_count":{number}}}"#);
        let answer = app.put("/quotas/u/r", &body).await;
        answer.problem(400, "malformed-request");
        let answer = app
            .post(CONSUME, &format!(r#"{{"amount":{number}}}"#))
            .await;
        answer.problem(400, "malformed-request");
    }
    for limit in [1, 1_000_000] {
        assert_eq!(
            app.policy("daily", limit).await.json()["limit_count"],
            limit
        );
    }
    assert_eq!(app.check().await.usage(), 0);
}

#[tokio::test]
async fn c43_a_window_is_read_exactly() {
    let app = TestApp::new().await;
    app.policy("daily", 7).await;
    for window in [
        "\"Hourly\"",
        "\" hourly\"",
        "\"weekly\"",
        "\"\"",
        "null",
        "1",
        "[]",
    ] {
        let body = format!(r#"{{"window":{window},"limit_count":5}}"#);
        let answer = app.put("/quotas/u/r", &body).await;
        answer.faults(&["window invalid"]);
    }
    assert_eq!(app.check().await.json()["window"], "daily");
}

#[tokio::test]
async fn c43_all_faults_are_told_at_once() {
    let app = TestApp::new().await;
    let both = ["window invalid", "limit_count invalid"];
    for body in ["", "{}"] {
        app.put("/quotas/u/r", body).await.faults(&both);
    }
    app.put("/quotas/u/r", r#"{"window":"hourly"}"#)
        .await
        .faults(&["limit_count invalid"]);
    app.put("/quotas/u/r", r#"{"limit_count":1}"#)
        .await
        .faults(&["window invalid"]);
    let answer = app
        .put(
            "/quotas/u/%00",
            r#"{"window":1,"limit_count":1000001,"x":1,"y":2}"#,
        )
        .await
        .faults(&[
            "resource invalid",
            "window invalid",
            "limit_count too_large",
            "x unknown_field",
            "y unknown_field",
        ]);
    for error in answer.json()["errors"].as_array().unwrap() {
        assert_eq!(error.as_object().unwrap().len(), 3);
    }
    let answer = app
        .keyed("/quotas/u/%00/consume", "a b", r#"{"amount":0,"x":1}"#)
        .await;
    answer.faults(&[
        "resource invalid",
        "amount invalid",
        "x unknown_field",
        "Idempotency-Key invalid",
    ]);
}

/// C45: a misspelt field is never one unit by accident.
#[tokio::test]
async fn c45_an_unknown_field_is_refused() {
    let app = TestApp::new().await;
    app.policy("daily", 100).await;
    app.post(CONSUME, r#"{"amout":50}"#)
        .await
        .faults(&["amout unknown_field"]);
    app.post(CONSUME, r#"{"amount":5,"Amount":5}"#)
        .await
        .faults(&["Amount unknown_field"]);
    app.put(
        "/quotas/u/r",
        r#"{"window":"daily","limit_count":5,"limitcount":9}"#,
    )
    .await
    .faults(&["limitcount unknown_field"]);
    app.post("/quotas/u/r/reset", r#"{"amount":1}"#)
        .await
        .faults(&["amount unknown_field"]);
    app.post("/tokens", r#"{"role":"viewer","admin":true}"#)
        .await
        .faults(&["admin unknown_field"]);
    let check = app.check().await;
    assert_eq!((check.usage(), check.remaining()), (0, 100));
}

/// C47: a body of 16 KiB is read, one of a byte more is not.
#[tokio::test]
async fn c47_a_body_is_at_most_16_kib() {
    let app = TestApp::new().await;
    app.policy("hourly", 100).await;
    let padded = |len: usize| format!("{{\"amount\":1{}}}", " ".repeat(len - 12));
    app.post(CONSUME, &padded(16 * 1024)).await.is(200);
    let rounds = [16 * 1024 + 1, 3 * 1024 * 1024, 9 * 1024 * 1024];
    for len in rounds {
        let answer = app.post(CONSUME, &padded(len)).await;
        answer.problem(413, "content-too-large");
        for path in ["/quotas/u/r/reset", "/quotas/u/r/refund", "/tokens"] {
            let answer = app.post(path, &padded(len)).await;
            answer.problem(413, "content-too-large");
        }
        let answer = app.put("/quotas/u/r", &padded(len)).await;
        answer.problem(413, "content-too-large");
        assert_eq!(app.check().await.usage(), 1);
    }
    let request = app.request(Method::POST, CONSUME);
    let request = request.header("content-type", "application/json");
    let mut chunks = vec!["                "; 1024];
    chunks.push("{}");
    let answer = app.send(request.body(chunked(&chunks)).unwrap()).await;
    answer.problem(413, "content-too-large");
}
