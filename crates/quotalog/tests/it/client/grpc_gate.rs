//! The layer in front of a service of tonic, asked by a real client of gRPC.

use quotalog_client::{Ask, QuotaLayer};
use tokio::net::TcpListener;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::{ADMIN, Client, Duration, Server, Site, builder, counted};
use crate::support::rls::settings;

/// Serves the health service, which counts for whom `x-user` names, and connects to it.
async fn gate(client: Client) -> HealthClient<Channel> {
    let layer = QuotaLayer::new(client, |request| {
        let user = request.headers.get("x-user")?.to_str().ok()?;
        Some(Ask::new(user, "checks"))
    });
    let (_reporter, health) = tonic_health::server::health_reporter();
    let router = axum::Router::new().route_service("/grpc.health.v1.Health/{*method}", health);
    let router = router.layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let never = std::future::pending();
    tokio::spawn(quotalog_http::serve(listener, router, settings(), never));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    HealthClient::new(endpoint.connect().await.unwrap())
}

async fn check(
    health: &mut HealthClient<Channel>,
    user: &'static str,
) -> Result<Response<HealthCheckResponse>, Status> {
    let mut request = Request::new(HealthCheckRequest::default());
    let user = user.parse().unwrap();
    request.metadata_mut().insert("x-user", user);
    health.check(request).await
}

fn closed(server: &Server) -> Client {
    builder(server.address).attempts_max(2).build().unwrap()
}

#[tokio::test]
async fn a_call_counts_and_one_too_many_is_told_so_in_the_words_of_grpc() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    server.set("/quotas/alice/checks", "daily", 2).await;
    let mut health = gate(closed(&server)).await;
    for left in ["1", "0"] {
        let answer = check(&mut health, "alice").await.unwrap();
        let metadata = answer.metadata();
        assert_eq!(metadata.get("x-ratelimit-remaining").unwrap(), left);
        let policy = metadata.get("ratelimit-policy").unwrap();
        assert_eq!(policy, "\"daily\";q=2;w=86400");
        assert_eq!(answer.into_inner().status(), ServingStatus::Serving);
    }
    let denied = check(&mut health, "alice").await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);
    let metadata = denied.metadata();
    let wait = metadata.get("retry-after").unwrap().to_str().unwrap();
    assert_eq!(denied.message(), format!("Try again in {wait} s."));
    let left = format!("\"daily\";r=0;t={wait}");
    assert_eq!(metadata.get("ratelimit").unwrap(), left.as_str());
    assert_eq!(counted(&site, "alice", "checks"), 2);

    // What the service refuses itself is still its own word, and has been counted.
    server.set("/quotas/alice/checks", "daily", 3).await;
    let mut request = Request::new(HealthCheckRequest {
        service: "unknown".to_owned(),
    });
    request
        .metadata_mut()
        .insert("x-user", "alice".parse().unwrap());
    let refused = health.check(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    assert_eq!(counted(&site, "alice", "checks"), 3);

    let stranger = check(&mut health, "bob").await.unwrap_err();
    assert_eq!(stranger.code(), Code::PermissionDenied);
    let unfit = check(&mut health, "b/b").await.unwrap_err();
    assert_eq!(unfit.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn without_its_server_a_call_is_unavailable_or_gets_through_as_was_chosen() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    server.set("/quotas/alice/checks", "daily", 1).await;
    let mut closed_gate = gate(closed(&server)).await;
    let open = Client::builder(format!("http://{}", server.address)).token(ADMIN);
    let open = open.deadline(Duration::from_millis(500));
    let open = open.on_outage(quotalog_client::OnOutage::FailOpen);
    let mut open_gate = gate(open.build().unwrap()).await;
    check(&mut closed_gate, "alice").await.unwrap();
    server.kill();
    let refused = check(&mut closed_gate, "alice").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.metadata().get("retry-after").is_some());
    let passed = check(&mut open_gate, "alice").await.unwrap();
    assert!(passed.metadata().get("ratelimit").is_none());
}
