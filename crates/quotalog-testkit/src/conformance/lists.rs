//! Lists of a user's quotas: complete, in order, by page.

use std::sync::Arc;

use quotalog_domain::{Resource, Source, Window};

use crate::ManualClock;
use crate::conformance::Database;
use crate::conformance::desk::{Desk, pair};

/// Upper case before lower case, ASCII before the rest: no collation of any language.
pub async fn quotas_are_listed_in_the_order_of_bytes(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    for resource in [
        "é",
        "a",
        "日本語",
        "Z",
        "aa",
        "0",
        "a b",
        "ab",
        "_",
        "\u{1f600}",
    ] {
        desk.set(pair("u", resource), Window::Daily, 1).await;
    }
    desk.set(pair("U", "other"), Window::Daily, 1).await;
    desk.set(pair("u ", "other"), Window::Daily, 1).await;
    let (quotas, next) = desk.page("u", None, 100).await;
    let resources: Vec<&str> = quotas
        .iter()
        .map(|quota| quota.pair.resource.as_str())
        .collect();
    let in_order = [
        "0",
        "Z",
        "_",
        "a",
        "a b",
        "aa",
        "ab",
        "é",
        "日本語",
        "\u{1f600}",
    ];
    assert_eq!(resources, in_order);
    assert_eq!(next, None);
    assert_eq!(desk.page("nobody", None, 100).await, (Vec::new(), None));
}

/// Policies and usage under a default alike, with pages of every length.
pub async fn a_walk_meets_every_quota_once_while_others_come(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    let existing: Vec<String> = (0..10).map(|number| format!("r{number}")).collect();
    for resource in &existing {
        if resource.ends_with(['1', '4', '9']) {
            desk.set_default(resource, Window::Daily, 5).await;
            assert!(desk.consume(pair("u", resource), 1).await.is_ok());
        } else {
            desk.set(pair("u", resource), Window::Daily, 5).await;
        }
    }
    for len_max in 1..=11 {
        let mut met: Vec<String> = Vec::new();
        let mut after: Option<Resource> = None;
        loop {
            let (quotas, next) = desk.page("u", after, len_max).await;
            met.extend(
                quotas
                    .iter()
                    .map(|quota| quota.pair.resource.as_str().to_owned()),
            );
            // One comes before what was read, one after it, and another user's on its place.
            desk.set(
                pair("u", &format!("a{len_max}{}", met.len())),
                Window::Daily,
                5,
            )
            .await;
            desk.set(
                pair("v", &format!("r{len_max}{}", met.len())),
                Window::Daily,
                5,
            )
            .await;
            match next {
                None => break,
                Some(next) => {
                    assert_eq!(met.last().map(String::as_str), Some(next.as_str()));
                    after = Some(next);
                }
            }
        }
        met.retain(|resource| resource.starts_with('r'));
        assert_eq!(met, existing, "pages of {len_max}");
    }
}

/// Where there is a default and the user was counted under it; not where either is missing.
pub async fn a_pair_counted_under_a_default_is_listed(
    database: impl Database,
    clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    desk.set_default("counted", Window::Hourly, 5).await;
    desk.set_default("never", Window::Hourly, 5).await;
    desk.set(pair("u", "deleted"), Window::Hourly, 5).await;
    desk.set(pair("u", "own"), Window::Hourly, 5).await;
    assert!(desk.consume(pair("u", "counted"), 2).await.is_ok());
    assert!(desk.consume(pair("u", "deleted"), 2).await.is_ok());
    assert!(desk.delete(pair("u", "deleted")).await.is_ok());
    desk.set_default("own", Window::Hourly, 7).await;
    assert!(desk.consume(pair("u", "own"), 1).await.is_ok());

    let listed = async || {
        let (quotas, _) = desk.page("u", None, 100).await;
        let line = |quota: &quotalog_domain::Quota| {
            let resource = quota.pair.resource.as_str().to_owned();
            (resource, quota.source, quota.usage)
        };
        quotas.iter().map(line).collect::<Vec<_>>()
    };
    let expect = |counted, own| {
        vec![
            ("counted".to_owned(), Source::Default, counted),
            ("own".to_owned(), Source::Policy, own),
        ]
    };
    assert_eq!(listed().await, expect(2, 1));
    // The next day nothing is counted yet, but the pair is known still.
    clock.advance_s(86_400);
    assert_eq!(listed().await, expect(0, 0));
}
