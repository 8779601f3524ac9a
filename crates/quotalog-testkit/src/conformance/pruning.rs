//! Pruning: what is too old goes in small steps, the rest stays.

use std::sync::Arc;

use quotalog_auth::{Credential, Role};
use quotalog_domain::Window;
use quotalog_ledger::clock::Clock as _;
use quotalog_ledger::store::{Administer as _, Page, Read as _, Retention, Store};

use crate::ManualClock;
use crate::conformance::Database;
use crate::conformance::desk::{Desk, consume, pair, quota_of, under_key};

const RETENTION: Retention = Retention {
    usage_s: 2 * 86_400,
    idempotency_s: 86_400,
    audit_s: 400 * 86_400,
};

impl<S: Store> Desk<S> {
    async fn prune(&self, rows_max: u32) -> u32 {
        let pruned = self.store.prune_step(RETENTION, rows_max).await;
        pruned.expect("the store answers").rows()
    }

    /// Lets hours pass as on a server, which looks at its clock again and again. A clock that leaps is
    /// not believed at once.
    async fn live_for_h(&self, clock: &ManualClock, hours: u32) {
        for _ in 0..hours {
            clock.advance_s(3_600);
            assert_eq!(self.prune(0).await, 0);
        }
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
    desk.live_for_h(&clock, 3 * 24).await;
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
    desk.live_for_h(&clock, 24).await;
    // The first hour is 25 hours old, the answer 24.
    assert_eq!(desk.prune(100).await, 0);
    let replayed = desk.one(key()).await.expect("it is kept");
    assert!(replayed.replayed);
    assert_eq!(replayed.answer, kept.expect("granted").answer);

    desk.live_for_h(&clock, 23).await;
    assert_eq!(desk.prune(100).await, 1, "the answer");
    clock.advance_s(1);
    assert_eq!(desk.prune(100).await, 1, "the first hour");
    clock.advance_s(-47 * 3_600);
    assert_eq!(desk.usage(pair("u", "r")).await, 2, "the second hour");
    clock.advance_s(10 * 86_400);
    assert_eq!(desk.prune(100).await, 0, "a leap, not believed yet");
    clock.advance_s(86_400);
    assert_eq!(desk.prune(100).await, 1, "the second hour");
    assert_eq!(quota_of(&desk.consume(pair("u", "r"), 5).await).usage, 5);
}

/// A leap that lasts is believed after a day.
pub async fn a_leap_that_lasts_is_believed(database: impl Database, clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    desk.set(pair("u", "r"), Window::Daily, 5).await;
    assert!(desk.consume(pair("u", "r"), 5).await.is_ok());
    clock.advance_s(100 * 86_400);
    assert_eq!(desk.prune(100).await, 0);
    clock.advance_s(86_400);
    assert_eq!(desk.prune(100).await, 1);
}

/// A clock that is years ahead for a while, and then right again, leaves what belongs to today.
pub async fn a_leap_of_the_clock_deletes_nothing_of_today(
    database: impl Database,
    clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    desk.set(pair("u", "r"), Window::Daily, 5).await;
    let key = || under_key(consume(pair("u", "r"), 5), "k", "caller");
    assert!(desk.one(key()).await.is_ok());
    assert_eq!(desk.prune(100).await, 0);

    let twelve_years_s = 12 * 366 * 86_400;
    clock.advance_s(twelve_years_s);
    for _ in 0..3 {
        assert_eq!(desk.prune(100).await, 0);
        clock.advance_s(600);
    }
    assert!(desk.consume(pair("u", "r"), 1).await.is_ok(), "a later day");
    assert_eq!(desk.prune(100).await, 0);
    database.close(desk.store).await;
    let desk = Desk::at(&database).await;
    assert_eq!(desk.prune(100).await, 0);

    clock.advance_s(-twelve_years_s - 3 * 600);
    assert_eq!(desk.prune(100).await, 0);
    assert_eq!(desk.usage(pair("u", "r")).await, 5);
    assert!(desk.one(key()).await.expect("it is kept").replayed);
    assert!(desk.consume(pair("u", "r"), 1).await.is_err());
}

/// Entries leave with their own retention, whatever becomes of what they tell of.
pub async fn the_audit_has_a_retention_of_its_own(
    database: impl Database,
    clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    let days = |days: i64| Retention {
        audit_s: days * 86_400,
        ..RETENTION
    };
    let prune = async |retention, rows_max| {
        let pruned = desk.store.prune_step(retention, rows_max).await;
        pruned.expect("the store answers").rows()
    };
    for units in 1..=5 {
        desk.set(pair("u", "r"), Window::Daily, units).await;
    }
    assert!(desk.delete(pair("u", "r")).await.is_ok());
    desk.live_for_h(&clock, 5 * 24).await;
    desk.set(pair("u", "r"), Window::Daily, 6).await;
    assert_eq!(prune(days(6), 100).await, 0);
    assert_eq!(prune(days(5), 100).await, 0, "at its very end");
    clock.advance_s(1);
    assert_eq!(prune(days(5), 4).await, 4);
    assert_eq!(prune(days(5), 4).await, 2);
    assert_eq!(prune(days(5), 4).await, 0);
    let entries = desk.audit().await;
    assert_eq!(entries.len(), 1, "the one of today");
    assert_eq!(desk.usage(pair("u", "r")).await, 0, "the policy stays");

    // A place is not given twice, also when the newest entry is gone.
    let newest = entries[0].id;
    desk.live_for_h(&clock, 6 * 24).await;
    assert_eq!(prune(days(5), 100).await, 1);
    desk.set(pair("u", "r"), Window::Daily, 7).await;
    assert!(desk.audit().await[0].id > newest);
}

/// A clock that was years behind for a while dates its entries long ago, one that was ahead long after now.
/// Neither changes which entries are the oldest.
pub async fn an_entry_is_as_young_as_those_before_it(
    database: impl Database,
    clock: Arc<ManualClock>,
) {
    const YEARS_S: i64 = 6 * 365 * 86_400;
    let desk = Desk::at(&database).await;
    let retention = Retention {
        audit_s: 2 * 86_400,
        ..RETENTION
    };
    let prune = async || {
        let pruned = desk.store.prune_step(retention, 100).await;
        pruned.expect("the store answers").rows()
    };
    let set = async |units| {
        desk.set(pair("u", "r"), Window::Daily, units).await;
    };
    clock.advance_s(YEARS_S);
    set(1).await;
    clock.advance_s(-YEARS_S);
    set(2).await;
    desk.live_for_h(&clock, 24).await;
    set(3).await;
    clock.advance_s(-YEARS_S);
    set(4).await;
    assert_eq!(prune().await, 0);
    clock.advance_s(YEARS_S);
    assert_eq!(prune().await, 0, "behind one that is young");
    desk.live_for_h(&clock, 24).await;
    clock.advance_s(1);
    assert_eq!(prune().await, 1, "the second, which is old by now");
    desk.live_for_h(&clock, 24).await;
    clock.advance_s(1);
    assert_eq!(prune().await, 2, "the third, and the one behind it");
    let left = desk.audit().await;
    assert_eq!(left.len(), 1, "the one of the future");
}

/// Until then it is listed; its end is told from that of others.
pub async fn a_token_is_pruned_long_after_its_end(
    database: impl Database,
    clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    let retention = Retention {
        audit_s: 2 * 86_400,
        ..RETENTION
    };
    let now = clock.now();
    let (lasting, _) = desk.create(Role::Service, None).await;
    let lasting = desk.credential(&lasting).await;
    desk.create(Role::Service, Some(now.plus_s(3_600))).await;
    let (later, _) = desk.create(Role::Service, Some(now.plus_s(86_400))).await;
    desk.live_for_h(&clock, 49).await;
    let prune = async || {
        let pruned = desk.store.prune_step(retention, 100).await;
        pruned.expect("the store answers").rows()
    };
    let listed = async || {
        let page = Page {
            after: None,
            len_max: 100,
        };
        let tokens = desk.store.tokens(Credential::CommandLine, page).await;
        let tokens = tokens.expect("the store answers");
        tokens.expect("the operator is never revoked").entries.len()
    };
    // The entries of the three tokens are older than the retention.
    assert_eq!(prune().await, 3, "at the very end of the first");
    assert_eq!(listed().await, 3);
    clock.advance_s(1);
    assert_eq!(prune().await, 1);
    assert_eq!(prune().await, 0);
    assert_eq!(listed().await, 2);
    let found = desk.store.authenticate(later.hash()).await;
    assert_eq!(found.expect("the store answers"), None, "expired");
    let confirmed = desk.store.confirm(lasting).await;
    assert!(confirmed.expect("the store answers").is_ok());
}
