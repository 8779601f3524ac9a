//! How SQLite goes about the statements of lists, erasure and pruning: each seeks in an index and reads in
//! its order. None walks through a table, and none sorts.

use rusqlite::Connection;

use crate::{audit, erase, fullest, list, prune, schema, token, walk};

/// A new database, whose tables are empty and were never analysed, as those of a server are.
fn database() -> Connection {
    let mut connection = Connection::open_in_memory().expect("memory for a database");
    let made = schema::migrations::runner().run(&mut connection);
    made.expect("the migrations run on an empty database");
    connection
}

/// The steps of a statement's plan.
fn plan(connection: &Connection, sql: &str) -> Vec<String> {
    let explained = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}"));
    let plan = explained.and_then(|mut plan| {
        let values = rusqlite::params_from_iter(vec![""; plan.parameter_count()]);
        plan.query_map(values, |row| row.get("detail"))?.collect()
    });
    plan.expect("the statement has a plan")
}

#[test]
fn nothing_walks_through_a_table_or_sorts() {
    let database = database();
    for sql in [
        list::COUNTED,
        list::USAGE,
        list::DEFAULTS,
        list::TOKENS,
        audit::PAGE,
        audit::PAGE_OF_USER,
        audit::PAGE_OF_RESOURCE,
        audit::PAGE_OF_PAIR,
        walk::POLICY,
        walk::USAGE,
        walk::POLICY_OF_USER,
        walk::USAGE_OF_USER,
        walk::POLICY_OF_RESOURCE,
        walk::USER_OF_ANYTHING,
        fullest::ROWS_OF_START,
        fullest::NEXT_START,
        erase::DELETE_POLICIES,
        erase::DELETE_PRESENT_USAGE,
        erase::DELETE_PAST_USAGE,
        erase::DELETE_KEPT,
        erase::KEPT_FOR_CALLERS,
        erase::LAST_KEPT,
        token::FIND_BY_ID,
        token::DELETE_OF_USER,
        prune::PRUNE_USAGE,
        prune::PRUNE_KEPT,
        prune::PRUNE_TOKENS,
        prune::ENTRIES,
        prune::DELETE_ENTRY,
    ] {
        let plan = plan(&database, sql);
        let seeks = |step: &String| step.starts_with("SEARCH ") || step.starts_with("LIST ");
        assert!(
            !plan.is_empty() && plan.iter().all(seeks),
            "{sql}\n{plan:#?}"
        );
    }
}

#[test]
fn a_seek_uses_the_whole_key() {
    let database = database();
    let check = |sql, key: &str| {
        let plan = plan(&database, sql);
        assert!(
            plan.len() == 1 && plan[0].ends_with(key),
            "{sql}\n{plan:#?}"
        );
    };
    check(audit::PAGE, "(rowid<?)");
    check(audit::PAGE_OF_USER, "(user_id=? AND rowid<?)");
    check(audit::PAGE_OF_RESOURCE, "(resource=? AND rowid<?)");
    check(
        audit::PAGE_OF_PAIR,
        "(user_id=? AND resource=? AND rowid<?)",
    );
    check(walk::POLICY, "((user_id,resource)>(?,?))");
    check(walk::USAGE, "((user_id,resource)>(?,?))");
    check(walk::POLICY_OF_RESOURCE, "(resource=? AND user_id>?)");
    check(fullest::ROWS_OF_START, "(window_start=? AND rowid>?)");
}
