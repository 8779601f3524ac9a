//! The layer in front of a service, by way of the client's example.

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use quotalog_client::{Ask, Policy, QuotaLayer};
use tokio::net::TcpListener;

use super::{ADMIN, Client, Duration, Server, Site, counted};
use crate::support::answer::Answer;
use crate::support::server::Connection;

#[path = "../../../../quotalog-client/examples/gate.rs"]
#[expect(dead_code, reason = "its main asks for a port and variables")]
mod example;

/// Serves a router on a port of its own.
async fn serve(app: axum::Router) -> Connection {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    Connection::open(address).await.unwrap()
}

async fn get(connection: &mut Connection, user: &str, kind: &str) -> Answer {
    let request = Request::builder().uri("/").header("host", "localhost");
    let request = request.header("x-user", user).header("content-type", kind);
    let request = request.body(Full::new(Bytes::new())).unwrap();
    connection.send(request).await.unwrap()
}

fn url(server: &Server) -> String {
    format!("http://{}", server.address)
}

#[tokio::test]
async fn the_example_counts_its_requests_and_refuses_what_does_not_fit() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    let client = example::client(&url(&server), ADMIN).unwrap();
    let client = client.with_deadline(Duration::from_secs(30));
    client
        .set_policy("alice", "api-calls", Policy::daily(2))
        .send()
        .await
        .unwrap();
    let mut gate = serve(example::app(client)).await;

    for left in [1, 0] {
        let answer = get(&mut gate, "alice", "text/plain").await.is(200);
        let hello = format!("hello alice, {left} left\n");
        assert_eq!(answer.body, hello.as_bytes());
        assert_eq!(
            answer.header("x-ratelimit-remaining"),
            Some(&*left.to_string())
        );
        assert!(answer.header("ratelimit").is_some());
    }
    let answer = get(&mut gate, "alice", "text/plain").await;
    assert_eq!(answer.status, 429);
    let problem = answer.json();
    let kind = problem["type"].as_str().unwrap();
    assert!(kind.ends_with("#quota-exceeded"), "{kind}");
    assert_eq!(problem["violated-policies"][0], "daily");
    for name in [
        "ratelimit",
        "ratelimit-policy",
        "x-ratelimit-limit",
        "x-ratelimit-reset",
    ] {
        assert!(answer.header(name).is_some(), "{name}");
    }
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&wait));
    assert_eq!(counted(&site, "alice", "api-calls"), 2);

    // A remote procedure call is told in its own words, and its status is that of the transport.
    let answer = get(&mut gate, "alice", "application/grpc+proto").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("grpc-status"), Some("8"));
    assert_eq!(answer.header("content-type"), Some("application/grpc"));
    assert!(
        answer
            .header("grpc-message")
            .unwrap()
            .contains("Try again in")
    );
    assert!(answer.body.is_empty());

    let refused = get(&mut gate, "bob", "text/plain").await;
    assert_eq!(refused.status, 403);
    let refused = get(&mut gate, "b/b", "text/plain").await;
    assert_eq!(refused.status, 400);

    // It fails open.
    server.kill();
    let answer = get(&mut gate, "alice", "text/plain").await.is(200);
    assert_eq!(answer.body, "hello, whoever you are\n".as_bytes());
}

#[tokio::test]
async fn a_gate_that_fails_closed_is_unavailable_without_its_server() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    let app = |token: &str, passes: bool| {
        let client = Client::builder(url(&server)).token(token).attempts_max(2);
        let layer = QuotaLayer::new(client.build().unwrap(), |request| {
            let user = request.headers.get("x-user")?.to_str().ok()?;
            let ask = Ask::new(user, "r").amount(2).idempotency_key("same");
            (user != "nobody").then_some(ask)
        });
        let layer = if passes {
            layer.pass_without_policy()
        } else {
            layer
        };
        let hello = axum::routing::get(async || ([("x-ratelimit-limit", "own")], "hello"));
        axum::Router::new().route("/", hello).layer(layer)
    };
    let mut gate = serve(app(ADMIN, false)).await;
    let mut passing = serve(app(ADMIN, true)).await;
    let mut stranger = serve(app("wrong", true)).await;
    server.set("/quotas/u/r", "daily", 2).await;
    for _ in 0..2 {
        let answer = get(&mut gate, "u", "text/plain").await.is(200);
        assert_eq!(answer.header("x-ratelimit-limit"), Some("own"));
        assert_eq!(answer.header("x-ratelimit-remaining"), Some("0"));
    }
    assert_eq!(counted(&site, "u", "r"), 2);
    assert_eq!(get(&mut gate, "v", "text/plain").await.status, 403);
    get(&mut passing, "v", "text/plain").await.is(200);
    assert_eq!(get(&mut stranger, "u", "text/plain").await.status, 500);

    server.kill();
    let answer = get(&mut gate, "u", "text/plain").await;
    assert_eq!(answer.status, 503);
    assert!(answer.header("retry-after").is_some());
    let answer = get(&mut gate, "u", "application/grpc").await;
    assert_eq!(answer.header("grpc-status"), Some("14"));
    get(&mut gate, "nobody", "text/plain").await.is(200);
}
