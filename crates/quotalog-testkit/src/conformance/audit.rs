//! The audit: an entry for each change that somebody answers for, in the transaction of the change.

use std::sync::Arc;

use quotalog_auth::{
    Actor, ActorKind, Credential, JwtId, NewToken, Role, Token, TokenName, TokenRecord,
};
use quotalog_domain::{Command, Operation, Resource, UserId, Window};
use quotalog_ledger::store::{
    Administer as _, AuditAction, AuditEntry, AuditFilter, AuditId, Fact, Facts, Page, Store,
    Submission,
};

use crate::ManualClock;
use crate::conformance::desk::{Desk, amount, batch, consume, limit, pair, under_key};
use crate::conformance::{Database, START};

impl<S: Store> Desk<S> {
    /// A page of the audit.
    pub(crate) async fn audit_page(
        &self,
        filter: &AuditFilter,
        after: Option<AuditId>,
        len_max: usize,
    ) -> (Vec<AuditEntry>, Option<AuditId>) {
        let page = Page { after, len_max };
        let asked = self
            .store
            .audit(Credential::CommandLine, filter.clone(), page);
        let listed = asked.await.expect("the store answers");
        let listed = listed.expect("the operator is never revoked");
        assert!(listed.entries.len() <= len_max, "a page has a length");
        (listed.entries, listed.next)
    }

    /// The whole audit, newest first.
    pub(crate) async fn audit(&self) -> Vec<AuditEntry> {
        self.audit_page(&AuditFilter::default(), None, 1_000)
            .await
            .0
    }

    /// A new token, made by the operator.
    pub(crate) async fn token(&self, role: Role, name: Option<&str>) -> (Token, TokenRecord) {
        let (token, new) = generate(role, name);
        let created = self.store.create_token(Credential::CommandLine, new).await;
        let created = created
            .expect("the store answers")
            .expect("the operator is never revoked");
        (token, created.expect("it never ends"))
    }

    /// The credential of whoever holds `token`.
    pub(crate) async fn credential(&self, token: &Token) -> Credential {
        let caller = self.store.authenticate(token.hash()).await;
        let caller = caller.expect("the store answers");
        caller.expect("the token is known").credential
    }
}

fn generate(role: Role, name: Option<&str>) -> (Token, NewToken) {
    let name = name.map(|name| TokenName::try_from(name).expect("a name"));
    Token::generate(role, name, None).expect("random bytes")
}

fn facts(facts: &[(&str, Fact)]) -> Option<Facts> {
    let owned = |(name, fact): &(&str, Fact)| ((*name).to_owned(), fact.clone());
    Some(facts.iter().map(owned).collect())
}

fn text(text: &str) -> Fact {
    Fact::Text(text.to_owned())
}

fn policy(window: &str, units: u64) -> Option<Facts> {
    facts(&[
        ("window", text(window)),
        ("limit_count", Fact::Number(units)),
    ])
}

/// What an entry tells, without its place, time and actor.
type Told = (
    AuditAction,
    Option<String>,
    Option<String>,
    Option<Facts>,
    Option<Facts>,
);

fn told(entry: &AuditEntry) -> Told {
    (
        entry.action,
        entry.user_id.as_ref().map(|id| id.as_str().to_owned()),
        entry.resource.as_ref().map(|id| id.as_str().to_owned()),
        entry.before.clone(),
        entry.after.clone(),
    )
}

fn set(user_id: &str, resource: &str, window: Window, units: u64) -> Operation {
    Operation::SetPolicy {
        pair: pair(user_id, resource),
        window,
        limit: limit(units),
        precondition: None,
    }
}

/// Policies, defaults, resets and refunds: what was there before, and what after.
pub async fn every_change_is_remembered(database: impl Database, clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    let resource = || Resource::try_from("r").expect("a resource");
    desk.set(pair("u", "r"), Window::Hourly, 5).await;
    desk.set(pair("u", "r"), Window::Daily, 7).await;
    assert!(desk.consume(pair("u", "r"), 6).await.is_ok());
    assert!(desk.refund(pair("u", "r"), 4).await.is_ok());
    assert!(desk.refund(pair("u", "r"), 4).await.is_ok());
    clock.advance_s(61);
    assert!(desk.reset(pair("u", "r")).await.is_ok());
    assert!(desk.delete(pair("u", "r")).await.is_ok());
    desk.set_default("r", Window::Hourly, 3).await;
    desk.set_default("r", Window::Hourly, 4).await;
    let delete = Operation::DeleteDefault {
        resource: resource(),
        precondition: None,
    };
    assert!(desk.operate(delete).await.is_ok());

    let usage = |usage, refunded: Option<u64>| {
        let mut told = vec![
            ("window_start", text("2026-11-30T00:00:00Z")),
            ("usage", Fact::Number(usage)),
        ];
        told.extend(refunded.map(|units| ("refunded", Fact::Number(units))));
        facts(&told)
    };
    let of_pair = |action, before, after| {
        let (user_id, resource) = ("u".to_owned(), "r".to_owned());
        (action, Some(user_id), Some(resource), before, after)
    };
    let of_default = |action, before, after| (action, None, Some("r".to_owned()), before, after);
    let expected = [
        of_pair(AuditAction::PolicySet, None, policy("hourly", 5)),
        of_pair(
            AuditAction::PolicySet,
            policy("hourly", 5),
            policy("daily", 7),
        ),
        of_pair(AuditAction::QuotaRefund, usage(6, None), usage(2, Some(4))),
        of_pair(AuditAction::QuotaRefund, usage(2, None), usage(0, Some(2))),
        of_pair(AuditAction::QuotaReset, usage(0, None), usage(0, None)),
        of_pair(AuditAction::PolicyDelete, policy("daily", 7), None),
        of_default(AuditAction::DefaultSet, None, policy("hourly", 3)),
        of_default(
            AuditAction::DefaultSet,
            policy("hourly", 3),
            policy("hourly", 4),
        ),
        of_default(AuditAction::DefaultDelete, policy("hourly", 4), None),
    ];
    let entries = desk.audit().await;
    let oldest_first: Vec<Told> = entries.iter().rev().map(told).collect();
    assert_eq!(oldest_first, expected);
    assert!(entries.is_sorted_by(|newer, older| newer.id > older.id));
    assert_eq!(entries[8].at, START);
    assert_eq!(entries[0].at, START.plus_s(61));
}

/// Nothing of units counted, of refusals, of replays, of what was so already, of a revoked caller.
pub async fn what_changed_nothing_is_not_remembered(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    desk.set(pair("u", "r"), Window::Hourly, 5).await;
    desk.set_default("s", Window::Hourly, 5).await;
    let (token, record) = desk.token(Role::Admin, None).await;
    let revoked = desk.credential(&token).await;
    let store = &desk.store;
    let revoking = store.revoke_token(Credential::CommandLine, record.id.clone());
    assert_eq!(revoking.await.expect("the store answers"), Ok(true));
    let refund = || {
        let refund = Operation::Refund {
            pair: pair("u", "r"),
            amount: amount(1),
        };
        under_key(Command::new(refund), "k", "caller")
    };
    assert!(desk.one(refund()).await.is_ok());
    let before = desk.audit().await;

    assert!(desk.one(refund()).await.expect("it is kept").replayed);
    desk.set(pair("u", "r"), Window::Hourly, 5).await;
    desk.set_default("s", Window::Hourly, 5).await;
    assert!(desk.consume(pair("u", "r"), 5).await.is_ok());
    assert!(desk.consume(pair("u", "r"), 1).await.is_err());
    assert!(
        desk.one(batch(&[("u", "s", 2), ("v", "s", 1)]))
            .await
            .is_ok()
    );
    assert!(desk.delete(pair("u", "unknown")).await.is_err());
    assert!(desk.reset(pair("u", "unknown")).await.is_err());
    assert!(desk.refund(pair("u", "unknown"), 1).await.is_err());
    let submission = Submission {
        command: Command::new(set("u", "r", Window::Hourly, 9)),
        credential: revoked.clone(),
    };
    assert!(desk.submit(vec![submission]).await[0].is_err());
    let creating = store.create_token(revoked.clone(), generate(Role::Admin, None).1);
    assert!(creating.await.expect("the store answers").is_err());
    let again = store.revoke_token(Credential::CommandLine, record.id);
    assert_eq!(again.await.expect("the store answers"), Ok(false));
    let erasing = store.erase_user(revoked, UserId::try_from("u").expect("a user id"));
    assert!(erasing.await.expect("the store answers").is_err());
    assert_eq!(desk.audit().await, before);
}

/// Whoever sent the command, in a batch of several; a token with the name it bore.
pub async fn an_entry_names_its_actor(database: impl Database, _clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    let (named, named_record) = desk.token(Role::Admin, Some("on call, eu")).await;
    let (unnamed, unnamed_record) = desk.token(Role::Admin, None).await;
    let (named, unnamed) = (
        desk.credential(&named).await,
        desk.credential(&unnamed).await,
    );
    let jwt = Credential::Jwt {
        id: JwtId::new(Some("https://idp.example"), "ada").expect("a subject"),
        expires_at: START.plus_s(3_600),
    };
    let submission = |resource, credential: &Credential| Submission {
        command: Command::new(set("u", resource, Window::Daily, 5)),
        credential: credential.clone(),
    };
    let verdicts = desk
        .submit(vec![
            submission("a", &named),
            Submission {
                command: consume(pair("u", "a"), 1),
                credential: unnamed.clone(),
            },
            submission("b", &Credential::Environment),
            submission("c", &unnamed),
            submission("d", &Credential::CommandLine),
            submission("e", &jwt),
        ])
        .await;
    assert!(verdicts.iter().all(Result::is_ok));
    // A token that deletes itself is named for the last time.
    let revoking = desk.store.revoke_token(named, named_record.id.clone());
    assert_eq!(revoking.await.expect("the store answers"), Ok(true));

    let token = |record: &TokenRecord| Actor {
        kind: ActorKind::Token,
        id: record.id.as_str().to_owned(),
        name: record.name.as_ref().map(|name| name.as_str().to_owned()),
    };
    let without_token = |kind, id: &str| Actor {
        kind,
        id: id.to_owned(),
        name: None,
    };
    let of = |resource| {
        let resource = Resource::try_from(resource).expect("a resource");
        AuditFilter {
            resource: Some(resource),
            ..AuditFilter::default()
        }
    };
    for (resource, actor) in [
        ("a", token(&named_record)),
        ("b", without_token(ActorKind::Environment, "environment")),
        ("c", token(&unnamed_record)),
        ("d", without_token(ActorKind::CommandLine, "command-line")),
        (
            "e",
            without_token(ActorKind::Jwt, "https://idp.example ada"),
        ),
    ] {
        let (entries, _) = desk.audit_page(&of(resource), None, 10).await;
        let actors: Vec<&Actor> = entries.iter().map(|entry| &entry.actor).collect();
        assert_eq!(actors, [&actor]);
    }
    let last = &desk.audit().await[0];
    assert_eq!(last.action, AuditAction::TokenRevoke);
    assert_eq!(last.actor, token(&named_record));
    assert_eq!(last.actor.name.as_deref(), Some("on call, eu"));
}

/// Made, made at the first start, deleted: what a list shows of a token, and nothing of its secret.
pub async fn tokens_are_remembered_without_their_secret(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    let (token, new) = generate(Role::Admin, Some("first"));
    let first = new.id.clone();
    let made = desk
        .store
        .create_first_admin_token(new, Box::new(|| Ok(())))
        .await;
    assert!(made.expect("the store answers"));
    let alice = UserId::try_from("alice").expect("a user id");
    let name = TokenName::try_from("of alice").expect("a name");
    let end = START.plus_s(3_600);
    let (_, new) = Token::generate(Role::User(alice), Some(name), Some(end)).expect("random bytes");
    let of_alice = new.id.clone();
    let by = desk.credential(&token).await;
    let created = desk.store.create_token(by.clone(), new).await;
    assert!(matches!(created, Ok(Ok(Ok(_)))), "{created:?}");
    let revoked = desk.store.revoke_token(by, of_alice.clone()).await;
    assert!(matches!(revoked, Ok(Ok(true))), "{revoked:?}");

    let first_facts = facts(&[
        ("id", text(first.as_str())),
        ("role", text("admin")),
        ("user_id", Fact::Null),
        ("name", text("first")),
        ("expires_at", Fact::Null),
    ]);
    let of_alice = facts(&[
        ("id", text(of_alice.as_str())),
        ("role", text("user")),
        ("user_id", text("alice")),
        ("name", text("of alice")),
        ("expires_at", text("2026-11-30T19:20:00Z")),
    ]);
    let user = || Some("alice".to_owned());
    let entries = desk.audit().await;
    let oldest_first: Vec<Told> = entries.iter().rev().map(told).collect();
    assert_eq!(
        oldest_first,
        [
            (AuditAction::TokenCreate, None, None, None, first_facts),
            (
                AuditAction::TokenCreate,
                user(),
                None,
                None,
                of_alice.clone()
            ),
            (AuditAction::TokenRevoke, user(), None, of_alice, None),
        ]
    );
    let kinds: Vec<ActorKind> = entries.iter().map(|entry| entry.actor.kind).collect();
    assert_eq!(
        kinds,
        [ActorKind::Token, ActorKind::Token, ActorKind::CommandLine]
    );
}

/// Filters match by bytes, alone and together; a walk meets each entry once while others come.
pub async fn the_audit_is_listed_by_page_and_filter(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    let pairs = [
        ("a_b", "r"),
        ("axb", "r"),
        ("A_B", "r"),
        ("a_b", "100%"),
        ("a_b", "100 percent"),
        ("a%", "100%"),
    ];
    for round in 1..=3 {
        let sets = pairs
            .map(|(user_id, resource)| Command::new(set(user_id, resource, Window::Daily, round)));
        desk.commit(sets.to_vec()).await;
    }
    let everything = desk.audit().await;
    assert_eq!(everything.len(), 18);

    let filter = |user_id: Option<&str>, resource: Option<&str>| AuditFilter {
        user_id: user_id.map(|id| UserId::try_from(id).expect("a user id")),
        resource: resource.map(|id| Resource::try_from(id).expect("a resource")),
    };
    for filter in [
        filter(None, None),
        filter(Some("a_b"), None),
        filter(None, Some("100%")),
        filter(Some("a_b"), Some("100%")),
        filter(Some("a%"), Some("r")),
        filter(Some("nobody"), None),
    ] {
        let passes = |entry: &&AuditEntry| {
            (filter.user_id.is_none() || filter.user_id == entry.user_id)
                && (filter.resource.is_none() || filter.resource == entry.resource)
        };
        let expected: Vec<AuditEntry> = everything.iter().filter(passes).cloned().collect();
        for len_max in [1, 2, 3, 4, 9, 18, 19] {
            let mut met = Vec::new();
            let mut after = None;
            loop {
                let (entries, next) = desk.audit_page(&filter, after, len_max).await;
                met.extend(entries);
                // Newer ones come before what was read.
                desk.set(pair("later", "later"), Window::Daily, 1).await;
                assert!(desk.delete(pair("later", "later")).await.is_ok());
                if next.is_none() {
                    break;
                }
                assert_eq!(next, met.last().map(|entry| entry.id));
                after = next;
            }
            met.retain(|entry| {
                let user_id = entry.user_id.as_ref().map(UserId::as_str);
                user_id != Some("later")
            });
            assert_eq!(met, expected, "{filter:?}, pages of {len_max}");
        }
    }
}
