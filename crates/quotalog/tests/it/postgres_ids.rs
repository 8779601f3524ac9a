//! Ids over HTTP, alike on both stores: very long ones, and those that a pattern of SQL would mistake for others.

use hyper::{Method, Request};
use serde_json::Value;

use crate::postgres;
use crate::support::answer::Answer;
use crate::support::app::encoded;
use crate::support::server::{ADMIN, Server, Site};

async fn keyed(server: &Server, path: &str, key: &str) -> Answer {
    let request = Request::post(path)
        .header("host", "localhost")
        .header("authorization", format!("Bearer {ADMIN}"))
        .header("idempotency-key", key)
        .body(http_body_util::Full::default());
    let mut connection = server.connect().await;
    connection.send(request.unwrap()).await.unwrap()
}

/// All that one can do with a pair, whose user and resource are both `id`.
async fn works(server: &Server, id: &str) {
    let path = format!("/quotas/{0}/{0}", encoded(id));
    let (policy, key) = (r#"{"window":"daily","limit_count":50}"#, "k".repeat(255));
    let put = server.call(Method::PUT, &path, policy).await.is(200);
    assert_eq!(put.json()["user_id"], id);
    for _ in 0..2 {
        let kept = keyed(server, &format!("{path}/consume"), &key).await;
        assert_eq!(kept.is(200).usage(), 1);
    }
    let item = format!(r#"{{"user_id":"{id}","resource":"{id}","amount":2}}"#);
    let batch = format!(r#"{{"items":[{item},{item}]}}"#);
    server.call(Method::POST, "/consume", &batch).await.is(200);
    let refund = format!("{path}/refund");
    let refunded = server.call(Method::POST, &refund, "").await.is(200);
    assert_eq!(refunded.usage(), 4);
    let checked = server.call(Method::GET, &path, "").await.is(200);
    assert_eq!(checked.usage(), 4);
    let listed = async |path: &str, list: &str| {
        let answer = server.call(Method::GET, path, "").await.is(200).json();
        answer[list].as_array().unwrap().len()
    };
    let id = encoded(id);
    assert_eq!(listed(&format!("{path}/usage"), "windows").await, 1);
    assert_eq!(listed(&format!("/quotas/{id}"), "quotas").await, 1);
    assert_eq!(listed(&format!("/quotas?resource={id}"), "quotas").await, 1);
    let audit = format!("/audit?user_id={id}&resource={id}");
    assert_eq!(listed(&audit, "entries").await, 2);
    let default = format!("/defaults/{id}");
    server.call(Method::PUT, &default, policy).await.is(200);
    server.call(Method::DELETE, &default, "").await.is(204);
    let reset = format!("{path}/reset");
    assert_eq!(
        server.call(Method::POST, &reset, "").await.is(200).usage(),
        0
    );
    server.call(Method::DELETE, &path, "").await.is(204);
    let erase = format!("/quotas/{id}");
    server.call(Method::DELETE, &erase, "").await.is(204);
}

async fn long_ids(site: &Site) {
    let server = site.serve();
    server.ready().await;
    works(&server, &"x".repeat(255)).await;
    works(&server, &"\u{1f600}".repeat(63)).await;
    for long in ["x".repeat(256), "\u{1f600}".repeat(64), "x".repeat(10_000)] {
        let long = encoded(&long);
        for (path, field) in [
            (format!("/quotas/{long}/r/consume"), "user_id too_long"),
            (format!("/quotas/u/{long}/consume"), "resource too_long"),
        ] {
            let answer = server.call(Method::POST, &path, "").await;
            answer.faults(&[field]);
        }
    }
    server.set("/quotas/u/r", "daily", 5).await;
    let long_key = keyed(&server, "/quotas/u/r/consume", &"k".repeat(256)).await;
    long_key.faults(&["Idempotency-Key invalid"]);
    assert!(site.stored("u", "r").is_empty());
    assert!(!site.log().contains(" ERROR "), "{}", site.log());
}

#[tokio::test]
async fn the_longest_ids_work_and_longer_ones_are_refused_on_sqlite() {
    long_ids(&Site::new()).await;
}

#[tokio::test]
async fn the_longest_ids_work_and_longer_ones_are_refused_on_postgres() {
    let Some(site) = postgres::site() else { return };
    long_ids(&site).await;
}

async fn filters(site: &Site) {
    let names = ["a_b", "axb", "100%", "1000", "c\\d", "A_B", "'", "*"];
    let server = site.serve();
    server.ready().await;
    for name in names {
        let path = format!("/quotas/{0}/{0}", encoded(name));
        server.set(&path, "daily", 5).await;
    }
    let found = async |filter: String, list: &str, member: &str| -> Vec<String> {
        let answer = server.call(Method::GET, &filter, "").await.is(200).json();
        let entries = answer[list].as_array().unwrap();
        let name = |entry: &Value| entry[member].as_str().unwrap().to_owned();
        entries.iter().map(name).collect()
    };
    let others = [
        "_", "%", "\\", "a%", "a__", "100_", "100", "c_d", "cd", "a_b ",
    ];
    for name in names.into_iter().chain(others) {
        let expected: Vec<&str> = names.into_iter().filter(|known| *known == name).collect();
        let id = encoded(name);
        for (path, list, member) in [
            ("/quotas?resource", "quotas", "resource"),
            ("/quotas?sort=used_percent&resource", "quotas", "resource"),
            ("/audit?resource", "entries", "resource"),
            ("/audit?user_id", "entries", "user_id"),
        ] {
            let filter = format!("{path}={id}");
            assert_eq!(found(filter, list, member).await, expected, "{path}={name}");
        }
    }
}

#[tokio::test]
async fn no_character_of_a_filter_is_a_wildcard_on_sqlite() {
    filters(&Site::new()).await;
}

#[tokio::test]
async fn no_character_of_a_filter_is_a_wildcard_on_postgres() {
    let Some(site) = postgres::site() else { return };
    filters(&site).await;
}
