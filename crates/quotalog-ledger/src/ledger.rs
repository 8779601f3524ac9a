//! The handle that the fronts hold: every change and every question goes through it.

use std::sync::Arc;
use std::time::Duration;

use prometheus::core::Collector;
use quick_cache::sync::Cache;
use quotalog_auth::{Caller, Credential, NewToken, Role, Token, TokenHash, TokenId, TokenRecord};
use quotalog_domain::{Command, DefaultPolicy, Outcome, Pair, Quota, Resource, Timestamp, UserId};
use tokio::sync::{Mutex, Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::deadline::{Asker, Deadline};
use crate::eraser::Eraser;
use crate::failures::Failures;
use crate::metrics::{self, Metrics};
use crate::queue::{Queue, Waiting};
use crate::store::{
    AuditEntry, AuditFilter, AuditId, ExpiryPassed, Judged, Listed, Page, QuotaFilter, Revoked,
    Store, StoreError, StoreFuture, Submission, TokenOrder, UsageEntry, UsageRange,
};
use crate::writer::Writer;

/// How long work of many transactions is waited for: erasing a user, finding the fullest quotas. Other requests
/// are served in between.
const LONG_WAIT_MAX: Duration = Duration::from_secs(60);

/// The most authenticated tokens that are remembered, some 200 bytes each.
const CACHED_CALLERS_MAX: usize = 16_384;

/// The most tokens that the store is asked for at once: a flood of wrong ones must leave it room for the
/// questions of those that are known.
const LOOKUPS_MAX: usize = 256;

/// Bounds of the ledger.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How many batches of commands on pairs the store is given at once. Each pair has its lane among these; if
    /// there is more than one, what spans pairs or belongs to none has a lane beside them.
    pub lanes: usize,
    /// The most requests that wait for a transaction; more are answered [`LedgerError::Unavailable`].
    pub queue_len_max: usize,
    /// The most commands in one transaction.
    pub batch_len_max: usize,
    /// The admin token of the process's own configuration.
    pub admin_token: Option<TokenHash>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lanes: 1,
            queue_len_max: 8_192,
            batch_len_max: 1_024,
            admin_token: None,
        }
    }
}

/// The way to a store: cheap to clone, and the same for every front.
#[derive(Clone)]
pub struct Ledger {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    queue: Arc<Queue>,
    metrics: Metrics,
    eraser: Eraser,
    /// Emptied by whoever waits for their end.
    writers: Mutex<Vec<JoinHandle<()>>>,
    admin_token: Option<TokenHash>,
    /// Tokens that were valid when they were last asked for. A hit saves a read of the store, not the
    /// judgement: the transaction that serves the request judges the credential again. Unknown tokens
    /// are not remembered, so that a new one works at once and guesses take no memory.
    callers: Cache<TokenHash, Caller>,
    /// Never closed.
    lookups: Semaphore,
    failures: Failures,
}

/// Why a request was not served.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LedgerError {
    /// The caller's credential no longer holds.
    #[error("the token is unknown, revoked or expired")]
    Revoked,
    /// Nothing was counted: the queue is full, the store is out of reach, or the request waited too long.
    #[error("the store is unavailable")]
    Unavailable,
    /// The request may or may not have counted.
    #[error("the outcome of the request is unknown")]
    OutcomeUnknown,
    /// A fault of ours; nothing was counted.
    #[error("the store failed")]
    Internal(#[source] Arc<StoreError>),
}

impl From<Revoked> for LedgerError {
    fn from(_: Revoked) -> Self {
        Self::Revoked
    }
}

impl From<&Arc<StoreError>> for LedgerError {
    fn from(error: &Arc<StoreError>) -> Self {
        match **error {
            StoreError::Unavailable(_) => Self::Unavailable,
            StoreError::OutcomeUnknown(_) => Self::OutcomeUnknown,
            StoreError::Internal(_) => Self::Internal(Arc::clone(error)),
        }
    }
}

impl Ledger {
    /// Starts the writers on `store`. Must be called inside a tokio runtime.
    pub fn start(store: Arc<impl Store>, settings: Settings) -> Self {
        let queue = Arc::new(Queue::new(settings.queue_len_max, settings.lanes));
        let metrics = Metrics::new();
        let writers = queue.writers().into_iter().map(|group| {
            let writer = Writer {
                store: store.clone(),
                queue: Arc::clone(&queue),
                group,
                batch_len_max: settings.batch_len_max,
                metrics: metrics.clone(),
            };
            tokio::spawn(writer.run())
        });
        let writers = writers.collect();
        let eraser = Eraser::start(store.clone(), metrics.erasing.clone());
        Self {
            inner: Arc::new(Inner {
                store,
                queue,
                metrics,
                eraser,
                writers: Mutex::new(writers),
                admin_token: settings.admin_token,
                callers: Cache::new(CACHED_CALLERS_MAX),
                lookups: Semaphore::new(LOOKUPS_MAX),
                failures: Failures::default(),
            }),
        }
    }

    /// What the ledger measures of itself, for a registry.
    #[must_use]
    pub fn collectors(&self) -> Vec<Box<dyn Collector>> {
        self.inner.metrics.collectors(Arc::clone(&self.inner.queue))
    }

    /// Takes no more commands, and returns when those that were taken are answered. Erasures that are not
    /// finished go on when a ledger is started on the store again.
    pub async fn shut_down(&self) {
        self.inner.queue.close();
        self.inner.eraser.stop();
        let mut writers = self.inner.writers.lock().await;
        for writer in writers.drain(..) {
            if let Err(error) = writer.await {
                tracing::error!(%error, "a writer ended early");
            }
        }
    }

    /// Commits a command of `caller`; on `Ok` its effect is durable.
    ///
    /// # Errors
    /// [`LedgerError`], which says whether the command may have counted. Dropping the future before the
    /// command is in a transaction withdraws it.
    pub async fn submit(&self, asker: Asker<'_>, command: Command) -> Result<Outcome, LedgerError> {
        let is_consume = metrics::is_consume(&command.operation);
        let answer = self.queued(asker, command).await;
        if let Err(error) = &answer
            && is_consume
        {
            self.inner.metrics.consume_failed(error);
        }
        answer
    }

    async fn queued(&self, asker: Asker<'_>, command: Command) -> Result<Outcome, LedgerError> {
        let (reply, answer) = oneshot::channel();
        self.inner.queue.push(Waiting {
            submission: Submission {
                command,
                credential: asker.caller.credential.clone(),
            },
            reply,
            deadline: asker.deadline,
            alone: false,
        })?;
        match answer.await {
            Ok(Err(LedgerError::Revoked)) => Err(self.forget(asker.caller)),
            Ok(answer) => answer,
            // The writer is gone in mid-batch.
            Err(_closed) => Err(LedgerError::OutcomeUnknown),
        }
    }

    /// The caller whose token has this hash, if it is the admin token of the process's own configuration.
    #[must_use]
    pub fn of_environment(&self, hash: &TokenHash) -> Option<Caller> {
        let is_own = self.inner.admin_token.is_some_and(|own| own.matches(hash));
        is_own.then_some(Caller {
            role: Role::Admin,
            credential: Credential::Environment,
        })
    }

    /// Finds the caller that holds `token`, if it is valid.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] when the store cannot be asked: an unknown caller is never let in.
    pub async fn authenticate(
        &self,
        token: &Token,
        deadline: Deadline,
    ) -> Result<Option<Caller>, LedgerError> {
        let hash = token.hash();
        if let Some(caller) = self.of_environment(&hash) {
            return Ok(Some(caller));
        }
        if let Some(caller) = self.inner.callers.get(&hash) {
            return Ok(Some(caller));
        }
        let lookup = Box::pin(async move {
            let _turn = self.inner.lookups.acquire().await;
            self.inner.store.authenticate(hash).await
        });
        let found = self.counted(self.ask(deadline, lookup).await)?;
        if let Some(caller) = &found {
            self.inner.callers.insert(hash, caller.clone());
        }
        Ok(found)
    }

    /// Asks the store whether the caller's credential still holds, for an answer that needs nothing else
    /// of the store.
    ///
    /// # Errors
    /// [`LedgerError::Revoked`] when it does not.
    pub async fn confirm(&self, asker: Asker<'_>) -> Result<(), LedgerError> {
        match asker.caller.credential {
            Credential::CommandLine | Credential::Environment => Ok(()),
            Credential::Token { .. } | Credential::Jwt { .. } => {
                let credential = asker.caller.credential.clone();
                let confirming = self.inner.store.confirm(credential);
                self.judged(asker, self.ask(asker.deadline, confirming).await)
            }
        }
    }

    /// The quota of a pair, if a policy or a default serves it.
    ///
    /// # Errors
    /// [`LedgerError`] when the store did not answer or the caller's credential no longer holds.
    pub async fn quota(&self, asker: Asker<'_>, pair: Pair) -> Result<Option<Quota>, LedgerError> {
        let credential = asker.caller.credential.clone();
        let finding = self.inner.store.quota(credential, pair);
        self.judged(asker, self.ask(asker.deadline, finding).await)
    }

    /// The quotas of a user, by resource.
    ///
    /// # Errors
    /// [`LedgerError`] when the store did not answer or the caller's credential no longer holds.
    pub async fn user_quotas(
        &self,
        asker: Asker<'_>,
        user_id: UserId,
        page: Page<Resource>,
    ) -> Result<Listed<Quota, Resource>, LedgerError> {
        let credential = asker.caller.credential.clone();
        let listing = self.inner.store.user_quotas(credential, user_id, page);
        self.judged(asker, self.ask(asker.deadline, listing).await)
    }

    /// The quotas of all users, by user and resource. A page may be short, or empty, and yet not the last.
    ///
    /// # Errors
    /// [`LedgerError`] when the store did not answer or the caller's credential no longer holds.
    pub async fn quotas(
        &self,
        asker: Asker<'_>,
        filter: QuotaFilter,
        page: Page<Pair>,
    ) -> Result<Listed<Quota, Pair>, LedgerError> {
        let credential = asker.caller.credential.clone();
        let listing = self.inner.store.quotas(credential, filter, page);
        self.judged(asker, self.ask(asker.deadline, listing).await)
    }

    /// The `len_max` quotas of whose limit the largest part is used, fullest first.
    ///
    /// # Errors
    /// [`LedgerError`] when the store did not answer or the caller's credential no longer holds.
    pub async fn fullest(
        &self,
        asker: Asker<'_>,
        filter: QuotaFilter,
        len_max: usize,
    ) -> Result<Vec<Quota>, LedgerError> {
        let credential = asker.caller.credential.clone();
        let searching = self.inner.store.fullest(credential, filter, len_max);
        let until = asker.deadline.within(LONG_WAIT_MAX);
        self.judged(asker, self.ask_until(until, searching).await)
    }

    /// The stored usage rows of a pair, newest first.
    ///
    /// # Errors
    /// [`LedgerError`] when the store did not answer or the caller's credential no longer holds.
    pub async fn usage_history(
        &self,
        asker: Asker<'_>,
        pair: Pair,
        range: UsageRange,
        page: Page<Timestamp>,
    ) -> Result<Listed<UsageEntry, Timestamp>, LedgerError> {
        let credential = asker.caller.credential.clone();
        let listing = self
            .inner
            .store
            .usage_history(credential, pair, range, page);
        self.judged(asker, self.ask(asker.deadline, listing).await)
    }

    /// The default of a resource.
    ///
    /// # Errors
    /// [`LedgerError`] when the store did not answer or the caller's credential no longer holds.
    pub async fn default_policy(
        &self,
        asker: Asker<'_>,
        resource: Resource,
    ) -> Result<Option<DefaultPolicy>, LedgerError> {
        let credential = asker.caller.credential.clone();
        let finding = self.inner.store.default_policy(credential, resource);
        self.judged(asker, self.ask(asker.deadline, finding).await)
    }

    /// The defaults, by resource.
    ///
    /// # Errors
    /// [`LedgerError`] when the store did not answer or the caller's credential no longer holds.
    pub async fn defaults(
        &self,
        asker: Asker<'_>,
        page: Page<Resource>,
    ) -> Result<Listed<DefaultPolicy, Resource>, LedgerError> {
        let credential = asker.caller.credential.clone();
        let listing = self.inner.store.defaults(credential, page);
        self.judged(asker, self.ask(asker.deadline, listing).await)
    }

    /// The entries of the audit, newest first.
    ///
    /// # Errors
    /// [`LedgerError`] when the store did not answer or the caller's credential no longer holds.
    pub async fn audit(
        &self,
        asker: Asker<'_>,
        filter: AuditFilter,
        page: Page<AuditId>,
    ) -> Result<Listed<AuditEntry, AuditId>, LedgerError> {
        let credential = asker.caller.credential.clone();
        let listing = self.inner.store.audit(credential, filter, page);
        self.judged(asker, self.ask(asker.deadline, listing).await)
    }

    /// The stored tokens, oldest first.
    ///
    /// # Errors
    /// [`LedgerError`] when the store did not answer or the caller's credential no longer holds.
    pub async fn tokens(
        &self,
        asker: Asker<'_>,
        page: Page<TokenOrder>,
    ) -> Result<Listed<TokenRecord, TokenOrder>, LedgerError> {
        let credential = asker.caller.credential.clone();
        let listing = self.inner.store.tokens(credential, page);
        self.judged(asker, self.ask(asker.deadline, listing).await)
    }

    /// Stores a token.
    ///
    /// # Errors
    /// [`LedgerError`] when it was not stored, or may not have been.
    pub async fn create_token(
        &self,
        asker: Asker<'_>,
        token: NewToken,
    ) -> Result<Result<TokenRecord, ExpiryPassed>, LedgerError> {
        let credential = asker.caller.credential.clone();
        let creating = self.inner.store.create_token(credential, token);
        self.judged(asker, self.order(asker.deadline, creating).await)
    }

    /// Deletes a token; `false` if there is none of this id.
    ///
    /// # Errors
    /// [`LedgerError`] when it was not deleted, or may not have been.
    pub async fn revoke_token(&self, asker: Asker<'_>, id: TokenId) -> Result<bool, LedgerError> {
        let credential = asker.caller.credential.clone();
        let revoking = self.inner.store.revoke_token(credential, id);
        self.judged(asker, self.order(asker.deadline, revoking).await)
    }

    /// Erases a user, known or not, and returns when nothing of it is left.
    ///
    /// # Errors
    /// [`LedgerError`] when the erasure did not begin; [`LedgerError::OutcomeUnknown`] also when it goes on for
    /// longer than one waits. It does go on then, as it does when this future is dropped; doing the same again
    /// waits for it further.
    pub async fn erase_user(&self, asker: Asker<'_>, user_id: UserId) -> Result<(), LedgerError> {
        let wake = self.inner.eraser.wake();
        let credential = asker.caller.credential.clone();
        let beginning = self.inner.store.erase_user(credential, user_id);
        let erasure = self.judged(asker, self.order(asker.deadline, beginning).await)?;
        drop(wake);
        let finishing = self.inner.eraser.finished(erasure);
        match tokio::time::timeout_at(asker.deadline.within(LONG_WAIT_MAX), finishing).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => self.counted(Err(LedgerError::OutcomeUnknown)),
        }
    }

    /// Whether the store answers.
    ///
    /// # Errors
    /// [`LedgerError`] when it does not.
    pub async fn ready(&self, deadline: Deadline) -> Result<(), LedgerError> {
        self.ask(deadline, self.inner.store.ping()).await
    }

    fn judged<T>(
        &self,
        asker: Asker<'_>,
        answer: Result<Judged<T>, LedgerError>,
    ) -> Result<T, LedgerError> {
        self.counted(answer)?
            .map_err(|Revoked| self.forget(asker.caller))
    }

    /// Asks a question; one that is not answered in time has changed nothing.
    async fn ask<T>(
        &self,
        deadline: Deadline,
        answer: StoreFuture<'_, T>,
    ) -> Result<T, LedgerError> {
        self.ask_until(deadline.wait_until(), answer).await
    }

    async fn ask_until<T>(
        &self,
        until: Instant,
        answer: StoreFuture<'_, T>,
    ) -> Result<T, LedgerError> {
        match tokio::time::timeout_at(until, answer).await {
            Ok(answer) => answer.map_err(|error| self.failed(error)),
            Err(_elapsed) => Err(LedgerError::Unavailable),
        }
    }

    /// Orders a change; one that is not answered in time may have happened.
    async fn order<T>(
        &self,
        deadline: Deadline,
        answer: StoreFuture<'_, T>,
    ) -> Result<T, LedgerError> {
        match tokio::time::timeout_at(deadline.wait_until(), answer).await {
            Ok(answer) => answer.map_err(|error| self.failed(error)),
            Err(_elapsed) => Err(LedgerError::OutcomeUnknown),
        }
    }

    fn failed(&self, error: StoreError) -> LedgerError {
        self.inner.failures.note(&error);
        LedgerError::from(&Arc::new(error))
    }

    /// Counts a failure of the store outside the batches.
    fn counted<T>(&self, answer: Result<T, LedgerError>) -> Result<T, LedgerError> {
        if let Err(error) = &answer {
            self.inner.metrics.failed(error);
        }
        answer
    }

    /// Forgets every token that is remembered as this caller's.
    fn forget(&self, caller: &Caller) -> LedgerError {
        self.inner
            .callers
            .retain(|_, cached| cached.credential != caller.credential);
        LedgerError::Revoked
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.close();
    }
}
