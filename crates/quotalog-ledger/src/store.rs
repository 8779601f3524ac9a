//! The ports: everything that the program asks of a database.
//!
//! A store decides nothing. It loads what [`State::needed_by`](quotalog_domain::State::needed_by) names,
//! lets [`decide_batch`](quotalog_domain::decide_batch) decide at its own clock's instant, and writes what
//! changed, all in one transaction. Every transaction that serves a caller also reads the generation of
//! the tokens and judges the caller's credential again, so that a revoked token is refused at once,
//! whichever process revoked it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use quotalog_auth::{Caller, Credential, NewToken, TokenHash, TokenId, TokenRecord};
use quotalog_domain::{Command, DefaultPolicy, Outcome, Pair, Quota, Resource, Timestamp, UserId};

pub use crate::audit::{
    AuditAction, AuditActionError, AuditEntry, AuditFilter, AuditId, Deed, Fact, Facts,
};

/// The future that a port returns.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A store's part in changing usage, policies and defaults.
pub trait Commit: Send + Sync + 'static {
    /// Opens a transaction, takes the batch, decides it, and commits.
    ///
    /// The batch is taken only when the transaction is open, so that requests which cannot be served yet
    /// stay in the queue, where they can be told so. On `Ok` the whole batch is durable, and the verdicts
    /// stand in its order. An empty batch is `Ok` and leaves no trace.
    ///
    /// A store that cannot open a transaction gives up within about a second, without having taken the
    /// batch; the ledger asks again.
    ///
    /// # Errors
    /// [`StoreError`], which says what became of a batch that was taken.
    fn commit(&self, batch: Batch) -> StoreFuture<'_, Vec<Verdict>>;
}

/// A store's part in answering questions. Nothing here changes anything.
pub trait Read: Send + Sync + 'static {
    /// Finds the caller that holds the token with this hash, unless it is unknown or expired.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be asked.
    fn authenticate(&self, hash: TokenHash) -> StoreFuture<'_, Option<Caller>>;

    /// Whether the credential still holds.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be asked.
    fn confirm(&self, credential: Credential) -> StoreFuture<'_, Judged<()>>;

    /// The quota of a pair, if a policy or a default serves it.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be asked.
    fn quota(&self, credential: Credential, pair: Pair) -> StoreFuture<'_, Judged<Option<Quota>>>;

    /// The quotas of a user: its policies, and the pairs that were counted under a default, in the order
    /// of the resources' bytes.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be asked.
    fn user_quotas(
        &self,
        credential: Credential,
        user_id: UserId,
        page: Page<Resource>,
    ) -> StoreFuture<'_, Judged<Listed<Quota, Resource>>>;

    /// The quotas of all pairs with a policy and of those that were counted under a default, in the order
    /// of the bytes of user and resource.
    ///
    /// A page looks at a bounded number of pairs. Where few of them pass the filter, it holds fewer
    /// entries than it may, even none, and goes on after the last pair it looked at.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be asked.
    fn quotas(
        &self,
        credential: Credential,
        filter: QuotaFilter,
        page: Page<Pair>,
    ) -> StoreFuture<'_, Judged<Listed<Quota, Pair>>>;

    /// The `len_max` quotas, of those that [`Read::quotas`] lists, of whose limit the largest part is
    /// used; equal ones in the order of their pairs.
    ///
    /// This looks at every pair that was counted today, in many short transactions, of which the last one
    /// reads the quotas that are answered. A store does one such search at a time.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be asked.
    fn fullest(
        &self,
        credential: Credential,
        filter: QuotaFilter,
        len_max: usize,
    ) -> StoreFuture<'_, Judged<Vec<Quota>>>;

    /// The stored usage rows of a pair, newest first, whether a policy serves it or not.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be asked.
    fn usage_history(
        &self,
        credential: Credential,
        pair: Pair,
        range: UsageRange,
        page: Page<Timestamp>,
    ) -> StoreFuture<'_, Judged<Listed<UsageEntry, Timestamp>>>;

    /// The default of a resource.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be asked.
    fn default_policy(
        &self,
        credential: Credential,
        resource: Resource,
    ) -> StoreFuture<'_, Judged<Option<DefaultPolicy>>>;

    /// The defaults, in the order of the resources' bytes.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be asked.
    fn defaults(
        &self,
        credential: Credential,
        page: Page<Resource>,
    ) -> StoreFuture<'_, Judged<Listed<DefaultPolicy, Resource>>>;

    /// The entries of the audit, newest first.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be asked.
    fn audit(
        &self,
        credential: Credential,
        filter: AuditFilter,
        page: Page<AuditId>,
    ) -> StoreFuture<'_, Judged<Listed<AuditEntry, AuditId>>>;

    /// The stored tokens, oldest first, expired ones included.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be asked.
    fn tokens(
        &self,
        credential: Credential,
        page: Page<TokenOrder>,
    ) -> StoreFuture<'_, Judged<Listed<TokenRecord, TokenOrder>>>;

    /// Whether the store answers at all.
    ///
    /// # Errors
    /// [`StoreError`] when it does not.
    fn ping(&self) -> StoreFuture<'_, ()>;
}

/// A store's part in running the server: tokens, erasure and pruning.
pub trait Administer: Send + Sync + 'static {
    /// Stores a token. From the moment this is answered, every process on the store knows it.
    ///
    /// # Errors
    /// [`StoreError`] when it was not stored, or may not have been.
    fn create_token(
        &self,
        credential: Credential,
        token: NewToken,
    ) -> StoreFuture<'_, Judged<Result<TokenRecord, ExpiryPassed>>>;

    /// Deletes a token; `false` if there is none of this id. From the moment this is answered, every
    /// process on the store refuses it.
    ///
    /// # Errors
    /// [`StoreError`] when it was not deleted, or may not have been.
    fn revoke_token(&self, credential: Credential, id: TokenId) -> StoreFuture<'_, Judged<bool>>;

    /// Stores `token` if the store holds no admin token that is valid, and tells whether it did.
    ///
    /// `publish` is called inside the transaction, just before its commit, so that a token which is
    /// stored has been shown, and one that could not be shown is not stored. However many processes call
    /// this at once, one of them publishes.
    ///
    /// # Errors
    /// [`StoreError::Internal`] with the error of `publish`, or another when the store fails.
    fn create_first_admin_token(&self, token: NewToken, publish: Publish) -> StoreFuture<'_, bool>;

    /// Begins to erase a user, known or not, in one transaction: what serves its requests is gone at once,
    /// its tokens with it, and the entry of the audit is there. What is left to do, usage of earlier days and
    /// kept answers of batches that name it among others, is stored in the same transaction as an erasure that
    /// is not finished, so that nothing that happens to us can end it.
    ///
    /// What is counted for the same id after this transaction is left alone.
    ///
    /// # Errors
    /// [`StoreError`] when the user's erasure did not begin, or may not have.
    fn erase_user(
        &self,
        credential: Credential,
        user_id: UserId,
    ) -> StoreFuture<'_, Judged<ErasureId>>;

    /// Does a bounded part of the oldest erasure that is not finished, in one short transaction, and answers
    /// which is the oldest one now; `None` if all are finished. Nothing but the audit names a user whose
    /// erasure is.
    ///
    /// Several processes may do this at once: what one of them works on, others leave to it.
    ///
    /// # Errors
    /// [`StoreError`] when the step may have to be done again.
    fn erase_step(&self) -> StoreFuture<'_, Option<ErasureId>>;

    /// Deletes at most `rows_max` rows that are older than `retention` says, in one short transaction, unless
    /// another process prunes at this moment.
    ///
    /// # Errors
    /// [`StoreError`] when nothing was deleted, or may not have been. A smaller step may get through where this one
    /// was [`StoreError::Unavailable`].
    fn prune_step(&self, retention: Retention, rows_max: u32) -> StoreFuture<'_, PruneStep>;
}

/// Everything that the program asks of a database.
pub trait Store: Commit + Read + Administer {}

impl<S: Commit + Read + Administer> Store for S {}

/// Requests that are handed over when their transaction is open, not before.
pub struct Batch(Box<dyn FnOnce() -> Arc<[Submission]> + Send>);

/// One command of a batch, and what the permission for it rests on.
#[derive(Debug, Clone)]
pub struct Submission {
    /// What shall happen.
    pub command: Command,
    /// Judged again in the transaction; if it no longer holds, the command is not decided.
    pub credential: Credential,
}

/// What became of one submission.
pub type Verdict = Judged<Outcome>;

/// An answer, if the caller's credential still held when it was made.
pub type Judged<T> = Result<T, Revoked>;

/// The caller's credential no longer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token is unknown, revoked or expired")]
pub struct Revoked;

/// A token's end lies in the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expires_at must be in the future.")]
pub struct ExpiryPassed;

/// How the first admin token reaches the operator.
pub type Publish = Box<dyn FnOnce() -> std::io::Result<()> + Send>;

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<Key> {
    /// The last entry of the page before.
    pub after: Option<Key>,
    /// The most entries to return, at least 1.
    pub len_max: usize,
}

/// Entries of a list, and where the next page goes on, if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<T, Key> {
    /// The entries.
    pub entries: Vec<T>,
    /// After which key the next page goes on: the last entry's, if more follow. `None` is the end.
    pub next: Option<Key>,
}

/// Which quotas to list. What is `None` filters nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuotaFilter {
    /// Those of this resource.
    pub resource: Option<Resource>,
    /// Those of whose limit at least so much is used.
    pub min_used_percent: Option<u8>,
}

/// The part of a pair's usage rows that is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageRange {
    /// Rows that start at this instant or later.
    pub from: Option<Timestamp>,
    /// Rows that start before this instant.
    pub to: Option<Timestamp>,
}

/// A usage row, as the history shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageEntry {
    /// The instant that names the row.
    pub window_start: Timestamp,
    /// Units counted in it.
    pub usage: u64,
}

/// The place of a token in the order of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenOrder(pub i64);

/// An erasure; one that begins later has a larger number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ErasureId(pub i64);

/// What became of a step of pruning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PruneStep {
    /// So many rows were deleted; 0 means that none is left.
    Deleted(u32),
    /// Another process was pruning, and this one did nothing.
    LeftToAnother,
}

/// From which age on rows are pruned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Usage rows whose window started longer ago than this, in seconds.
    pub usage_s: i64,
    /// Kept answers older than this, in seconds.
    pub idempotency_s: i64,
    /// Entries of the audit older than this, in seconds.
    pub audit_s: i64,
}

/// Why a store did not answer, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written, and the same may work later: busy, full, out of reach.
    #[error("the store is unavailable")]
    Unavailable(#[source] Cause),
    /// The commit was sent, and whether it holds is not known.
    #[error("the outcome of a commit is unknown")]
    OutcomeUnknown(#[source] Cause),
    /// Nothing was written, and trying the same again would fail the same way.
    #[error("the store failed")]
    Internal(#[source] Cause),
}

/// What a driver said, for the log alone.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

impl Batch {
    /// A batch that `take` forms when it is asked for.
    pub fn new(take: impl FnOnce() -> Arc<[Submission]> + Send + 'static) -> Self {
        Self(Box::new(take))
    }

    /// Takes the requests. From here on they are in the transaction.
    #[must_use]
    pub fn take(self) -> Arc<[Submission]> {
        (self.0)()
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Batch")
    }
}

impl PruneStep {
    /// How many rows were deleted.
    #[must_use]
    pub fn rows(self) -> u32 {
        match self {
            Self::Deleted(rows) => rows,
            Self::LeftToAnother => 0,
        }
    }
}

impl Retention {
    /// Usage rows that start before this instant are pruned.
    #[must_use]
    pub fn usage_before(&self, now: Timestamp) -> Timestamp {
        now.plus_s(-self.usage_s)
    }

    /// Answers kept before this instant are pruned, and no longer replayed.
    #[must_use]
    pub fn kept_before(&self, now: Timestamp) -> Timestamp {
        now.plus_s(-self.idempotency_s)
    }

    /// Entries of the audit from before this instant are pruned.
    #[must_use]
    pub fn audit_before(&self, now: Timestamp) -> Timestamp {
        now.plus_s(-self.audit_s)
    }
}

impl QuotaFilter {
    /// Whether `quota` is to be listed.
    #[must_use]
    pub fn admits(&self, quota: &Quota) -> bool {
        let of_resource = |resource: &Resource| *resource == quota.pair.resource;
        self.resource.as_ref().is_none_or(of_resource)
            && self
                .min_used_percent
                .is_none_or(|percent| quota.is_used_to(percent))
    }
}
