//! What goes wrong around a transaction: foreign locks, panics, damage, overload.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use quotalog_auth::{Credential, Role, Token};
use quotalog_domain::{CallerId, Command, IdempotencyKey, Operation, Refusal, Timestamp, Window};
use quotalog_ledger::store::{
    Administer as _, Batch, Commit as _, Read as _, StoreError, Submission,
};
use quotalog_store_sqlite::SqliteStore;
use quotalog_testkit::ManualClock;
use quotalog_testkit::conformance::{Desk, consume, pair};

use support::TempDatabase;

fn submission(command: Command) -> Submission {
    Submission {
        command,
        credential: Credential::CommandLine,
    }
}

fn under_key(command: Command, key: &str) -> Command {
    let key = IdempotencyKey::try_from(key).expect("a key");
    command.with_key(key, CallerId::new("caller"))
}

#[tokio::test]
async fn a_foreign_lock_leaves_the_batch_in_the_queue() {
    let database = TempDatabase::at_start();
    let desk = database.desk();
    desk.set(pair("u", "r"), Window::Hourly, 5).await;

    let foreign = database.foreign();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    let taken = Arc::new(AtomicBool::new(false));
    let batch = Batch::new({
        let taken = Arc::clone(&taken);
        move || {
            taken.store(true, Ordering::SeqCst);
            [submission(consume(pair("u", "r"), 1))].into()
        }
    });
    let refused = desk.store.commit(batch).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))));
    assert!(!taken.load(Ordering::SeqCst));
    assert_eq!(desk.usage(pair("u", "r")).await, 0, "reads go on");

    foreign.execute_batch("COMMIT").unwrap();
    assert!(desk.consume(pair("u", "r"), 1).await.is_ok());
    assert_eq!(desk.usage(pair("u", "r")).await, 1);
}

#[tokio::test]
async fn a_held_turn_leaves_the_batch_in_the_queue() {
    let database = TempDatabase::at_start();
    let desk = database.desk();
    desk.set(pair("u", "r"), Window::Hourly, 5).await;
    for file in ["quotalog.db-turn", "quotalog.db-gate"] {
        let file = std::fs::File::open(database.folder.path().join(file)).unwrap();
        file.lock().unwrap();
        let refused = desk.store.commit(Batch::new(|| unreachable!())).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))));
        file.unlock().unwrap();
        assert!(desk.consume(pair("u", "r"), 1).await.is_ok());
    }
}

#[tokio::test]
async fn a_panic_ends_nothing_but_its_batch() {
    let database = TempDatabase::at_start();
    let (desk, other) = (database.desk(), database.desk());
    desk.set(pair("u", "r"), Window::Hourly, 5).await;
    for _ in 0..3 {
        let failed = desk
            .store
            .commit(Batch::new(|| panic!("in the batch")))
            .await;
        assert!(matches!(failed, Err(StoreError::Internal(_))), "{failed:?}");
        // Neither the transaction nor the turn stayed behind.
        assert!(other.consume(pair("u", "r"), 1).await.is_ok());
    }
    let (token, new) = Token::generate(Role::Admin, None, None).unwrap();
    let publish = Box::new(|| panic!("while publishing"));
    let failed = desk.store.create_first_admin_token(new, publish).await;
    assert!(matches!(failed, Err(StoreError::Internal(_))), "{failed:?}");
    let caller = desk.store.authenticate(token.hash());
    assert_eq!(caller.await.unwrap(), None);
    assert!(desk.consume(pair("u", "r"), 2).await.is_ok());
    assert_eq!(other.usage(pair("u", "r")).await, 5);
}

#[tokio::test]
async fn a_full_queue_is_answered_at_once() {
    let database = TempDatabase::at_start();
    let desk = database.desk();
    desk.set(pair("u", "r"), Window::Hourly, 1_000).await;
    let (started, has_started) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let blocking = tokio::spawn({
        let store = desk.store.clone();
        async move {
            let batch = Batch::new(move || {
                started.send(()).unwrap();
                released.recv().unwrap();
                [].into()
            });
            store.commit(batch).await.map(|verdicts| verdicts.len())
        }
    });
    tokio::task::spawn_blocking(move || has_started.recv().unwrap())
        .await
        .unwrap();

    // Polled once, each of them is in the queue; the first that finds it full says so.
    let mut waiting = Vec::new();
    let full = loop {
        assert!(waiting.len() < 10_000, "the queue has no bound");
        let store = desk.store.clone();
        let mut commit = Box::pin(async move {
            let batch = Batch::new(|| [submission(consume(pair("u", "r"), 1))].into());
            store.commit(batch).await
        });
        let polled =
            std::future::poll_fn(|context| std::task::Poll::Ready(commit.as_mut().poll(context)));
        match polled.await {
            std::task::Poll::Ready(answer) => break answer,
            std::task::Poll::Pending => waiting.push(commit),
        }
    };
    assert!(matches!(full, Err(StoreError::Unavailable(_))), "{full:?}");
    release.send(()).unwrap();
    assert_eq!(blocking.await.unwrap().unwrap(), 0);
    let queued = waiting.len();
    for commit in waiting {
        commit.await.unwrap();
    }
    let usage = desk.usage(pair("u", "r")).await;
    assert_eq!(usage, u64::try_from(queued).unwrap());
}

#[tokio::test]
async fn what_changes_nothing_leaves_no_row() {
    let database = TempDatabase::at_start();
    let desk = database.desk();
    desk.set(pair("u", "r"), Window::Hourly, 1).await;
    desk.set_default("s", Window::Hourly, 1).await;
    assert_eq!(desk.usage(pair("u", "r")).await, 0);
    assert_eq!(desk.usage(pair("u", "s")).await, 0);
    let too_much = under_key(consume(pair("u", "r"), 2), "k");
    assert_eq!(
        desk.one(too_much).await,
        Err(Refusal::AmountExceedsLimit(vec![0]))
    );
    let unknown = under_key(consume(pair("u", "unknown"), 1), "k");
    assert_eq!(desk.one(unknown).await, Err(Refusal::NotFound));
    let reset = Operation::Reset {
        pair: pair("u", "r"),
    };
    assert!(desk.operate(reset).await.is_ok());
    assert_eq!(desk.commit(Vec::new()).await, []);
    assert_eq!(database.rows("quota_usage"), 0);
    assert_eq!(database.rows("quotalog_idempotency_keys"), 0);
}

#[tokio::test]
async fn a_damaged_kept_answer_fails_its_request_alone() {
    let database = TempDatabase::at_start();
    let desk = database.desk();
    desk.set(pair("u", "r"), Window::Hourly, 10).await;
    let keyed = |key| under_key(consume(pair("u", "r"), 1), key);
    assert!(desk.one(keyed("damaged")).await.is_ok());
    let damages = [
        "kept = x''",
        "kept = x'02'",
        "kept = 'text'",
        "kept = substr(kept, 1, 9)",
    ];
    for damage in damages {
        let damage = format!("UPDATE quotalog_idempotency_keys SET {damage} WHERE key = 'damaged'");
        assert_eq!(database.foreign().execute(&damage, []).unwrap(), 1);
        let outcomes = desk
            .commit(vec![consume(pair("u", "r"), 1), keyed("damaged")])
            .await;
        assert!(outcomes[0].is_ok());
        assert_eq!(outcomes[1], Err(Refusal::KeyReused));
    }
    assert_eq!(desk.usage(pair("u", "r")).await, 5);
}

#[tokio::test]
async fn the_log_stays_bounded() {
    let database = TempDatabase::at_start();
    let desk = database.desk();
    desk.set_default("r", Window::Daily, 1_000_000).await;
    let pairs: Vec<_> = (0..2_000)
        .map(|user| pair(&format!("u{user}"), "r"))
        .collect();
    let walk = tokio::spawn({
        let desk = desk.clone();
        async move {
            loop {
                desk.list("u7").await;
                tokio::task::yield_now().await;
            }
        }
    });
    for round in 0..150_usize {
        let commands = pairs.iter().skip(round % 10).step_by(10);
        desk.commit(commands.map(|pair| consume(pair.clone(), 1)).collect())
            .await;
    }
    walk.abort();
    let log = database.folder.path().join("quotalog.db-wal");
    let bytes = log.metadata().unwrap().len();
    assert!(bytes <= 64 * 1024 * 1024, "{bytes} bytes");
}

#[tokio::test]
async fn the_last_days_of_the_calendar_hold_their_limits() {
    // 9999-12-30 12:00, and the day after, which the domain shows as the end of the day before.
    for noon_s in [253_402_171_200, 253_402_257_600] {
        let noon = Timestamp::from_unix_us(noon_s * 1_000_000);
        let database = TempDatabase::new(Arc::new(ManualClock::new(noon)));
        let desk = database.desk();
        for (resource, window) in [("h", Window::Hourly), ("d", Window::Daily)] {
            desk.set(pair("u", resource), window, 2).await;
            for _ in 0..2 {
                assert!(desk.consume(pair("u", resource), 1).await.is_ok());
            }
            assert!(desk.consume(pair("u", resource), 1).await.is_err());
            assert_eq!(desk.usage(pair("u", resource)).await, 2);
        }
    }
}

/// The path is looked at once a second, so the tests wait until it is seen, however long that takes.
async fn until_unavailable(desk: &Desk<SqliteStore>) {
    loop {
        let batch = Batch::new(|| [submission(consume(pair("u", "r"), 1))].into());
        match desk.store.commit(batch).await {
            Ok(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(StoreError::Unavailable(cause)) => {
                assert!(cause.to_string().contains("deleted, replaced or emptied"));
                break;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    let ping = desk.store.ping().await;
    assert!(matches!(ping, Err(StoreError::Unavailable(_))), "{ping:?}");
}

#[tokio::test]
async fn a_file_that_is_gone_takes_no_writes() {
    let database = TempDatabase::at_start();
    let desk = database.desk();
    desk.set(pair("u", "r"), Window::Daily, 1_000_000).await;
    let moved = database.folder.path().join("moved");
    std::fs::rename(database.path(), &moved).unwrap();
    until_unavailable(&desk).await;

    // Another file in its place is not taken up; the same one is.
    std::fs::write(database.path(), "another").unwrap();
    until_unavailable(&desk).await;
    std::fs::rename(&moved, database.path()).unwrap();
    assert!(desk.consume(pair("u", "r"), 1).await.is_ok());
    desk.store.ping().await.unwrap();

    std::fs::remove_file(database.path()).unwrap();
    until_unavailable(&desk).await;
}

#[tokio::test]
async fn a_file_that_was_emptied_takes_no_writes() {
    let database = TempDatabase::at_start();
    let desk = database.desk();
    desk.set(pair("u", "r"), Window::Daily, 1_000_000).await;
    std::fs::write(database.path(), "").unwrap();
    until_unavailable(&desk).await;
    std::fs::write(database.path(), "more").unwrap();
    until_unavailable(&desk).await;
}

#[tokio::test]
async fn a_store_without_its_tables_is_not_ready() {
    for table in ["quota_policies", "quota_usage"] {
        let database = TempDatabase::at_start();
        let desk = database.desk();
        desk.store.ping().await.unwrap();
        let drop = format!("DROP TABLE {table}");
        database.foreign().execute_batch(&drop).unwrap();
        assert!(desk.store.ping().await.is_err(), "{table}");
    }
}

#[tokio::test]
async fn what_was_not_written_is_not_granted() {
    for (table, change) in [("quota_usage", "INSERT"), ("quota_usage", "UPDATE")] {
        let database = TempDatabase::at_start();
        let desk = database.desk();
        desk.set(pair("u", "r"), Window::Daily, 5).await;
        if change == "UPDATE" {
            assert!(desk.consume(pair("u", "r"), 1).await.is_ok());
        }
        // Another program may add this while the server runs.
        let trigger = format!(
            "CREATE TRIGGER swallow BEFORE {change} ON {table} BEGIN SELECT RAISE(IGNORE); END"
        );
        database.foreign().execute_batch(&trigger).unwrap();
        let batch = Batch::new(|| [submission(consume(pair("u", "r"), 1))].into());
        let failed = desk.store.commit(batch).await;
        assert!(matches!(failed, Err(StoreError::Internal(_))), "{failed:?}");
    }
}

#[tokio::test]
async fn what_the_audit_does_not_hold_did_not_happen() {
    let database = TempDatabase::at_start();
    let desk = database.desk();
    desk.set(pair("u", "r"), Window::Daily, 5).await;
    assert!(desk.consume(pair("u", "r"), 3).await.is_ok());
    let (token, new) = Token::generate(Role::User(pair("u", "r").user_id), None, None).unwrap();
    let id = new.id.clone();
    let operator = || Credential::CommandLine;
    let created = desk.store.create_token(operator(), new).await;
    assert!(matches!(created, Ok(Ok(Ok(_)))), "{created:?}");

    for swallow in ["RAISE(IGNORE)", "RAISE(ABORT, 'no')"] {
        let trigger = format!(
            "DROP TRIGGER IF EXISTS swallow; \
             CREATE TRIGGER swallow BEFORE INSERT ON quotalog_audit BEGIN SELECT {swallow}; END"
        );
        database.foreign().execute_batch(&trigger).unwrap();
        for operation in [
            Operation::SetPolicy {
                pair: pair("u", "r"),
                window: Window::Daily,
                limit: quotalog_domain::Limit::settable(9).unwrap(),
                precondition: None,
            },
            Operation::Reset {
                pair: pair("u", "r"),
            },
        ] {
            let batch = Batch::new(|| [submission(Command::new(operation))].into());
            let failed = desk.store.commit(batch).await;
            assert!(matches!(failed, Err(StoreError::Internal(_))), "{failed:?}");
        }
        let (_, new) = Token::generate(Role::Admin, None, None).unwrap();
        assert!(desk.store.create_token(operator(), new).await.is_err());
        let revoked = desk.store.revoke_token(operator(), id.clone()).await;
        assert!(matches!(revoked, Err(StoreError::Internal(_))));
        let user_id = pair("u", "r").user_id;
        let erased = desk.store.erase_user(operator(), user_id).await;
        assert!(matches!(erased, Err(StoreError::Internal(_))));

        let quota = desk.check(pair("u", "r")).await.unwrap();
        assert_eq!((quota.usage, quota.limit().get()), (3, 5));
        assert_eq!(database.rows("quotalog_tokens"), 1);
        let caller = desk.store.authenticate(token.hash()).await.unwrap();
        assert!(caller.is_some());
        assert_eq!(database.rows("quotalog_audit"), 2);
    }
}
