//! `GET /quotas`: every pair, by filter, and who is near the limit.

use hyper::Method;
use serde_json::{Value, json};

use crate::support::app::{TestApp, encoded};

/// Sets hourly limits and consumes, each row as `user/resource used of limit`.
async fn fill(app: &TestApp, rows: &[&str]) {
    for row in rows {
        let cells: Vec<&str> = row.split(' ').collect();
        let path = format!("/quotas/{}", cells[0]);
        let body = format!(r#"{{"window":"hourly","limit_count":{}}}"#, cells[3]);
        app.put(&path, &body).await.is(200);
        if cells[1] != "0" {
            let body = format!(r#"{{"amount":{}}}"#, cells[1]);
            app.post(&format!("{path}/consume"), &body).await.is(200);
        }
    }
}

/// The pairs of a page.
#[track_caller]
fn pairs(page: &Value) -> Vec<String> {
    let quotas = page["quotas"].as_array().expect("quotas").iter();
    let text = |quota: &Value, member: &str| quota[member].as_str().unwrap().to_owned();
    quotas
        .map(|quota| format!("{}/{}", text(quota, "user_id"), text(quota, "resource")))
        .collect()
}

/// Walks the whole list. A page may be short, or empty, and yet not the last.
async fn walk(app: &TestApp, query: &str) -> Vec<String> {
    let mut met = Vec::new();
    let mut path = format!("/quotas?{query}");
    loop {
        let page = app.get(&path).await.is(200).json();
        met.extend(pairs(&page));
        let Some(cursor) = page["next_cursor"].as_str() else {
            return met;
        };
        path = format!("/quotas?{query}&cursor={cursor}");
    }
}

/// The fullest quotas.
async fn fullest(app: &TestApp, query: &str) -> Vec<String> {
    let path = format!("/quotas?sort=used_percent{query}");
    let page = app.get(&path).await.is(200).json();
    assert_eq!(page["next_cursor"], Value::Null);
    pairs(&page)
}

#[tokio::test]
async fn every_pair_is_listed_in_the_order_of_bytes() {
    let app = TestApp::new().await;
    let empty = app.get("/quotas").await.is(200);
    assert_eq!(empty.json(), json!({ "quotas": [], "next_cursor": null }));
    assert_eq!(empty.header("cache-control"), Some("no-store"));
    fill(&app, &["b/r 1 of 5", "B/r 0 of 5", "a/s 2 of 5"]).await;
    fill(&app, &["a/%C3%A9 0 of 5", "a%20b/r 0 of 5"]).await;
    // A pair that a default serves is listed once it is counted.
    app.put("/defaults/d", r#"{"window":"daily","limit_count":9}"#)
        .await
        .is(200);
    app.get("/quotas/a/d").await.is(200);
    let expected = ["B/r", "a/s", "a/é", "a b/r", "b/r"];
    assert_eq!(walk(&app, "").await, expected);
    app.post("/quotas/a/d/consume", "").await.is(200);
    app.post("/quotas/z/d/consume", "").await.is(200);
    let expected = ["B/r", "a/d", "a/s", "a/é", "a b/r", "b/r", "z/d"];
    for limit in [1, 2, 3, 1000] {
        let met = walk(&app, &format!("limit={limit}")).await;
        assert_eq!(met, expected, "{limit}");
    }
    // Each as a check shows it.
    let page = app.get("/quotas").await.is(200).json();
    for (quota, pair) in page["quotas"].as_array().unwrap().iter().zip(expected) {
        let (user_id, resource) = pair.split_once('/').unwrap();
        let path = format!("/quotas/{}/{}", encoded(user_id), encoded(resource));
        assert_eq!(app.get(&path).await.is(200).json(), *quota);
    }
    app.delete("/quotas/b/r").await.is(204);
    app.delete("/defaults/d").await.is(204);
    assert_eq!(walk(&app, "").await, ["B/r", "a/s", "a/é", "a b/r"]);
}

/// C67, across users: every pair that existed throughout exactly once, while others come and go.
#[tokio::test]
async fn c67_a_walk_over_all_users_meets_every_pair_once() {
    let app = TestApp::new().await;
    let file = rusqlite::Connection::open(app.folder.path().join("quotalog.db")).unwrap();
    file.execute_batch(
        "WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 2999) \
         INSERT INTO quota_policies \
         (user_id, resource, window, limit_count, created_at, updated_at) \
         SELECT printf('u%03d', n / 10), printf('r%d', n % 10), 'hourly', 5, \
         '2026-11-30 18:00:00', '2026-11-30 18:00:00' FROM n",
    )
    .unwrap();
    let mut met = Vec::new();
    let mut path = "/quotas?limit=700".to_owned();
    for round in 0.. {
        let page = app.get(&path).await.is(200).json();
        assert!(pairs(&page).len() <= 700);
        met.extend(pairs(&page));
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        path = format!("/quotas?limit=700&cursor={cursor}");
        fill(&app, &[&format!("a{round}/r 0 of 5"), "z/r 0 of 5"]).await;
        let last = met.last().expect("an entry");
        app.delete(&format!("/quotas/{last}")).await.is(204);
    }
    let mut sorted = met.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(met, sorted, "in order, and none twice");
    let old = met.iter().filter(|pair| pair.starts_with('u')).count();
    assert_eq!(old, 3_000);
}

/// C68: filters match exactly, whatever characters are in them.
#[tokio::test]
async fn c68_no_character_of_a_filter_is_a_wildcard() {
    let app = TestApp::new().await;
    let names = [
        "a_b", "axb", "A_B", "100%", "1000", "c\\d", "cd", "%", "*", "a?b",
    ];
    for name in names {
        let pair = format!("u/{}", encoded(name));
        fill(&app, &[&format!("{pair} 1 of 2")]).await;
    }
    for name in names {
        let filter = format!("resource={}", encoded(name));
        let expected = [format!("u/{name}")];
        assert_eq!(walk(&app, &filter).await, expected);
        assert_eq!(fullest(&app, &format!("&{filter}")).await, expected);
    }
    for name in ["a", "_", "a%", "\\", "' OR 1=1 --", "a_b "] {
        let filter = format!("resource={}", encoded(name));
        assert_eq!(walk(&app, &filter).await, [""; 0], "{name}");
        assert_eq!(fullest(&app, &format!("&{filter}")).await, [""; 0]);
    }
}

#[tokio::test]
async fn a_percentage_is_exact_and_inclusive() {
    let app = TestApp::new().await;
    let rows = [
        "a/r 0 of 3",
        "b/r 1 of 3",
        "c/r 2 of 3",
        "d/r 3 of 3",
        "e/s 2 of 3",
    ];
    fill(&app, &rows).await;
    let check = async |query: &str, expected: &[&str]| {
        assert_eq!(walk(&app, query).await, expected, "{query}");
    };
    let all = ["a/r", "b/r", "c/r", "d/r", "e/s"];
    check("min_used_percent=0", &all).await;
    check("min_used_percent=1", &["b/r", "c/r", "d/r", "e/s"]).await;
    check("min_used_percent=33", &["b/r", "c/r", "d/r", "e/s"]).await;
    check("min_used_percent=34", &["c/r", "d/r", "e/s"]).await;
    check("min_used_percent=66", &["c/r", "d/r", "e/s"]).await;
    check("min_used_percent=67", &["d/r"]).await;
    check("min_used_percent=100", &["d/r"]).await;
    check("min_used_percent=66&resource=r", &["c/r", "d/r"]).await;
    check("min_used_percent=66&resource=r&limit=1", &["c/r", "d/r"]).await;
    // Lowered below what is used, a limit is used up.
    let lowered = r#"{"window":"hourly","limit_count":1}"#;
    app.put("/quotas/c/r", lowered).await.is(200);
    check("min_used_percent=100", &["c/r", "d/r"]).await;
    // The next hour has used nothing.
    app.set_time("2026-11-30T19:00:00Z");
    check("min_used_percent=1", &[]).await;
    check("min_used_percent=0", &all).await;
    app.set_time("2026-11-30T18:30:00Z");
    check("min_used_percent=100", &["c/r", "d/r"]).await;
}

#[tokio::test]
async fn the_fullest_come_first() {
    let app = TestApp::new().await;
    let rows = [
        "a/none 0 of 1",
        "b/half 500 of 1000",
        "c/more 2 of 3",
        "d/less 666 of 1000",
        "e/half 1 of 2",
        "f/full 7 of 7",
        "g/none 0 of 9",
    ];
    fill(&app, &rows).await;
    let order = [
        "f/full", "c/more", "d/less", "b/half", "e/half", "a/none", "g/none",
    ];
    assert_eq!(fullest(&app, "").await, order);
    for limit in 1..=7 {
        let page = fullest(&app, &format!("&limit={limit}")).await;
        assert_eq!(page, order[..limit]);
    }
    assert_eq!(
        fullest(&app, "&min_used_percent=50").await,
        ["f/full", "c/more", "d/less", "b/half", "e/half"]
    );
    assert_eq!(
        fullest(&app, "&resource=half&limit=1").await,
        ["b/half"],
        "equal ones in the order of their pairs"
    );
    assert_eq!(fullest(&app, "&resource=none").await, ["a/none", "g/none"]);
    // More used than a lowered limit allows is fuller than full.
    let lowered = r#"{"window":"hourly","limit_count":100}"#;
    app.put("/quotas/d/less", lowered).await.is(200);
    assert_eq!(fullest(&app, "&limit=2").await, ["d/less", "f/full"]);
    // A default counts like a policy, and a day counts all its hours.
    app.put("/defaults/x", r#"{"window":"daily","limit_count":10}"#)
        .await
        .is(200);
    app.post("/quotas/h/x/consume", r#"{"amount":9}"#)
        .await
        .is(200);
    app.set_time("2026-11-30T19:00:00Z");
    assert_eq!(fullest(&app, "&limit=1").await, ["h/x"]);
    assert_eq!(fullest(&app, "&min_used_percent=1").await, ["h/x"]);
    let page = app.get("/quotas?sort=used_percent&limit=1").await.is(200);
    let check = app.get("/quotas/h/x").await.is(200);
    assert_eq!(page.json()["quotas"][0], check.json());
}

#[tokio::test]
async fn what_is_no_filter_is_refused() {
    let app = TestApp::new().await;
    let check = async |query: &str, faults: &[&str]| {
        app.get(&format!("/quotas?{query}")).await.faults(faults);
    };
    for resource in ["", "..", ".", "a/b", "a%2Fb", "a%00", "%C2%85"] {
        check(&format!("resource={resource}"), &["resource invalid"]).await;
    }
    let long = "x".repeat(256);
    check(&format!("resource={long}"), &["resource too_long"]).await;
    for percent in [
        "", "-1", "101", "256", "999", "5.0", "05", "00", "+5", "1e1", "50%25", "half",
    ] {
        let query = format!("min_used_percent={percent}");
        check(&query, &["min_used_percent invalid"]).await;
    }
    for sort in [
        "",
        "usage",
        "Used_percent",
        "used_percent,resource",
        "-used_percent",
    ] {
        check(&format!("sort={sort}"), &["sort invalid"]).await;
    }
    check("user_id=u", &["user_id unknown_parameter"]).await;
    check("resource=r&resource=r", &["resource unknown_parameter"]).await;
    let all = "resource=..&min_used_percent=x&sort=x&limit=0&cursor=x&page=1";
    check(
        all,
        &[
            "resource invalid",
            "min_used_percent invalid",
            "sort invalid",
            "limit invalid",
            "cursor invalid",
            "page unknown_parameter",
        ],
    )
    .await;
    let sorted = "sort=used_percent&resource=..&limit=0&cursor=x&page=1";
    check(
        sorted,
        &[
            "resource invalid",
            "limit invalid",
            "cursor invalid",
            "page unknown_parameter",
        ],
    )
    .await;
    app.get("/quotas?min_used_percent=%")
        .await
        .problem(400, "malformed-request");
}

#[tokio::test]
async fn c67_a_cursor_is_of_its_filter_and_never_of_a_sorted_list() {
    let app = TestApp::new().await;
    fill(&app, &["a/r 1 of 1", "b/r 1 of 1", "c/r 1 of 1"]).await;
    let queries = ["", "&resource=r", "&min_used_percent=5"];
    let mut cursors = Vec::new();
    for query in queries {
        let page = app.get(&format!("/quotas?limit=1{query}")).await.is(200);
        cursors.push(page.json()["next_cursor"].as_str().unwrap().to_owned());
    }
    for (own, cursor) in queries.iter().zip(&cursors) {
        for query in [
            "",
            "&resource=r",
            "&min_used_percent=5",
            "&resource=r&min_used_percent=5",
        ] {
            let answer = app.get(&format!("/quotas?cursor={cursor}{query}")).await;
            if query == *own {
                assert_eq!(pairs(&answer.is(200).json()), ["b/r", "c/r"]);
            } else {
                answer.faults(&["cursor invalid"]);
            }
        }
        let sorted = format!("/quotas?sort=used_percent&cursor={cursor}{own}");
        app.get(&sorted).await.faults(&["cursor invalid"]);
        for other in ["/quotas/a", "/tokens", "/audit", "/defaults"] {
            let answer = app.get(&format!("{other}?cursor={cursor}")).await;
            answer.faults(&["cursor invalid"]);
        }
    }
    let alice = app.user_token("a").await;
    app.call(Method::GET, "/quotas", &alice, "")
        .await
        .problem(403, "forbidden");
}
