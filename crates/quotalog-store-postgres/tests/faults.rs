//! A server that stops, crashes, freezes, or has no more room: nothing that was answered is lost, nothing hangs,
//! and afterwards all goes on.

mod support;

use quotalog_auth::Credential;
use quotalog_domain::Window;
use quotalog_ledger::store::{Batch, Commit as _, Read as _, StoreError, Submission, Verdict};
use quotalog_store_postgres::{PostgresClock, PostgresStore};
use quotalog_testkit::conformance::{Desk, consume, pair};
use quotalog_testkit::postgres::{Cluster, Database, Setup, Stop};
use tokio::task::JoinSet;

use support::config;

fn own(setup: Setup) -> Option<(Cluster, Database)> {
    let cluster = Cluster::own(&setup)?;
    let database = cluster.database();
    Some((cluster, database))
}

async fn desk(database: &Database) -> Desk<PostgresStore> {
    let store = PostgresStore::connect(config(database, PostgresClock::Database)).await;
    Desk {
        store: store.expect("the database opens"),
    }
}

/// Commits a consume of one unit.
async fn try_consume(store: &PostgresStore, user: &str) -> Result<Vec<Verdict>, StoreError> {
    let submission = Submission {
        command: consume(pair(user, "r"), 1),
        credential: Credential::CommandLine,
    };
    store.commit(Batch::new(move || [submission].into())).await
}

/// Asks until the store answers, as the ledger does. What comes before is no fault of ours.
async fn until_it_answers(store: &PostgresStore, user: &str) {
    loop {
        match try_consume(store, user).await {
            Ok(_) => return,
            Err(StoreError::Unavailable(_) | StoreError::OutcomeUnknown(_)) => {
                tokio::task::yield_now().await;
            }
            Err(StoreError::Internal(error)) => panic!("{error}"),
        }
    }
}

/// What is granted lies in the database; what is unknown may; what is unavailable does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_outlives_a_crash() {
    let Some((cluster, database)) = own(Setup::new()) else {
        return;
    };
    let desk = desk(&database).await;
    desk.set_default("r", Window::Daily, 1_000_000).await;
    for stop in [Stop::Immediate, Stop::Fast, Stop::Immediate] {
        let before = desk.usage(pair("u", "r")).await;
        let mut tasks: JoinSet<(u64, u64)> = JoinSet::new();
        for _ in 0..4 {
            let store = desk.store.clone();
            tasks.spawn(async move {
                let (mut granted, mut unknown) = (0, 0);
                loop {
                    match try_consume(&store, "u").await {
                        Ok(_) => granted += 1,
                        Err(StoreError::OutcomeUnknown(_)) => unknown += 1,
                        Err(StoreError::Unavailable(_)) => return (granted, unknown),
                        Err(StoreError::Internal(error)) => panic!("{error:?}"),
                    }
                }
            });
        }
        // Some have been granted by the time that this one is.
        for _ in 0..20 {
            until_it_answers(&desk.store, "other").await;
        }
        cluster.stop(stop);
        let answers = tasks.join_all().await;
        cluster.start();
        until_it_answers(&desk.store, "other").await;
        let granted: u64 = answers.iter().map(|(granted, _)| granted).sum();
        let unknown: u64 = answers.iter().map(|(_, unknown)| unknown).sum();
        let counted = desk.usage(pair("u", "r")).await - before;
        assert!(granted > 0);
        assert!(
            (granted..=granted + unknown).contains(&counted),
            "{counted} counted, {granted} granted, {unknown} unknown"
        );
    }
}

/// A server that does not answer is given up, without having taken a request or with its outcome told; once it
/// answers again, so do we.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_is_given_up() {
    let Some((cluster, database)) = own(Setup::new()) else {
        return;
    };
    let desk = desk(&database).await;
    desk.set_default("r", Window::Daily, 1_000_000).await;
    assert!(desk.consume(pair("u", "r"), 1).await.is_ok());
    cluster.freeze();
    let committed = try_consume(&desk.store, "u").await;
    assert!(
        matches!(committed, Err(StoreError::Unavailable(_))),
        "{committed:?}"
    );
    let asked = desk.store.ping().await;
    assert!(
        matches!(asked, Err(StoreError::Unavailable(_))),
        "{asked:?}"
    );
    cluster.thaw();
    until_it_answers(&desk.store, "other").await;
    assert_eq!(desk.usage(pair("u", "r")).await, 1);
    assert!(desk.store.ping().await.is_ok());
}

/// A server that is full of others' connections is as good as none, until they leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_connection_left_is_unavailable() {
    let setup = Setup::new()
        .setting("max_connections", "8")
        .setting("superuser_reserved_connections", "0");
    let Some((_cluster, database)) = own(setup) else {
        return;
    };
    let desk = desk(&database).await;
    desk.set_default("r", Window::Daily, 1_000_000).await;
    let others: Vec<Desk<PostgresStore>> = {
        let mut others = Vec::new();
        while let Ok(store) =
            PostgresStore::connect(config(&database, PostgresClock::Database)).await
        {
            others.push(Desk { store });
        }
        others
    };
    let refused = PostgresStore::connect(config(&database, PostgresClock::Database)).await;
    assert!(refused.expect_err("it is full").may_pass());
    // The connection that commits is there still; there is none for a reader.
    assert!(desk.consume(pair("u", "r"), 1).await.is_ok());
    let asked = desk.store.ping().await;
    assert!(
        matches!(asked, Err(StoreError::Unavailable(_))),
        "{asked:?}"
    );
    for other in others {
        other.store.close().await;
    }
    while desk.store.ping().await.is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(desk.usage(pair("u", "r")).await, 1);
}

/// A row that somebody else keeps locked makes a commit unavailable, and leaves nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pair_that_somebody_else_keeps_is_unavailable() {
    let Some((_cluster, database)) = own(Setup::new()) else {
        return;
    };
    let desk = desk(&database).await;
    desk.set(pair("u", "r"), Window::Daily, 10).await;
    desk.set(pair("v", "r"), Window::Daily, 10).await;
    let url: tokio_postgres::Config = database.url().parse().expect("a URL");
    let (client, connection) = url
        .connect(tokio_postgres::NoTls)
        .await
        .expect("it connects");
    let driver = tokio::spawn(connection);
    let locked =
        client.batch_execute("BEGIN; SELECT FROM quota_policies WHERE user_id = 'u' FOR UPDATE");
    locked.await.expect("the row is locked");
    let committed = try_consume(&desk.store, "u").await;
    assert!(
        matches!(committed, Err(StoreError::Unavailable(_))),
        "{committed:?}"
    );
    assert!(desk.consume(pair("v", "r"), 1).await.is_ok());
    drop(client);
    driver.await.expect("it ends").expect("in good order");
    assert!(desk.consume(pair("u", "r"), 10).await.is_ok());
}

/// The database's clock is the one clock; ours is not asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clock_is_the_databases() {
    let Some((_cluster, database)) = own(Setup::new()) else {
        return;
    };
    let desk = desk(&database).await;
    let of_database = || -> i64 {
        let told = database.ask("SELECT floor(extract(epoch FROM now()))::bigint");
        told.parse().expect("a number")
    };
    let before = of_database();
    let quota = desk.set(pair("u", "r"), Window::Daily, 10).await;
    let checked = desk.check(pair("u", "r")).await.expect("there is one");
    let after = of_database();
    for at in [quota.at, checked.at] {
        assert!((before..=after).contains(&at.unix_s()));
    }
}

/// A store that is closed has no connection left, and says so to other handles.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_store_leaves_no_connection() {
    let Some((_cluster, database)) = own(Setup::new()) else {
        return;
    };
    let desk = desk(&database).await;
    desk.set(pair("u", "r"), Window::Daily, 10).await;
    assert_eq!(desk.usage(pair("u", "r")).await, 0);
    let ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'quotalog'";
    assert_eq!(database.ask(ours), "2");
    desk.store.clone().close().await;
    let committed = try_consume(&desk.store, "u").await;
    assert!(matches!(committed, Err(StoreError::Unavailable(_))));
    // The server may need a moment more than the client to end a session.
    while database.ask(ours) != "0" {
        tokio::task::yield_now().await;
    }
}
