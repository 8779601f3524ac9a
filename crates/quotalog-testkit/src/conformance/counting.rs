//! Counting: what is granted, what is refused, and in which window.

use std::sync::Arc;

use quotalog_domain::{DeniedItem, MissingItem, Outcome, Refusal, Timestamp, Window};
use quotalog_ledger::store::UsageRange;
use tokio::task::JoinSet;

use crate::ManualClock;
use crate::conformance::desk::{
    Desk, assert_exhausted, batch, consume, hits, limits_of, pair, quota_of, usages_of,
};
use crate::conformance::lists::MIDNIGHT;
use crate::conformance::{Database, START};

/// Two stores, each with callers in parallel: the grants sum to the limit, no more and no less.
pub async fn parallel_consumes_on_two_stores_grant_the_limit_exactly(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    const LIMIT: u64 = 100;
    let desks = [Desk::at(&database).await, Desk::at(&database).await];
    desks[0].set(pair("u", "r"), Window::Daily, LIMIT).await;

    let mut callers = JoinSet::new();
    for caller in 0..8_u64 {
        let desk = desks[usize::from(caller % 2 == 0)].clone();
        callers.spawn(async move {
            let mut granted = 0;
            for _ in 0..10 {
                // Commits of several amounts and lengths.
                let commands = (0..=caller % 3).map(|_| consume(pair("u", "r"), 1 + caller % 2));
                let outcomes = desk.commit(commands.collect()).await;
                let grants = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
                granted += u64::try_from(grants).expect("a few") * (1 + caller % 2);
            }
            granted
        });
    }
    let granted: u64 = callers.join_all().await.into_iter().sum();
    // Amounts of 2 may leave one unit over; amounts of 1 then take it.
    while desks[1].consume(pair("u", "r"), 1).await.is_ok() {}
    let usage = desks[0].usage(pair("u", "r")).await;
    assert_eq!(usage, LIMIT);
    assert!(granted <= LIMIT, "{granted} granted");
    assert!(granted >= LIMIT - 1, "{granted} granted");
}

/// Batches over several pairs in different orders, on two stores.
pub async fn parallel_batches_grant_the_limit_exactly(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desks = [Desk::at(&database).await, Desk::at(&database).await];
    desks[0].set(pair("a", "r"), Window::Hourly, 30).await;
    desks[0].set(pair("b", "r"), Window::Daily, 1_000).await;

    let mut callers = JoinSet::new();
    for caller in 0..6_usize {
        let desk = desks[caller % 2].clone();
        callers.spawn(async move {
            let mut granted = 0_u64;
            for _ in 0..10 {
                let mut items = [("a", "r", 1), ("b", "r", 2)];
                if caller % 3 == 0 {
                    items.reverse();
                }
                granted += u64::from(desk.one(batch(&items)).await.is_ok());
            }
            granted
        });
    }
    let granted: u64 = callers.join_all().await.into_iter().sum();
    assert_eq!(granted, 30);
    assert_eq!(desks[0].usage(pair("a", "r")).await, 30);
    assert_eq!(desks[1].usage(pair("b", "r")).await, 60);
}

/// A consume that does not fit counts nothing and shows what is left.
pub async fn a_consume_counts_all_or_nothing(database: impl Database, _clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    assert_eq!(
        desk.consume(pair("u", "r"), 1).await,
        Err(Refusal::NotFound)
    );
    desk.set(pair("u", "r"), Window::Hourly, 5).await;
    let granted = desk.consume(pair("u", "r"), 3).await;
    assert_eq!(quota_of(&granted).usage, 3);
    assert_exhausted(&desk.consume(pair("u", "r"), 3).await, 3);
    assert_eq!(
        desk.consume(pair("u", "r"), 6).await,
        Err(Refusal::AmountExceedsLimit(vec![0]))
    );
    assert_eq!(
        quota_of(&desk.consume(pair("u", "r"), 2).await).remaining(),
        0
    );
    let quota = desk.check(pair("u", "r")).await.expect("there is a quota");
    assert_eq!((quota.usage, quota.allowed), (5, false));
}

/// A batch that does not fit counts nothing, and tells which pair would have fitted alone.
pub async fn a_batch_counts_all_or_nothing(database: impl Database, _clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    desk.set(pair("a", "r"), Window::Hourly, 5).await;
    desk.set(pair("b", "r"), Window::Daily, 5).await;
    let fits = [("b", "r", 1), ("a", "r", 2), ("b", "r", 2)];
    assert_eq!(usages_of(&desk.one(batch(&fits)).await), [3, 2, 3]);

    match desk.one(batch(&[("a", "r", 3), ("b", "r", 3)])).await {
        Err(Refusal::BatchExhausted(items)) => {
            let allowed = |item: &DeniedItem| item.quota.allowed;
            assert_eq!(items.iter().map(allowed).collect::<Vec<_>>(), [true, false]);
        }
        other => panic!("not exhausted: {other:?}"),
    }
    let without_policy = [("a", "r", 1), ("c", "r", 1)];
    let missing = MissingItem {
        position: 1,
        pair: pair("c", "r"),
    };
    assert_eq!(
        desk.one(batch(&without_policy)).await,
        Err(Refusal::BatchNotFound(vec![missing]))
    );
    assert_eq!(desk.usage(pair("a", "r")).await, 2);
    assert_eq!(desk.usage(pair("b", "r")).await, 3);
}

/// A rate-limit call that does not fit charges nobody, and one that only asks counts nothing.
pub async fn a_rate_limit_call_counts_all_or_nothing(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    desk.set(pair("a", "r"), Window::Hourly, 1).await;
    desk.set_default("s", Window::Daily, 5).await;
    let both = || hits(&[("a", "r", 1), ("b", "s", 2)]);
    let granted = desk.one(both()).await;
    assert!(granted.is_ok());
    assert_eq!(limits_of(&granted), [Some((1, true)), Some((2, true))]);
    let denied = desk.one(both()).await;
    assert!(denied.is_err());
    assert_eq!(limits_of(&denied), [Some((1, false)), Some((2, true))]);
    // The same pair is summed.
    let twice = desk.one(hits(&[("b", "s", 2), ("b", "s", 2)])).await;
    assert_eq!(limits_of(&twice), [Some((2, false)); 2]);
    let asked = desk.one(hits(&[("b", "s", 0)])).await;
    assert_eq!(limits_of(&asked), [Some((2, true))]);
    assert!(desk.one(hits(&[("a", "r", 0)])).await.is_err());
    assert_eq!(desk.usage(pair("a", "r")).await, 1);
    assert_eq!(desk.usage(pair("b", "s")).await, 2);
}

/// Neither a pair that nothing limits nor a question leaves anything behind.
pub async fn what_nothing_limits_passes_and_leaves_nothing(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    let passed = desk.one(hits(&[("u", "r", 7), ("v", "r", 0)])).await;
    assert!(passed.is_ok());
    assert_eq!(limits_of(&passed), [None, None]);
    desk.set_default("r", Window::Daily, 5).await;
    // A pair that was counted, or has a policy, would be listed under the default.
    assert_eq!(desk.list("u").await, []);
    let asked = desk.one(hits(&[("u", "r", 0)])).await;
    assert_eq!(limits_of(&asked), [Some((0, true))]);
    let too_much = desk.one(hits(&[("u", "r", 6)])).await;
    assert_eq!(limits_of(&too_much), [Some((0, false))]);
    assert_eq!(desk.list("u").await, []);
    assert!(desk.one(hits(&[("u", "r", 5)])).await.is_ok());
    assert_eq!(desk.list("u").await.len(), 1);
}

/// Commands of one commit are decided in their order, each on what the one before left.
pub async fn commands_of_one_commit_see_each_other(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    desk.set(pair("u", "r"), Window::Hourly, 2).await;
    let outcomes = desk
        .commit((0..4).map(|_| consume(pair("u", "r"), 1)).collect())
        .await;
    let granted: Vec<bool> = outcomes.iter().map(Outcome::is_ok).collect();
    assert_eq!(granted, [true, true, false, false]);
    assert_eq!(desk.usage(pair("u", "r")).await, 2);
    assert_eq!(desk.commit(Vec::new()).await, []);
}

/// Refunds and resets touch the pair's current window and nothing else.
pub async fn a_refund_stops_at_0_and_a_reset_zeroes(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    let (own, others) = (pair("u", "r"), [pair("u", "s"), pair("v", "r")]);
    for pair in [&own, &others[0], &others[1]] {
        desk.set(pair.clone(), Window::Hourly, 10).await;
        assert!(desk.consume(pair.clone(), 4).await.is_ok());
    }
    assert_eq!(quota_of(&desk.refund(own.clone(), 1).await).usage, 3);
    assert_eq!(quota_of(&desk.refund(own.clone(), 9).await).usage, 0);
    assert!(desk.consume(own.clone(), 7).await.is_ok());
    assert_eq!(quota_of(&desk.reset(own.clone()).await).usage, 0);
    assert_eq!(quota_of(&desk.reset(own.clone()).await).usage, 0);
    assert_eq!(quota_of(&desk.consume(own, 1).await).usage, 1);
    for other in others {
        assert_eq!(desk.usage(other).await, 4);
    }
    assert_eq!(desk.reset(pair("w", "r")).await, Err(Refusal::NotFound));
}

/// Each hour and each day starts at 0, at its first microsecond and not before.
pub async fn an_hour_and_a_day_end(database: impl Database, clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    desk.set(pair("hour", "r"), Window::Hourly, 1).await;
    desk.set(pair("day", "r"), Window::Daily, 1).await;
    let hour_end = Window::Hourly.span_at(START).reset_at;
    let day_end = Window::Daily.span_at(START).reset_at;
    let before = |end: quotalog_domain::Timestamp| {
        quotalog_domain::Timestamp::from_unix_us(end.unix_us() - 1)
    };

    assert!(desk.consume(pair("hour", "r"), 1).await.is_ok());
    assert!(desk.consume(pair("day", "r"), 1).await.is_ok());
    clock.set(before(hour_end));
    assert_exhausted(&desk.consume(pair("hour", "r"), 1).await, 1);
    clock.set(hour_end);
    assert_eq!(desk.usage(pair("hour", "r")).await, 0);
    assert!(desk.consume(pair("hour", "r"), 1).await.is_ok());
    assert_exhausted(&desk.consume(pair("day", "r"), 1).await, 1);
    clock.set(before(day_end));
    assert_exhausted(&desk.consume(pair("day", "r"), 1).await, 1);
    clock.set(day_end);
    assert!(desk.consume(pair("day", "r"), 1).await.is_ok());
}

/// An earlier window has its own count still, and what was counted later does no harm.
pub async fn a_clock_that_steps_back_finds_its_count(
    database: impl Database,
    clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    desk.set(pair("u", "r"), Window::Hourly, 3).await;
    assert!(desk.consume(pair("u", "r"), 2).await.is_ok());
    clock.advance_s(86_400);
    assert!(desk.consume(pair("u", "r"), 3).await.is_ok());
    clock.advance_s(-86_400);
    assert_eq!(desk.usage(pair("u", "r")).await, 2);
    assert!(desk.consume(pair("u", "r"), 1).await.is_ok());
    assert_exhausted(&desk.consume(pair("u", "r"), 1).await, 3);
    clock.advance_s(86_400);
    assert_exhausted(&desk.consume(pair("u", "r"), 1).await, 3);
}

/// The contract's example: 3 in an hour, then daily and back.
pub async fn a_change_of_window_keeps_the_count_of_the_day(
    database: impl Database,
    clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    let own = || pair("u", "r");
    clock.set_time(10, 30);
    desk.set(own(), Window::Hourly, 10).await;
    assert!(desk.consume(own(), 3).await.is_ok());
    assert_eq!(desk.set(own(), Window::Daily, 10).await.usage, 3);
    assert_eq!(quota_of(&desk.consume(own(), 1).await).usage, 4);
    assert_eq!(desk.set(own(), Window::Hourly, 10).await.usage, 3);
    assert_eq!(desk.set(own(), Window::Daily, 10).await.usage, 4);
    // A refund takes from the newest row first, so the hour's goes before the day's.
    assert_eq!(quota_of(&desk.refund(own(), 2).await).usage, 2);
    assert_eq!(desk.set(own(), Window::Hourly, 10).await.usage, 1);
    // A reset of the day zeroes the hours too.
    desk.set(own(), Window::Daily, 10).await;
    assert_eq!(quota_of(&desk.reset(own()).await).usage, 0);
    assert_eq!(desk.set(own(), Window::Hourly, 10).await.usage, 0);
}

/// Over as many rows as it takes, and no further back than the window goes.
pub async fn a_refund_takes_from_the_newest_rows_first(
    database: impl Database,
    clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    let own = || pair("u", "r");
    let rows = async || {
        let all = UsageRange::default();
        desk.history(&own(), all, None, 10).await.0
    };
    desk.set(own(), Window::Hourly, 100).await;
    for (hour, units) in [(-1, 9), (8, 2), (9, 3), (10, 4)] {
        clock.set(MIDNIGHT.plus_s(hour * 3_600 + 60));
        assert!(desk.consume(own(), units).await.is_ok());
    }
    desk.set(own(), Window::Daily, 100).await;
    assert_eq!(quota_of(&desk.consume(own(), 1).await).usage, 10);
    assert_eq!(quota_of(&desk.refund(own(), 6).await).usage, 4);
    assert_eq!(rows().await, [(10, 0), (9, 1), (8, 2), (0, 1), (-1, 9)]);
    assert_eq!(quota_of(&desk.refund(own(), 100).await).usage, 0);
    assert_eq!(rows().await, [(10, 0), (9, 0), (8, 0), (0, 0), (-1, 9)]);
}

/// Each row outside of the window stays, whatever the policy is then.
pub async fn a_reset_of_an_hour_leaves_the_hours_before(
    database: impl Database,
    clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    let own = || pair("u", "r");
    desk.set(own(), Window::Hourly, 10).await;
    for (hour, units) in [(9, 3), (10, 4)] {
        clock.set(MIDNIGHT.plus_s(hour * 3_600 + 60));
        assert!(desk.consume(own(), units).await.is_ok());
    }
    assert_eq!(quota_of(&desk.reset(own()).await).usage, 0);
    assert_eq!(desk.set(own(), Window::Daily, 10).await.usage, 3);
    assert_eq!(quota_of(&desk.reset(own()).await).usage, 0);
    let all = UsageRange::default();
    let (rows, _) = desk.history(&own(), all, None, 10).await;
    assert_eq!(rows, [(10, 0), (9, 0)]);
}

/// Both windows start at midnight, so what was counted in one is inside of the other.
pub async fn the_first_hour_shares_its_row_with_the_day(
    database: impl Database,
    clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    let own = || pair("u", "r");
    clock.set(MIDNIGHT.plus_s(1_800));
    desk.set(own(), Window::Daily, 10).await;
    assert!(desk.consume(own(), 2).await.is_ok());
    assert_eq!(desk.set(own(), Window::Hourly, 10).await.usage, 2);
    assert_eq!(quota_of(&desk.consume(own(), 3).await).usage, 5);
    assert_eq!(desk.set(own(), Window::Daily, 10).await.usage, 5);
    let all = UsageRange::default();
    let (rows, _) = desk.history(&own(), all, None, 10).await;
    assert_eq!(rows, [(0, 5)]);
}

/// Before 1970 as well, where remainders are negative, and far ahead.
pub async fn a_clock_of_another_age_counts_in_its_own_windows(
    database: impl Database,
    clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    desk.set(pair("hour", "r"), Window::Hourly, 2).await;
    desk.set(pair("day", "r"), Window::Daily, 2).await;
    // 1969-12-31T23:59:59.5, 1970, 1904 and 2099, each at its edge.
    let ages = [-500_000, 0, -2_077_920_000_000_001, 4_070_908_799_999_999];
    for round in 1..=2 {
        for unix_us in ages {
            let now = Timestamp::from_unix_us(unix_us);
            clock.set(now);
            for (user_id, window) in [("hour", Window::Hourly), ("day", Window::Daily)] {
                let outcome = desk.consume(pair(user_id, "r"), 1).await;
                let quota = quota_of(&outcome);
                assert_eq!(quota.usage, round, "{user_id} at {unix_us}");
                assert_eq!(quota.span(), window.span_at(now));
                assert!(quota.span().contains(now));
            }
        }
    }
    for unix_us in ages {
        clock.set(Timestamp::from_unix_us(unix_us));
        assert_exhausted(&desk.consume(pair("hour", "r"), 1).await, 2);
        assert_exhausted(&desk.consume(pair("day", "r"), 1).await, 2);
    }
}
