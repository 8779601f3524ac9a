//! What is refused, to whom, and with which code: never UNKNOWN.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code::{Ok, OverLimit};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{HeaderMap, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use quotalog_auth::Role;
use quotalog_domain::UserId;
use quotalog_testkit::Fault;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Code;

use crate::support::app::TestApp;
use crate::support::log::Log;
use crate::support::rls::{
    Rls, Service, bearer, call, descriptor, of_pair, serve, verdicts, with_addend,
};

const HEALTH: &str = "/grpc.health.v1.Health/Check";
const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

async fn start() -> (TestApp, Service, Rls) {
    let app = TestApp::new().await;
    app.policy("hourly", 5).await;
    let service = serve(&app).await;
    let rls = Rls::connect(service.address, &app.admin).await;
    (app, service, rls)
}

async fn is_told(rls: &Rls, request: RateLimitRequest, message: &str) {
    let status = rls.send(request).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::InvalidArgument, message)
    );
}

fn of_one(entries: &[(&str, &str)]) -> RateLimitRequest {
    call(vec![descriptor(entries)])
}

#[tokio::test]
async fn a_call_without_domain_or_descriptors_is_told_so() {
    let (app, _service, rls) = start().await;
    let (no_domain, empty) = (
        "domain must not be empty.",
        "descriptors must not be empty.",
    );
    let in_domain = |domain: &str, descriptors| RateLimitRequest {
        domain: domain.to_owned(),
        ..call(descriptors)
    };
    let u_r = || of_pair("u", "r");
    is_told(&rls, call(vec![]), empty).await;
    is_told(&rls, in_domain("", vec![u_r()]), no_domain).await;
    let both = format!("{no_domain} {empty}");
    is_told(&rls, RateLimitRequest::default(), &both).await;
    let many = "descriptors must not be more than 100.";
    is_told(&rls, call(vec![u_r(); 101]), many).await;

    let bad = "descriptors[0]: resource, the domain, must not contain a \"/\".";
    let user_alone = descriptor(&[("user_id", "u")]);
    is_told(&rls, in_domain("a/b", vec![user_alone]), bad).await;
    // It is no resource where no descriptor needs it as one.
    let needless = rls.send(in_domain("a/b", vec![of_pair("v", "r")])).await;
    assert_eq!(verdicts(&needless.unwrap()).0, Ok);
    assert_eq!(app.check().await.usage(), 0);
}

#[tokio::test]
async fn a_descriptor_that_names_no_pair_is_told_so() {
    let (app, _service, rls) = start().await;
    let no_user = "descriptors[0] must have an entry user_id.";
    is_told(&rls, of_one(&[]), no_user).await;
    is_told(&rls, of_one(&[("resource", "r")]), no_user).await;
    let twice = "descriptors[0] must not have an entry user_id twice.";
    is_told(&rls, of_one(&[("user_id", "u"), ("user_id", "u")]), twice).await;
    let (empty, long) = (("user_id", ""), "x".repeat(256));
    let both = "descriptors[0]: user_id must not be empty. \
                descriptors[0]: resource must not exceed 255 bytes of UTF-8.";
    is_told(&rls, of_one(&[empty, ("resource", &long)]), both).await;
    for id in ["a/b", "..", "a\nb"] {
        let status = rls.send(of_one(&[("user_id", id)])).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{id:?}");
        let message = status.message();
        assert!(message.starts_with("descriptors[0]: user_id must not"));
    }
    // All of a hundred faults would be more than a header may hold.
    let status = rls.send(call(vec![descriptor(&[]); 100])).await;
    let status = status.unwrap_err();
    assert!(status.message().ends_with("And 90 more."), "{status}");
    assert_eq!(app.check().await.usage(), 0);
}

#[tokio::test]
async fn an_addend_that_is_none_is_told_so() {
    let (app, _service, rls) = start().await;
    let u_r = || of_pair("u", "r");
    for units in [1_000_001, u64::MAX] {
        let second = call(vec![u_r(), with_addend(u_r(), units)]);
        let message = "descriptors[1]: hits_addend must not exceed 1000000.";
        is_told(&rls, second, message).await;
    }
    for units in [1_000_001, u32::MAX] {
        let of_call = RateLimitRequest {
            hits_addend: units,
            ..call(vec![u_r()])
        };
        is_told(&rls, of_call, "hits_addend must not exceed 1000000.").await;
    }
    let negative = RateLimitDescriptor {
        is_negative_hits: true,
        ..u_r()
    };
    let message = "descriptors[0]: is_negative_hits must not be set.";
    is_told(&rls, call(vec![negative]), message).await;
    assert_eq!(app.check().await.usage(), 0);
}

#[tokio::test]
async fn only_an_admin_and_a_service_may_ask() {
    let (app, service, _rls) = start().await;
    let alice = Role::User(UserId::try_from("u").unwrap());
    for (role, code) in [
        (Role::Admin, None),
        (Role::Service, None),
        (Role::Viewer, Some(Code::PermissionDenied)),
        (alice, Some(Code::PermissionDenied)),
    ] {
        let token = app.token(role.clone()).await;
        let rls = Rls::connect(service.address, &token).await;
        let answer = rls.send(call(vec![of_pair("u", "r")])).await;
        assert_eq!(answer.err().map(|status| status.code()), code, "{role:?}");
        // Before anything of the message.
        let answer = rls.send(RateLimitRequest::default()).await.unwrap_err();
        assert_eq!(answer.code(), code.unwrap_or(Code::InvalidArgument));
    }
    assert_eq!(app.check().await.usage(), 2);
}

#[tokio::test]
async fn a_token_that_does_not_hold_is_refused_before_all_else() {
    let (app, service, rls) = start().await;
    let sent = async |authorizations: &[&str]| {
        let mut request = tonic::Request::new(RateLimitRequest::default());
        for line in authorizations {
            let metadata = request.metadata_mut();
            metadata.append("authorization", line.parse().unwrap());
        }
        rls.send_as_it_is(request).await.unwrap_err().code()
    };
    let admin = format!("Bearer {}", app.admin);
    assert_eq!(sent(&[]).await, Code::Unauthenticated);
    assert_eq!(sent(&["Bearer wrong"]).await, Code::Unauthenticated);
    assert_eq!(sent(&[&admin, &admin]).await, Code::Unauthenticated);
    assert_eq!(sent(&[&app.admin]).await, Code::Unauthenticated);
    assert_eq!(sent(&[&admin]).await, Code::InvalidArgument);
    let any_case = admin.replace("Bearer", "bEARER");
    assert_eq!(sent(&[&any_case]).await, Code::InvalidArgument);

    for role in [Role::Service, Role::Viewer] {
        let (token, id) = app.token_with_id(role, None).await;
        let rls = Rls::connect(service.address, &token).await;
        // Now it is remembered.
        let _known = rls.send(call(vec![of_pair("u", "r")])).await;
        app.revoke(id).await;
        for request in [call(vec![of_pair("u", "r")]), RateLimitRequest::default()] {
            let status = rls.send(request).await.unwrap_err();
            assert_eq!(status.code(), Code::Unauthenticated);
        }
    }
    assert_eq!(app.check().await.usage(), 1);
}

/// Sends bytes as the message of a call, and returns the status of the answer's head or of its trailers.
async fn raw(service: &Service, path: &str, token: &str, body: &[u8]) -> Code {
    let stream = TcpStream::connect(service.address).await.unwrap();
    let (mut sender, speaking) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(speaking);
    let request = Request::post(format!("http://{}{path}", service.address))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", bearer(token).to_str().unwrap())
        .body(Full::new(Bytes::copy_from_slice(body)))
        .unwrap();
    let (head, body) = sender.send_request(request).await.unwrap().into_parts();
    assert_eq!(head.status, 200);
    let trailers = body.collect().await.unwrap().trailers().cloned();
    let code = |headers: &HeaderMap| {
        let code = headers.get("grpc-status")?;
        Some(Code::from_bytes(code.as_bytes()))
    };
    let code = code(&head.headers).or_else(|| code(&trailers?));
    code.expect("a call ends with a code")
}

#[tokio::test]
async fn what_is_no_call_has_a_code_all_the_same() {
    let (app, service, _rls) = start().await;
    let admin = &*app.admin;
    // An entry as a proxy sends it for a header in Latin-1: of domain `d`, with `user_id` \xe9 and `resource` r.
    let not_utf8 = b"\n\x01d\x12\x1d\n\x0c\n\x07user_id\x12\x01\xe9\n\r\n\x08resource\x12\x01r";
    let not_utf8 = [
        &[0, 0, 0, 0, u8::try_from(not_utf8.len()).unwrap()][..],
        not_utf8,
    ]
    .concat();
    let too_large = [&[0_u8, 0, 2, 0, 1][..], &[0; 131_073]].concat();
    for (path, body, code) in [
        (METHOD, &b""[..], Code::InvalidArgument),
        (METHOD, b"\0\0\0\0\x09cut", Code::InvalidArgument),
        (METHOD, b"\0\0\0\0\x03\xff\xff\xff", Code::InvalidArgument),
        (METHOD, &not_utf8, Code::InvalidArgument),
        // Compressed, which was not agreed on.
        (METHOD, b"\x01\0\0\0\x00", Code::InvalidArgument),
        (METHOD, &too_large, Code::ResourceExhausted),
        (HEALTH, b"\0\0\0\0\x03\xff\xff\xff", Code::InvalidArgument),
        (HEALTH, &too_large, Code::ResourceExhausted),
        // An empty message is one, of no domain and no descriptor.
        (METHOD, b"\0\0\0\0\0", Code::InvalidArgument),
        (
            "/envoy.service.ratelimit.v3.RateLimitService/Other",
            b"",
            Code::Unimplemented,
        ),
        (
            "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit",
            b"",
            Code::Unimplemented,
        ),
        ("/", b"", Code::Unimplemented),
    ] {
        let case = format!("{path} {} bytes", body.len());
        assert_eq!(raw(&service, path, admin, body).await, code, "{case}");
        if path == METHOD {
            let refused = raw(&service, path, "wrong", body).await;
            assert_eq!(refused, Code::Unauthenticated, "{case}");
        }
    }
    assert_eq!(app.check().await.usage(), 0);
}

#[tokio::test]
async fn http_1_is_told_that_it_is_the_wrong_port_and_harms_nobody() {
    let (_app, service, rls) = start().await;
    for request in [
        format!("POST {METHOD} HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"),
        "GET / HTTP/1.0\r\n\r\n".to_owned(),
    ] {
        let mut client = TcpStream::connect(service.address).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        // And the connection is at its end.
        let status = answer.split_whitespace().nth(1);
        assert_eq!(status, Some("505"), "{answer}");
    }
    assert_eq!(rls.ask(&[("u", "r")]).await.0, Ok);
}

#[tokio::test]
async fn a_store_that_fails_is_never_a_verdict() {
    let log = Log::start();
    let (app, store) = TestApp::faulty().await;
    app.policy("hourly", 5).await;
    let service = serve(&app).await;
    let rls = Rls::connect(service.address, &app.admin).await;
    assert_eq!(rls.ask(&[("u", "r")]).await.0, Ok);
    for (fault, code) in [
        (Fault::RolledBack, Code::Unavailable),
        (Fault::LostBeforeCommit, Code::Unavailable),
        (Fault::LostAfterCommit, Code::Unavailable),
        (Fault::Internal, Code::Internal),
    ] {
        store.fail_nth(1, fault);
        let answer = rls.send(call(vec![of_pair("u", "r")])).await;
        let status = answer.unwrap_err();
        assert_eq!(status.code(), code, "{fault:?}");
        assert!(!status.message().contains(&store.mark()), "{status}");
        assert!(store.met());
    }
    assert_eq!(log.lines("a call failed by a fault of ours").len(), 1);
    // Only the commit that broke off when all was written.
    assert_eq!(app.check().await.usage(), 2);
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_unavailable_within_the_callers_deadline() {
    let (app, store) = TestApp::faulty().await;
    app.policy("hourly", 5).await;
    let service = serve(&app).await;
    let rls = Rls::connect(service.address, &app.admin).await;
    // Now the token is known.
    assert_eq!(rls.ask(&[("u", "r")]).await.0, Ok);
    store.fail_always(Fault::NotTaken);
    let mut request = tonic::Request::new(call(vec![of_pair("u", "r")]));
    // The client itself would say that it is cancelled.
    request.set_timeout(std::time::Duration::from_secs(3));
    let metadata = request.metadata_mut();
    metadata.insert("authorization", bearer(&app.admin));
    let status = rls.send_as_it_is(request).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    store.mend();
    // What nobody waits for any more is not counted.
    assert_eq!(rls.ask(&[("u", "r")]).await.0, Ok);
    assert_eq!(app.check().await.usage(), 2);
    assert_ne!(rls.ask(&[("u", "r")]).await.0, OverLimit);
}
