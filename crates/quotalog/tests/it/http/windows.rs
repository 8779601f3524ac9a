//! Windows: UTC hours and days of the server's clock, whatever that does.

use crate::support::app::TestApp;

#[tokio::test]
async fn c01_a_window_refills_on_the_hour_and_not_an_hour_after_first_use() {
    let app = TestApp::at("2026-11-30T10:55:30Z").await;
    app.policy("hourly", 1).await;
    app.set_time("2026-11-30T10:55:31Z");
    let first = app.consume().await.is(200);
    assert_eq!(first.usage(), 1);
    assert_eq!(first.header("ratelimit"), Some(r#""hourly";r=0;t=269"#));
    app.set_time("2026-11-30T10:59:59Z");
    let denied = app.consume().await.problem(429, "quota-exceeded");
    assert_eq!(denied.header("retry-after"), Some("1"));
    app.set_time("2026-11-30T11:00:00Z");
    let next = app.consume().await.is(200);
    assert_eq!(next.usage(), 1);
    assert_eq!(next.json()["window_start"], "2026-11-30T11:00:00Z");
}

#[tokio::test]
async fn c01_a_day_ends_at_midnight_also_across_a_restart() {
    let app = TestApp::at("2026-11-30T23:59:59Z").await;
    app.policy("daily", 5).await;
    assert_eq!(app.consume().await.is(200).usage(), 1);
    let app = app.restart().await;
    assert_eq!(app.check().await.usage(), 1);
    app.set_time("2026-12-01T00:00:00Z");
    assert_eq!(app.check().await.usage(), 0);
    let app = app.restart().await;
    assert_eq!(app.check().await.usage(), 0);
    assert_eq!(app.consume().await.is(200).usage(), 1);
}

/// C05: days that a civil clock would stretch or shorten, a leap day, a year's end.
#[tokio::test]
async fn c05_a_day_has_24_hours_and_a_year_its_days() {
    //          now                     window    start                   reset
    let rows = [
        ("2025-03-30T00:30:00Z", "daily", "2025-03-30", "2025-03-31"),
        ("2025-10-26T00:30:00Z", "daily", "2025-10-26", "2025-10-27"),
        ("2028-02-28T23:59:59Z", "daily", "2028-02-28", "2028-02-29"),
        ("2028-02-29T23:59:59Z", "daily", "2028-02-29", "2028-03-01"),
        ("2027-02-28T12:00:00Z", "daily", "2027-02-28", "2027-03-01"),
        (
            "2027-12-31T23:59:59Z",
            "hourly",
            "2027-12-31T23",
            "2028-01-01T00",
        ),
    ];
    let app = TestApp::at("2025-01-01T00:00:00Z").await;
    for (now, window, start, reset) in rows {
        app.set_time(now);
        app.policy(window, 1).await;
        app.consume().await.is(200);
        let denied = app.consume().await.problem(429, "quota-exceeded").json();
        let text = |member: &str| denied[member].as_str().unwrap().to_owned();
        assert!(text("window_start").starts_with(start), "{now}");
        assert!(text("reset_at").starts_with(reset), "{now}");
    }
    for now in ["2025-03-31T00:30:00Z", "2025-10-27T00:30:00Z"] {
        app.set_time(now);
        app.policy("daily", 1).await;
        app.consume().await.is(200);
        let denied = app.consume().await.problem(429, "quota-exceeded");
        assert_eq!(denied.header("retry-after"), Some("84600"));
    }
}

/// The contract's example: made daily and back, at 10:30.
#[tokio::test]
async fn a_change_of_window_counts_what_its_rows_hold() {
    let app = TestApp::at("2026-11-30T10:30:00Z").await;
    assert_eq!(app.policy("hourly", 10).await.usage(), 0);
    app.consume_amount(3).await.is(200);
    assert_eq!(app.policy("daily", 10).await.usage(), 3);
    assert_eq!(app.consume().await.is(200).usage(), 4);
    assert_eq!(app.policy("hourly", 10).await.usage(), 3);
    assert_eq!(app.policy("daily", 10).await.usage(), 4);
    let at_midnight = "window_start = '2026-11-30 00:00:00'";
    let sql = format!("SELECT usage FROM quota_usage WHERE {at_midnight}");
    assert_eq!(app.number(&sql), 1);
}

#[tokio::test]
async fn a_daily_policy_counts_all_hours_since_midnight() {
    let app = TestApp::at("2026-11-30T01:00:00Z").await;
    app.policy("hourly", 10).await;
    for now in ["01:10", "02:10", "10:10"] {
        app.set_time(&format!("2026-11-30T{now}:00Z"));
        app.consume_amount(2).await.is(200);
    }
    assert_eq!(app.policy("daily", 7).await.usage(), 6);
    app.consume_amount(2).await.problem(429, "quota-exceeded");
    app.consume().await.is(200);
    // A reset empties every row of the window, and none before it.
    app.set_time("2026-12-01T05:00:00Z");
    app.consume_amount(3).await.is(200);
    assert_eq!(app.post("/quotas/u/r/reset", "").await.is(200).usage(), 0);
    app.set_time("2026-11-30T12:00:00Z");
    assert_eq!(app.check().await.usage(), 7);
}

#[tokio::test]
async fn a_clock_that_steps_back_finds_the_earlier_count() {
    let app = TestApp::at("2026-11-30T10:30:00Z").await;
    app.policy("hourly", 2).await;
    app.consume().await.is(200);
    app.set_time("2026-11-30T11:30:00Z");
    app.consume_amount(2).await.is(200);
    app.set_time("2026-11-30T10:40:00Z");
    assert_eq!(app.consume().await.is(200).usage(), 2);
    let denied = app.consume().await.problem(429, "quota-exceeded");
    assert_eq!(denied.header("retry-after"), Some("1200"));
    app.set_time("2026-11-30T11:45:00Z");
    app.consume().await.problem(429, "quota-exceeded");
    app.set_time("2020-01-01T00:00:00Z");
    assert_eq!(app.consume().await.is(200).usage(), 1);
}
