//! `POST /consume`: the units of several pairs, all of them or none.

use std::sync::Arc;

use quotalog_auth::Role;
use quotalog_domain::Window;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::answer::Answer;
use crate::support::app::TestApp;

const CONSUME: &str = "/consume";

/// A batch of these items, each as `user/resource amount`; without an amount it asks for one unit.
fn batch(items: &[&str]) -> String {
    let items = items.iter().map(|item| {
        let (pair, amount) = item.split_once(' ').unwrap_or((item, ""));
        let (user_id, resource) = pair.split_once('/').expect("a pair");
        let mut item = json!({ "user_id": user_id, "resource": resource });
        if !amount.is_empty() {
            item["amount"] = amount.parse::<u64>().expect("an amount").into();
        }
        item
    });
    json!({ "items": items.collect::<Vec<_>>() }).to_string()
}

/// Sets policies, each as `user/resource window limit`.
async fn policies(app: &TestApp, rows: &[&str]) {
    for row in rows {
        let cells: Vec<&str> = row.split(' ').collect();
        let body = format!(r#"{{"window":"{}","limit_count":{}}}"#, cells[1], cells[2]);
        let path = format!("/quotas/{}", cells[0]);
        app.put(&path, &body).await.is(200);
    }
}

async fn usage(app: &TestApp, pair: &str) -> u64 {
    app.get(&format!("/quotas/{pair}")).await.is(200).usage()
}

/// One member of each quota that was granted.
#[track_caller]
fn each(answer: &Answer, member: &str) -> Vec<Value> {
    let body = answer.json();
    let quotas = body["quotas"].as_array().expect("quotas");
    quotas.iter().map(|quota| quota[member].clone()).collect()
}

#[tokio::test]
async fn all_items_are_counted_and_answered_in_their_order() {
    let app = TestApp::new().await;
    policies(&app, &["u/r hourly 5", "v/r daily 9"]).await;
    app.default("s", Window::Hourly, 3).await;
    let answer = app.post(CONSUME, &batch(&["v/r 4", "u/s", "u/r 2"])).await;
    let answer = answer.is(200);
    assert_eq!(each(&answer, "user_id"), ["v", "u", "u"]);
    assert_eq!(each(&answer, "resource"), ["r", "s", "r"]);
    assert_eq!(each(&answer, "usage"), [4, 1, 2]);
    assert_eq!(each(&answer, "remaining"), [5, 2, 3]);
    assert_eq!(each(&answer, "allowed"), [true, true, true]);
    assert_eq!(each(&answer, "source"), ["policy", "default", "policy"]);
    for pair in ["v/r", "u/s", "u/r"] {
        let single = app.get(&format!("/quotas/{pair}")).await.is(200).json();
        let quotas = answer.json()["quotas"].clone();
        let quotas = quotas.as_array().unwrap();
        assert!(quotas.contains(&single), "{single} in another shape");
    }
    let app = app.restart().await;
    assert_eq!(usage(&app, "v/r").await, 4);
}

/// What a batch's answers carry beside their body, as C30 and C32 want it.
#[tokio::test]
async fn a_batch_has_no_fields_of_one_quota() {
    let app = TestApp::new().await;
    policies(&app, &["u/r hourly 1"]).await;
    let granted = app.post(CONSUME, &batch(&["u/r"])).await.is(200);
    let denied = app.post(CONSUME, &batch(&["u/r"])).await;
    let denied = denied.problem(429, "quota-exceeded");
    for answer in [granted, denied] {
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        for name in [
            "ratelimit-policy",
            "ratelimit",
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
            "etag",
        ] {
            assert_eq!(answer.header(name), None);
        }
    }
}

#[tokio::test]
async fn the_same_pair_twice_is_summed() {
    let app = TestApp::new().await;
    policies(&app, &["u/r hourly 5", "u/s hourly 5"]).await;
    let answer = app.post(CONSUME, &batch(&["u/r 2", "u/s", "u/r"])).await;
    let answer = answer.is(200);
    // Each quota as it is after the whole batch.
    assert_eq!(each(&answer, "usage"), [3, 1, 3]);
    // 2 are left: each item would fit, both do not.
    let denied = app.post(CONSUME, &batch(&["u/r 1", "u/r 2"])).await;
    denied.problem(429, "quota-exceeded");
    assert_eq!(usage(&app, "u/r").await, 3);
    app.post(CONSUME, &batch(&["u/r 1", "u/r 1"])).await.is(200);
    assert_eq!(usage(&app, "u/r").await, 5);
}

/// C73, over HTTP: what is denied for one pair costs no other, in whichever order.
#[tokio::test]
async fn c73_a_denied_batch_counts_nothing_and_tells_of_each_item() {
    let app = TestApp::new().await;
    policies(&app, &["u/a hourly 2", "u/b daily 5"]).await;
    app.post("/quotas/u/a/consume", "").await.is(200);
    for items in [
        ["u/a", "u/b 2", "u/a"],
        ["u/b 2", "u/a", "u/a"],
        ["u/a", "u/a", "u/b 2"],
    ] {
        let denied = app.post(CONSUME, &batch(&items)).await;
        let denied = denied.problem(429, "quota-exceeded");
        // The hour ends in 40 minutes; the day, which fits, is not waited for.
        assert_eq!(denied.header("retry-after"), Some("2400"));
        let problem = denied.json();
        assert_eq!(problem["violated-policies"], json!(["hourly"]));
        assert_eq!(problem["instance"], "/consume");
        assert_eq!(problem.get("remaining"), None);
        let told = problem["items"].as_array().unwrap();
        assert_eq!(told.len(), 3);
        for (told, asked) in told.iter().zip(items) {
            let fits = asked.starts_with("u/b");
            let quota = &told["quota"];
            let pair = format!("u/{}", quota["resource"].as_str().unwrap());
            assert!(asked.starts_with(&pair), "the order of the request");
            assert_eq!(told["amount"], if fits { 2 } else { 1 });
            assert_eq!(told["allowed"], fits);
            assert_eq!(quota["allowed"], fits);
            assert_eq!(quota["usage"], u64::from(!fits), "nothing is counted");
            assert_eq!(quota["remaining"], if fits { 5 } else { 1 });
            assert_eq!(quota.as_object().unwrap().len(), 12);
        }
    }
    assert_eq!(usage(&app, "u/a").await, 1);
    assert_eq!(usage(&app, "u/b").await, 0);
    assert_eq!(app.number("SELECT count(*) FROM quota_usage"), 1);
}

#[tokio::test]
async fn a_denied_batch_waits_for_the_latest_reset_of_what_does_not_fit() {
    let app = TestApp::new().await;
    let rows = ["u/a hourly 1", "u/b daily 1", "v/a hourly 1", "v/b daily 1"];
    policies(&app, &rows).await;
    app.post(CONSUME, &batch(&["u/a", "u/b", "v/a"]))
        .await
        .is(200);
    let check = async |items: &[&str], wait: &str, violated: Value| {
        let denied = app.post(CONSUME, &batch(items)).await;
        let denied = denied.problem(429, "quota-exceeded");
        assert_eq!(denied.header("retry-after"), Some(wait), "{items:?}");
        assert_eq!(denied.json()["violated-policies"], violated, "{items:?}");
    };
    check(&["u/a", "v/b"], "2400", json!(["hourly"])).await;
    check(&["u/b", "v/b"], "20400", json!(["daily"])).await;
    check(&["u/a", "v/a", "v/b"], "2400", json!(["hourly"])).await;
    check(&["u/b", "u/a"], "20400", json!(["hourly", "daily"])).await;
    check(&["u/a", "u/b"], "20400", json!(["hourly", "daily"])).await;
    // A client that waits just that long gets its units.
    app.clock.advance_s(20_400);
    app.post(CONSUME, &batch(&["u/a", "u/b"])).await.is(200);
}

/// C18: more than a whole limit could never be granted, also if only the sum is more.
#[tokio::test]
async fn c18_each_item_that_can_never_fit_is_named() {
    let app = TestApp::new().await;
    policies(&app, &["u/r hourly 5", "u/s hourly 5"]).await;
    let check = async |items: &[&str], faults: &[&str]| {
        app.post(CONSUME, &batch(items)).await.faults(faults);
    };
    check(&["u/s", "u/r 6"], &["items[1].amount exceeds_limit"]).await;
    check(
        &["u/r 3", "u/s", "u/r 3"],
        &[
            "items[0].amount exceeds_limit",
            "items[2].amount exceeds_limit",
        ],
    )
    .await;
    check(
        &["u/r 6", "u/s 6"],
        &[
            "items[0].amount exceeds_limit",
            "items[1].amount exceeds_limit",
        ],
    )
    .await;
    let six = ["u/r"; 6];
    let answer = app.post(CONSUME, &batch(&six)).await.is(422);
    assert_eq!(answer.json()["errors"].as_array().unwrap().len(), 6);
    // Told before what merely does not fit now, and never for what does.
    app.post(CONSUME, &batch(&["u/r 5"])).await.is(200);
    check(&["u/r", "u/s 6"], &["items[1].amount exceeds_limit"]).await;
    assert_eq!(usage(&app, "u/s").await, 0);
}

#[tokio::test]
async fn a_pair_without_a_policy_fails_the_whole_batch() {
    let app = TestApp::new().await;
    policies(&app, &["u/r hourly 5"]).await;
    for items in [&["u/r", "u/none"][..], &["u/none", "u/r 6"], &["none/r"]] {
        let answer = app.post(CONSUME, &batch(items)).await;
        answer.problem(404, "not-found");
    }
    assert_eq!(usage(&app, "u/r").await, 0);
    assert_eq!(app.number("SELECT count(*) FROM quota_usage"), 0);
}

#[tokio::test]
async fn each_item_that_nothing_serves_is_named_with_the_way_out() {
    let app = TestApp::new().await;
    policies(&app, &["u/r hourly 5"]).await;
    app.default("s", Window::Hourly, 3).await;
    let items = ["v/r", "u/r", "v/s", "日本/a\"b 7", "v/r 2"];
    let answer = app.post(CONSUME, &batch(&items)).await;
    let told = answer.problem(404, "not-found").json();
    let detail = told["detail"].as_str().unwrap();
    let named = "items[0] (user \"v\", resource \"r\"), items[3] (user \"日本\", resource \"a\"b\"), \
                 items[4] (user \"v\", resource \"r\").";
    assert!(detail.contains(named), "{detail}");
    for way_out in [
        "PUT /quotas/{userId}/{resource}",
        "PUT /defaults/{resource}",
        "Nothing was counted",
    ] {
        assert!(detail.contains(way_out), "{detail}");
    }
    // No longer than a person reads.
    let told = app.post(CONSUME, &batch(&["v/r"; 12])).await.is(404).json();
    let detail = told["detail"].as_str().unwrap();
    assert!(detail.contains("items[9] "), "{detail}");
    assert!(detail.contains(" and 2 more."), "{detail}");
    // One pair alone is told the same way out.
    let told = app.post("/quotas/v/r/consume", "").await.is(404).json();
    let detail = told["detail"].as_str().unwrap();
    assert!(detail.contains("PUT /defaults/{resource}"), "{detail}");
    // Where a default serves, there is still no policy to delete.
    let told = app.delete("/quotas/v/s").await.is(404).json();
    let detail = told["detail"].as_str().unwrap();
    assert!(detail.contains("no policy of their own"), "{detail}");
}

#[tokio::test]
async fn a_batch_holds_1_to_100_items() {
    let app = TestApp::new().await;
    policies(&app, &["u/r hourly 1000"]).await;
    for body in [
        "",
        "{}",
        r#"{"items":[]}"#,
        r#"{"items":null}"#,
        r#"{"items":{}}"#,
        r#"{"items":"u/r"}"#,
        r#"{"items":1}"#,
    ] {
        app.post(CONSUME, body).await.faults(&["items invalid"]);
    }
    let bare = r#"{"user_id":"u","resource":"r"}"#;
    let unwrapped = app.post(CONSUME, bare).await;
    unwrapped.faults(&[
        "items invalid",
        "user_id unknown_field",
        "resource unknown_field",
    ]);
    let hundred = app.post(CONSUME, &batch(&["u/r"; 100])).await.is(200);
    assert_eq!(each(&hundred, "usage"), [100; 100]);
    let more = app.post(CONSUME, &batch(&["u/r"; 101])).await;
    more.faults(&["items too_many"]);
    assert_eq!(usage(&app, "u/r").await, 100);
}

#[tokio::test]
async fn all_faults_of_a_batch_are_told_at_once() {
    let app = TestApp::new().await;
    policies(&app, &["u/r hourly 5"]).await;
    let body = r#"{"items":[
        {"user_id":"u","resource":"r"},
        {"user_id":"","resource":"a/b","amount":0},
        {"user_id":"..","resource":"\u0000","amount":1000001},
        {"user_id":7,"amount":"1","amout":5},
        7,
        null,
        {},
        {"user_id":"u","resource":"r","amount":1.0}
    ],"item":[]}"#;
    let answer = app.keyed(CONSUME, "a b", body).await;
    let answer = answer.faults(&[
        "items[1].user_id invalid",
        "items[1].resource invalid",
        "items[1].amount invalid",
        "items[2].user_id invalid",
        "items[2].resource invalid",
        "items[2].amount too_large",
        "items[3].user_id invalid",
        "items[3].resource invalid",
        "items[3].amount invalid",
        "items[3].amout unknown_field",
        "items[4] invalid",
        "items[5] invalid",
        "items[6].user_id invalid",
        "items[6].resource invalid",
        "items[7].amount invalid",
        "item unknown_field",
        "Idempotency-Key invalid",
    ]);
    let errors = answer.json()["errors"].clone();
    assert_eq!(errors[2]["message"], "amount must be a positive integer.");
    let too_long = batch(&[&format!("{}/{}", "x".repeat(256), "y".repeat(256))]);
    let answer = app.post(CONSUME, &too_long).await;
    answer.faults(&["items[0].user_id too_long", "items[0].resource too_long"]);
    assert_eq!(usage(&app, "u/r").await, 0);
}

#[tokio::test]
async fn an_item_is_read_as_strictly_as_a_body() {
    let app = TestApp::new().await;
    policies(&app, &["u/r hourly 5"]).await;
    for item in [
        r#"{"user_id":"u","resource":"r","amount":1,"amount":2}"#,
        r#"{"user_id":"v","user_id":"u","resource":"r"}"#,
        r#"{"user_id":"u","user_\u0069d":"u","resource":"r"}"#,
        r#"{"user_id":"u","resource":"r","amount":05}"#,
        r#"{"user_id":"\ud800","resource":"r"}"#,
        "{",
    ] {
        let body = format!(r#"{{"items":[{{"user_id":"u","resource":"r"}},{item}]}}"#);
        let answer = app.post(CONSUME, &body).await;
        answer.problem(400, "malformed-request");
    }
    let twice = r#"{"items":[],"items":[{"user_id":"u","resource":"r"}]}"#;
    let twice = app.post(CONSUME, twice).await;
    twice.problem(400, "malformed-request");
    assert_eq!(usage(&app, "u/r").await, 0);
}

/// Ids in a body are the ids of paths, to the byte.
#[tokio::test]
async fn an_id_of_an_item_is_the_one_of_a_path() {
    let app = TestApp::new().await;
    let set = r#"{"window":"hourly","limit_count":5}"#;
    app.put("/quotas/o'neil%26co/50%25off", set).await.is(200);
    app.put("/quotas/%C3%A9/a+b", set).await.is(200);
    let body = r#"{"items":[{"user_id":"o'neil&co","resource":"50%off"},
        {"user_id":"\u00e9","resource":"a+b","amount":2}]}"#;
    let answer = app.post(CONSUME, body).await.is(200);
    assert_eq!(each(&answer, "usage"), [1, 2]);
    for other in ["O'neil&co/50%off", "o'neil&co/50%25off", "e\u{301}/a+b"] {
        let answer = app.post(CONSUME, &batch(&[other])).await;
        answer.problem(404, "not-found");
    }
}

/// C47: a batch may be larger than other bodies, up to 128 KiB.
#[tokio::test]
async fn c47_a_batch_is_at_most_128_kib() {
    let app = TestApp::new().await;
    policies(&app, &["u/r hourly 5"]).await;
    let padded = |len: usize| {
        let body = batch(&["u/r"]);
        format!("{body}{}", " ".repeat(len - body.len()))
    };
    app.post(CONSUME, &padded(128 * 1024)).await.is(200);
    for len in [128 * 1024 + 1, 3 * 1024 * 1024, 9 * 1024 * 1024] {
        let answer = app.post(CONSUME, &padded(len)).await;
        answer.problem(413, "content-too-large");
    }
    assert_eq!(usage(&app, "u/r").await, 1);
    // A full batch of the longest ids fits.
    let (user_id, resource) = ("x".repeat(255), "y".repeat(255));
    let path = format!("/quotas/{user_id}/{resource}");
    let set = r#"{"window":"hourly","limit_count":1000000}"#;
    app.put(&path, set).await.is(200);
    let longest = format!("{user_id}/{resource} 10000");
    let full = vec![&*longest; 100];
    let answer = app.post(CONSUME, &batch(&full)).await.is(200);
    assert_eq!(each(&answer, "remaining"), [0; 100]);
}

#[tokio::test]
async fn a_user_consumes_its_own_items_alone() {
    let app = TestApp::new().await;
    let rows = ["alice/r hourly 5", "alice/s hourly 5", "bob/r hourly 5"];
    policies(&app, &rows).await;
    let (alice, service) = (
        app.user_token("alice").await,
        app.token(Role::Service).await,
    );
    let post =
        async |token: &str, body: &str| app.call(hyper::Method::POST, CONSUME, token, body).await;
    let own = batch(&["alice/r", "alice/s 2"]);
    assert_eq!(each(&post(&alice, &own).await.is(200), "usage"), [1, 2]);
    let mixed = batch(&["alice/r", "bob/r"]);
    let refused = post(&alice, &mixed).await.problem(403, "forbidden");
    // The same words whether or not there is such a user, or such a quota.
    for items in [
        &["alice/r", "nobody/r"][..],
        &["bob/none"],
        &["Alice/r"],
        &["alice/none", "bob/r"],
        &["/r"],
    ] {
        let other = post(&alice, &batch(items)).await;
        assert_eq!(other.problem(403, "forbidden").body, refused.body);
    }
    // Before whatever else is wrong with the values, however many items there are.
    let broken = r#"{"x":1,"items":[{"user_id":"alice","amount":0},{"user_id":"bob"}]}"#;
    post(&alice, broken).await.problem(403, "forbidden");
    let mut many = vec!["alice/r"; 100];
    many.push("bob/r");
    post(&alice, &batch(&many)).await.problem(403, "forbidden");
    // What names no user is nobody's.
    let unnamed = r#"{"items":[{"resource":"r"},{"user_id":7,"resource":"r"},7]}"#;
    let unnamed = post(&alice, unnamed).await;
    unnamed.faults(&[
        "items[0].user_id invalid",
        "items[1].user_id invalid",
        "items[2] invalid",
    ]);
    assert_eq!(each(&post(&service, &mixed).await.is(200), "usage"), [2, 1]);
    let viewer = app.token(Role::Viewer).await;
    post(&viewer, "{").await.problem(403, "forbidden");
}

/// C13, on one node: the order in which callers name pairs neither blocks nor loses anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c13_batches_in_any_order_count_each_unit_once() {
    let app = Arc::new(TestApp::new().await);
    let other = Arc::new(app.beside().await);
    policies(&app, &["u/a hourly 1000", "u/b hourly 1000"]).await;
    let mut race = JoinSet::new();
    for client in 0..60 {
        let app = Arc::clone(if client % 2 == 0 { &app } else { &other });
        let items = if client % 3 == 0 {
            ["u/a", "u/b"]
        } else {
            ["u/b", "u/a"]
        };
        race.spawn(async move { app.post(CONSUME, &batch(&items)).await.is(200) });
    }
    race.join_all().await;
    assert_eq!(usage(&app, "u/a").await, 60);
    assert_eq!(usage(&app, "u/b").await, 60);
}

/// C07, of batches: grants fill the scarcer quota exactly, and what is denied costs neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c07_racing_batches_fill_the_scarcer_quota_exactly() {
    let app = Arc::new(TestApp::new().await);
    policies(&app, &["u/a hourly 10", "u/b hourly 1000"]).await;
    let mut race = JoinSet::new();
    for _ in 0..25 {
        let app = Arc::clone(&app);
        race.spawn(async move { app.post(CONSUME, &batch(&["u/b 2", "u/a"])).await.status });
    }
    let statuses = race.join_all().await;
    let granted = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!(granted, 10);
    assert!(statuses.iter().all(|status| matches!(status, 200 | 429)));
    assert_eq!(usage(&app, "u/a").await, 10);
    assert_eq!(usage(&app, "u/b").await, 20);
}
