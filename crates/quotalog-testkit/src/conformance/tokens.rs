//! Tokens: found, judged in every transaction, listed, revoked.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quotalog_auth::{
    Caller, Credential, JwtId, NewToken, Role, Token, TokenId, TokenName, TokenRecord,
};
use quotalog_domain::{Timestamp, UserId, Window};
use quotalog_ledger::store::{
    Administer as _, ExpiryPassed, Page, Read as _, Revoked, Store, StoreError, Submission,
    TokenOrder,
};
use tokio::task::JoinSet;

use crate::ManualClock;
use crate::conformance::desk::{Desk, consume, pair};
use crate::conformance::{Database, START};

fn generate(role: Role, expires_at: Option<Timestamp>) -> (Token, NewToken) {
    let name = TokenName::try_from("of a test").expect("a name");
    Token::generate(role, Some(name), expires_at).expect("random bytes")
}

impl<S: Store> Desk<S> {
    pub(crate) async fn create(
        &self,
        role: Role,
        expires_at: Option<Timestamp>,
    ) -> (Token, TokenRecord) {
        let (token, new) = generate(role, expires_at);
        let created = self.store.create_token(Credential::CommandLine, new).await;
        let created = created
            .expect("the store answers")
            .expect("the operator is never revoked");
        (token, created.expect("the end lies in the future"))
    }

    async fn caller(&self, token: &Token) -> Option<Caller> {
        let caller = self.store.authenticate(token.hash()).await;
        caller.expect("the store answers")
    }

    async fn revoke(&self, id: &TokenId) -> bool {
        let revoked = self
            .store
            .revoke_token(Credential::CommandLine, id.clone())
            .await;
        revoked
            .expect("the store answers")
            .expect("the operator is never revoked")
    }

    /// What a start does: whether it made the first admin token, which is counted in `published`.
    async fn start(
        &self,
        published: &Arc<AtomicUsize>,
        expires_at: Option<Timestamp>,
    ) -> (bool, Token) {
        let published = Arc::clone(published);
        let publish = Box::new(move || {
            published.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        let (token, new) = generate(Role::Admin, expires_at);
        let created = self.store.create_first_admin_token(new, publish).await;
        (created.expect("the store answers"), token)
    }

    /// Whether the credential is accepted, which reads and commits must see alike.
    async fn accepts(&self, credential: &Credential) -> bool {
        let confirmed = self.store.confirm(credential.clone()).await;
        let accepted = confirmed.expect("the store answers").is_ok();

        let read = self.store.quota(credential.clone(), pair("u", "r")).await;
        assert_eq!(read.expect("the store answers").is_ok(), accepted);
        let user_id = UserId::try_from("u").expect("a user id");
        let page = Page {
            after: None,
            len_max: 1,
        };
        let listed = self.store.user_quotas(credential.clone(), user_id, page);
        let listed = listed.await.expect("the store answers");
        assert_eq!(listed.is_ok(), accepted);

        let command = consume(pair("u", "r"), 1);
        let credential = credential.clone();
        let verdicts = self
            .submit(vec![Submission {
                command,
                credential,
            }])
            .await;
        assert_eq!(verdicts[0].is_ok(), accepted);
        accepted
    }
}

/// By its hash, with its role; an unknown hash finds nobody.
pub async fn a_token_is_found_by_its_hash(database: impl Database, _clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    let alice = UserId::try_from("alice").expect("a user id");
    let (token, record) = desk.create(Role::User(alice.clone()), None).await;
    let caller = desk.caller(&token).await.expect("it is known");
    assert_eq!(caller.role, Role::User(alice));
    assert_eq!(caller.id().as_str(), record.id.as_str());
    assert_eq!(record.created_at, START);
    let unknown = Token::presented("ql_unknown");
    assert_eq!(desk.caller(&unknown).await, None);
}

/// From the answer to the revocation on, and on the store that did not hear of it too.
pub async fn a_revoked_token_is_refused_at_once_on_every_store(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desks = [Desk::at(&database).await, Desk::at(&database).await];
    let (token, record) = desks[0].create(Role::Service, None).await;
    let caller = desks[1].caller(&token).await.expect("it is known");
    assert!(desks[1].accepts(&caller.credential).await);

    assert!(desks[0].revoke(&record.id).await);
    for desk in &desks {
        assert!(!desk.accepts(&caller.credential).await);
        assert_eq!(desk.caller(&token).await, None);
        assert!(!desk.revoke(&record.id).await);
    }
    let created = desks[0]
        .store
        .create_token(caller.credential.clone(), generate(Role::Admin, None).1);
    assert_eq!(created.await.expect("the store answers"), Err(Revoked));
    let revoked = desks[0].store.revoke_token(caller.credential, record.id);
    assert_eq!(revoked.await.expect("the store answers"), Err(Revoked));
}

/// The generation moved on, but this token is still there.
pub async fn a_change_of_another_token_leaves_a_token_valid(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    let (token, _) = desk.create(Role::Service, None).await;
    let (_, other) = desk.create(Role::Service, None).await;
    let found = desk.caller(&token).await.expect("it is known");
    assert!(desk.revoke(&other.id).await);
    assert!(desk.accepts(&found.credential).await);
    let again = desk.caller(&token).await.expect("it is known");
    assert_ne!(again.credential, found.credential, "the generation shows");
    assert!(desk.accepts(&again.credential).await);
    assert!(desk.accepts(&Credential::Environment).await);
}

/// From its end on, to the microsecond.
pub async fn an_expired_token_is_refused(database: impl Database, clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    let end = START.plus_s(60);
    let (token, record) = desk.create(Role::Admin, Some(end)).await;
    assert_eq!(record.expires_at, Some(end));
    let caller = desk.caller(&token).await.expect("it is known");
    clock.set(Timestamp::from_unix_us(end.unix_us() - 1));
    assert!(desk.accepts(&caller.credential).await);
    assert!(desk.caller(&token).await.is_some());
    clock.set(end);
    assert!(!desk.accepts(&caller.credential).await);
    assert_eq!(desk.caller(&token).await, None);
}

/// The store has no row of it, but its clock judges when it ends.
pub async fn a_jwt_holds_until_its_end_whatever_becomes_of_tokens(
    database: impl Database,
    clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    let end = START.plus_s(60);
    let jwt = Credential::Jwt {
        id: JwtId::new(Some("https://idp.example"), "alice").expect("a subject"),
        expires_at: end,
    };
    assert!(desk.accepts(&jwt).await);
    let (_, record) = desk.create(Role::Service, None).await;
    assert!(desk.revoke(&record.id).await);
    clock.set(Timestamp::from_unix_us(end.unix_us() - 1));
    assert!(desk.accepts(&jwt).await);
    clock.set(end);
    assert!(!desk.accepts(&jwt).await);
}

/// A batch goes on without the command that is refused.
pub async fn a_refused_command_leaves_its_neighbours_alone(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    desk.set(pair("u", "r"), Window::Hourly, 10).await;
    let (token, record) = desk.create(Role::Service, None).await;
    let caller = desk.caller(&token).await.expect("it is known");
    assert!(desk.revoke(&record.id).await);
    let submission = |units, credential: &Credential| Submission {
        command: consume(pair("u", "r"), units),
        credential: credential.clone(),
    };
    let verdicts = desk
        .submit(vec![
            submission(1, &Credential::Environment),
            submission(2, &caller.credential),
            submission(4, &Credential::CommandLine),
        ])
        .await;
    let accepted: Vec<bool> = verdicts.iter().map(Result::is_ok).collect();
    assert_eq!(accepted, [true, false, true]);
    assert_eq!(desk.usage(pair("u", "r")).await, 5);
}

/// By the store's clock; also when it has no second left.
pub async fn an_end_in_the_past_is_refused(database: impl Database, clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    clock.set(Timestamp::from_unix_us(START.unix_us() + 500_000));
    for end in [START, START.plus_s(-1), Timestamp::MIN] {
        let (_, new) = generate(Role::Admin, Some(end));
        let created = desk.store.create_token(Credential::CommandLine, new).await;
        let created = created.expect("the store answers");
        assert_eq!(created, Ok(Err(ExpiryPassed)));
    }
    let (_, record) = desk.create(Role::Admin, Some(START.plus_s(1))).await;
    assert_eq!(record.created_at, START, "in whole seconds");
}

/// Oldest first; a walk meets each token once, while others come and go.
pub async fn tokens_are_listed_by_page(database: impl Database, clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    let mut records = Vec::new();
    for _ in 0..5 {
        records.push(desk.create(Role::Viewer, Some(START.plus_s(9))).await.1);
    }
    clock.advance_s(3_600); // Expired ones are listed too.
    let page = async |after: Option<TokenOrder>, len_max| {
        let page = Page { after, len_max };
        let listed = desk.store.tokens(Credential::CommandLine, page).await;
        let listed = listed
            .expect("the store answers")
            .expect("the operator is never revoked");
        (listed.entries, listed.next)
    };
    let (first, next) = page(None, 2).await;
    assert_eq!(first, records[..2]);
    assert!(desk.revoke(&records[1].id).await);
    assert!(desk.revoke(&records[2].id).await);
    let (_, new) = desk.create(Role::Admin, None).await;
    let (second, next) = page(next, 2).await;
    assert_eq!(second, records[3..]);
    let (third, next) = page(next, 2).await;
    assert_eq!((third, next), (vec![new], None));
    assert_eq!(page(None, 4).await.1, None, "the last page is full");
}

/// However many processes start at once.
pub async fn the_first_admin_token_is_published_once(
    database: impl Database,
    clock: Arc<ManualClock>,
) {
    let desks = [Desk::at(&database).await, Desk::at(&database).await];
    desks[0].create(Role::Service, None).await;
    let published = Arc::new(AtomicUsize::new(0));
    let mut starts = JoinSet::new();
    for start in 0..8_usize {
        let (desk, published) = (desks[start % 2].clone(), Arc::clone(&published));
        starts.spawn(async move { desk.start(&published, Some(START.plus_s(60))).await });
    }
    let starts = starts.join_all().await;
    assert_eq!(published.load(Ordering::SeqCst), 1);
    for (created, token) in starts {
        let caller = desks[0].caller(&token).await;
        assert_eq!(caller.is_some(), created, "the published one is stored");
    }
    // Once it has expired, there is no valid one.
    assert!(!desks[1].start(&published, None).await.0);
    clock.advance_s(60);
    let (created, token) = desks[1].start(&published, None).await;
    assert!(created);
    assert!(desks[0].caller(&token).await.is_some());
    assert_eq!(published.load(Ordering::SeqCst), 2);
}

/// What nobody saw must not exist, and the next start tries again.
pub async fn a_token_that_was_not_published_is_not_stored(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    let (unseen, new) = generate(Role::Admin, None);
    let publish = Box::new(|| Err(io::Error::other("no terminal")));
    match desk.store.create_first_admin_token(new, publish).await {
        Err(StoreError::Internal(cause)) => assert_eq!(cause.to_string(), "no terminal"),
        other => panic!("not the error of publishing: {other:?}"),
    }
    assert_eq!(desk.caller(&unseen).await, None);
    let (seen, new) = generate(Role::Admin, None);
    let created = desk
        .store
        .create_first_admin_token(new, Box::new(|| Ok(())))
        .await;
    assert!(created.expect("the store answers"));
    assert!(desk.caller(&seen).await.is_some());
}
