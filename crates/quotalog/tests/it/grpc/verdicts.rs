//! What is answered to a call that is well-formed, and what it counts.

use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code::{Ok, OverLimit};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::google::protobuf::Duration;
use quotalog_domain::Window;
use quotalog_grpc::Keys;
use serde_json::{Value, json};

use crate::support::app::TestApp;
use crate::support::rls::{
    Rls, Service, call, descriptor, header, of_pair, serve, serve_with, verdicts, with_addend,
};

async fn start() -> (TestApp, Service, Rls) {
    let app = TestApp::new().await;
    let service = serve(&app).await;
    let rls = Rls::connect(service.address, &app.admin).await;
    (app, service, rls)
}

async fn set(app: &TestApp, pair: &str, window: &str, limit: u64) {
    let body = format!(r#"{{"window":"{window}","limit_count":{limit}}}"#);
    app.put(&format!("/quotas/{pair}"), &body).await.is(200);
}

async fn usage(app: &TestApp, pair: &str) -> u64 {
    app.get(&format!("/quotas/{pair}")).await.is(200).usage()
}

fn fields(fields: &[(&str, &str)]) -> Vec<HeaderValue> {
    let fields = fields.iter().map(|(name, value)| HeaderValue {
        key: (*name).to_owned(),
        value: (*value).to_owned(),
        raw_value: Vec::new(),
    });
    fields.collect()
}

#[tokio::test]
async fn a_granted_call_tells_all_that_a_proxy_reads() {
    let (app, _service, rls) = start().await;
    set(&app, "u/r", "hourly", 5).await;
    let response = rls.send(call(vec![of_pair("u", "r")])).await.unwrap();
    assert_eq!(verdicts(&response), (Ok, vec![Ok]));
    let status = &response.statuses[0];
    let limit = status.current_limit.clone().unwrap();
    assert_eq!(
        (limit.requests_per_unit, limit.unit(), &*limit.name),
        (5, Unit::Hour, "hourly")
    );
    assert_eq!(status.limit_remaining, 4);
    // It is twenty past.
    let until_reset = Duration {
        seconds: 2_400,
        nanos: 0,
    };
    assert_eq!(status.duration_until_reset, Some(until_reset));
    assert_eq!(
        response.response_headers_to_add,
        fields(&[
            ("ratelimit-policy", "\"hourly\";q=5;w=3600"),
            ("ratelimit", "\"hourly\";r=4;t=2400"),
            ("x-ratelimit-limit", "5"),
            ("x-ratelimit-remaining", "4"),
            ("x-ratelimit-reset", "1796065200"),
        ])
    );
    assert!(response.request_headers_to_add.is_empty());
    assert!(response.raw_body.is_empty());
    assert_eq!(usage(&app, "u/r").await, 1);
}

#[tokio::test]
async fn a_denied_call_tells_the_client_what_a_429_over_http_tells() {
    let (app, _service, rls) = start().await;
    set(&app, "u/r", "daily", 2).await;
    assert_eq!(rls.ask(&[("u", "r")]).await, (Ok, vec![Ok]));
    assert_eq!(rls.ask(&[("u", "r")]).await, (Ok, vec![Ok]));
    let response = rls.send(call(vec![of_pair("u", "r")])).await.unwrap();
    assert_eq!(verdicts(&response), (OverLimit, vec![OverLimit]));
    let status = &response.statuses[0];
    let limit = status.current_limit.clone().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit()), (2, Unit::Day));
    assert_eq!(status.limit_remaining, 0);
    let until_reset = status.duration_until_reset.unwrap().seconds;

    let over_http = app.post("/quotas/u/r/consume", "").await.is(429);
    assert_eq!(
        over_http.header("retry-after"),
        Some(&*until_reset.to_string())
    );
    for name in [
        "ratelimit-policy",
        "ratelimit",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "retry-after",
        "content-type",
    ] {
        let value = over_http.header(name).unwrap();
        assert_eq!(header(&response, name), [value], "{name}");
    }
    let mut expected = over_http.json();
    // Only over HTTP is the path known.
    expected.as_object_mut().unwrap().remove("instance");
    let document: Value = serde_json::from_slice(&response.raw_body).unwrap();
    assert_eq!(document, expected);
    assert_eq!(usage(&app, "u/r").await, 2);
}

#[tokio::test]
async fn where_one_descriptor_does_not_fit_the_others_are_not_charged() {
    let (app, _service, rls) = start().await;
    set(&app, "a/r", "hourly", 1).await;
    set(&app, "b/r", "daily", 6).await;
    let (a, b) = (("a", "r"), ("b", "r"));
    assert_eq!(rls.ask(&[a, b]).await, (Ok, vec![Ok, Ok]));
    assert_eq!(rls.ask(&[a, b]).await, (OverLimit, vec![OverLimit, Ok]));
    assert_eq!(rls.ask(&[b, a]).await, (OverLimit, vec![Ok, OverLimit]));
    assert_eq!(usage(&app, "a/r").await, 1);
    assert_eq!(usage(&app, "b/r").await, 1);

    let denied = rls.send(call(vec![of_pair("b", "r"), of_pair("a", "r")]));
    let denied = denied.await.unwrap();
    // Fields of which each stands once can tell of one pair alone.
    assert_eq!(header(&denied, "ratelimit"), [""; 0]);
    assert_eq!(header(&denied, "retry-after"), ["2400"]);
    let document: Value = serde_json::from_slice(&denied.raw_body).unwrap();
    assert_eq!(document["violated-policies"], json!(["hourly"]));
    assert_eq!(document["items"][0]["allowed"], true);
    assert_eq!(document["items"][0]["amount"], 1);
    assert_eq!(document["items"][1]["quota"]["user_id"], "a");
    assert_eq!(document["items"][1]["quota"]["remaining"], 0);
    assert!(document.get("remaining").is_none());
}

#[tokio::test]
async fn the_same_descriptor_twice_is_two_units_at_every_fill() {
    let (app, _service, rls) = start().await;
    for used in 0..=5 {
        let pair = format!("u/r{used}");
        set(&app, &pair, "hourly", 5).await;
        let resource = format!("r{used}");
        for _ in 0..used {
            assert_eq!(rls.ask(&[("u", &resource)]).await.0, Ok);
        }
        let twice = rls.ask(&[("u", &resource), ("u", &resource)]).await;
        if used <= 3 {
            assert_eq!(twice, (Ok, vec![Ok, Ok]));
            assert_eq!(usage(&app, &pair).await, used + 2);
        } else {
            assert_eq!(twice, (OverLimit, vec![OverLimit, OverLimit]));
            assert_eq!(usage(&app, &pair).await, used);
        }
    }
}

#[tokio::test]
async fn the_same_descriptor_twice_is_told_as_the_one_pair_that_it_is() {
    let (app, _service, rls) = start().await;
    set(&app, "u/r", "hourly", 3).await;
    let twice = || call(vec![of_pair("u", "r"), of_pair("u", "r")]);
    let granted = rls.send(twice()).await.unwrap();
    assert_eq!(header(&granted, "ratelimit"), ["\"hourly\";r=1;t=2400"]);
    let denied = rls.send(twice()).await.unwrap();
    assert_eq!(header(&denied, "ratelimit"), ["\"hourly\";r=1;t=2400"]);
    assert_eq!(header(&denied, "retry-after"), ["2400"]);
    let document: Value = serde_json::from_slice(&denied.raw_body).unwrap();
    assert_eq!(document["remaining"], 1);
}

#[tokio::test]
async fn an_addend_left_out_is_one_unit_and_one_of_zero_a_question() {
    let (app, _service, rls) = start().await;
    set(&app, "u/r", "hourly", 10).await;
    let hit = |of_call: u32, of_descriptor: Option<u64>| {
        let descriptor = of_pair("u", "r");
        let descriptor = match of_descriptor {
            Some(units) => with_addend(descriptor, units),
            None => descriptor,
        };
        RateLimitRequest {
            hits_addend: of_call,
            ..call(vec![descriptor])
        }
    };
    for (of_call, of_descriptor, verdict, used) in [
        (0, None, Ok, 1),
        (3, None, Ok, 4),
        // That of the descriptor goes first.
        (3, Some(1), Ok, 5),
        (3, Some(0), Ok, 5),
        (0, Some(0), Ok, 5),
        (6, None, OverLimit, 5),
        (1, Some(6), OverLimit, 5),
        (1_000_000, None, OverLimit, 5),
        (0, Some(1_000_000), OverLimit, 5),
        (5, None, Ok, 10),
        // Nothing is left, and a question is told so.
        (7, Some(0), OverLimit, 10),
        (0, None, OverLimit, 10),
    ] {
        let response = rls.send(hit(of_call, of_descriptor)).await.unwrap();
        let case = format!("{of_call} {of_descriptor:?}");
        assert_eq!(verdicts(&response), (verdict, vec![verdict]), "{case}");
        assert_eq!(usage(&app, "u/r").await, used, "{case}");
        let remaining = response.statuses[0].limit_remaining;
        assert_eq!(u64::from(remaining), 10 - used, "{case}");
    }
    // Many large ones overflow nothing.
    let hundred = vec![with_addend(of_pair("u", "r"), 1_000_000); 100];
    let response = rls.send(call(hundred)).await.unwrap();
    assert_eq!(response.overall_code(), OverLimit);
    assert_eq!(response.statuses.len(), 100);
    assert_eq!(usage(&app, "u/r").await, 10);
}

#[tokio::test]
async fn what_nothing_limits_passes_and_leaves_nothing() {
    let (app, _service, rls) = start().await;
    let response = rls.send(call(vec![of_pair("u", "r")])).await.unwrap();
    assert_eq!(verdicts(&response), (Ok, vec![Ok]));
    assert_eq!(response.statuses[0].current_limit, None);
    assert_eq!(response.statuses[0].duration_until_reset, None);
    assert!(response.response_headers_to_add.is_empty());
    let peek = with_addend(of_pair("v", "r"), 0);
    assert_eq!(rls.send(call(vec![peek])).await.unwrap().overall_code(), Ok);
    for table in ["quota_policies", "quota_usage", "quotalog_audit"] {
        // The admin's token was made.
        let made = i64::from(table == "quotalog_audit");
        let rows = app.number(&format!("SELECT count(*) FROM {table}"));
        assert_eq!(rows, made, "{table}");
    }

    set(&app, "v/r", "hourly", 1).await;
    let mixed = || call(vec![of_pair("u", "r"), of_pair("v", "r")]);
    assert_eq!(rls.send(mixed()).await.unwrap().overall_code(), Ok);
    let denied = rls.send(mixed()).await.unwrap();
    assert_eq!(verdicts(&denied), (OverLimit, vec![Ok, OverLimit]));
    let document: Value = serde_json::from_slice(&denied.raw_body).unwrap();
    let first = json!({"amount": 1, "allowed": true, "quota": null});
    assert_eq!(document["items"][0], first);
}

#[tokio::test]
async fn a_default_limits_whoever_has_no_policy() {
    let (app, _service, rls) = start().await;
    app.default("r", Window::Daily, 1).await;
    for user in ["u", "v"] {
        assert_eq!(rls.ask(&[(user, "r")]).await.0, Ok);
        assert_eq!(rls.ask(&[(user, "r")]).await.0, OverLimit);
    }
    set(&app, "u/r", "daily", 2).await;
    assert_eq!(rls.ask(&[("u", "r")]).await.0, Ok);
    assert_eq!(rls.ask(&[("v", "r")]).await.0, OverLimit);
}

#[tokio::test]
async fn a_window_ends_on_the_clock_of_the_server() {
    let (app, _service, rls) = start().await;
    set(&app, "u/r", "hourly", 1).await;
    assert_eq!(rls.ask(&[("u", "r")]).await.0, Ok);
    app.set_time("2026-11-30T18:59:59.400Z");
    let response = rls.send(call(vec![of_pair("u", "r")])).await.unwrap();
    assert_eq!(response.overall_code(), OverLimit);
    assert_eq!(
        response.statuses[0].duration_until_reset.unwrap().seconds,
        1
    );
    assert_eq!(header(&response, "retry-after"), ["1"]);
    app.set_time("2026-11-30T19:00:00Z");
    assert_eq!(rls.ask(&[("u", "r")]).await.0, Ok);
}

#[tokio::test]
async fn a_limit_beyond_what_the_message_holds_is_told_as_its_largest() {
    let (app, _service, rls) = start().await;
    set(&app, "u/r", "hourly", 5).await;
    // As an earlier version may have stored it.
    let file = rusqlite::Connection::open(app.folder.path().join("quotalog.db")).unwrap();
    let sql = "UPDATE quota_policies SET limit_count = 5000000000";
    assert_eq!(file.execute(sql, []).unwrap(), 1);
    let response = rls.send(call(vec![of_pair("u", "r")])).await.unwrap();
    let status = &response.statuses[0];
    let limit = status.current_limit.as_ref().unwrap();
    assert_eq!(limit.requests_per_unit, u32::MAX);
    assert_eq!(status.limit_remaining, u32::MAX);
    assert_eq!(header(&response, "x-ratelimit-limit"), ["5000000000"]);
}

#[tokio::test]
async fn a_pair_is_named_by_its_entries_or_by_the_domain() {
    let app = TestApp::new().await;
    let keys = Keys {
        user: "sub".to_owned(),
        resource: "route".to_owned(),
    };
    let service = serve_with(&app, keys).await;
    let rls = Rls::connect(service.address, &app.admin).await;
    set(&app, "u/r", "hourly", 100).await;
    set(&app, "u/test", "hourly", 100).await;
    let pairs = [
        (vec![("sub", "u"), ("route", "r")], "u/r"),
        (vec![("route", "r"), ("sub", "u")], "u/r"),
        (vec![("sub", "u")], "u/test"),
        (
            vec![
                ("user_id", "v"),
                ("sub", "u"),
                ("resource", "s"),
                ("", "x"),
                ("path", "/a"),
            ],
            "u/test",
        ),
    ];
    for (entries, pair) in pairs {
        let before = usage(&app, pair).await;
        let response = rls.send(call(vec![descriptor(&entries)])).await.unwrap();
        assert_eq!(response.overall_code(), Ok);
        assert_eq!(usage(&app, pair).await, before + 1, "{entries:?}");
    }
}

#[tokio::test]
async fn ids_are_bytes_and_a_limit_of_the_callers_own_is_ignored() {
    let (app, _service, rls) = start().await;
    set(&app, "Al%20%C3%A9+/r", "hourly", 1).await;
    let own_limit = RateLimitDescriptor {
        limit: Some(RateLimitOverride {
            requests_per_unit: 1_000,
            unit: 1,
        }),
        ..of_pair("Al é+", "r")
    };
    let hit = || call(vec![own_limit.clone()]);
    assert_eq!(rls.send(hit()).await.unwrap().overall_code(), Ok);
    assert_eq!(rls.send(hit()).await.unwrap().overall_code(), OverLimit);
    assert_eq!(rls.ask(&[("al é+", "r")]).await.0, Ok);
}
