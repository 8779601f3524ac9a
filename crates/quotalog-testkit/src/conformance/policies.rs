//! Policies and defaults: set, changed, deleted, found.

use std::sync::Arc;

use quotalog_domain::{Answer, Operation, Precondition, Refusal, Resource, Source, Window};

use tokio::task::JoinSet;

use crate::ManualClock;
use crate::conformance::desk::{Desk, assert_exhausted, limit, pair, quota_of};
use crate::conformance::{Database, START};

/// Setting tells the quota, keeps usage and the date of creation; deleting is told apart from nothing.
pub async fn a_policy_is_set_changed_and_deleted(database: impl Database, clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    let own = || pair("u", "r");
    assert_eq!(desk.check(own()).await, None);
    assert_eq!(desk.delete(own()).await, Err(Refusal::NotFound));

    let quota = desk.set(own(), Window::Daily, 100).await;
    assert_eq!((quota.usage, quota.source), (0, Source::Policy));
    assert!(desk.consume(own(), 40).await.is_ok());
    clock.advance_s(60);
    // The same again changes nothing, not even the date.
    let same = desk.set(own(), Window::Daily, 100).await;
    assert_eq!(same.policy.updated_at, START);
    let lowered = desk.set(own(), Window::Daily, 10).await;
    assert_eq!(lowered.policy.created_at, START);
    assert_eq!(lowered.policy.updated_at, START.plus_s(60));
    assert_eq!((lowered.usage, lowered.remaining()), (40, 0));
    assert_exhausted(&desk.consume(own(), 1).await, 40);
    assert_eq!(desk.check(own()).await, Some(lowered));

    let deleted = desk.delete(own()).await.expect("there was a policy");
    assert_eq!(deleted.answer, Answer::Deleted);
    assert_eq!(desk.check(own()).await, None);
    assert_eq!(desk.consume(own(), 1).await, Err(Refusal::NotFound));
}

/// Usage outlives its policy.
pub async fn a_policy_that_comes_back_is_not_refilled(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    desk.set(pair("u", "r"), Window::Hourly, 5).await;
    assert!(desk.consume(pair("u", "r"), 5).await.is_ok());
    assert!(desk.delete(pair("u", "r")).await.is_ok());
    let quota = desk.set(pair("u", "r"), Window::Hourly, 6).await;
    assert_eq!(quota.usage, 5);
    assert!(desk.consume(pair("u", "r"), 1).await.is_ok());
    assert_exhausted(&desk.consume(pair("u", "r"), 1).await, 6);
}

/// A default is looked up at each decision, and a policy of one's own comes before it.
pub async fn a_default_serves_who_has_no_policy(database: impl Database, _clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    let delete = || Operation::DeleteDefault {
        resource: Resource::try_from("r").expect("a resource"),
        precondition: None,
    };
    assert_eq!(desk.operate(delete()).await, Err(Refusal::NotFound));
    desk.set_default("r", Window::Hourly, 2).await;
    let quota = desk.check(pair("u", "r")).await.expect("the default's");
    assert_eq!(quota.source, Source::Default);
    assert_eq!(quota.policy.created_at, START);
    assert_eq!(desk.check(pair("u", "s")).await, None);

    assert!(desk.consume(pair("u", "r"), 2).await.is_ok());
    assert_exhausted(&desk.consume(pair("u", "r"), 1).await, 2);
    assert!(desk.consume(pair("v", "r"), 1).await.is_ok());
    desk.set_default("r", Window::Hourly, 3).await;
    assert_eq!(quota_of(&desk.consume(pair("u", "r"), 1).await).usage, 3);

    let own = desk.set(pair("u", "r"), Window::Hourly, 10).await;
    assert_eq!((own.source, own.usage), (Source::Policy, 3));
    assert!(desk.delete(pair("u", "r")).await.is_ok());
    assert_exhausted(&desk.consume(pair("u", "r"), 1).await, 3);

    let deleted = desk.operate(delete()).await.expect("there was a default");
    assert_eq!(deleted.answer, Answer::Deleted);
    assert_eq!(
        desk.consume(pair("v", "r"), 1).await,
        Err(Refusal::NotFound)
    );
}

/// No folding, no normalisation, no trimming, no reading as numbers, patterns or SQL.
pub async fn ids_are_bytes(database: impl Database, _clock: Arc<ManualClock>) {
    let long = "x".repeat(255);
    let texts = [
        "alice",
        "Alice",
        "\u{e9}",
        "e\u{301}",
        "7",
        "007",
        " 7",
        "7 ",
        "100%",
        "1000",
        "a_b",
        "axb",
        "c\\d",
        "o'neil",
        "\"quoted\"",
        "api'; DROP TABLE quota_policies; --",
        "system::admin",
        "日本語",
        "$1",
        "?1",
        "NULL",
        "\u{feff}alice",
        &long,
    ];
    let desk = Desk::at(&database).await;
    for (units, text) in (1..).zip(texts) {
        desk.set(pair(text, "r"), Window::Daily, 100).await;
        desk.set(pair("u", text), Window::Daily, 100).await;
        assert!(desk.consume(pair(text, "r"), units).await.is_ok());
        assert!(desk.consume(pair("u", text), units).await.is_ok());
    }
    for (units, text) in (1..).zip(texts) {
        for pair in [pair(text, "r"), pair("u", text)] {
            let quota = desk.check(pair.clone()).await.expect("there is a quota");
            assert_eq!((quota.usage, quota.pair), (units, pair));
        }
    }
}

/// On what is stored when the change happens: of many that all saw the same policy, one gets through.
pub async fn a_precondition_is_judged_with_the_change(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desks = [Desk::at(&database).await, Desk::at(&database).await];
    let set = |units, precondition| Operation::SetPolicy {
        pair: pair("u", "r"),
        window: Window::Daily,
        limit: limit(units),
        precondition: Some(precondition),
    };
    let failed = Err(Refusal::PreconditionFailed);
    let any = set(1, Precondition::AnyPolicy);
    assert_eq!(desks[0].operate(any).await, failed);
    // None serves but the default, which is not the pair's own.
    desks[0].set_default("r", Window::Daily, 5).await;
    let any = set(1, Precondition::AnyPolicy);
    assert_eq!(desks[0].operate(any).await, failed);
    for none in [true, false] {
        let seen = desks[0].check(pair("u", "r")).await;
        let seen = seen.and_then(|quota| quota.revision());
        assert_eq!(seen.is_none(), none);
        let mut changes = JoinSet::new();
        for place in 0..10_usize {
            let precondition = match &seen {
                None => Precondition::NoPolicy,
                Some(revision) => Precondition::OneOf(vec![revision.as_str().into()]),
            };
            let units = 100 + u64::try_from(place).expect("few");
            let (desk, change) = (desks[place % 2].clone(), set(units, precondition));
            changes.spawn(async move { desk.operate(change).await });
        }
        let outcomes = changes.join_all().await;
        let (made, others): (Vec<_>, Vec<_>) = outcomes.iter().partition(|made| made.is_ok());
        assert_eq!(made.len(), 1, "{made:?}");
        assert!(others.iter().all(|other| **other == failed), "{others:?}");
        assert_eq!(
            desks[1].check(pair("u", "r")).await.as_ref(),
            Some(quota_of(made[0]))
        );
        // So that the next change is one.
        desks[0].set(pair("u", "r"), Window::Daily, 50).await;
    }
    let delete = |precondition| Operation::DeletePolicy {
        pair: pair("u", "r"),
        precondition: Some(precondition),
    };
    let old = Precondition::OneOf(vec!["another".into()]);
    assert_eq!(desks[0].operate(delete(old)).await, failed);
    assert!(
        desks[1]
            .operate(delete(Precondition::AnyPolicy))
            .await
            .is_ok()
    );
}
