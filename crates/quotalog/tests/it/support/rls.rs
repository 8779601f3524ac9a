//! A client of the rate-limit service, and the service over a test's ledger.

use std::net::SocketAddr;
use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code as Verdict;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf::UInt64Value;
use quotalog_front::Admission;
use quotalog_grpc::{Keys, Metrics};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::app::TestApp;

/// A client with a token, on a connection of its own.
#[derive(Clone)]
pub(crate) struct Rls {
    client: RateLimitServiceClient<Channel>,
    token: String,
}

/// The service on a port of its own, over the ledger of a [`TestApp`].
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    pub(crate) ended: JoinHandle<usize>,
    /// Its end tells the service to stop.
    pub(crate) running: oneshot::Sender<()>,
}

/// Serves with the standard keys.
pub(crate) async fn serve(app: &TestApp) -> Service {
    serve_with(app, Keys::default()).await
}

pub(crate) async fn serve_with(app: &TestApp, keys: Keys) -> Service {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = quotalog_grpc::router(quotalog_grpc::App {
        ledger: app.ledger.clone(),
        draining: app.draining.clone(),
        authentication: app.authentication(),
        admission: Admission::new(1_024),
        keys,
        metrics: Metrics::new(),
    });
    let (running, stopped) = oneshot::channel();
    let shutdown = async {
        let _dropped = stopped.await;
    };
    let ended = tokio::spawn(quotalog_http::serve(listener, router, settings(), shutdown));
    Service {
        address,
        ended,
        running,
    }
}

/// As a server treats its connections by default, without TLS.
pub(crate) fn settings() -> quotalog_http::Settings {
    quotalog_http::Settings {
        tls: None,
        head_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(75),
        connections_max: 1_000,
        drain_deadline: Duration::from_secs(30),
    }
}

/// A descriptor of these entries.
pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entries = entries.iter().map(|(key, value)| Entry {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    });
    RateLimitDescriptor {
        entries: entries.collect(),
        ..RateLimitDescriptor::default()
    }
}

/// The descriptor of a pair.
pub(crate) fn of_pair(user_id: &str, resource: &str) -> RateLimitDescriptor {
    descriptor(&[("user_id", user_id), ("resource", resource)])
}

/// A descriptor with an addend of its own.
pub(crate) fn with_addend(descriptor: RateLimitDescriptor, units: u64) -> RateLimitDescriptor {
    RateLimitDescriptor {
        hits_addend: Some(UInt64Value { value: units }),
        ..descriptor
    }
}

/// A call of the domain `test`.
pub(crate) fn call(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest {
        domain: "test".to_owned(),
        descriptors,
        hits_addend: 0,
    }
}

pub(crate) fn bearer(token: &str) -> MetadataValue<Ascii> {
    format!("Bearer {token}").parse().unwrap()
}

impl Rls {
    pub(crate) async fn connect(address: SocketAddr, token: &str) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        Self::over(endpoint.connect().await.unwrap(), token)
    }

    pub(crate) fn over(channel: Channel, token: &str) -> Self {
        Self {
            client: RateLimitServiceClient::new(channel),
            token: token.to_owned(),
        }
    }

    pub(crate) async fn send(
        &self,
        request: RateLimitRequest,
    ) -> Result<RateLimitResponse, Status> {
        let mut request = Request::new(request);
        let metadata = request.metadata_mut();
        metadata.insert("authorization", bearer(&self.token));
        self.send_as_it_is(request).await
    }

    pub(crate) async fn send_as_it_is(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<RateLimitResponse, Status> {
        let answer = self.client.clone().should_rate_limit(request).await;
        answer.map(tonic::Response::into_inner)
    }

    /// One unit of each pair; the verdict in all, and those on each.
    pub(crate) async fn ask(&self, pairs: &[(&str, &str)]) -> (Verdict, Vec<Verdict>) {
        let pairs = pairs
            .iter()
            .map(|(user_id, resource)| of_pair(user_id, resource));
        verdicts(&self.send(call(pairs.collect())).await.unwrap())
    }
}

pub(crate) fn verdicts(response: &RateLimitResponse) -> (Verdict, Vec<Verdict>) {
    let statuses = response.statuses.iter().map(|status| status.code());
    (response.overall_code(), statuses.collect())
}

/// The values of a header that the client of the proxy is to get.
pub(crate) fn header<'a>(response: &'a RateLimitResponse, name: &str) -> Vec<&'a str> {
    let headers = response.response_headers_to_add.iter();
    let values = headers.filter(|header| header.key == name);
    values.map(|header| header.value.as_str()).collect()
}
