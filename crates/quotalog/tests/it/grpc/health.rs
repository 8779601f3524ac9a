//! The health service, and the end of the server for those who watch it.

use quotalog_testkit::Fault;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus::{self, NotServing, Serving};
use tonic_health::pb::health_client::HealthClient;

use crate::support::app::TestApp;
use crate::support::rls::{Rls, Service, serve};

async fn client(service: &Service) -> HealthClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", service.address)).unwrap();
    HealthClient::new(endpoint.connect().await.unwrap())
}

async fn check(client: &mut HealthClient<Channel>, name: &str) -> Result<ServingStatus, Code> {
    let request = HealthCheckRequest {
        service: name.to_owned(),
    };
    let answer = client.check(request).await;
    answer
        .map(|answer| answer.into_inner().status())
        .map_err(|status| status.code())
}

#[tokio::test]
async fn health_is_whether_the_store_answers_and_needs_no_token() {
    let (app, store) = TestApp::faulty().await;
    let service = serve(&app).await;
    let mut client = client(&service).await;
    const NAME: &str = "envoy.service.ratelimit.v3.RateLimitService";
    for name in ["", NAME] {
        assert_eq!(check(&mut client, name).await, Ok(Serving));
    }
    assert_eq!(check(&mut client, "other").await, Err(Code::NotFound));
    store.fail_always(Fault::RolledBack);
    assert_eq!(check(&mut client, NAME).await, Ok(NotServing));
    store.mend();
    assert_eq!(check(&mut client, NAME).await, Ok(Serving));
    app.draining.start();
    assert_eq!(check(&mut client, "").await, Ok(NotServing));
}

#[tokio::test]
async fn who_watches_is_told_of_each_change_and_of_the_end() {
    let (app, store) = TestApp::faulty().await;
    let service = serve(&app).await;
    let mut client = client(&service).await;
    let watching = client.watch(HealthCheckRequest::default()).await;
    let mut watching = watching.unwrap().into_inner();
    let mut next = async || {
        let told = watching.message().await.unwrap();
        told.map(|told| told.status())
    };
    let mut first = next().await;
    if first == Some(NotServing) {
        // It came before the store was first asked.
        first = next().await;
    }
    assert_eq!(first, Some(Serving));
    store.fail_always(Fault::RolledBack);
    assert_eq!(next().await, Some(NotServing));
    store.mend();
    assert_eq!(next().await, Some(Serving));

    app.draining.start();
    assert_eq!(next().await, Some(NotServing));
    assert_eq!(next().await, None);
    // Nobody who watches holds the end of the server up.
    drop(service.running);
    assert_eq!(service.ended.await.unwrap(), 0);
}

#[tokio::test]
async fn a_server_that_is_about_to_stop_still_answers_calls() {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    let service = serve(&app).await;
    let rls = Rls::connect(service.address, &app.admin).await;
    app.draining.start();
    rls.ask(&[("u", "r")]).await;
    assert_eq!(app.check().await.usage(), 1);
}
