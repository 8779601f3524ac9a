//! Erasing a user: what serves its requests, what was counted for it, and what was kept for its retries.

use std::sync::Arc;

use quotalog_auth::{Credential, Role};
use quotalog_domain::{Pair, UserId, Window};
use quotalog_ledger::store::{
    AuditAction, AuditFilter, ErasureId, Fact, Page, QuotaFilter, Read as _, Store, UsageRange,
};

use crate::ManualClock;
use crate::conformance::Database;
use crate::conformance::desk::{Desk, batch, consume, pair, under_key, usages_of};

impl<S: Store> Desk<S> {
    async fn begin_to_erase(&self, user_id: &str) -> ErasureId {
        let beginning = self
            .store
            .erase_user(Credential::CommandLine, user(user_id));
        let begun = beginning.await.expect("the store answers");
        begun.expect("the operator is never revoked")
    }

    async fn erase_step(&self) -> Option<ErasureId> {
        self.store.erase_step().await.expect("the store answers")
    }

    async fn erase(&self, user_id: &str) {
        let erasure = self.begin_to_erase(user_id).await;
        while let Some(oldest) = self.erase_step().await {
            assert_eq!(oldest, erasure, "no other is under way");
        }
    }

    async fn rows_of(&self, pair: Pair) -> usize {
        let page = Page {
            after: None,
            len_max: 1_000,
        };
        let range = UsageRange::default();
        let asked = self
            .store
            .usage_history(Credential::CommandLine, pair, range, page);
        let listed = asked.await.expect("the store answers");
        let listed = listed.expect("the operator is never revoked");
        listed.entries.len()
    }
}

fn user(user_id: &str) -> UserId {
    UserId::try_from(user_id).expect("a user id")
}

/// Policies, usage of every day, tokens; and nothing of anybody else.
pub async fn an_erased_user_is_gone(database: impl Database, clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    let other = Desk::at(&database).await;
    let users = ["alice", "Alice", "alice ", "alic", "al%"];
    desk.set_default("d", Window::Hourly, 5).await;
    for day in 0..3 {
        for user_id in users {
            for resource in ["d", "p", "q"] {
                if resource != "d" {
                    desk.set(pair(user_id, resource), Window::Daily, 5).await;
                }
                clock.advance_s(1);
                assert!(desk.consume(pair(user_id, resource), 1).await.is_ok());
            }
        }
        if day < 2 {
            clock.advance_s(86_400);
        }
    }
    let mut tokens = Vec::new();
    let mut ids = Vec::new();
    for user_id in users {
        let (token, record) = desk.token(Role::User(user(user_id)), None).await;
        ids.push(record.id.as_str().to_owned());
        tokens.push((other.credential(&token).await, token));
    }

    desk.erase("alice").await;
    for resource in ["d", "p", "q"] {
        assert_eq!(desk.rows_of(pair("alice", resource)).await, 0);
    }
    assert_eq!(desk.check(pair("alice", "p")).await, None);
    assert_eq!(desk.list("alice").await, []);
    let all = desk.quotas(&QuotaFilter::default(), 100).await;
    assert!(all.iter().all(|quota| quota.pair.user_id != user("alice")));
    assert_eq!(all.len(), 4 * 3);
    for ((credential, token), user_id) in tokens.into_iter().zip(users) {
        let is_erased = user_id == "alice";
        let held = other.store.confirm(credential).await;
        assert_eq!(held.expect("the store answers").is_err(), is_erased);
        let found = other.store.authenticate(token.hash()).await;
        assert_eq!(found.expect("the store answers").is_none(), is_erased);
        if !is_erased {
            for resource in ["d", "p", "q"] {
                assert_eq!(desk.rows_of(pair(user_id, resource)).await, 3);
                assert_eq!(desk.usage(pair(user_id, resource)).await, 1);
            }
        }
    }

    let newest = &desk.audit().await[0];
    assert_eq!(newest.action, AuditAction::UserErase);
    assert_eq!(newest.user_id, Some(user("alice")));
    assert_eq!((&newest.resource, &newest.after), (&None, &None));
    let before = newest.before.as_ref().expect("what there was");
    let before: Vec<(&str, &Fact)> = before.iter().collect();
    let ended = vec![ids[0].clone()];
    let facts = [
        ("policies", &Fact::Number(2)),
        ("tokens", &Fact::Number(1)),
        ("token_ids", &Fact::Texts(ended)),
    ];
    assert_eq!(before, facts);
    // Its earlier entries tell what was done, and stay as long as others.
    let of_alice = AuditFilter {
        user_id: Some(user("alice")),
        resource: None,
    };
    let (entries, _) = desk.audit_page(&of_alice, None, 100).await;
    assert_eq!(entries.len(), 2 + 1 + 1, "two policies, a token, the end");
}

/// That too was asked for, and is remembered each time.
pub async fn an_unknown_user_is_erased_too(database: impl Database, _clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    desk.erase("nobody").await;
    desk.erase("nobody").await;
    let entries = desk.audit().await;
    let actions: Vec<AuditAction> = entries.iter().map(|entry| entry.action).collect();
    assert_eq!(actions, [AuditAction::UserErase, AuditAction::UserErase]);
}

/// Whoever bears the id later is a new user, with a whole quota.
pub async fn an_erased_user_starts_anew(database: impl Database, _clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    desk.set_default("d", Window::Daily, 5).await;
    assert!(desk.consume(pair("u", "d"), 5).await.is_ok());
    assert!(desk.consume(pair("u", "d"), 1).await.is_err());
    desk.erase("u").await;
    assert_eq!(desk.usage(pair("u", "d")).await, 0);
    assert!(desk.consume(pair("u", "d"), 5).await.is_ok());
    assert!(desk.consume(pair("u", "d"), 1).await.is_err());
    let (token, _) = desk.token(Role::User(user("u")), None).await;
    let credential = desk.credential(&token).await;
    let confirmed = desk.store.confirm(credential).await;
    assert!(confirmed.expect("the store answers").is_ok());
}

/// Those of its pairs, and those of batches in which it stands among others; no others, however many.
pub async fn kept_answers_that_name_an_erased_user_are_gone(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    const BATCHES: u32 = 450;
    let desk = Desk::at(&database).await;
    desk.set_default("d", Window::Daily, 1_000_000).await;
    let key = |number: u32| format!("k{number:03}");
    let of_pair = |user_id| under_key(consume(pair(user_id, "d"), 1), "own", "caller");
    let names_u = |number: u32| number % 150 == 149;
    let of_batch = |number: u32| {
        let user_id = if names_u(number) { "u" } else { "v" };
        let caller = format!("caller {}", number % 3);
        let items = batch(&[("w", "d", 1), (user_id, "d", 1)]);
        under_key(items, &key(number), &caller)
    };
    assert!(desk.one(of_pair("u")).await.is_ok());
    assert!(desk.one(of_pair("v")).await.is_ok());
    let batches: Vec<_> = (0..BATCHES).map(of_batch).collect();
    let outcomes = desk.commit(batches.clone()).await;
    assert!(outcomes.iter().all(|outcome| usages_of(outcome).len() == 2));

    desk.erase("u").await;
    let replayed = |outcome: quotalog_domain::Outcome| outcome.expect("granted").replayed;
    assert!(!replayed(desk.one(of_pair("u")).await));
    assert!(replayed(desk.one(of_pair("v")).await));
    let again = desk.commit(batches).await;
    for (number, outcome) in (0..).zip(again) {
        assert_eq!(replayed(outcome), !names_u(number), "{}", key(number));
    }
    assert_eq!(desk.usage(pair("u", "d")).await, 1 + 3, "as a new user");
}

/// What is left of an erasure is in the store: whichever process goes on with it, also after all have ended,
/// finishes it. An erasure that began later waits for it, and what comes into being meanwhile stays.
pub async fn an_erasure_outlives_who_began_it(database: impl Database, clock: Arc<ManualClock>) {
    const RESOURCES: u32 = 1_100;
    let desk = Desk::at(&database).await;
    desk.set_default("d", Window::Daily, 1_000_000).await;
    let resource = |number: u32| format!("r{number:04}");
    for number in 0..RESOURCES {
        desk.set_default(&resource(number), Window::Daily, 5).await;
    }
    let units = (0..RESOURCES).map(|number| consume(pair("u", &resource(number)), 1));
    desk.commit(units.collect()).await;
    clock.advance_s(86_400);
    let under = |key: &str| under_key(batch(&[("v", "d", 1), ("u", "d", 1)]), key, "caller");
    assert!(desk.one(under("before")).await.is_ok());

    let erasure = desk.begin_to_erase("u").await;
    assert_eq!(desk.usage(pair("u", "d")).await, 0, "gone at once");
    let left = desk.rows_of(pair("u", &resource(RESOURCES - 1))).await;
    assert_eq!(left, 1, "more than the first transaction takes");
    assert!(desk.one(under("after")).await.is_ok());
    assert!(desk.consume(pair("u", &resource(0)), 2).await.is_ok());
    assert_eq!(desk.erase_step().await, Some(erasure));
    database.close(desk.store).await;

    let desk = Desk::at(&database).await;
    let later = desk.begin_to_erase("w").await;
    assert!(later > erasure);
    assert_eq!(desk.erase_step().await, Some(erasure));
    let mut oldest = vec![erasure];
    while let Some(id) = desk.erase_step().await {
        oldest.push(id);
    }
    assert!(oldest.is_sorted(), "{oldest:?}");
    for number in 1..RESOURCES {
        assert_eq!(desk.rows_of(pair("u", &resource(number))).await, 0);
    }
    assert_eq!(desk.usage(pair("u", &resource(0))).await, 2, "of today");
    assert_eq!(desk.usage(pair("u", "d")).await, 1, "granted once");
    assert!(desk.one(under("after")).await.expect("kept").replayed);
    assert!(!desk.one(under("before")).await.expect("granted").replayed);
    assert_eq!(desk.erase_step().await, None);
}

/// Two processes at once on the same erasures do each of them once, and none fails.
pub async fn two_stores_share_what_is_to_be_erased(
    database: impl Database,
    clock: Arc<ManualClock>,
) {
    const USERS: u32 = 20;
    let desks = [Desk::at(&database).await, Desk::at(&database).await];
    desks[0].set_default("d", Window::Daily, 100).await;
    let user_id = |number: u32| format!("u{number}");
    let units = (0..USERS).map(|number| consume(pair(&user_id(number), "d"), 1));
    desks[0].commit(units.collect()).await;
    clock.advance_s(86_400);
    for number in 0..USERS {
        desks[0].begin_to_erase(&user_id(number)).await;
    }
    let finish = async |desk: &Desk<_>| while desk.erase_step().await.is_some() {};
    tokio::join!(finish(&desks[0]), finish(&desks[1]));
    for number in 0..USERS {
        let rows = desks[1].rows_of(pair(&user_id(number), "d")).await;
        assert_eq!(rows, 0, "{number}");
    }
}
