//! The router over a real ledger and a real SQLite file, on a clock that the test sets.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, request};
use hyper::{Method, Request};
use quotalog_auth::{Caller, Credential, Role, Token, TokenId};
use quotalog_domain::{Command, Limit, Operation, Resource, Timestamp, UserId, Window};
use quotalog_front::{Admission, Authentication, Draining};
use quotalog_http::{App, Cors, Metrics, Origin};
use quotalog_jwt::Verifier;
use quotalog_ledger::store::{Administer as _, Store};
use quotalog_ledger::{Asker, Ledger, Settings};
use quotalog_store_sqlite::{SqliteConfig, SqliteStore};
use quotalog_testkit::{FaultyStore, ManualClock};
use tempfile::TempDir;
use tower::ServiceExt as _;

use super::answer::Answer;
use super::described;
use super::server::read_number;

/// 2026-11-30T18:20:00Z.
pub(crate) const NOW: &str = "2026-11-30T18:20:00Z";

/// A whole server without its socket.
pub(crate) struct TestApp {
    router: Router,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: SqliteStore,
    pub(crate) ledger: Ledger,
    jwts: Option<Verifier>,
    pub(crate) draining: Draining,
    pub(crate) folder: Arc<TempDir>,
    /// An admin's token.
    pub(crate) admin: String,
}

/// The instant of an RFC 3339 text, with parts of a second.
#[track_caller]
pub(crate) fn instant(text: &str) -> Timestamp {
    use time::format_description::well_known::Rfc3339;
    let instant = time::OffsetDateTime::parse(text, &Rfc3339).expect("an instant");
    Timestamp::from_unix_us(i64::try_from(instant.unix_timestamp_nanos() / 1_000).unwrap())
}

/// An id as a segment of a path.
pub(crate) fn encoded(id: &str) -> String {
    let bytes = id.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    bytes.collect()
}

fn site(now: &str) -> (Arc<TempDir>, Arc<ManualClock>) {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(instant(now));
    (Arc::new(folder), Arc::new(clock))
}

fn router(ledger: &Ledger, draining: &Draining, cors: Cors, jwts: Option<Verifier>) -> Router {
    quotalog_http::router(App {
        ledger: ledger.clone(),
        draining: draining.clone(),
        authentication: Authentication::new(ledger.clone(), jwts),
        admission: Admission::new(1_024),
        cors,
        metrics: Metrics::new(ledger),
        metrics_apart: false,
    })
}

impl TestApp {
    /// A new server at [`NOW`].
    pub(crate) async fn new() -> Self {
        Self::at(NOW).await
    }

    /// A new server whose clock stands at `now`.
    pub(crate) async fn at(now: &str) -> Self {
        let (folder, clock) = site(now);
        Self::open(folder, clock).await
    }

    /// A new server at [`NOW`] that pages of `origins` may use.
    pub(crate) async fn for_origins(origins: &[&str]) -> Self {
        let origins = origins
            .iter()
            .map(|origin| Origin::try_from(*origin).unwrap());
        let mut app = Self::new().await;
        app.router = router(
            &app.ledger,
            &app.draining,
            Cors::of(origins.collect()),
            None,
        );
        app
    }

    /// A new server at [`NOW`] whose store fails when it is told to.
    pub(crate) async fn faulty() -> (Self, Arc<FaultyStore<SqliteStore>>) {
        let (folder, clock) = site(NOW);
        Self::open_with(folder, clock, FaultyStore::new).await
    }

    /// The same server, believing JWTs too.
    pub(crate) fn believing(self, settings: quotalog_jwt::Settings) -> Self {
        let clock = self.clock.clone();
        self.believing_by(settings, clock)
    }

    /// The same, by a clock of the node's own.
    pub(crate) fn believing_by(
        self,
        settings: quotalog_jwt::Settings,
        clock: Arc<ManualClock>,
    ) -> Self {
        let jwts = Some(Verifier::start(settings, clock));
        let router = router(&self.ledger, &self.draining, Cors::default(), jwts.clone());
        Self {
            router,
            jwts,
            ..self
        }
    }

    /// How this server knows callers.
    pub(crate) fn authentication(&self) -> Authentication {
        Authentication::new(self.ledger.clone(), self.jwts.clone())
    }

    /// Another process on the same file.
    pub(crate) async fn beside(&self) -> Self {
        Self::open(self.folder.clone(), self.clock.clone()).await
    }

    async fn open(folder: Arc<TempDir>, clock: Arc<ManualClock>) -> Self {
        Self::open_with(folder, clock, |store| store).await.0
    }

    async fn open_with<S: Store>(
        folder: Arc<TempDir>,
        clock: Arc<ManualClock>,
        wrap: impl FnOnce(SqliteStore) -> S,
    ) -> (Self, Arc<S>) {
        let config = SqliteConfig {
            path: folder.path().join("quotalog.db"),
            idempotency_retention_s: 86_400,
            readers: 2,
        };
        let store = SqliteStore::open(config, clock.clone()).unwrap();
        let wrapped = Arc::new(wrap(store.clone()));
        let ledger = Ledger::start(wrapped.clone(), Settings::default());
        let draining = Draining::default();
        let router = router(&ledger, &draining, Cors::default(), None);
        let mut app = Self {
            router,
            clock,
            store,
            ledger,
            jwts: None,
            draining,
            folder,
            admin: String::new(),
        };
        app.admin = app.token(Role::Admin).await;
        (app, wrapped)
    }

    /// Ends the server and starts another on the same file.
    pub(crate) async fn restart(self) -> Self {
        let Self {
            router,
            clock,
            store,
            ledger,
            folder,
            ..
        } = self;
        drop(router);
        ledger.shut_down().await;
        drop(ledger);
        store.close();
        Self::open(folder, clock).await
    }

    /// Sets the clock.
    pub(crate) fn set_time(&self, now: &str) {
        self.clock.set(instant(now));
    }

    /// A new token of `role`.
    pub(crate) async fn token(&self, role: Role) -> String {
        self.token_with_id(role, None).await.0
    }

    /// A new token of `role` and its id; it ends at `expires_at`, if that is given.
    pub(crate) async fn token_with_id(
        &self,
        role: Role,
        expires_at: Option<&str>,
    ) -> (String, TokenId) {
        let (token, new) = Token::generate(role, None, expires_at.map(instant)).unwrap();
        let created = self.store.create_token(Credential::CommandLine, new).await;
        let record = created.unwrap().unwrap().unwrap();
        (token.reveal().to_owned(), record.id)
    }

    /// Ends a token, as another process would.
    pub(crate) async fn revoke(&self, id: TokenId) {
        let revoked = self.store.revoke_token(Credential::CommandLine, id).await;
        assert_eq!(revoked.unwrap(), Ok(true));
    }

    /// Sets the default of `resource`.
    pub(crate) async fn default(&self, resource: &str, window: Window, limit: u64) {
        let command = Command::new(Operation::SetDefault {
            resource: Resource::try_from(resource).unwrap(),
            window,
            limit: Limit::settable(limit).unwrap(),
            precondition: None,
        });
        let operator = Caller {
            role: Role::Admin,
            credential: Credential::CommandLine,
        };
        self.ledger
            .submit(Asker::now(&operator), command)
            .await
            .unwrap()
            .unwrap();
    }

    /// Reads one number from the file itself.
    #[track_caller]
    pub(crate) fn number(&self, sql: &str) -> i64 {
        read_number(&self.folder.path().join("quotalog.db"), sql)
    }

    /// A new token of the user `id`.
    pub(crate) async fn user_token(&self, id: &str) -> String {
        self.token(Role::User(UserId::try_from(id).unwrap())).await
    }

    /// Sends any request, with a `Host` as every client sends one.
    pub(crate) async fn send(&self, mut request: Request<Body>) -> Answer {
        let host = HeaderValue::from_static("localhost");
        request.headers_mut().entry("host").or_insert(host);
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let response = self.router.clone().oneshot(request).await.unwrap();
        let answer = Answer::read(response).await.unwrap();
        described::check(&method, &path, &answer);
        answer
    }

    /// A request with the admin's token, for fields that a test adds.
    pub(crate) fn request(&self, method: Method, path: &str) -> request::Builder {
        let request = Request::builder().method(method).uri(path);
        request.header("authorization", format!("Bearer {}", self.admin))
    }

    /// Posts with the admin's token, an `Idempotency-Key` and, unless it is empty, a JSON body.
    pub(crate) async fn keyed(&self, path: &str, key: &str, body: &str) -> Answer {
        let request = self.request(Method::POST, path);
        let request = request.header("idempotency-key", key);
        let request = request.header("content-type", "application/json");
        let body = Body::from(body.to_owned());
        self.send(request.body(body).unwrap()).await
    }

    /// Sends a request with `token` and, unless it is empty, a JSON body.
    pub(crate) async fn call(&self, method: Method, path: &str, token: &str, body: &str) -> Answer {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("authorization", format!("Bearer {token}"));
        let request = if body.is_empty() {
            request.body(Body::empty())
        } else {
            request
                .header("content-type", "application/json")
                .body(Body::from(body.to_owned()))
        };
        self.send(request.unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, &self.admin, "").await
    }

    pub(crate) async fn put(&self, path: &str, body: &str) -> Answer {
        self.call(Method::PUT, path, &self.admin, body).await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.call(Method::POST, path, &self.admin, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.call(Method::DELETE, path, &self.admin, "").await
    }

    /// Sets the policy of `u`/`r`, the pair of most tests.
    pub(crate) async fn policy(&self, window: &str, limit: u64) -> Answer {
        let body = format!(r#"{{"window":"{window}","limit_count":{limit}}}"#);
        self.put("/quotas/u/r", &body).await.is(200)
    }

    /// Consumes one unit of `u`/`r`.
    pub(crate) async fn consume(&self) -> Answer {
        self.post("/quotas/u/r/consume", "").await
    }

    /// Consumes `amount` units of `u`/`r`.
    pub(crate) async fn consume_amount(&self, amount: i64) -> Answer {
        let body = format!(r#"{{"amount":{amount}}}"#);
        self.post("/quotas/u/r/consume", &body).await
    }

    /// Checks `u`/`r`.
    pub(crate) async fn check(&self) -> Answer {
        self.get("/quotas/u/r").await.is(200)
    }
}
