//! What several nodes do at once to one database: exact, and without one failure.

mod support;

use std::sync::Arc;

use quotalog_auth::{Caller, Credential, Role};
use quotalog_domain::{
    Amount, CallerId, Command, IdempotencyKey, Item, Limit, Operation, Outcome, Pair, Resource,
    Window,
};
use quotalog_ledger::clock::Clock as _;
use quotalog_ledger::store::{
    Administer as _, Batch, Commit as _, PruneStep, Retention, Submission,
};
use quotalog_ledger::{Asker, Ledger, Settings};
use quotalog_store_postgres::PostgresStore;
use quotalog_testkit::conformance::{Desk, consume, pair};
use tokio::task::JoinSet;

use support::Fresh;

async fn desks(fresh: &Fresh, nodes: usize) -> Vec<Desk<PostgresStore>> {
    let mut desks = Vec::new();
    for _ in 0..nodes {
        desks.push(Desk {
            store: fresh.store().await,
        });
    }
    desks
}

/// Runs each batch as a task of its own, on one desk after another.
async fn all_at_once(desks: &[Desk<PostgresStore>], batches: Vec<Vec<Command>>) -> Vec<Outcome> {
    let mut tasks = JoinSet::new();
    for (batch, desk) in batches.into_iter().zip(desks.iter().cycle()) {
        let desk = desk.clone();
        tasks.spawn(async move { desk.commit(batch).await });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

fn granted(outcomes: &[Outcome]) -> usize {
    outcomes.iter().filter(|outcome| outcome.is_ok()).count()
}

fn items(pairs: &[(&str, &str)], key: Option<&str>) -> Command {
    let items = pairs.iter().map(|(user_id, resource)| Item {
        pair: pair(user_id, resource),
        amount: Amount::ONE,
    });
    let command = Command::new(Operation::ConsumeBatch {
        items: items.collect(),
    });
    match key {
        Some(key) => command.with_key(
            IdempotencyKey::try_from(key).expect("a key"),
            CallerId::new("caller"),
        ),
        None => command,
    }
}

/// Nobody has the row that would lock the pair, since nobody was counted yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_use_under_a_default_from_all_nodes_is_exact() {
    let Some(fresh) = Fresh::at_start().await else {
        return;
    };
    let desks = desks(&fresh, 3).await;
    desks[0].set_default("r", Window::Hourly, 10).await;
    for round in 0..10 {
        let user = format!("u{round}");
        let batches = vec![vec![consume(pair(&user, "r"), 1)]; 24];
        let outcomes = all_at_once(&desks, batches).await;
        assert_eq!(granted(&outcomes), 10);
        assert_eq!(desks[1].usage(pair(&user, "r")).await, 10);
    }
}

/// A policy of its own, smaller than the default, is obeyed from its answer on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_set_while_a_default_first_serves_is_obeyed() {
    let Some(fresh) = Fresh::at_start().await else {
        return;
    };
    let desks = desks(&fresh, 2).await;
    desks[0].set_default("r", Window::Daily, 20).await;
    for round in 0..20 {
        let user = format!("u{round}");
        let mut tasks = JoinSet::new();
        for desk in &desks {
            for _ in 0..8 {
                let (desk, pair) = (desk.clone(), pair(&user, "r"));
                tasks.spawn(async move { (desk.consume(pair, 2).await, false) });
            }
        }
        let (desk, own) = (desks[1].clone(), pair(&user, "r"));
        tasks.spawn(async move {
            let quota = desk.set(own.clone(), Window::Daily, 10).await;
            // What was used before counts, and nothing more than the limit comes to it.
            let after = desk.usage(own).await;
            assert!(
                after <= quota.usage.max(10),
                "{after} after {}",
                quota.usage
            );
            (
                Ok(quotalog_domain::Decided {
                    answer: quotalog_domain::Answer::Quota(quota),
                    replayed: false,
                }),
                true,
            )
        });
        let outcomes = tasks.join_all().await;
        let grants = outcomes
            .iter()
            .filter(|(outcome, set)| !set && outcome.is_ok());
        let usage = desks[0].usage(pair(&user, "r")).await;
        assert_eq!(usage, 2 * u64::try_from(grants.count()).expect("few"));
        assert!(desks[0].consume(pair(&user, "r"), 10).await.is_err());
    }
}

/// Batches that name the same pairs in opposite orders lock them in one order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_in_opposite_orders_do_not_fail() {
    let Some(fresh) = Fresh::at_start().await else {
        return;
    };
    let desks = desks(&fresh, 2).await;
    desks[0].set_default("r", Window::Daily, 1_000_000).await;
    let names: Vec<String> = (0..20).map(|number| format!("u{number:02}")).collect();
    let forth: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "r")).collect();
    let back: Vec<(&str, &str)> = forth.iter().rev().copied().collect();
    let mut batches = Vec::new();
    for _ in 0..30 {
        batches.push(vec![items(&forth, None)]);
        batches.push(vec![items(&back, None)]);
    }
    let outcomes = all_at_once(&desks, batches).await;
    assert_eq!(granted(&outcomes), 60);
    for name in &names {
        assert_eq!(desks[1].usage(pair(name, "r")).await, 60);
    }
}

/// Twins under one key that share no pair: one is counted, and the other is told that the key is taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twins_of_a_key_that_share_no_pair_count_once() {
    let Some(fresh) = Fresh::at_start().await else {
        return;
    };
    let desks = desks(&fresh, 2).await;
    desks[0].set_default("r", Window::Daily, 1_000_000).await;
    for round in 0..20 {
        let key = format!("k{round}");
        let other = |key: &str| items(&[("b", "r"), ("c", "r")], Some(key));
        let batches = vec![
            vec![items(&[("a", "r")], Some(&key))],
            vec![other(&key)],
            vec![items(&[("a", "r")], Some(&key))],
            vec![other(&key)],
        ];
        let outcomes = all_at_once(&desks, batches).await;
        let counted = outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Ok(decided) if !decided.replayed));
        assert_eq!(counted.count(), 1, "{outcomes:?}");
        assert_eq!(granted(&outcomes), 2, "the twin gets the answer");
    }
    let a = desks[0].usage(pair("a", "r")).await;
    let b = desks[0].usage(pair("b", "r")).await;
    assert_eq!((a + b, b), (20, desks[0].usage(pair("c", "r")).await));
}

/// From the answer to the change of a default on, no more than it allows is counted, on any node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lowered_default_is_obeyed_at_once() {
    let Some(fresh) = Fresh::at_start().await else {
        return;
    };
    let desks = desks(&fresh, 2).await;
    for round in 0..10 {
        let resource = format!("r{round}");
        desks[0].set_default(&resource, Window::Daily, 1_000).await;
        let mut tasks = JoinSet::new();
        for desk in &desks {
            for _ in 0..20 {
                let (desk, pair) = (desk.clone(), pair("u", &resource));
                tasks.spawn(async move { desk.consume(pair, 1).await.is_ok() });
            }
        }
        desks[1].set_default(&resource, Window::Daily, 1).await;
        let at_once = desks[0].usage(pair("u", &resource)).await;
        tasks.join_all().await;
        let in_the_end = desks[0].usage(pair("u", &resource)).await;
        assert!(
            in_the_end <= at_once.max(1),
            "{at_once} became {in_the_end}"
        );
    }
}

/// Pruning takes the row of a pair only with its last row of usage, also while the pair is counted again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pair_that_is_pruned_while_it_is_counted_stays_exact() {
    const RETENTION: Retention = Retention {
        usage_s: 2 * 86_400,
        idempotency_s: 86_400,
        audit_s: 400 * 86_400,
    };
    let Some(fresh) = Fresh::at_start().await else {
        return;
    };
    let desks = desks(&fresh, 2).await;
    desks[0].set_default("r", Window::Daily, 5).await;
    for _ in 0..5 {
        let users: Vec<String> = (0..20).map(|user| format!("u{user}")).collect();
        for user in &users {
            assert!(desks[0].consume(pair(user, "r"), 1).await.is_ok());
        }
        for _ in 0..4 * 24 {
            fresh.clock.advance_s(3_600);
            let pruned = desks[0].store.prune_step(RETENTION, 0).await;
            assert_eq!(pruned.expect("the store answers"), PruneStep::Deleted(0));
        }
        let mut tasks: JoinSet<usize> = JoinSet::new();
        for desk in &desks {
            let pruner = desk.store.clone();
            tasks.spawn(async move {
                for _ in 0..20 {
                    let pruned = pruner.prune_step(RETENTION, 3).await;
                    pruned.expect("the store answers");
                }
                0
            });
            for user in users.clone() {
                let desk = desk.clone();
                tasks.spawn(async move {
                    let commands = vec![consume(pair(&user, "r"), 1); 4];
                    granted(&desk.commit(commands).await)
                });
            }
        }
        let counted: usize = tasks.join_all().await.into_iter().sum();
        assert_eq!(counted, 20 * 5);
        // Each pair that has usage has its row, and no other pair that a default serves has one.
        let astray = fresh.database.ask(
            "SELECT (SELECT count(*) FROM quota_usage u WHERE NOT EXISTS (SELECT FROM quota_policies p \
             WHERE (p.user_id, p.resource) = (u.user_id, u.resource))), \
             (SELECT count(*) FROM quota_policies p WHERE NOT EXISTS (SELECT FROM quota_usage u \
             WHERE (p.user_id, p.resource) = (u.user_id, u.resource)))",
        );
        assert_eq!(astray, "0|0");
        for _ in 0..4 * 24 {
            fresh.clock.advance_s(3_600);
            let pruned = desks[0].store.prune_step(RETENTION, 100).await;
            pruned.expect("the store answers");
        }
        assert_eq!(
            fresh.database.ask("SELECT count(*) FROM quota_policies"),
            "0"
        );
    }
}

/// Erasing a user meets no half of what is under way for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_is_erased_while_it_is_counted() {
    let Some(fresh) = Fresh::at_start().await else {
        return;
    };
    let desks = desks(&fresh, 2).await;
    desks[0].set_default("r", Window::Daily, 1_000).await;
    for round in 0..10 {
        let mut tasks: JoinSet<()> = JoinSet::new();
        for (number, desk) in desks.iter().cycle().take(16).enumerate() {
            let desk = desk.clone();
            let key = format!("{round}.{number}");
            tasks.spawn(async move {
                let outcome = desk.one(items(&[("u", "r"), ("v", "r")], Some(&key))).await;
                assert!(outcome.is_ok(), "{outcome:?}");
            });
        }
        let store = desks[1].store.clone();
        tasks.spawn(async move { erase_u(&store).await });
        tasks.join_all().await;
        // Whatever came after the erasure is counted and kept, and nothing else: each key that is kept counts one.
        let kept = fresh
            .database
            .ask("SELECT count(*) FROM quotalog_idempotency_keys");
        let usage = desks[0].usage(pair("u", "r")).await;
        assert_eq!(kept, usage.to_string());
        erase_u(&desks[0].store).await;
    }
}

async fn erase_u(store: &PostgresStore) {
    let user_id = pair("u", "r").user_id;
    let begun = store.erase_user(Credential::CommandLine, user_id).await;
    assert!(begun.expect("the store answers").is_ok());
    while store
        .erase_step()
        .await
        .expect("the store answers")
        .is_some()
    {}
}

/// The session's, the role's and the database's settings change no window and no row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_roles_change_nothing() {
    let Some(fresh) = Fresh::at_start().await else {
        return;
    };
    let name = fresh.database.name();
    let first = Desk {
        store: fresh.store().await,
    };
    first.set_default("r", Window::Daily, 10).await;
    assert!(first.consume(pair("u", "r"), 1).await.is_ok());
    fresh.database.ask(&format!(
        "ALTER DATABASE {name} SET timezone = 'Asia/Tokyo'; \
         ALTER DATABASE {name} SET search_path = pg_catalog; \
         ALTER DATABASE {name} SET default_transaction_isolation = serializable; \
         ALTER DATABASE {name} SET datestyle = 'SQL, DMY'"
    ));
    let second = Desk {
        store: fresh.store().await,
    };
    assert!(second.consume(pair("u", "r"), 1).await.is_ok());
    assert_eq!(first.usage(pair("u", "r")).await, 2);
    let rows = fresh
        .database
        .ask("SELECT count(*) FROM public.quota_usage");
    assert_eq!(rows, "1");
}

/// A batch holds as many commands as a ledger sends, under a key each, of all kinds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_batch_of_all_kinds_is_one_transaction() {
    let Some(fresh) = Fresh::at_start().await else {
        return;
    };
    let desk = &desks(&fresh, 1).await[0];
    let of_user = |number: usize| -> Pair { pair(&format!("u{number:04}"), "r") };
    let commands = |number: usize| {
        let limit = Limit::settable(100).expect("a limit");
        let operation = match number % 4 {
            0 => Operation::SetPolicy {
                pair: of_user(number),
                window: Window::Hourly,
                limit,
                precondition: None,
            },
            1 => Operation::Consume {
                pair: of_user(number - 1),
                amount: Amount::ONE,
            },
            2 => Operation::SetDefault {
                resource: Resource::try_from(&*format!("r{number}")).expect("a resource"),
                window: Window::Daily,
                limit,
                precondition: None,
            },
            _ => Operation::Reset {
                pair: of_user(number - 3),
            },
        };
        let key = IdempotencyKey::try_from(&*format!("k{number}")).expect("a key");
        Submission {
            command: Command::new(operation).with_key(key, CallerId::new("caller")),
            credential: Credential::CommandLine,
        }
    };
    let submissions: Arc<[Submission]> = (0..1_024).map(commands).collect();
    for replayed in [false, true] {
        let submissions = Arc::clone(&submissions);
        let batch = Batch::new(move || submissions);
        let verdicts = desk.store.commit(batch).await.expect("the store answers");
        assert_eq!(verdicts.len(), 1_024);
        for verdict in verdicts {
            let decided = verdict.expect("the operator").expect("nothing is refused");
            assert_eq!(decided.replayed, replayed);
        }
    }
}

const LANES_LIMIT: u64 = 40;

/// What each of two ledgers is sent: singles of each user, one of them under a key; batches of all users in
/// opposite orders, one of them under a key; and the default that is there already. More than the limit in all.
fn for_all_lanes(users: &[String], key: &str) -> Vec<Command> {
    let keyed = |command: Command| {
        let key = IdempotencyKey::try_from(key).expect("a key");
        command.with_key(key, CallerId::new("caller"))
    };
    let singles = || users.iter().map(|user| consume(pair(user, "r"), 1));
    let forth: Vec<(&str, &str)> = users.iter().map(|user| (&**user, "r")).collect();
    let back: Vec<(&str, &str)> = forth.iter().rev().copied().collect();
    let mut commands: Vec<Command> = singles().map(keyed).collect();
    commands.push(items(&forth[..6], Some(key)));
    commands.push(Command::new(Operation::SetDefault {
        resource: Resource::try_from("r").expect("a resource"),
        window: Window::Daily,
        limit: Limit::settable(LANES_LIMIT).expect("a limit"),
        precondition: None,
    }));
    for _ in 0..10 {
        commands.extend(singles().chain(singles()));
        commands.push(items(&forth, None));
        commands.push(items(&back, None));
    }
    commands
}

fn counts(command: &Command, outcome: &Outcome, pair: &Pair) -> bool {
    let counted = outcome.as_ref().is_ok_and(|decided| !decided.replayed);
    counted && command.operation.pairs().any(|of| of == pair)
}

/// Ledgers of two nodes, each with lanes: singles in the lanes of their pairs, batches across them, and twins of
/// keys on the other node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_of_two_ledgers_are_exact_and_do_not_fail() {
    let Some(fresh) = Fresh::at_start().await else {
        return;
    };
    let desks = desks(&fresh, 2).await;
    desks[0].set_default("r", Window::Daily, LANES_LIMIT).await;
    let settings = Settings {
        lanes: 3,
        ..Settings::default()
    };
    let stores = desks.iter().map(|desk| Arc::new(desk.store.clone()));
    let ledgers: Vec<Ledger> = stores.map(|store| Ledger::start(store, settings)).collect();
    for round in 0..5 {
        let users: Vec<String> = (0..12).map(|user| format!("u{round}.{user:02}")).collect();
        let mut tasks = JoinSet::new();
        for ledger in &ledgers {
            for command in for_all_lanes(&users, &format!("k{round}")) {
                let ledger = ledger.clone();
                tasks.spawn(async move {
                    let caller = Caller {
                        role: Role::Admin,
                        credential: Credential::CommandLine,
                    };
                    let outcome = ledger.submit(Asker::now(&caller), command.clone()).await;
                    (command, outcome.expect("the store answers"))
                });
            }
        }
        let answers = tasks.join_all().await;
        for user in &users {
            let own = pair(user, "r");
            let usage = desks[0].usage(own.clone()).await;
            let of_own = || {
                let all = answers.iter();
                all.filter(|(command, outcome)| counts(command, outcome, &own))
            };
            assert_eq!(usage, u64::try_from(of_own().count()).expect("few"));
            // More singles than the limit leaves room for fill it to the last unit.
            assert_eq!(usage, LANES_LIMIT);
            let single_twins = of_own().filter(|(command, _)| {
                command.key.is_some() && matches!(command.operation, Operation::Consume { .. })
            });
            assert!(single_twins.count() <= 1);
        }
        let twins = answers.iter().filter(|(command, outcome)| {
            command.key.is_some() && counts(command, outcome, &pair(&users[0], "r"))
        });
        assert!(twins.count() <= 2, "the single's, and the batch's");
    }
    for ledger in ledgers {
        ledger.shut_down().await;
    }
}

/// Two nodes in one burst, whose clock passes the hour in the middle of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_over_the_end_of_an_hour_is_counted_once_each() {
    let Some(fresh) = Fresh::at_start().await else {
        return;
    };
    let desks = desks(&fresh, 2).await;
    let hour_end = Window::Hourly.span_at(fresh.clock.now()).reset_at;
    for round in 0..5 {
        let own = pair(&format!("u{round}"), "r");
        fresh.clock.set(hour_end.plus_s(-1));
        desks[0].set(own.clone(), Window::Hourly, 1_000).await;
        // The first and the last are sure to lie on either side.
        assert!(desks[0].consume(own.clone(), 1).await.is_ok());
        let mut tasks = JoinSet::new();
        for call in 0..48 {
            if call == 24 {
                fresh.clock.set(hour_end);
            }
            let (desk, own) = (desks[call % 2].clone(), own.clone());
            tasks.spawn(async move { desk.consume(own, 1).await });
        }
        assert_eq!(granted(&tasks.join_all().await), 48);
        assert!(desks[1].consume(own, 1).await.is_ok());
        let rows = fresh.database.ask(&format!(
            "SELECT count(*), sum(usage) FROM quota_usage WHERE user_id = 'u{round}'"
        ));
        assert_eq!(rows, "2|50");
    }
}
