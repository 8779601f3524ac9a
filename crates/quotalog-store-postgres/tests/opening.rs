//! Starts: on nothing, many at once, beside older and newer programs, and where little is allowed.

mod support;

use quotalog_domain::Window;
use quotalog_store_postgres::{OpenError, TlsMode};
use quotalog_testkit::conformance::{Desk, pair};
use tokio::task::JoinSet;

use support::Fresh;

/// Each of them is a node that starts on an empty database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_start_at_once() {
    for _ in 0..20 {
        let Some(fresh) = Fresh::at_start().await else {
            return;
        };
        let mut starts = JoinSet::new();
        for _ in 0..4 {
            starts.spawn(support::open(fresh.config()));
        }
        for started in starts.join_all().await {
            started.expect("each of them opens").close().await;
        }
        let applied = "SELECT count(*) FROM quotalog_schema_history";
        assert_eq!(fresh.database.ask(applied), "1");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_schema_is_refused() {
    let Some(fresh) = Fresh::at_start().await else {
        return;
    };
    fresh.store().await.close().await;
    fresh.database.ask(
        "INSERT INTO quotalog_schema_history SELECT 99, 'later', applied_on, checksum \
         FROM quotalog_schema_history WHERE version = 1",
    );
    let error = fresh.try_open().await.expect_err("it is newer");
    assert!(
        matches!(
            error,
            OpenError::NewerSchema {
                found: 99,
                known: 1
            }
        ),
        "{error}"
    );
    assert!(!error.may_pass());
    assert_eq!(
        error.to_string(),
        "the database has schema 99, and this program knows schemas up to 1; run a newer version of it"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_history_is_refused() {
    let Some(fresh) = Fresh::at_start().await else {
        return;
    };
    fresh
        .database
        .ask("CREATE TABLE quotalog_schema_history (version text)");
    let error = fresh.try_open().await.expect_err("it is none of ours");
    assert!(matches!(error, OpenError::ForeignSchema(_)), "{error}");
}

/// A role that may read and write rows, and no more, serves tables that another one made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_may_make_no_tables_serves_those_there_are() {
    let Some(fresh) = Fresh::at_start().await else {
        return;
    };
    let role = format!("role_{}", fresh.database.name());
    fresh.database.ask(&format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'secret of theirs'"
    ));
    let mut config = fresh.config();
    config.url.user(&role).password("secret of theirs");
    let error = support::open(config.clone()).await;
    let error = error.expect_err("it may make no tables");
    assert!(matches!(error, OpenError::Refused(_)), "{error}");

    fresh.store().await.close().await;
    fresh.database.ask(&format!(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}; \
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}"
    ));
    let desk = Desk {
        store: support::open(config).await.expect("it opens"),
    };
    desk.set(pair("u", "r"), Window::Daily, 5).await;
    assert!(desk.consume(pair("u", "r"), 5).await.is_ok());
    assert_eq!(desk.usage(pair("u", "r")).await, 5);
}

/// Each table is copied, or known not to be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_table_is_forgotten_by_a_copy() {
    use quotalog_record::transfer::{NOT_COPIED, TABLES};
    let Some(fresh) = Fresh::at_start().await else {
        return;
    };
    fresh.store().await.close().await;
    let tables = fresh.database.ask(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' \
         AND table_type = 'BASE TABLE'",
    );
    let mut found: Vec<&str> = tables.lines().collect();
    let known = TABLES.iter().map(|table| table.name).chain(NOT_COPIED);
    let mut known: Vec<&str> = known.collect();
    found.sort_unstable();
    known.sort_unstable();
    assert_eq!(found, known);
}

/// In another encoding some ids could not be kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_cannot_hold_every_id_is_refused() {
    let Some(fresh) = Fresh::at_start().await else {
        return;
    };
    let name = format!("{}_latin1", fresh.database.name());
    fresh.database.ask(&format!(
        "CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    ));
    let mut config = fresh.config();
    config.url.dbname(&name);
    let error = support::open(config).await;
    let error = error.expect_err("it is no UTF-8").to_string();
    assert!(
        error.contains("LATIN1") && error.contains("UTF8"),
        "{error}"
    );
    fresh.database.ask(&format!("DROP DATABASE {name}"));
}

/// What was answered is on disk, also where the database's own setting would let it be lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_may_forget_is_told_not_to() {
    let Some(fresh) = Fresh::at_start().await else {
        return;
    };
    let name = fresh.database.name();
    fresh.database.ask(&format!(
        "ALTER DATABASE {name} SET synchronous_commit = off; \
         CREATE TABLE settings (at_commit text); \
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \
         $$BEGIN INSERT INTO settings VALUES (current_setting('synchronous_commit')); RETURN NULL; END$$"
    ));
    let desk = Desk {
        store: fresh.store().await,
    };
    fresh.database.ask(
        "CREATE TRIGGER note AFTER INSERT OR UPDATE ON quota_policies FOR EACH STATEMENT EXECUTE FUNCTION note()",
    );
    desk.set(pair("u", "r"), Window::Daily, 5).await;
    let noted = fresh
        .database
        .ask("SELECT DISTINCT at_commit FROM settings");
    assert_eq!(noted, "on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_pass_is_told_from_what_may_not() {
    let Some(fresh) = Fresh::at_start().await else {
        return;
    };
    let mut no_database = fresh.config();
    no_database.url.dbname("no such database");
    let mut no_role = fresh.config();
    no_role.url.user("nobody we know");
    let mut no_server = fresh.config();
    no_server.url = "postgres://u@127.0.0.1:1/d".parse().expect("a URL");
    let mut no_tls = fresh.config();
    no_tls.tls = TlsMode::Require;
    for (config, may_pass) in [
        (no_database, false),
        (no_role, false),
        (no_server, true),
        (no_tls, false),
    ] {
        let error = support::open(config).await;
        let error = error.expect_err("there is none");
        assert_eq!(error.may_pass(), may_pass, "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}
