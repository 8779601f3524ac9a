//! `quotalog-client` against the real server: what it answers, what it repeats, and what it lets through.

use std::net::SocketAddr;
use std::time::Duration;

use quotalog_client::{
    Builder, Client, Error, Grant, Item, NewToken, OnOutage, Policy, Quota, Role, Source, Window,
};
use tokio::net::TcpListener;

use crate::support::becomes::rows;
use crate::support::ids::printable;
use crate::support::server::{ADMIN, Server, Site};
use crate::support::tls::{Pair, with_tls};
use crate::support::way::{BAD_GATEWAY, TOO_MANY, Turn, UNAVAILABLE, UNAVAILABLE_FOR_AN_HOUR, Way};

mod gate;
mod grpc_gate;

fn builder(address: SocketAddr) -> Builder {
    Client::builder(format!("http://{address}")).token(ADMIN)
}

fn client(server: &Server) -> Client {
    builder(server.address).build().unwrap()
}

/// The units that the store holds for a pair, in whichever window.
fn counted(site: &Site, user_id: &str, resource: &str) -> u64 {
    site.stored(user_id, resource).values().sum()
}

#[tokio::test]
async fn usage_is_counted_checked_given_back_and_reset() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    let client = client(&server);
    let set = client
        .set_policy("u", "r", Policy::daily(10))
        .send()
        .await
        .unwrap();
    assert_eq!(
        (set.window, set.limit_count, set.source),
        (Window::Daily, 10, Source::Policy)
    );

    let grant = client.consume("u", "r").amount(4).send().await.unwrap();
    let counted = grant.counted().unwrap();
    assert_eq!((counted.quota.usage, counted.replayed), (4, false));
    assert_eq!(counted.fields.iter().count(), 5);
    for replayed in [false, true] {
        let consume = client.consume("u", "r").idempotency_key("k");
        let grant = consume.send().await.unwrap();
        let counted = grant.counted().unwrap();
        assert_eq!((counted.quota.usage, counted.replayed), (5, replayed));
    }
    let other = client.consume("u", "r").amount(2).idempotency_key("k");
    assert!(matches!(other.send().await, Err(Error::Mismatch(_))));
    let Err(Error::Exhausted(exhausted)) = client.consume("u", "r").amount(6).send().await else {
        panic!("six do not fit into five");
    };
    let quota = exhausted.quota().unwrap();
    assert_eq!((quota.remaining, quota.allowed), (5, false));
    assert!(exhausted.retry_after >= Duration::from_secs(1));
    assert_eq!(exhausted.fields.iter().count(), 5);
    let Err(Error::Invalid { errors, .. }) = client.consume("u", "r").amount(11).send().await
    else {
        panic!("eleven never fit");
    };
    assert_eq!(
        (&*errors[0].field, &*errors[0].code),
        ("amount", "exceeds_limit")
    );

    let refunded = client.refund("u", "r").amount(2).send().await.unwrap();
    assert_eq!(refunded.quota.usage, 3);
    let checked = client.check("u", "r").send().await.unwrap();
    assert_eq!(
        (checked.usage, checked.remaining, checked.allowed),
        (3, 7, true)
    );
    let rows = client
        .usage("u", "r")
        .from(set.window_start)
        .pages()
        .all()
        .await
        .unwrap();
    assert_eq!(rows.iter().map(|row| row.usage).sum::<u64>(), 3);
    let old = client
        .usage("u", "r")
        .to(set.window_start)
        .pages()
        .all()
        .await
        .unwrap();
    assert_eq!(old, []);
    assert_eq!(client.reset("u", "r").send().await.unwrap().quota.usage, 0);
}

#[tokio::test]
async fn a_batch_counts_all_or_none_and_names_what_does_not_fit() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    let client = client(&server);
    client
        .set_policy("u", "a", Policy::daily(10))
        .send()
        .await
        .unwrap();
    client
        .set_policy("u", "b", Policy::daily(1))
        .send()
        .await
        .unwrap();
    let items = [Item::new("u", "a").amount(3), Item::new("u", "b")];
    let grant = client.consume_batch(&items).send().await.unwrap();
    let usages: Vec<_> = grant
        .counted()
        .unwrap()
        .quotas
        .iter()
        .map(|quota| quota.usage)
        .collect();
    assert_eq!(usages, [3, 1]);
    let Err(Error::Exhausted(exhausted)) = client.consume_batch(&items).send().await else {
        panic!("b is exhausted");
    };
    let fits: Vec<_> = exhausted
        .items
        .iter()
        .map(|item| (item.amount, item.allowed))
        .collect();
    assert_eq!(fits, [(Some(3), true), (Some(1), false)]);
    assert_eq!(exhausted.quota().unwrap().resource, "b");
    assert_eq!(counted(&site, "u", "a"), 3);
}

#[tokio::test]
async fn a_policy_is_changed_and_removed_in_the_state_that_is_expected() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    let client = client(&server);
    let set = async |limit: u64, etag: Option<&str>| {
        let set = client.set_policy("u", "a", Policy::hourly(limit));
        match etag {
            Some(etag) => set.if_match(etag).send().await,
            None => set.send().await,
        }
    };
    let etag = set(5, None).await.unwrap().etag.unwrap();
    let checked = client.check("u", "a").send().await.unwrap();
    assert_eq!(checked.etag.as_ref(), Some(&etag));
    let changed = set(6, Some(&etag)).await.unwrap().etag.unwrap();
    let stale = set(7, Some(&etag)).await;
    assert!(matches!(stale, Err(Error::Precondition(_))));
    let stale = client.delete_policy("u", "a").if_match(&etag).send().await;
    assert!(matches!(stale, Err(Error::Precondition(_))));
    let delete = client.delete_policy("u", "a").if_match(&changed);
    delete.send().await.unwrap();
    let gone = client.delete_policy("u", "a").send().await;
    assert!(matches!(gone, Err(Error::NotFound(_))));
}

#[tokio::test]
async fn lists_are_read_page_by_page_or_whole() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    let client = client(&server);
    server.set("/quotas/u/a", "daily", 5).await;
    let default = client.set_default("b", Policy::daily(3));
    let default = default.send().await.unwrap();
    assert_eq!(client.default("b").send().await.unwrap(), default);
    assert_eq!(client.defaults().all().await.unwrap(), [default]);
    client.consume("v", "b").send().await.unwrap();
    let checked = client.check("v", "b").send().await.unwrap();
    assert_eq!(checked.source, Source::Default);

    let names = |quotas: Vec<Quota>| -> Vec<String> {
        quotas.into_iter().map(|quota| quota.user_id).collect()
    };
    let mut pages = client.quotas().pages().page_len(1);
    assert_eq!(names(pages.next().await.unwrap().unwrap()), ["u"]);
    let rest = client.quotas().pages().after(pages.cursor().unwrap());
    assert_eq!(names(rest.all().await.unwrap()), ["v"]);
    assert_eq!(names(pages.next().await.unwrap().unwrap()), ["v"]);
    assert!(pages.next().await.unwrap().is_none());
    let fullest = client.quotas().fullest(1).all().await.unwrap();
    assert_eq!(names(fullest), ["v"]);
    let some = client.quotas().resource("b").min_used_percent(30).pages();
    assert_eq!(names(some.all().await.unwrap()), ["v"]);
    let of_u = client.user_quotas("u").all().await.unwrap();
    assert_eq!(names(of_u), ["u"]);
    client.delete_default("b").send().await.unwrap();
    let gone = client.delete_default("b").send().await;
    assert!(matches!(gone, Err(Error::NotFound(_))));
}

#[tokio::test]
async fn tokens_are_made_and_revoked_and_the_audit_tells_of_it() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    let client = client(&server);
    server.set("/quotas/u/a", "daily", 5).await;
    server.set("/quotas/v/a", "daily", 6).await;
    let new = NewToken::of_user("u").name("a name");
    let created = client.create_token(&new).send().await.unwrap();
    assert!(!format!("{created:?}").contains(&created.secret));
    let user = builder(server.address).token(&created.secret);
    let user = user.build().unwrap();
    user.check("u", "a").send().await.unwrap();
    let other = user.check("v", "a").send().await;
    assert!(matches!(other, Err(Error::Forbidden(_))));
    let listed = client.tokens().all().await.unwrap();
    let revoke = client.revoke_token(&created.token.id);
    assert_eq!(listed, [created.token]);
    revoke.send().await.unwrap();
    let revoked = user.check("u", "a").send().await;
    assert!(matches!(revoked, Err(Error::Unauthorized(_))));
    let of_nobody = NewToken::new(Role::User);
    let made = client.create_token(&of_nobody).send().await;
    assert!(matches!(made, Err(Error::Invalid { .. })));
    client.erase_user("v").send().await.unwrap();

    let entries = client.audit().pages().all().await.unwrap();
    let actions = entries.iter().rev().map(|entry| &*entry.action);
    let expected = [
        "policy.set",
        "policy.set",
        "token.create",
        "token.revoke",
        "user.erase",
    ];
    assert_eq!(actions.collect::<Vec<_>>(), expected);
    assert_eq!(entries[0].actor.kind, "environment");
    let of_u = client.audit().user_id("u").resource("a").pages();
    let of_u = of_u.all().await.unwrap();
    assert_eq!(of_u.len(), 1);
    assert_eq!(of_u[0].after.as_ref().unwrap()["limit_count"], 5);
}

#[tokio::test]
async fn ids_of_any_printable_text_survive() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    let client = client(&server);
    for id in &printable() {
        let id = &**id;
        let set = client
            .set_policy(id, id, Policy::daily(5))
            .send()
            .await
            .unwrap();
        assert_eq!((&*set.user_id, &*set.resource), (id, id));
        client.consume(id, id).send().await.unwrap();
        let grant = client
            .consume_batch(&[Item::new(id, id)])
            .send()
            .await
            .unwrap();
        assert_eq!(grant.counted().unwrap().quotas[0].usage, 2);
        let listed = client.quotas().resource(id).pages().all().await.unwrap();
        assert_eq!(listed[0].user_id, id);
        client
            .set_default(id, Policy::daily(1))
            .send()
            .await
            .unwrap();
    }
    for key in ["", "a b", "a\n", "é", &"k".repeat(256)] {
        let keyed = client.consume("u", "r").idempotency_key(key);
        let consumed = keyed.send().await;
        assert!(
            matches!(consumed, Err(Error::Invalid { .. })),
            "{key:?}: {consumed:?}"
        );
    }
    for id in ["", ".", "..", "a/b", "a\nb"] {
        let consumed = client.consume(id, "r").send().await;
        assert!(
            matches!(consumed, Err(Error::Invalid { .. })),
            "{id:?}: {consumed:?}"
        );
    }
}

#[tokio::test]
async fn a_server_is_known_by_the_given_authority_alone() {
    let (site, pair) = (Site::new(), Pair::new());
    let folder = site.folder.path().join("tls");
    pair.lay(&folder);
    let server = site.serve_with(|command| with_tls(command, &folder));
    let url = format!("https://localhost:{}", server.address.port());
    let client = |pem: String| {
        let builder = Client::builder(&url).token(ADMIN).authorities_pem(pem);
        builder.attempts_max(1).build().unwrap()
    };
    let trusting = client(pair.certificate.clone());
    trusting
        .set_policy("u", "r", Policy::daily(5))
        .send()
        .await
        .unwrap();
    let distrusting = client(Pair::new().certificate);
    let refused = distrusting
        .set_policy("u", "r", Policy::daily(6))
        .send()
        .await;
    assert!(matches!(refused, Err(Error::Transport(_))), "{refused:?}");
}

/// What docs/clients.md calls an error.
fn name(error: &Error) -> &'static str {
    match error {
        Error::Exhausted(_) => "Exhausted",
        Error::NotFound(_) => "NotFound",
        Error::Unauthorized(_) | Error::Forbidden(_) => "Denied",
        Error::Invalid { .. } | Error::Mismatch(_) => "Invalid",
        Error::Transport(_) | Error::Internal(_) | Error::Unavailable { .. } => "Outage",
        Error::OutcomeUnknown { .. } => "OutcomeUnknown",
        Error::Precondition(_) | Error::Unexpected { .. } => "Unexpected",
    }
}

#[tokio::test]
async fn each_answer_becomes_what_the_documentation_says() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    server.set("/quotas/u/r", "daily", 1000).await;
    for row in rows() {
        for (changes, fate) in [(true, row.of_change), (false, row.of_question)] {
            let answer = format!("{} {}, {changes}", row.status, row.problem);
            let ask = async |client: Client| {
                if changes {
                    client.consume("u", "r").send().await.map(|_grant| ())
                } else {
                    client.check("u", "r").send().await.map(|_quota| ())
                }
            };
            // What it is called is seen where it wants an hour's wait, and whether it is asked again where it wants none.
            let way = Way::to(server.address, &[row.answer(true)]).await;
            let error = ask(way.client()).await.unwrap_err();
            assert_eq!(name(&error), fate.error, "{answer}: {error:?}");
            assert_eq!(way.seen().0, 1, "{answer}");
            assert_eq!(error.is_outage(), fate.error.starts_with("Out"), "{answer}");
            let way = Way::to(server.address, &[row.answer(false)]).await;
            let asked = ask(way.client()).await;
            assert_eq!(asked.is_ok(), fate.is_asked_again, "{answer}: {asked:?}");
            let attempts = 1 + usize::from(fate.is_asked_again);
            assert_eq!(way.seen(), (attempts, usize::from(changes)), "{answer}");
        }
    }
}

#[tokio::test]
async fn a_success_of_another_is_none_of_quotalogs() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    server.set("/quotas/u/r", "daily", 10).await;
    let foreign = |status: u16, body: &str| {
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        Turn::Answer(answer.leak())
    };
    let deep = "[".repeat(100_000);
    for (status, body) in [
        (200, "{}"),
        (200, "[]"),
        (200, ""),
        (200, &*deep),
        (202, "{}"),
    ] {
        let way = Way::to(server.address, &[foreign(status, body); 8]).await;
        let client = way.client();
        let items = [Item::new("u", "r")];
        let errors = [
            client.consume("u", "r").send().await.map(drop),
            client.consume("u", "r").send_raw().await.map(drop),
            client.consume_batch(&items).send().await.map(drop),
            client.check("u", "r").send().await.map(drop),
            client.quotas().pages().all().await.map(drop),
            client.delete_policy("u", "r").send().await,
            client.erase_user("u").send().await,
            client
                .create_token(&NewToken::new(Role::Viewer))
                .send()
                .await
                .map(drop),
        ];
        for error in errors {
            assert!(matches!(error, Err(Error::Unexpected { .. })), "{error:?}");
        }
        assert_eq!(way.seen().0, 8);
    }
    // It does not settle what was unknown before it.
    let way = Way::to(server.address, &[Turn::CutAnswer, foreign(200, "{}")]).await;
    let unknown = way.client().consume("u", "r").send().await;
    assert!(
        matches!(unknown, Err(Error::OutcomeUnknown { .. })),
        "{unknown:?}"
    );
    assert_eq!((way.seen(), counted(&site, "u", "r")), ((2, 1), 1));
}

#[tokio::test]
async fn what_the_server_failed_at_is_asked_again_under_its_key_or_not_at_all() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    server.set("/quotas/u/r", "daily", 10).await;
    let failed = || {
        let row = rows().into_iter().find(|row| row.problem == "internal");
        row.unwrap().answer(false)
    };
    let way = Way::to(server.address, &[failed(), failed()]).await;
    let consumed = way.client().consume("u", "r").send().await;
    assert_eq!(consumed.unwrap().counted().unwrap().quota.usage, 1);
    assert_eq!((way.seen(), counted(&site, "u", "r")), ((3, 1), 1));
    // It knows no key, and may have been made.
    let way = Way::to(server.address, &[failed()]).await;
    let made = way.client().create_token(&NewToken::new(Role::Viewer));
    let made = made.send().await;
    assert!(
        matches!(made, Err(Error::OutcomeUnknown { .. })),
        "{made:?}"
    );
    assert_eq!(way.seen(), (1, 0));
}

#[tokio::test]
async fn an_answer_that_drips_is_given_up_at_the_deadline() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    server.set("/quotas/u/r", "daily", 10).await;
    // The whole answer takes longer than the deadline, though no byte does.
    for (from, usage) in [("HTTP/1.1", 1), ("\r\n\r\n", 2)] {
        let drip = [Turn::DripFrom(from)];
        let way = Way::to(server.address, &drip).await;
        let hurried = way.client().with_deadline(Duration::from_millis(500));
        let consumed = hurried.consume("u", "r").send().await;
        assert!(
            matches!(consumed, Err(Error::OutcomeUnknown { .. })),
            "{consumed:?}"
        );
        assert_eq!((way.seen().0, counted(&site, "u", "r")), (1, usage));
        let way = Way::to(server.address, &drip).await;
        let hurried = way.client().with_deadline(Duration::from_millis(500));
        let checked = hurried.check("u", "r").send().await;
        assert!(matches!(checked, Err(Error::Transport(_))), "{checked:?}");
    }
}

impl Way {
    fn client(&self) -> Client {
        builder(self.address).build().unwrap()
    }
}

#[tokio::test]
async fn what_is_repeated_over_cut_connections_counts_once_under_one_key() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    server.set("/quotas/u/r", "daily", 100).await;
    let turns = [
        Turn::CutAnswer,
        Turn::CutInside,
        UNAVAILABLE,
        BAD_GATEWAY,
        Turn::CutAnswer,
    ];
    for change in ["consume", "batch", "key"] {
        let before = counted(&site, "u", "r");
        let way = Way::to(server.address, &turns).await;
        let client = way.client();
        let replayed = match change {
            "batch" => {
                let grant = client
                    .consume_batch(&[Item::new("u", "r").amount(3)])
                    .send()
                    .await;
                grant.unwrap().counted().unwrap().replayed
            }
            _ => {
                let mut consume = client.consume("u", "r").amount(3);
                if change == "key" {
                    consume = consume.idempotency_key("mine");
                }
                consume.send().await.unwrap().counted().unwrap().replayed
            }
        };
        assert!(replayed, "{change}");
        assert_eq!(way.seen(), (6, 1), "{change}");
        assert_eq!(counted(&site, "u", "r"), before + 3, "{change}");
    }
    let way = Way::to(server.address, &turns).await;
    way.client()
        .refund("u", "r")
        .amount(2)
        .send()
        .await
        .unwrap();
    assert_eq!((way.seen(), counted(&site, "u", "r")), ((6, 1), 7));
    let way = Way::to(server.address, &turns).await;
    way.client().reset("u", "r").send().await.unwrap();
    assert_eq!(way.seen(), (6, 1));
    let way = Way::to(server.address, &turns).await;
    way.client().check("u", "r").send().await.unwrap();
    assert_eq!(way.seen(), (6, 0));
}

#[tokio::test]
async fn what_knows_no_key_is_repeated_only_where_that_changes_nothing() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    let token = NewToken::new(Role::Viewer);

    let way = Way::to(server.address, &[Turn::CutAnswer]).await;
    let made = way.client().create_token(&token).send().await;
    assert!(
        matches!(made, Err(Error::OutcomeUnknown { .. })),
        "{made:?}"
    );
    assert_eq!(way.seen().0, 1);
    assert_eq!(client(&server).tokens().all().await.unwrap().len(), 1);
    let way = Way::to(server.address, &[UNAVAILABLE]).await;
    way.client().create_token(&token).send().await.unwrap();
    assert_eq!(way.seen().0, 2);

    let way = Way::to(server.address, &[Turn::CutAnswer, UNAVAILABLE]).await;
    let set = way
        .client()
        .set_policy("u", "r", Policy::daily(5))
        .send()
        .await
        .unwrap();
    assert_eq!(way.seen().0, 3);
    let way = Way::to(server.address, &[Turn::CutAnswer]).await;
    let change = way.client().set_policy("u", "r", Policy::daily(6));
    let changed = change.if_match(set.etag.unwrap()).send().await;
    assert!(
        matches!(changed, Err(Error::OutcomeUnknown { .. })),
        "{changed:?}"
    );
    assert_eq!(way.seen().0, 1);

    // The first attempt has removed it, and the second finds it gone.
    let way = Way::to(server.address, &[Turn::CutAnswer]).await;
    way.client().delete_policy("u", "r").send().await.unwrap();
    assert_eq!(way.seen().0, 2);
    let way = Way::to(server.address, &[]).await;
    let gone = way.client().delete_policy("u", "r").send().await;
    assert!(matches!(gone, Err(Error::NotFound(_))));
}

#[tokio::test]
async fn what_was_decided_is_never_repeated_and_no_wait_outlives_its_deadline() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    server.set("/quotas/u/r", "daily", 1).await;
    let way = Way::to(server.address, &[Turn::Pass]).await;
    way.client().consume("u", "r").send().await.unwrap();
    let exhausted = way.client().consume("u", "r").send().await;
    assert!(matches!(exhausted, Err(Error::Exhausted(_))));
    assert_eq!(way.seen().0, 2);

    let once = async |turns: &[Turn]| {
        let way = Way::to(server.address, turns).await;
        let error = way.client().consume("u", "r").send().await.unwrap_err();
        assert_eq!(way.seen().0, 1, "{error:?}");
        error
    };
    let too_many = once(&[TOO_MANY]).await;
    assert!(matches!(too_many, Error::Unexpected { status: 429, .. }));
    let later = once(&[UNAVAILABLE_FOR_AN_HOUR]).await;
    assert!(matches!(later, Error::Unavailable { .. }));
    assert_eq!(later.retry_after(), Some(Duration::from_secs(3600)));

    // Once it may have counted, a later "nothing was counted" does not take that back.
    let way = Way::to(server.address, &[Turn::CutAnswer, UNAVAILABLE_FOR_AN_HOUR]).await;
    server.set("/quotas/u/r", "daily", 2).await;
    let unknown = way.client().consume("u", "r").send().await;
    assert!(
        matches!(unknown, Err(Error::OutcomeUnknown { .. })),
        "{unknown:?}"
    );
    assert_eq!((way.seen().0, counted(&site, "u", "r")), (2, 2));
}

#[tokio::test]
async fn without_a_server_a_consume_is_refused_or_let_through_as_its_caller_chose() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let closed = builder(address).attempts_max(3).build().unwrap();
    let refused = closed.consume("u", "r").send().await;
    assert!(matches!(refused, Err(Error::Transport(_))), "{refused:?}");
    let open = closed.with_on_outage(OnOutage::FailOpen);
    let grant = open.consume("u", "r").send().await.unwrap();
    assert!(matches!(grant, Grant::LetThrough(Error::Transport(_))));
    let grant = open
        .consume_batch(&[Item::new("u", "r")])
        .send()
        .await
        .unwrap();
    assert!(grant.counted().is_none());
    // Nothing can be made up for a question.
    assert!(matches!(
        open.check("u", "r").send().await,
        Err(Error::Transport(_))
    ));
}

#[tokio::test]
async fn what_the_server_has_decided_is_never_let_through() {
    let site = Site::new();
    let server = site.serve_in_a_morning();
    server.set("/quotas/u/r", "daily", 1).await;
    let open = client(&server).with_on_outage(OnOutage::FailOpen);
    open.consume("u", "r").send().await.unwrap();
    let consumed = open.consume("u", "r").send().await;
    assert!(matches!(consumed, Err(Error::Exhausted(_))));
    let consumed = open.consume("u", "other").send().await;
    assert!(matches!(consumed, Err(Error::NotFound(_))));
    let consumed = open.consume("u", "r").amount(2).send().await;
    assert!(matches!(consumed, Err(Error::Invalid { .. })));
    let stranger = builder(server.address)
        .token("wrong")
        .on_outage(OnOutage::FailOpen);
    let consumed = stranger.build().unwrap().consume("u", "r").send().await;
    assert!(matches!(consumed, Err(Error::Unauthorized(_))));
    // A silent server is let through once the deadline has come, and not before an answer could.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_client = builder(silent.local_addr().unwrap())
        .deadline(Duration::from_millis(50))
        .on_outage(OnOutage::FailOpen);
    let grant = silent_client
        .build()
        .unwrap()
        .consume("u", "r")
        .send()
        .await
        .unwrap();
    assert!(matches!(
        grant,
        Grant::LetThrough(Error::OutcomeUnknown { .. })
    ));
}
