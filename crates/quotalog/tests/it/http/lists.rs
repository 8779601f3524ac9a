//! What lists have in common; and `GET /quotas/{userId}` and `GET /tokens`, page by page.

use std::collections::BTreeSet;

use hyper::Method;
use serde_json::{Value, json};

use crate::support::app::TestApp;

/// Every list there is.
const LISTS: [&str; 6] = [
    "/quotas",
    "/quotas/u",
    "/quotas/u/r/usage",
    "/defaults",
    "/tokens",
    "/audit",
];

/// Makes policies of `u` for `resources`, straight in the file.
fn insert_policies(app: &TestApp, resources: impl Iterator<Item = String>) {
    let path = app.folder.path().join("quotalog.db");
    let mut connection = rusqlite::Connection::open(path).unwrap();
    let transaction = connection.transaction().unwrap();
    for resource in resources {
        transaction
            .execute(
                "INSERT INTO quota_policies \
                 (user_id, resource, window, limit_count, created_at, updated_at) VALUES \
                 ('u', ?1, 'hourly', 5, '2026-11-30 18:00:00', '2026-11-30 18:00:00')",
                [resource],
            )
            .unwrap();
    }
    transaction.commit().unwrap();
}

fn resources(page: &Value) -> Vec<String> {
    let quotas = page["quotas"].as_array().unwrap();
    let resources = quotas.iter().map(|quota| quota["resource"].as_str());
    resources
        .map(|resource| resource.unwrap().to_owned())
        .collect()
}

/// C67: at most a page, and every resource once, while others come and go.
#[tokio::test]
async fn c67_a_walk_meets_every_quota_once() {
    let app = TestApp::new().await;
    insert_policies(&app, (0..10_000).map(|number| format!("r{number:05}")));
    app.put(
        "/quotas/v/r00500x",
        r#"{"window":"hourly","limit_count":5}"#,
    )
    .await
    .is(200);
    let first = app.get("/quotas/u").await.is(200).json();
    assert_eq!(resources(&first).len(), 100);
    assert_eq!(first["user_id"], "u");

    let mut met = Vec::new();
    let mut path = "/quotas/u?limit=1000".to_owned();
    for round in 0.. {
        let page = app.get(&path).await.is(200).json();
        met.extend(resources(&page));
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        path = format!("/quotas/u?limit=1000&cursor={cursor}");
        // Others come before and after the place of the walk, and the last one met goes.
        for resource in [format!("a{round}"), format!("z{round}")] {
            let path = format!("/quotas/u/{resource}");
            app.put(&path, r#"{"window":"daily","limit_count":1}"#)
                .await
                .is(200);
        }
        let last = met.last().unwrap();
        app.delete(&format!("/quotas/u/{last}")).await.is(204);
    }
    let mut sorted = met.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(met, sorted, "in order, and none twice");
    let old: BTreeSet<_> = met.iter().filter(|name| name.starts_with('r')).collect();
    assert_eq!(old.len(), 10_000);
    assert!(!met.contains(&"r00500x".to_owned()), "another user's");
}

#[tokio::test]
async fn a_list_is_in_the_order_of_bytes_and_ends_exactly() {
    let app = TestApp::new().await;
    let names = ["10", "9", "B", "a", "a b", "é", "日本語"];
    insert_policies(&app, names.iter().rev().map(ToString::to_string));
    app.post("/quotas/u/a%20b/consume", "").await.is(200);
    let whole = app.get("/quotas/u?limit=7").await.is(200).json();
    assert_eq!(resources(&whole), names);
    assert_eq!(whole["next_cursor"], Value::Null);
    assert_eq!(whole["quotas"][4]["usage"], 1);
    for limit in [1, 2, 3, 6] {
        let mut met = Vec::new();
        let mut path = format!("/quotas/u?limit={limit}");
        loop {
            let page = app.get(&path).await.is(200).json();
            let page_resources = resources(&page);
            assert!((1..=limit).contains(&page_resources.len()));
            met.extend(page_resources);
            let Some(cursor) = page["next_cursor"].as_str() else {
                break;
            };
            path = format!("/quotas/u?cursor={cursor}&limit={limit}");
        }
        assert_eq!(met, names);
    }
}

#[tokio::test]
async fn a_user_without_policies_is_an_empty_list() {
    let app = TestApp::new().await;
    let nobody = app.get("/quotas/nobody").await.is(200);
    let expected = json!({ "user_id": "nobody", "quotas": [], "next_cursor": null });
    assert_eq!(nobody.json(), expected);
}

#[tokio::test]
async fn c67_a_page_has_1_to_1000_entries() {
    let app = TestApp::new().await;
    for list in LISTS {
        for limit in ["1", "1000", "%37"] {
            app.get(&format!("{list}?limit={limit}")).await.is(200);
        }
        for limit in [
            "0",
            "-1",
            "1001",
            "1000000000",
            "99999999999999999999",
            "abc",
            "",
            "1.0",
            "+1",
            "1%20",
            "%31%00",
        ] {
            let answer = app.get(&format!("{list}?limit={limit}")).await;
            answer.faults(&["limit invalid"]);
        }
        for query in ["page=2", "offset=1", "Limit=5", "q=u", "min_usage=1"] {
            let (name, _) = query.split_once('=').unwrap();
            let fault = format!("{name} unknown_parameter");
            app.get(&format!("{list}?{query}")).await.faults(&[&fault]);
        }
        let answer = app.get(&format!("{list}?limit=5&limit=5")).await;
        answer.faults(&["limit unknown_parameter"]);
        let answer = app.get(&format!("{list}?limit=0&cursor=x&y=1&z")).await;
        answer.faults(&[
            "limit invalid",
            "cursor invalid",
            "y unknown_parameter",
            "z unknown_parameter",
        ]);
        for query in ["limit=%", "%ff=1", "limit=%zz"] {
            let answer = app.get(&format!("{list}?{query}")).await;
            answer.problem(400, "malformed-request");
        }
        app.get(&format!("{list}?")).await.is(200);
    }
}

/// C67: a cursor is of its own list, and nothing else is one.
#[tokio::test]
async fn c67_a_forged_cursor_is_refused() {
    let app = TestApp::new().await;
    insert_policies(&app, (0..3).map(|number| format!("r{number}")));
    for user in ["v", "u/x"] {
        let path = format!("/quotas/{}/r", crate::support::app::encoded(user));
        let set = app
            .put(&path, r#"{"window":"hourly","limit_count":5}"#)
            .await;
        assert_eq!(set.status, if user == "v" { 200 } else { 404 });
    }
    app.user_token("x").await;
    let cursor = async |list: &str| {
        let page = app.get(&format!("{list}?limit=1")).await.is(200).json();
        page["next_cursor"].as_str().unwrap().to_owned()
    };
    let (quotas, tokens) = (cursor("/quotas/u").await, cursor("/tokens").await);
    let cut = quotas[..quotas.len() - 1].to_owned();
    let padded = format!("{quotas}=");
    let (upper, doubled) = (quotas.to_uppercase(), format!("{quotas}{quotas}"));
    for forged in [
        "",
        "x",
        "r0",
        "1",
        "AAAA",
        "%00",
        "....",
        "%F0%9F%98%80",
        &padded,
        &upper,
    ] {
        for list in LISTS {
            let answer = app.get(&format!("{list}?cursor={forged}")).await;
            answer.faults(&["cursor invalid"]);
        }
    }
    // Another list's, another user's.
    for list in LISTS {
        for (own, cursor) in [("/quotas/u", &quotas), ("/tokens", &tokens)] {
            let answer = app.get(&format!("{list}?cursor={cursor}")).await;
            if list == own {
                answer.is(200);
            } else {
                answer.faults(&["cursor invalid"]);
            }
        }
    }
    for path in [
        format!("/quotas?sort=used_percent&cursor={quotas}"),
        format!("/quotas/v?cursor={quotas}"),
        format!("/quotas/U?cursor={quotas}"),
    ] {
        app.get(&path).await.faults(&["cursor invalid"]);
    }
    // However it is cut or doubled, it is refused or goes on in the same list.
    for odd in [cut, doubled] {
        let answer = app.get(&format!("/quotas/u?cursor={odd}")).await;
        assert!(matches!(answer.status, 200 | 422));
        if answer.status == 200 {
            assert_eq!(answer.json()["user_id"], "u");
        }
    }
    // It grants nothing: another's token does not read the list by it.
    let bob = app.user_token("bob").await;
    let path = format!("/quotas/u?cursor={quotas}");
    app.call(Method::GET, &path, &bob, "")
        .await
        .problem(403, "forbidden");
    // An entry that is gone is still a place to go on from.
    app.delete("/quotas/u/r0").await.is(204);
    let next = app.get(&path).await.is(200).json();
    assert_eq!(resources(&next), ["r1", "r2"]);
}

#[tokio::test]
async fn tokens_are_paged_too() {
    let app = TestApp::new().await;
    for _ in 0..4 {
        app.post("/tokens", r#"{"role":"viewer"}"#).await.is(201);
    }
    let mut met = Vec::new();
    let mut path = "/tokens?limit=2".to_owned();
    loop {
        let page = app.get(&path).await.is(200).json();
        let tokens = page["tokens"].as_array().unwrap();
        met.extend(tokens.iter().map(|token| token["id"].to_string()));
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        path = format!("/tokens?limit=2&cursor={cursor}");
    }
    assert_eq!(met.len(), 5);
    assert_eq!(met.iter().collect::<BTreeSet<_>>().len(), 5);
}
