//! `POST /quotas/{userId}/{resource}/consume`.

use crate::support::app::TestApp;

#[tokio::test]
async fn a_window_refills_on_the_hour_and_not_an_hour_after_first_use() {
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
