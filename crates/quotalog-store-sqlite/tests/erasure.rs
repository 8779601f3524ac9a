//! What is left of an erased user in the file: nothing but its audit.

mod support;

use quotalog_auth::{Credential, Role, Token, TokenName};
use quotalog_domain::{CallerId, Command, IdempotencyKey, Item, Operation, UserId, Window};
use quotalog_ledger::store::Administer as _;
use quotalog_testkit::conformance::{consume, pair};
use rusqlite::Connection;

use support::TempDatabase;

/// Long enough to be found nowhere by chance.
const USER: &str = "the-user-to-be-erased";

fn keyed(command: Command, key: &str) -> Command {
    let key = IdempotencyKey::try_from(key).expect("a key");
    command.with_key(key, CallerId::new("caller"))
}

fn query<T>(
    connection: &Connection,
    sql: &str,
    read: impl Fn(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> Vec<T> {
    let rows = connection
        .prepare(sql)
        .and_then(|mut statement| statement.query_map([], read)?.collect());
    rows.expect("the statement runs")
}

/// The tables with a value that holds the user's id, whatever the column and its type.
fn tables_that_name_the_user(database: &TempDatabase) -> Vec<String> {
    let connection = database.foreign();
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
    let mut tables: Vec<String> = query(&connection, tables, |row| row.get(0));
    assert!(tables.len() >= 9, "{tables:?}");
    tables.retain(|table| {
        let columns = format!("SELECT name FROM pragma_table_info('{table}')");
        let columns: Vec<String> = query(&connection, &columns, |row| row.get(0));
        columns.iter().any(|column| {
            let sql = format!(
                "SELECT count(*) FROM \"{table}\" \
                 WHERE instr(CAST(\"{column}\" AS BLOB), CAST('{USER}' AS BLOB)) > 0"
            );
            query(&connection, &sql, |row| row.get::<_, i64>(0)) != [0]
        })
    });
    tables
}

#[tokio::test]
async fn no_table_but_the_audit_names_an_erased_user() {
    let database = TempDatabase::at_start();
    let desk = database.desk();
    desk.set_default("d", Window::Hourly, 100).await;
    // More of everything than one transaction takes.
    for day in 0..40 {
        let pairs = (0..20).map(|number| pair(USER, &format!("r{number}")));
        for pair in pairs.clone().filter(|_| day == 0) {
            desk.set(pair, Window::Daily, 100).await;
        }
        let consumes = pairs.map(|pair| consume(pair, 1));
        desk.commit(consumes.collect()).await;
        database.clock.advance_s(86_400);
    }
    let batch = |number: u32| {
        let users = ["v", USER, "w"].map(|user| Item {
            pair: pair(user, "d"),
            amount: quotalog_domain::Amount::ONE,
        });
        let items = users.to_vec();
        let command = Command::new(Operation::ConsumeBatch { items });
        keyed(command, &format!("batch-{number}"))
    };
    let batches = desk.commit((0..90).map(batch).collect()).await;
    assert!(batches.iter().all(Result::is_ok));
    let own = keyed(consume(pair(USER, "r1"), 1), "k");
    assert!(desk.one(own).await.is_ok());
    let user_id = UserId::try_from(USER).unwrap();
    let name = TokenName::try_from(USER).unwrap();
    let (_, token) = Token::generate(Role::User(user_id.clone()), Some(name), None).unwrap();
    let created = desk.store.create_token(Credential::CommandLine, token);
    assert!(matches!(created.await, Ok(Ok(Ok(_)))));

    let named = tables_that_name_the_user(&database);
    assert_eq!(
        named,
        [
            "quota_policies",
            "quota_usage",
            "quotalog_audit",
            "quotalog_idempotency_keys",
            "quotalog_tokens",
        ]
    );
    let erased = desk.store.erase_user(Credential::CommandLine, user_id);
    assert!(matches!(erased.await, Ok(Ok(_))));
    while desk.store.erase_step().await.unwrap().is_some() {}
    assert_eq!(tables_that_name_the_user(&database), ["quotalog_audit"]);
}
