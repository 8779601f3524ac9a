//! Idempotency keys: the answers kept under them, and for how long.

use std::sync::Arc;

use quotalog_domain::{Command, Decided, Operation, Outcome, Refusal, Window};
use tokio::task::JoinSet;

use crate::ManualClock;
use crate::conformance::desk::{
    Desk, amount, assert_exhausted, batch, consume, pair, quota_of, under_key,
};
use crate::conformance::{Database, IDEMPOTENCY_RETENTION_S};

#[track_caller]
fn assert_replayed(outcome: Outcome, first: &Outcome) {
    let first = first.as_ref().expect("the first was granted");
    let replay = Decided {
        answer: first.answer.clone(),
        replayed: true,
    };
    assert_eq!(outcome, Ok(replay));
}

fn keyed(units: u64, key: &str) -> Command {
    under_key(consume(pair("u", "r"), units), key, "caller")
}

/// Reset, exhaustion, the window's end, the policy's deletion: the answer stays what it was.
pub async fn a_kept_answer_outlives_what_it_told_of(
    database: impl Database,
    clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    desk.set(pair("u", "r"), Window::Hourly, 5).await;
    let first = desk.one(keyed(3, "k")).await;
    assert!(!first.as_ref().expect("granted").replayed);
    assert_replayed(desk.one(keyed(3, "k")).await, &first);
    assert_eq!(desk.usage(pair("u", "r")).await, 3);

    assert!(desk.consume(pair("u", "r"), 2).await.is_ok());
    assert_replayed(desk.one(keyed(3, "k")).await, &first);
    assert!(desk.reset(pair("u", "r")).await.is_ok());
    assert_replayed(desk.one(keyed(3, "k")).await, &first);
    clock.advance_s(3_600);
    assert_replayed(desk.one(keyed(3, "k")).await, &first);
    assert_eq!(desk.usage(pair("u", "r")).await, 0);
    assert!(desk.delete(pair("u", "r")).await.is_ok());
    assert_replayed(desk.one(keyed(3, "k")).await, &first);
}

/// Every kind of answer is read back as it was.
pub async fn a_kept_answer_outlives_a_restart(database: impl Database, _clock: Arc<ManualClock>) {
    let set = |resource: &str| Operation::SetDefault {
        resource: pair("u", resource).resource,
        window: Window::Daily,
        limit: crate::conformance::desk::limit(9),
        precondition: None,
    };
    let commands = || {
        [
            consume(pair("u", "r"), 2),
            batch(&[("u", "r", 1), ("v", "日本語", 4), ("u", "r", 1)]),
            Command::new(Operation::Refund {
                pair: pair("u", "r"),
                amount: amount(1),
            }),
            Command::new(Operation::Reset {
                pair: pair("u", "r"),
            }),
            Command::new(set("s")),
            Command::new(Operation::DeletePolicy {
                pair: pair("u", "r"),
                precondition: None,
            }),
        ]
        .map(|command| under_key(command, "k", "caller"))
    };
    let desk = Desk::at(&database).await;
    desk.set(pair("u", "r"), Window::Hourly, 10).await;
    desk.set_default("日本語", Window::Daily, 10).await;
    let first = desk.commit(commands().to_vec()).await;
    database.close(desk.store).await;

    let desk = Desk::at(&database).await;
    let again = desk.commit(commands().to_vec()).await;
    for (again, first) in again.into_iter().zip(&first) {
        assert_replayed(again, first);
    }
    assert_eq!(desk.usage(pair("v", "日本語")).await, 4);
}

/// Another amount, other items, or the items in another order.
pub async fn another_request_under_a_key_is_refused(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    desk.set(pair("u", "r"), Window::Hourly, 100).await;
    desk.set(pair("v", "r"), Window::Hourly, 100).await;
    assert!(desk.one(keyed(3, "k")).await.is_ok());
    assert_eq!(desk.one(keyed(4, "k")).await, Err(Refusal::KeyReused));

    let items = [("u", "r", 1), ("v", "r", 1)];
    let turned = [("v", "r", 1), ("u", "r", 1)];
    let under = |items| under_key(batch(items), "k", "caller");
    assert!(desk.one(under(&items)).await.is_ok());
    assert_eq!(desk.one(under(&turned)).await, Err(Refusal::KeyReused));
    assert_eq!(desk.one(under(&items[..1])).await, Err(Refusal::KeyReused));
    assert_eq!(desk.usage(pair("u", "r")).await, 4);
}

/// The same key on another pair, for another operation, or of another caller's batch is another key.
pub async fn a_key_belongs_to_its_scope(database: impl Database, _clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    for pair in [pair("u", "r"), pair("v", "r"), pair("u", "s")] {
        desk.set(pair.clone(), Window::Hourly, 100).await;
        let outcome = desk.one(under_key(consume(pair, 5), "k", "caller")).await;
        assert_eq!(quota_of(&outcome).usage, 5);
    }
    let refund = Operation::Refund {
        pair: pair("u", "r"),
        amount: amount(5),
    };
    let outcome = desk
        .one(under_key(Command::new(refund), "k", "caller"))
        .await;
    assert_eq!(quota_of(&outcome).usage, 0);
    for caller in ["first", "second"] {
        let outcome = desk
            .one(under_key(batch(&[("u", "r", 1)]), "k", caller))
            .await;
        assert!(!outcome.expect("granted").replayed);
    }
    assert_eq!(desk.usage(pair("u", "r")).await, 2);
}

/// What was refused under a key may be granted under it later.
pub async fn a_refusal_is_not_kept(database: impl Database, _clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    assert_eq!(desk.one(keyed(1, "k")).await, Err(Refusal::NotFound));
    desk.set(pair("u", "r"), Window::Hourly, 1).await;
    assert!(desk.consume(pair("u", "r"), 1).await.is_ok());
    assert_exhausted(&desk.one(keyed(1, "k")).await, 1);
    assert!(desk.reset(pair("u", "r")).await.is_ok());
    assert!(!desk.one(keyed(1, "k")).await.expect("granted").replayed);
}

/// However a request and its retries meet: in one commit, in two, on two stores.
pub async fn parallel_twins_count_once(database: impl Database, _clock: Arc<ManualClock>) {
    let desks = [Desk::at(&database).await, Desk::at(&database).await];
    desks[0].set(pair("u", "r"), Window::Hourly, 100).await;
    desks[0].set(pair("v", "r"), Window::Hourly, 100).await;
    let mut twins = JoinSet::new();
    for twin in 0..10_usize {
        let desk = desks[twin % 2].clone();
        twins.spawn(async move {
            let shared = under_key(batch(&[("u", "r", 1), ("v", "r", 1)]), "k", "caller");
            desk.commit(vec![keyed(1, "k"), shared.clone(), keyed(1, "k"), shared])
                .await
        });
    }
    let outcomes: Vec<Outcome> = twins.join_all().await.into_iter().flatten().collect();
    let new = outcomes
        .iter()
        .filter(|outcome| !outcome.as_ref().expect("granted").replayed);
    assert_eq!(new.count(), 2);
    assert_eq!(desks[0].usage(pair("u", "r")).await, 2);
    assert_eq!(desks[1].usage(pair("v", "r")).await, 1);
}

/// At the end of its retention an answer is replayed still; after it the key is free again.
pub async fn a_kept_answer_ends_with_its_retention(
    database: impl Database,
    clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    desk.set(pair("u", "r"), Window::Daily, 100).await;
    let first = desk.one(keyed(3, "k")).await;
    clock.advance_s(IDEMPOTENCY_RETENTION_S);
    assert_replayed(desk.one(keyed(3, "k")).await, &first);
    clock.advance_s(1);
    let second = desk.one(keyed(4, "k")).await;
    assert_eq!(quota_of(&second).usage, 4);
    assert!(!second.as_ref().expect("granted").replayed);
    // The new answer took the old one's place.
    assert_replayed(desk.one(keyed(4, "k")).await, &second);
    assert_eq!(desk.usage(pair("u", "r")).await, 4);
}
