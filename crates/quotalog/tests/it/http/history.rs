//! `GET /quotas/{userId}/{resource}/usage`: the stored usage rows of a pair, newest first.

use serde_json::{Value, json};

use crate::support::app::TestApp;

const USAGE: &str = "/quotas/u/r/usage";

/// A server whose `u`/`r` was used in the hours of `rows`, each with as many units as it says.
async fn used(rows: &[(&str, i64)]) -> TestApp {
    let app = TestApp::new().await;
    app.policy("hourly", 1_000).await;
    for (hour, amount) in rows {
        app.set_time(&format!("2026-11-30T{hour}:30:00Z"));
        app.consume_amount(*amount).await.is(200);
    }
    app
}

/// The hours and units of a page, and its cursor.
fn windows(page: &Value) -> (Vec<(String, u64)>, Option<String>) {
    let windows = page["windows"].as_array().expect("windows").iter();
    let windows = windows.map(|window| {
        assert_eq!(window.as_object().unwrap().len(), 2);
        let start = window["window_start"].as_str().unwrap();
        assert_eq!(start.len(), 20, "{start}");
        (start[11..13].to_owned(), window["usage"].as_u64().unwrap())
    });
    let cursor = page["next_cursor"].as_str().map(str::to_owned);
    (windows.collect(), cursor)
}

async fn hours(app: &TestApp, query: &str) -> Vec<String> {
    let page = app.get(&format!("{USAGE}{query}")).await.is(200).json();
    let (windows, cursor) = windows(&page);
    assert_eq!(cursor, None, "{query}");
    windows.into_iter().map(|(hour, _)| hour).collect()
}

#[tokio::test]
async fn a_history_is_newest_first_with_or_without_a_policy() {
    let app = used(&[("09", 4), ("10", 3), ("12", 5)]).await;
    let expected = concat!(
        r#"{"user_id":"u","resource":"r","windows":["#,
        r#"{"window_start":"2026-11-30T12:00:00Z","usage":5},"#,
        r#"{"window_start":"2026-11-30T10:00:00Z","usage":3},"#,
        r#"{"window_start":"2026-11-30T09:00:00Z","usage":4}],"next_cursor":null}"#
    );
    let page = app.get(USAGE).await.is(200);
    assert_eq!(page.body, expected);
    assert_eq!(page.header("cache-control"), Some("no-store"));
    for field in ["ratelimit", "etag"] {
        assert_eq!(page.header(field), None);
    }
    app.delete("/quotas/u/r").await.is(204);
    assert_eq!(app.get(USAGE).await.is(200).body, expected);
    // A day counts in a row of its own, whose start is the day's.
    app.policy("daily", 1_000).await;
    app.consume_amount(7).await.is(200);
    assert_eq!(hours(&app, "").await, ["12", "10", "09", "00"]);
    // What a refund gives back is gone from the newest row of the window.
    app.post("/quotas/u/r/refund", r#"{"amount":6}"#)
        .await
        .is(200);
    let (windows, _) = windows(&app.get(USAGE).await.is(200).json());
    let sum: u64 = windows.iter().map(|(_, usage)| usage).sum();
    assert_eq!(sum, 13);
    assert_eq!(windows.last().unwrap(), &("00".to_owned(), 7));
}

#[tokio::test]
async fn a_pair_that_was_never_used_has_an_empty_history() {
    let app = TestApp::new().await;
    let empty = |user: &str| json!({ "user_id": user, "resource": "r", "windows": [], "next_cursor": null });
    assert_eq!(app.get(USAGE).await.is(200).json(), empty("u"));
    app.policy("hourly", 5).await;
    assert_eq!(app.get(USAGE).await.is(200).json(), empty("u"));
    app.consume().await.is(200);
    let other = app.get("/quotas/v/r/usage").await.is(200);
    assert_eq!(other.json(), empty("v"));
    assert_eq!(app.number("SELECT count(*) FROM quota_usage"), 1);
}

#[tokio::test]
async fn a_history_goes_from_an_instant_to_one_before_another() {
    let app = used(&[("09", 1), ("10", 1), ("12", 1)]).await;
    let check = async |query: &str, expected: &[&str]| {
        assert_eq!(hours(&app, query).await, expected, "{query}");
    };
    check("?from=2026-11-30T10:00:00Z", &["12", "10"]).await;
    check("?to=2026-11-30T10:00:00Z", &["09"]).await;
    check(
        "?to=2026-11-30T12:00:00Z&from=2026-11-30T10:00:00Z",
        &["10"],
    )
    .await;
    // To the part of a second: a row starts at its second and not after it.
    check("?from=2026-11-30T10:00:00.000001Z", &["12"]).await;
    check("?from=2026-11-30T09:59:59.999999Z", &["12", "10"]).await;
    check("?to=2026-11-30T10:00:00.000001Z", &["10", "09"]).await;
    check("?to=2026-11-30T10:00:00.000000001Z", &["10", "09"]).await;
    // In any offset.
    check("?from=2026-11-30T15:45:00%2B05:45", &["12", "10"]).await;
    check("?from=2026-11-30t05:00:00-05:00", &["12", "10"]).await;
    // From the start of time to its end, and where the end comes before the start.
    check(
        "?from=0001-01-01T00:00:00Z&to=9999-12-31T23:59:59Z",
        &["12", "10", "09"],
    )
    .await;
    check("?from=2026-11-30T12:00:00Z&to=2026-11-30T09:00:00Z", &[]).await;
    check("?from=2026-11-30T10:00:00Z&to=2026-11-30T10:00:00Z", &[]).await;
    check("?from=2026-12-01T00:00:00Z", &[]).await;
}

#[tokio::test]
async fn what_is_no_instant_is_refused() {
    let app = TestApp::new().await;
    for text in [
        "",
        "now",
        "2026-11-30",
        "2026-11-30T10:00:00",
        "2026-11-30T24:00:00Z",
        "2026-02-29T00:00:00Z",
        "1796061600",
        // Unescaped, the plus is a blank.
        "2026-11-30T10:00:00+01:00",
    ] {
        for name in ["from", "to"] {
            let answer = app.get(&format!("{USAGE}?{name}={text}")).await;
            answer.faults(&[&format!("{name} invalid")]);
        }
    }
    let twice = "from=2026-11-30T10:00:00Z&from=2026-11-30T10:00:00Z";
    let answer = app.get(&format!("{USAGE}?{twice}")).await;
    answer.faults(&["from unknown_parameter"]);
    let path = "/quotas/%00/../usage?from=x&to=y&limit=0&cursor=z&window=hourly";
    app.get(path).await.faults(&[
        "user_id invalid",
        "resource invalid",
        "from invalid",
        "to invalid",
        "limit invalid",
        "cursor invalid",
        "window unknown_parameter",
    ]);
}

#[tokio::test]
async fn a_walk_through_a_history_meets_each_row_once() {
    let rows = [("03", 1), ("05", 2), ("08", 3), ("13", 4), ("21", 5)];
    let app = used(&rows).await;
    for limit in [1, 2, 5] {
        for query in ["", "&from=2026-11-30T05:00:00Z&to=2026-11-30T21:00:00Z"] {
            let mut met = Vec::new();
            let mut path = format!("{USAGE}?limit={limit}{query}");
            loop {
                let (rows, cursor) = windows(&app.get(&path).await.is(200).json());
                assert!(rows.len() <= limit);
                met.extend(rows.into_iter().map(|(_, usage)| usage));
                let Some(cursor) = cursor else { break };
                path = format!("{USAGE}?limit={limit}{query}&cursor={cursor}");
            }
            let expected: &[u64] = if query.is_empty() {
                &[5, 4, 3, 2, 1]
            } else {
                &[4, 3, 2]
            };
            assert_eq!(met, expected, "{limit} {query}");
        }
    }
}

#[tokio::test]
async fn a_cursor_of_a_history_is_of_its_pair_and_range() {
    let app = used(&[("09", 1), ("10", 1), ("12", 1)]).await;
    let from = "from=2026-11-30T09:00:00Z";
    let first = app.get(&format!("{USAGE}?limit=1&{from}")).await.is(200);
    let (_, cursor) = windows(&first.json());
    let cursor = cursor.expect("a cursor");
    for other in [
        format!("{USAGE}?cursor={cursor}"),
        format!("{USAGE}?from=2026-11-30T10:00:00Z&cursor={cursor}"),
        format!("{USAGE}?{from}&to=2026-12-30T10:00:00Z&cursor={cursor}"),
        format!("{USAGE}?to=2026-11-30T09:00:00Z&cursor={cursor}"),
        format!("/quotas/v/r/usage?{from}&cursor={cursor}"),
        format!("/quotas/u/R/usage?{from}&cursor={cursor}"),
        format!("/quotas/u?cursor={cursor}"),
    ] {
        app.get(&other).await.faults(&["cursor invalid"]);
    }
    // The same instant is the same filter, however it is written.
    let same = format!("?from=2026-11-30T10:00:00.000%2B01:00&cursor={cursor}");
    assert_eq!(hours(&app, &same).await, ["10", "09"]);
}
