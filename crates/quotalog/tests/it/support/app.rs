//! The router over a real ledger and a real SQLite file, on a clock that the test sets.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use hyper::{Method, Request};
use quotalog_auth::{Credential, Role, Token};
use quotalog_domain::{Timestamp, UserId};
use quotalog_http::{App, Draining};
use quotalog_ledger::store::Administer as _;
use quotalog_ledger::{Ledger, Settings};
use quotalog_store_sqlite::{SqliteConfig, SqliteStore};
use quotalog_testkit::ManualClock;
use tempfile::TempDir;
use tower::ServiceExt as _;

use super::answer::Answer;

/// 2026-11-30T18:20:00Z.
pub(crate) const NOW: &str = "2026-11-30T18:20:00Z";

/// A whole server without its socket.
pub(crate) struct TestApp {
    router: Router,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: SqliteStore,
    pub(crate) ledger: Ledger,
    pub(crate) folder: TempDir,
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

impl TestApp {
    /// A new server at [`NOW`].
    pub(crate) async fn new() -> Self {
        Self::at(NOW).await
    }

    /// A new server whose clock stands at `now`.
    pub(crate) async fn at(now: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(instant(now)));
        Self::open(folder, clock).await
    }

    async fn open(folder: TempDir, clock: Arc<ManualClock>) -> Self {
        let config = SqliteConfig {
            path: folder.path().join("quotalog.db"),
            idempotency_retention_s: 86_400,
            readers: 2,
        };
        let store = SqliteStore::open(config, clock.clone()).unwrap();
        let ledger = Ledger::start(Arc::new(store.clone()), Settings::default());
        let router = quotalog_http::router(App {
            ledger: ledger.clone(),
            draining: Draining::default(),
        });
        let mut app = Self {
            router,
            clock,
            store,
            ledger,
            folder,
            admin: String::new(),
        };
        app.admin = app.token(Role::Admin).await;
        app
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
        let (token, new) = Token::generate(role, None, None).unwrap();
        let created = self.store.create_token(Credential::CommandLine, new).await;
        created.unwrap().unwrap().unwrap();
        token.reveal().to_owned()
    }

    /// A new token of the user `id`.
    pub(crate) async fn user_token(&self, id: &str) -> String {
        self.token(Role::User(UserId::try_from(id).unwrap())).await
    }

    /// Sends any request.
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        Answer::read(response).await.unwrap()
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
