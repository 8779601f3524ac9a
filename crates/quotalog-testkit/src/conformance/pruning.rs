//! Pruning: what is too old goes in small steps, the rest stays.

use std::sync::Arc;

use quotalog_domain::Window;
use quotalog_ledger::store::{Retention, Store};

use crate::ManualClock;
use crate::conformance::Database;
use crate::conformance::desk::{Desk, consume, pair, quota_of, under_key};

const RETENTION: Retention = Retention {
    usage_s: 2 * 86_400,
    idempotency_s: 86_400,
};

impl<S: Store> Desk<S> {
    async fn prune(&self, rows_max: u32) -> u32 {
        let pruned = self.store.prune_step(RETENTION, rows_max).await;
        pruned.expect("the store answers")
    }
}

/// Never more rows than asked for; 0 when none is left.
pub async fn what_is_old_goes_step_by_step(database: impl Database, clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    desk.set_default("r", Window::Hourly, 5).await;
    for user in 0..7 {
        let command = consume(pair(&format!("u{user}"), "r"), 1);
        assert!(desk.one(under_key(command, "k", "caller")).await.is_ok());
    }
    assert_eq!(desk.prune(100).await, 0);
    clock.advance_s(3 * 86_400);
    // Seven rows of usage and seven kept answers.
    let mut pruned = Vec::new();
    loop {
        let step = desk.prune(4).await;
        assert!(step <= 4, "{step} rows");
        pruned.push(step);
        if step == 0 {
            break;
        }
    }
    assert_eq!(pruned.iter().sum::<u32>(), 14, "{pruned:?}");
    let (quotas, _) = desk.page("u0", None, 100).await;
    assert_eq!(quotas, [], "the pair is no longer known");
}

/// Rows of the retention, at its very end too, and a policy of any age.
pub async fn what_is_in_retention_stays(database: impl Database, clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    clock.set_time(18, 0);
    desk.set(pair("u", "r"), Window::Hourly, 5).await;
    assert!(desk.consume(pair("u", "r"), 1).await.is_ok());
    clock.advance_s(3_600);
    let key = || under_key(consume(pair("u", "r"), 2), "k", "caller");
    let kept = desk.one(key()).await;
    clock.advance_s(86_400);
    // The first hour is 25 hours old, the answer 24.
    assert_eq!(desk.prune(100).await, 0);
    let replayed = desk.one(key()).await.expect("it is kept");
    assert!(replayed.replayed);
    assert_eq!(replayed.answer, kept.expect("granted").answer);

    clock.advance_s(23 * 3_600);
    assert_eq!(desk.prune(100).await, 1, "the answer");
    clock.advance_s(1);
    assert_eq!(desk.prune(100).await, 1, "the first hour");
    clock.advance_s(-47 * 3_600);
    assert_eq!(desk.usage(pair("u", "r")).await, 2, "the second hour");
    clock.advance_s(10 * 86_400);
    assert_eq!(desk.prune(100).await, 1, "the second hour");
    assert_eq!(quota_of(&desk.consume(pair("u", "r"), 5).await).usage, 5);
}
