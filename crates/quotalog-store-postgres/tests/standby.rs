//! A standby that the server waits for, and that is away: what it has not got is never told as done, and who waits for
//! it takes no more connections than there are.

mod support;

use std::time::Duration;

use quotalog_auth::{Credential, Role, Token};
use quotalog_domain::{CallerId, Command, IdempotencyKey, Window};
use quotalog_ledger::store::{Administer as _, Batch, Commit as _, StoreError, Submission};
use quotalog_store_postgres::{PostgresClock, PostgresConfig, PostgresStore};
use quotalog_testkit::conformance::{Desk, consume, pair};
use quotalog_testkit::postgres::{Cluster, Database, Pooler, Setup, Stop};

use support::config;

/// When a wait is given up as a failure.
const PATIENCE: Duration = Duration::from_secs(60);
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// A server, and the standby that it waits for.
struct Servers {
    primary: Cluster,
    standby: Cluster,
    database: Database,
    config: PostgresConfig,
}

impl Servers {
    async fn start() -> Option<Self> {
        let primary = Cluster::own(&Setup::new())?;
        let database = primary.database();
        let standby = primary.standby();
        let config = config(&database, PostgresClock::Database);
        let store = support::open(config.clone()).await;
        let desk = Desk {
            store: store.expect("the database opens"),
        };
        for number in 0..8 {
            desk.set(pair(&user(number), "r"), Window::Daily, 100).await;
        }
        desk.store.close().await;
        Some(Self {
            primary,
            standby,
            database,
            config,
        })
    }

    async fn store(&self) -> PostgresStore {
        let store = support::open(self.config.clone()).await;
        store.expect("the database opens")
    }

    async fn until(&self, sql: &str, answer: impl Fn(&str) -> bool) {
        let asked = async {
            while !answer(&tokio::task::block_in_place(|| self.database.ask(sql))) {
                tokio::task::yield_now().await;
            }
        };
        let met = tokio::time::timeout(PATIENCE, asked).await;
        assert!(met.is_ok(), "{sql}: {}", self.database.ask(sql));
    }
}

fn user(number: usize) -> String {
    format!("u{number}")
}

/// Consumes one unit, and tells whether that is done, or unknown. While there is no connection, nothing is counted.
async fn is_done(store: &PostgresStore, user: &str, key: Option<&str>) -> bool {
    let told = async {
        loop {
            match is_done_at_once(store, user, key).await {
                Some(is_done) => return is_done,
                None => tokio::task::yield_now().await,
            }
        }
    };
    let told = tokio::time::timeout(PATIENCE, told).await;
    told.expect("a connection comes free")
}

async fn is_done_at_once(store: &PostgresStore, user: &str, key: Option<&str>) -> Option<bool> {
    let consume = consume(pair(user, "r"), 1);
    let key = key.map(|key| {
        let key = IdempotencyKey::try_from(key).expect("a key");
        (key, CallerId::new("caller"))
    });
    let submission = Submission {
        command: Command { key, ..consume },
        credential: Credential::CommandLine,
    };
    match store.commit(Batch::new(move || [submission].into())).await {
        Ok(verdicts) => {
            assert!(matches!(&*verdicts, [Ok(Ok(_))]), "{verdicts:?}");
            Some(true)
        }
        Err(StoreError::OutcomeUnknown(_)) => Some(false),
        Err(StoreError::Unavailable(_)) => None,
        Err(StoreError::Internal(error)) => panic!("{error}"),
    }
}

async fn bear_the_loss_of_the_standby(servers: &Servers, sessions_max: usize) {
    let store = servers.store().await;
    assert!(is_done(&store, "u0", None).await);
    servers.standby.stop(Stop::Fast);
    // More than there are lanes, of which each leaves a commit behind that waits.
    for at in [0, 2] {
        let (one, other) = (user(at), user(at + 1));
        let both = tokio::join!(is_done(&store, &one, None), is_done(&store, &other, None));
        assert_eq!(both, (false, false));
    }
    servers.until(WAITING, |waiting| waiting == "0").await;
    // It is there, and a failover would lose it: the retry is no more certain of it.
    for _ in 0..2 {
        assert!(!is_done(&store, "u6", Some("k")).await);
    }
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                    AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    servers
        .until(sessions, |sessions| {
            sessions.parse().is_ok_and(|len: usize| len <= sessions_max)
        })
        .await;

    servers.standby.start();
    let answered = async {
        while !is_done(&store, "u6", Some("k")).await {
            tokio::task::yield_now().await;
        }
    };
    let answered = tokio::time::timeout(PATIENCE, answered).await;
    assert!(answered.is_ok(), "it does not recover");
    assert!(is_done(&store, "u7", None).await);
    servers.primary.kill();
    servers.standby.promote();
    let after = servers.standby.named_as(&servers.database);
    let usage =
        after.ask("SELECT string_agg(user_id || usage, ' ' ORDER BY user_id) FROM quota_usage");
    // What was unknown was counted, as it may be, since nobody undid it.
    assert_eq!(usage, "u02 u11 u21 u31 u61 u71");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_is_away_takes_no_connections_and_loses_no_unit() {
    let Some(servers) = Servers::start().await else {
        return;
    };
    let sessions_max = servers.config.lanes + servers.config.readers;
    bear_the_loss_of_the_standby(&servers, sessions_max).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_is_away_takes_no_connections_of_a_pooler_either() {
    let Some(mut servers) = Servers::start().await else {
        return;
    };
    let Some(pooler) = Pooler::before(&servers.primary, 3) else {
        return;
    };
    let url = pooler.plain_url(&servers.database);
    servers.config.url = url.parse().expect("a URL");
    servers.config.is_pooled = true;
    bear_the_loss_of_the_standby(&servers, 3).await;
}

/// An administrator ends the wait of a commit, which the server then calls done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_somebody_has_stop_waiting_is_of_unknown_outcome() {
    let Some(servers) = Servers::start().await else {
        return;
    };
    let store = servers.store().await;
    servers.standby.stop(Stop::Fast);
    let stop =
        "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let consuming = tokio::spawn({
        let store = store.clone();
        async move { is_done(&store, "u0", None).await }
    });
    servers.until(stop, |stopped| stopped == "1").await;
    assert!(!consuming.await.expect("it ends"));
    let (_, token) = Token::generate(Role::Viewer, None, None).expect("a token");
    let creating = tokio::spawn({
        let store = store.clone();
        async move { store.create_token(Credential::CommandLine, token).await }
    });
    servers.until(stop, |stopped| stopped == "1").await;
    let created = creating.await.expect("it ends");
    let error = created.expect_err("the standby has not got it");
    let StoreError::OutcomeUnknown(error) = error else {
        panic!("{error:?}");
    };
    assert!(error.to_string().contains("standby"), "{error}");
    assert_eq!(
        servers.database.ask("SELECT sum(usage) FROM quota_usage"),
        "1"
    );
}

/// The server stands still and still takes connections, of which it says nothing; its standby has its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_frozen_does_not_keep_us_from_the_one_in_its_place() {
    let Some(mut servers) = Servers::start().await else {
        return;
    };
    let (one, other) = (servers.primary.port(), servers.standby.port());
    let name = servers.database.name();
    let url = format!(
        "postgres://postgres@127.0.0.1:{one},127.0.0.1:{other}/{name}?target_session_attrs=read-write"
    );
    servers.config.url = url.parse().expect("a URL");
    let store = servers.store().await;
    assert!(is_done(&store, "u0", None).await);
    servers.primary.freeze();
    servers.standby.promote();
    let after = servers.standby.named_as(&servers.database);
    let answered = async {
        while !is_done(&store, "u1", Some("k")).await {
            tokio::task::yield_now().await;
        }
    };
    let answered = tokio::time::timeout(PATIENCE, answered).await;
    assert!(answered.is_ok(), "it is not found");
    let usage =
        after.ask("SELECT string_agg(user_id || usage, ' ' ORDER BY user_id) FROM quota_usage");
    assert_eq!(usage, "u01 u11");
}
