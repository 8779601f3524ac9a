//! Which files are opened, how they are made, and what is refused.

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::Arc;

use quotalog_auth::Credential;
use quotalog_domain::{Refusal, Window};
use quotalog_ledger::store::{
    AuditFilter, AuditId, Fact, Page, QuotaFilter, Read as _, StoreError,
};
use quotalog_store_sqlite::OpenError;
use quotalog_testkit::ManualClock;
use quotalog_testkit::conformance::{Desk, START, pair};

use support::{TempDatabase, open};

const FOREIGN_TABLES: &str = "
    CREATE TABLE quota_policies (
        id INTEGER PRIMARY KEY AUTOINCREMENT, user_id TEXT NOT NULL, resource TEXT NOT NULL,
        window TEXT NOT NULL DEFAULT 'hourly', limit_count INTEGER NOT NULL,
        created_at TEXT NOT NULL, updated_at TEXT NOT NULL, UNIQUE(user_id, resource));
    CREATE TABLE quota_usage (
        id INTEGER PRIMARY KEY AUTOINCREMENT, user_id TEXT NOT NULL, resource TEXT NOT NULL,
        window_start TEXT NOT NULL, usage INTEGER NOT NULL DEFAULT 0,
        created_at TEXT NOT NULL, updated_at TEXT NOT NULL, UNIQUE(user_id, resource, window_start));
    PRAGMA user_version = 4711;";

fn adopt(database: &TempDatabase, rows: &str) -> Desk<quotalog_store_sqlite::SqliteStore> {
    let foreign = database.foreign();
    let made = foreign.execute_batch(FOREIGN_TABLES);
    made.expect("the tables are new");
    foreign.execute_batch(rows).expect("the rows are new");
    drop(foreign);
    database.desk()
}

#[tokio::test]
async fn the_rows_of_another_program_are_kept_and_served() {
    let database = TempDatabase::at_start();
    let rows = "
        INSERT INTO quota_policies VALUES
         (7, 'u', 'r', 'hourly', 10, '2026-11-01 09:00:00', '2026-11-02 09:00:00'),
         (8, 'u', 'large', 'daily', 5000000, '2026-11-01 09:00:00', '2026-11-01 09:00:00');
        INSERT INTO quota_usage VALUES
         (1, 'u', 'r', '2026-11-30 18:00:00', 3, '2026-11-30 18:00:00', '2026-11-30 18:00:00'),
         (2, 'u', 'r', '2026-11-30 18:17:00', 2, '2026-11-30 18:17:00', '2026-11-30 18:17:00'),
         (3, 'u', 'r', '2026-11-30 17:00:00', 9, '2026-11-30 17:00:00', '2026-11-30 17:00:00'),
         (4, 'u', 'large', '2026-11-30 00:00:00', 4999999, '2026-11-30 00:00:00', '2026-11-30 00:00:00');
        CREATE TABLE refinery_schema_history (something_else TEXT);";
    let desk = adopt(&database, rows);
    let quota = desk.check(pair("u", "r")).await.unwrap();
    assert_eq!((quota.usage, quota.limit().get()), (5, 10));
    assert_eq!(quota.policy.updated_at, START.plus_s(-28 * 86_400 - 33_600));
    let large = desk.check(pair("u", "large")).await.unwrap();
    assert_eq!(large.limit().get(), 5_000_000);
    assert!(desk.consume(pair("u", "large"), 1).await.is_ok());
    assert!(desk.consume(pair("u", "large"), 1).await.is_err());
    assert!(desk.consume(pair("u", "r"), 5).await.is_ok());
    assert!(desk.consume(pair("u", "r"), 1).await.is_err());

    desk.store.close();
    let version = "PRAGMA user_version";
    let foreign = database.foreign();
    let version: i64 = foreign.query_row(version, [], |row| row.get(0)).unwrap();
    assert_eq!(version, 4711);
    assert_eq!(
        database.rows("quota_usage"),
        4,
        "rows are used, not doubled"
    );
    let desk = database.desk();
    assert_eq!(desk.usage(pair("u", "r")).await, 10);
}

#[tokio::test]
async fn a_row_that_the_domain_cannot_hold_is_passed_over() {
    let database = TempDatabase::at_start();
    let long = "x".repeat(256);
    let rows = format!(
        "INSERT INTO quota_policies (user_id, resource, window, limit_count, created_at, updated_at) VALUES
          ('u', 'weekly', 'weekly', 10, '2026-11-01 09:00:00', '2026-11-01 09:00:00'),
          ('u', 'zero', 'daily', 0, '2026-11-01 09:00:00', '2026-11-01 09:00:00'),
          ('u', 'text', 'daily', 'ten', '2026-11-01 09:00:00', '2026-11-01 09:00:00'),
          ('u', 'half', 'daily', 9.5, '2026-11-01 09:00:00', '2026-11-01 09:00:00'),
          ('u', 'undated', 'daily', 10, 'yesterday', '2026-11-01 09:00:00'),
          ('u', '{long}', 'daily', 10, '2026-11-01 09:00:00', '2026-11-01 09:00:00'),
          ('u', x'ff', 'daily', 10, '2026-11-01 09:00:00', '2026-11-01 09:00:00'),
          ('u', 'a/b', 'daily', 10, '2026-11-01 09:00:00', '2026-11-01 09:00:00'),
          ('u', 'sound', 'daily', 10, '2026-11-01 09:00:00', '2026-11-01 09:00:00'),
          ('{long}', 'sound', 'daily', 10, '2026-11-01 09:00:00', '2026-11-01 09:00:00');
         INSERT INTO quota_usage (user_id, resource, window_start, usage, created_at, updated_at) VALUES
          ('u', 'sound', '2026-11-30 00:00:00', -5, 'never', 'never'),
          ('u', 'sound', '2026-11-30 10:00:00', 2.5, 'never', 'never'),
          ('u', 'sound', '2026-11-30 11:00:00', 'many', 'never', 'never'),
          ('u', 'sound', '2026-11-30T12:00:00Z', 3, 'never', 'never'),
          ('u', 'sound', '2026-11-30 13:00:00', 4, 'never', 'never');"
    );
    let desk = adopt(&database, &rows);
    for resource in ["weekly", "zero", "text", "half", "undated"] {
        assert_eq!(desk.check(pair("u", resource)).await, None, "{resource}");
        let consumed = desk.consume(pair("u", resource), 1).await;
        assert_eq!(consumed, Err(Refusal::NotFound));
    }
    assert_eq!(desk.usage(pair("u", "sound")).await, 4);
    let quotas = desk.list("u").await;
    assert_eq!(quotas.len(), 1, "{quotas:?}");

    // Setting the policy takes the row over, with a date of its own; so does counting.
    let quota = desk.set(pair("u", "weekly"), Window::Daily, 7).await;
    assert_eq!(quota.policy.created_at, START);
    assert_eq!(desk.check(pair("u", "weekly")).await, Some(quota));
    assert!(desk.consume(pair("u", "sound"), 6).await.is_ok());
    assert_eq!(desk.usage(pair("u", "sound")).await, 10);
    assert_eq!(database.rows("quota_policies"), 10);
    assert_eq!(database.rows("quota_usage"), 5);
}

/// Users and resources in SQL, of which the last two are sound. A blob comes after every text, a text need
/// not be UTF-8, and the one of zeros is too long.
const ODD_KEYS: [&str; 12] = [
    "'', 'r'",
    "'a', ''",
    "'a', 'b/c'",
    "'a', x'00'",
    "'a', CAST(x'62ff' AS TEXT)",
    "CAST(x'61ff' AS TEXT), 'r'",
    "hex(zeroblob(128)), 'r'",
    "'b' || char(10), 'r'",
    "x'61', 'r'",
    "x'ff', x'ff'",
    "'a', 'r'",
    "'z', 'r'",
];

#[tokio::test]
async fn a_walk_goes_past_what_the_domain_cannot_hold() {
    let database = TempDatabase::at_start();
    let dates = "'2026-11-01 09:00:00', '2026-11-01 09:00:00'";
    let usage = "INSERT INTO quota_usage
        (user_id, resource, window_start, usage, created_at, updated_at) VALUES";
    let mut rows = format!("{usage} ('m', 'r', '2026-11-30 18:00:00', 5, {dates});");
    for key in ODD_KEYS {
        rows += &format!(
            "INSERT INTO quota_policies (user_id, resource, limit_count, created_at, updated_at)
              VALUES ({key}, 10, {dates});
             {usage} ({key}, '2026-11-30 18:00:00', 1, {dates}), ({key}, x'2026', 1, {dates});"
        );
    }
    let desk = adopt(&database, &rows);
    desk.set_default("r", Window::Hourly, 10).await;
    let store = &desk.store;
    let by = || Credential::CommandLine;
    let filters = [None, Some(pair("a", "r").resource)].map(|resource| QuotaFilter {
        resource,
        min_used_percent: None,
    });
    for filter in filters {
        let (mut met, mut after) = (Vec::new(), None);
        loop {
            let page = Page { after, len_max: 1 };
            let listed = store.quotas(by(), filter.clone(), page).await.unwrap();
            let listed = listed.unwrap();
            met.extend(listed.entries.into_iter().map(|quota| quota.pair));
            after = listed.next;
            if after.is_none() {
                break;
            }
        }
        let sound = [pair("a", "r"), pair("m", "r"), pair("z", "r")];
        assert_eq!(met, sound, "{filter:?}");
        let fullest = store.fullest(by(), filter, 9).await.unwrap().unwrap();
        let fullest: Vec<_> = fullest
            .into_iter()
            .map(|quota| (quota.pair, quota.usage))
            .collect();
        let in_order = [
            (pair("m", "r"), 5),
            (pair("a", "r"), 1),
            (pair("z", "r"), 1),
        ];
        assert_eq!(fullest, in_order);
    }
    assert_eq!(desk.list("a").await.len(), 1);
}

#[tokio::test]
async fn an_entry_of_the_audit_that_cannot_be_read_is_passed_over() {
    let database = TempDatabase::at_start();
    let desk = database.desk();
    for limit in 1..=9 {
        desk.set(pair("u", "r"), Window::Daily, limit).await;
    }
    // What a newer program adds to the facts is shown; what it adds beyond them is not understood.
    for (id, change) in [
        (
            1,
            "after = '{\"window\":\"daily\",\"burst\":7,\"of\":null}'",
        ),
        (2, "after = '{\"window\":'"),
        (3, "before = x'00'"),
        (4, "action = 'policy.freeze'"),
        (5, "actor_kind = 'robot'"),
        (6, "at = 'yesterday'"),
        (7, "user_id = 'a/b'"),
        (8, "actor_id = x'00'"),
    ] {
        let change = format!("UPDATE quotalog_audit SET {change} WHERE id = {id}");
        assert_eq!(database.foreign().execute(&change, []).unwrap(), 1);
    }
    let page = |after, len_max| {
        let page = Page { after, len_max };
        let filter = AuditFilter::default();
        desk.store.audit(Credential::CommandLine, filter, page)
    };
    let first = page(None, 1).await.unwrap().unwrap();
    assert_eq!(first.next, Some(AuditId(9)));
    let second = page(first.next, 1).await.unwrap().unwrap();
    assert_eq!(second.next, None);
    let facts = second.entries[0].after.as_ref().unwrap();
    let facts: Vec<(&str, &Fact)> = facts.iter().collect();
    let window = Fact::Text("daily".to_owned());
    let expected = [
        ("window", &window),
        ("burst", &Fact::Number(7)),
        ("of", &Fact::Null),
    ];
    assert_eq!(facts, expected);
}

#[tokio::test]
async fn a_default_steps_in_for_a_policy_that_is_passed_over() {
    let database = TempDatabase::at_start();
    let rows = "INSERT INTO quota_policies VALUES
        (1, 'u', 'r', 'weekly', 10, '2026-11-01 09:00:00', '2026-11-01 09:00:00');";
    let desk = adopt(&database, rows);
    desk.set_default("r", Window::Daily, 5).await;
    assert!(desk.list("u").await.is_empty(), "it was not counted yet");
    assert!(desk.consume(pair("u", "r"), 5).await.is_ok());
    assert_eq!(desk.list("u").await.len(), 1);
}

#[test]
fn tables_of_another_shape_are_refused() {
    check_shape("TABLE quota_usage (", "TABLE elsewhere (", None);
    let lacks_key = "has no unique index over";
    check_shape(", UNIQUE(user_id, resource));", ");", Some(lacks_key));
    let unique = ", UNIQUE(user_id, resource, window_start)";
    check_shape(unique, "", Some(lacks_key));
    let narrower = ", UNIQUE(user_id, resource)";
    check_shape(unique, narrower, Some("has a further unique index"));
    let both = ", UNIQUE(user_id), UNIQUE(user_id, resource, window_start)";
    check_shape(unique, both, Some("has a further unique index"));
    let renamed = ("limit_count INTEGER", "max_count INTEGER DEFAULT 1");
    check_shape(renamed.0, renamed.1, Some("no such column: limit_count"));
    let more = |column: &str| format!("usage INTEGER NOT NULL DEFAULT 0, {column}");
    let usage = "usage INTEGER NOT NULL DEFAULT 0";
    check_shape(usage, &more("note TEXT"), None);
    check_shape(usage, &more("note TEXT NOT NULL DEFAULT ''"), None);
    let twice = "twice INTEGER NOT NULL AS (usage * 2)";
    check_shape(usage, &more(twice), None);
    check_shape(
        usage,
        &more("note TEXT NOT NULL"),
        Some("must be given: note"),
    );
    check_shape(usage, "usage INTEGER AS (1)", Some("computes its column"));
    for kind in ["TEXT", "REAL"] {
        let kind = format!("usage {kind}");
        check_shape(
            "usage INTEGER",
            &kind,
            Some("wrong type in its column usage"),
        );
    }
    check_shape("usage INTEGER", "usage BIGINT", None);
    let wrong_id = Some("wrong type in its column user_id");
    check_shape("user_id TEXT", "user_id INTEGER", wrong_id);
    check_shape("user_id TEXT", "user_id VARCHAR(255)", None);
    let id = "id INTEGER PRIMARY KEY AUTOINCREMENT";
    check_shape(id, "id INTEGER PRIMARY KEY", None);
    let no_id = Some("has an id that is no INTEGER PRIMARY KEY");
    for other in ["id INTEGER", "id TEXT PRIMARY KEY", "id INT PRIMARY KEY"] {
        check_shape(id, other, no_id);
    }
    let refers = "user_id TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE";
    check_shape(
        "user_id TEXT NOT NULL",
        refers,
        Some("refers to another table"),
    );
    let without = (
        "window_start));\n    PRAGMA",
        "window_start)) WITHOUT ROWID;\n    PRAGMA",
    );
    let tables = FOREIGN_TABLES.replace(" AUTOINCREMENT", "");
    let tables = tables.replace(without.0, without.1);
    check_tables(&tables, Some("quota_usage is not an ordinary table"));
    let view = "CREATE VIEW quota_policies AS SELECT 1 AS id;";
    check_tables(view, Some("quota_policies is not an ordinary table"));
    let trigger = "CREATE TRIGGER refill AFTER UPDATE ON quota_usage BEGIN SELECT 1; END;";
    let tables = [FOREIGN_TABLES, trigger].concat();
    check_tables(&tables, Some("quota_usage has a trigger"));
}

#[test]
fn ids_that_would_not_compare_by_bytes_are_refused() {
    let cases = Some("does not compare");
    check_shape("user_id TEXT", "user_id TEXT COLLATE NOCASE", cases);
    check_shape("resource TEXT", "resource TEXT COLLATE RTRIM", cases);
    let folded = ", UNIQUE(user_id COLLATE NOCASE, resource)";
    check_shape(", UNIQUE(user_id, resource)", folded, cases);
    let binary = ", UNIQUE(user_id COLLATE BINARY, resource)";
    check_shape(", UNIQUE(user_id, resource)", binary, None);
    // The index is by bytes, and the comparison in a statement would not be.
    let tables = FOREIGN_TABLES
        .replace("user_id TEXT", "user_id TEXT COLLATE NOCASE")
        .replace("UNIQUE(user_id", "UNIQUE(user_id COLLATE BINARY");
    check_tables(&tables, cases);
}

#[tokio::test]
async fn tables_named_like_anything_but_the_two_are_left_alone() {
    let database = TempDatabase::at_start();
    let rows = "
        CREATE TABLE api_tokens (anything TEXT); CREATE TABLE token_generation (anything TEXT);
        CREATE TABLE quota_defaults (anything TEXT); CREATE TABLE idempotency_keys (anything TEXT);
        CREATE INDEX quota_usage_by_window_start ON quota_usage(window_start);";
    let desk = adopt(&database, rows);
    desk.set(pair("u", "r"), Window::Hourly, 1).await;
    assert!(desk.consume(pair("u", "r"), 1).await.is_ok());
}

#[test]
fn a_table_of_our_own_names_is_refused_in_one_line() {
    let database = TempDatabase::at_start();
    let table = "CREATE TABLE quotalog_tokens (anything TEXT);";
    database.foreign().execute_batch(table).unwrap();
    check_refused(database.path(), "quotalog_tokens already exists");
}

/// Opens a file with the two tables, changed; `None`: it opens.
#[track_caller]
fn check_shape(from: &str, to: &str, refused: Option<&str>) {
    assert!(FOREIGN_TABLES.contains(from), "{from}");
    check_tables(&FOREIGN_TABLES.replace(from, to), refused);
}

#[track_caller]
fn check_tables(tables: &str, refused: Option<&str>) {
    let database = TempDatabase::at_start();
    let made = database.foreign().execute_batch(tables);
    made.expect("the tables are new");
    match refused {
        None => database.store().close(),
        Some(part) => {
            check_refused(database.path(), part);
            let made = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'quotalog%'";
            let made = database.foreign().query_row(made, [], |row| row.get(0));
            assert_eq!(made, Ok(0_i64), "a file that is refused is left as it was");
        }
    }
}

#[test]
fn a_newer_schema_is_refused() {
    let database = TempDatabase::at_start();
    database.store().close();
    let newer = "INSERT INTO quotalog_schema_history VALUES
        (999, 'later', '2030-01-01T00:00:00Z', '1')";
    database.foreign().execute(newer, []).unwrap();
    let error = database.try_open().unwrap_err();
    assert!(matches!(error, OpenError::NewerSchema { found: 999, .. }));
    check_refused(database.path(), "run a newer version");
}

/// A file as the first version made it. The checksum is of that version's migration as it was published: if
/// the file `V1__quotas.sql` is ever edited, no database of it opens any more.
const FIRST_VERSION: &str = "
    CREATE TABLE quotalog_schema_history (
        version int4 PRIMARY KEY, name VARCHAR(255), applied_on VARCHAR(255), checksum VARCHAR(255));
    INSERT INTO quotalog_schema_history VALUES
        (1, 'quotas', '2026-11-30T12:00:00.123456789Z', '5776415397494846865');
    INSERT INTO quota_policies VALUES
        (1, 'u', 'r', 'hourly', 10, '2026-11-01 09:00:00', '2026-11-01 09:00:00');
    INSERT INTO quota_usage VALUES
        (1, 'u', 'r', '2026-11-30 18:00:00', 3, '2026-11-30 18:00:00', '2026-11-30 18:00:00'),
        (2, 'u', 's', '2026-11-30 18:00:00', 2, '2026-11-30 18:00:00', '2026-11-30 18:00:00');
    INSERT INTO quotalog_defaults VALUES
        (1, 's', 'hourly', 5, '2026-11-01 09:00:00', '2026-11-01 09:00:00');
    INSERT INTO quotalog_tokens VALUES
        (1, '0123456789abcdef', x'00', 'user', 'u', NULL, '2026-11-01 09:00:00', NULL);
    INSERT INTO quotalog_clock VALUES (1, '2026-11-30 18:00:00', NULL);";

#[tokio::test]
async fn a_database_of_the_first_version_is_brought_up_to_date() {
    let database = TempDatabase::at_start();
    let foreign = database.foreign();
    let tables = include_str!("../migrations/V1__quotas.sql");
    foreign.execute_batch(tables).unwrap();
    foreign.execute_batch(FIRST_VERSION).unwrap();
    drop(foreign);

    let desk = database.desk();
    let quotas = desk.list("u").await;
    let usages: Vec<u64> = quotas.iter().map(|quota| quota.usage).collect();
    assert_eq!(usages, [3, 2]);
    assert_eq!(database.rows("quotalog_audit"), 0);
    desk.set(pair("u", "r"), Window::Daily, 10).await;
    assert_eq!(database.rows("quotalog_audit"), 1);
    desk.store.close();

    let fresh = TempDatabase::at_start();
    fresh.store().close();
    assert_eq!(schema(&database), schema(&fresh));
    database.store().close();
}

/// Every table and index, as it was made.
fn schema(database: &TempDatabase) -> Vec<(String, Option<String>)> {
    let foreign = database.foreign();
    let sql = "SELECT name, sql FROM sqlite_schema WHERE name <> 'quotalog_schema_history' \
               ORDER BY name";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let rows = foreign
        .prepare(sql)
        .and_then(|mut schema| schema.query_map([], read)?.collect());
    rows.expect("a schema is readable")
}

#[test]
fn a_history_of_another_kind_is_refused() {
    for change in [
        "checksum = 1",
        "checksum = 'x'",
        "applied_on = 'x'",
        "name = NULL",
    ] {
        let database = TempDatabase::at_start();
        database.store().close();
        let change = format!("UPDATE quotalog_schema_history SET {change}");
        database.foreign().execute(&change, []).unwrap();
        check_refused(database.path(), "schema of another kind");
    }
}

#[test]
fn what_is_no_database_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    check_refused(PathBuf::new(), "is empty");
    check_refused(":memory:".into(), "in memory");
    check_refused("file::memory:?cache=shared".into(), "in memory");
    check_refused(folder.path().into(), "not a regular file");
    check_refused("/dev/null".into(), "not a regular file");
    check_refused(path("missing/quotalog.db"), "create it");
    check_refused(path("trailing/"), "not a regular file");
    fs::write(
        path("text"),
        "no database, but long enough to be taken for one".repeat(99),
    )
    .unwrap();
    check_refused(path("text"), "not a SQLite database");
    symlink(path("nowhere"), path("link")).unwrap();
    check_refused(path("link"), "not a regular file");
}

#[track_caller]
fn check_refused(path: PathBuf, part: &str) {
    let clock = Arc::new(ManualClock::new(START));
    let text = open(path, clock).expect_err("refused").to_string();
    assert!(text.contains(part), "{text}");
    assert!(!text.contains('\n'), "{text}");
}

#[tokio::test]
async fn every_file_is_its_owners_alone() {
    let database = TempDatabase::at_start();
    let desk = database.desk();
    desk.set(pair("u", "r"), Window::Hourly, 1).await;
    let mut names = Vec::new();
    for entry in fs::read_dir(database.folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", entry.file_name());
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    let suffixes = ["", "-gate", "-shm", "-turn", "-wal"];
    assert_eq!(names, suffixes.map(|suffix| format!("quotalog.db{suffix}")));
}

#[tokio::test]
async fn all_names_of_a_file_meet_at_the_same_locks() {
    let database = TempDatabase::at_start();
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("other-name.db");
    let first = database.desk();
    symlink(database.path(), &link).unwrap();
    let second = open(link, database.clock.clone()).unwrap();
    first.set(pair("u", "r"), Window::Hourly, 1).await;
    let second = Desk { store: second };
    assert!(second.consume(pair("u", "r"), 1).await.is_ok());
    assert_eq!(first.usage(pair("u", "r")).await, 1);
    let beside_link = fs::read_dir(elsewhere.path()).unwrap().count();
    assert_eq!(beside_link, 1, "the link alone");
}

#[tokio::test]
async fn many_starts_at_once_make_one_database() {
    let database = TempDatabase::at_start();
    let stores: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| database.store())).collect();
        starts
            .into_iter()
            .map(|start| start.join().unwrap())
            .collect()
    });
    let once = TempDatabase::at_start();
    once.store().close();
    assert_eq!(
        database.rows("quotalog_schema_history"),
        once.rows("quotalog_schema_history")
    );
    for store in &stores {
        store.ping().await.unwrap();
    }
}

#[tokio::test]
async fn closing_finishes_what_was_asked_and_leaves_one_file() {
    let database = TempDatabase::at_start();
    let desk = database.desk();
    let other = desk.store.clone();
    desk.set(pair("u", "r"), Window::Hourly, 1).await;
    desk.store.close();
    assert!(!database.folder.path().join("quotalog.db-wal").exists());
    let ping = other.ping().await;
    assert!(matches!(ping, Err(StoreError::Unavailable(_))), "{ping:?}");
    other.close();
    assert_eq!(database.desk().usage(pair("u", "r")).await, 0);
}
