//! A store that fails on purpose: the call that a test chooses, in the way that it chooses.
//!
//! It decides nothing and holds nothing: whatever it does not fail goes to the store inside.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use quotalog_auth::{Caller, Credential, NewToken, TokenHash, TokenId, TokenRecord};
use quotalog_domain::{DefaultPolicy, Pair, Quota, Resource, Timestamp, UserId};
use quotalog_ledger::store::{
    Administer, AuditEntry, AuditFilter, AuditId, Batch, Cause, Commit, ErasureId, ExpiryPassed,
    Judged, Listed, Page, PruneStep, Publish, QuotaFilter, Read, Retention, Store, StoreError,
    StoreFuture, TokenOrder, UsageEntry, UsageRange, Verdict,
};

/// How a call fails. A question is never of unknown outcome: it fails as unavailable instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No transaction can be opened, so that a batch stays where it is.
    NotTaken,
    /// The transaction is taken back: nothing was written.
    RolledBack,
    /// The commit breaks off, and nothing was written.
    LostBeforeCommit,
    /// The commit breaks off, and everything was written.
    LostAfterCommit,
    /// Nothing was written, and trying again would not help.
    Internal,
}

/// A store around another one. Until it is told to fail, it does not.
#[derive(Debug)]
pub struct FaultyStore<S> {
    inner: S,
    plan: Mutex<Plan>,
    mark: u64,
}

#[derive(Debug, Default)]
struct Plan {
    fault: Option<Fault>,
    /// Calls that go well before the first that fails.
    spared: u32,
    lasting: bool,
    met: bool,
}

/// The cause that a log may name.
#[derive(Debug)]
struct Injected {
    mark: u64,
}

impl<S> FaultyStore<S> {
    /// A store that does not fail yet.
    #[must_use]
    pub fn new(inner: S) -> Self {
        static MARKS: AtomicU64 = AtomicU64::new(1);
        Self {
            inner,
            plan: Mutex::default(),
            mark: MARKS.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Fails one call: the `nth` from now on, where 1 is the next.
    pub fn fail_nth(&self, nth: u32, fault: Fault) {
        *self.plan() = Plan {
            fault: Some(fault),
            spared: nth.saturating_sub(1),
            ..Plan::default()
        };
    }

    /// Fails every call from now on.
    pub fn fail_always(&self, fault: Fault) {
        *self.plan() = Plan {
            fault: Some(fault),
            lasting: true,
            ..Plan::default()
        };
    }

    /// Fails no call from now on.
    pub fn mend(&self) {
        *self.plan() = Plan::default();
    }

    /// Whether a call has failed since the last order to fail.
    pub fn met(&self) -> bool {
        self.plan().met
    }

    /// The text by which the causes of this store's faults are known in a log, and nowhere else.
    #[must_use]
    pub fn mark(&self) -> String {
        self.injected().to_string()
    }

    /// How the call that comes now fails.
    fn next(&self) -> Option<Fault> {
        let mut plan = self.plan();
        if plan.met && !plan.lasting {
            return None;
        }
        let fault = plan.fault?;
        if plan.spared > 0 {
            plan.spared -= 1;
            return None;
        }
        plan.met = true;
        Some(fault)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn injected(&self) -> Injected {
        Injected { mark: self.mark }
    }

    fn cause(&self) -> Cause {
        Box::new(self.injected())
    }

    /// What the caller is told when nothing was done.
    fn error(&self, fault: Fault) -> StoreError {
        match fault {
            Fault::NotTaken | Fault::RolledBack => StoreError::Unavailable(self.cause()),
            Fault::LostBeforeCommit | Fault::LostAfterCommit => {
                StoreError::OutcomeUnknown(self.cause())
            }
            Fault::Internal => StoreError::Internal(self.cause()),
        }
    }

    fn ask<'a, T: 'a>(
        &'a self,
        answer: impl FnOnce(&'a S) -> StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        match self.next() {
            None => answer(&self.inner),
            Some(Fault::Internal) => failed(self.error(Fault::Internal)),
            Some(_) => failed(self.error(Fault::RolledBack)),
        }
    }

    fn order<'a, T: Send + 'a>(
        &'a self,
        work: impl FnOnce(&'a S) -> StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        match self.next() {
            None => work(&self.inner),
            Some(Fault::LostAfterCommit) => {
                let work = work(&self.inner);
                let error = self.error(Fault::LostAfterCommit);
                Box::pin(async move {
                    work.await?;
                    Err(error)
                })
            }
            Some(fault) => failed(self.error(fault)),
        }
    }
}

fn failed<'a, T: 'a>(error: StoreError) -> StoreFuture<'a, T> {
    Box::pin(async move { Err(error) })
}

impl fmt::Display for Injected {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "injected fault of store {}.", self.mark)
    }
}

impl std::error::Error for Injected {}

impl<S: Store> Commit for FaultyStore<S> {
    fn commit(&self, batch: Batch) -> StoreFuture<'_, Vec<Verdict>> {
        match self.next() {
            None => self.inner.commit(batch),
            Some(Fault::NotTaken) => failed(self.error(Fault::NotTaken)),
            Some(Fault::LostAfterCommit) => {
                let error = self.error(Fault::LostAfterCommit);
                Box::pin(async move {
                    self.inner.commit(batch).await?;
                    Err(error)
                })
            }
            Some(fault) => {
                drop(batch.take());
                failed(self.error(fault))
            }
        }
    }
}

impl<S: Store> Read for FaultyStore<S> {
    fn authenticate(&self, hash: TokenHash) -> StoreFuture<'_, Option<Caller>> {
        self.ask(|inner| inner.authenticate(hash))
    }

    fn confirm(&self, credential: Credential) -> StoreFuture<'_, Judged<()>> {
        self.ask(|inner| inner.confirm(credential))
    }

    fn quota(&self, credential: Credential, pair: Pair) -> StoreFuture<'_, Judged<Option<Quota>>> {
        self.ask(|inner| inner.quota(credential, pair))
    }

    fn user_quotas(
        &self,
        credential: Credential,
        user_id: UserId,
        page: Page<Resource>,
    ) -> StoreFuture<'_, Judged<Listed<Quota, Resource>>> {
        self.ask(|inner| inner.user_quotas(credential, user_id, page))
    }

    fn quotas(
        &self,
        credential: Credential,
        filter: QuotaFilter,
        page: Page<Pair>,
    ) -> StoreFuture<'_, Judged<Listed<Quota, Pair>>> {
        self.ask(|inner| inner.quotas(credential, filter, page))
    }

    fn fullest(
        &self,
        credential: Credential,
        filter: QuotaFilter,
        len_max: usize,
    ) -> StoreFuture<'_, Judged<Vec<Quota>>> {
        self.ask(|inner| inner.fullest(credential, filter, len_max))
    }

    fn usage_history(
        &self,
        credential: Credential,
        pair: Pair,
        range: UsageRange,
        page: Page<Timestamp>,
    ) -> StoreFuture<'_, Judged<Listed<UsageEntry, Timestamp>>> {
        self.ask(|inner| inner.usage_history(credential, pair, range, page))
    }

    fn default_policy(
        &self,
        credential: Credential,
        resource: Resource,
    ) -> StoreFuture<'_, Judged<Option<DefaultPolicy>>> {
        self.ask(|inner| inner.default_policy(credential, resource))
    }

    fn defaults(
        &self,
        credential: Credential,
        page: Page<Resource>,
    ) -> StoreFuture<'_, Judged<Listed<DefaultPolicy, Resource>>> {
        self.ask(|inner| inner.defaults(credential, page))
    }

    fn audit(
        &self,
        credential: Credential,
        filter: AuditFilter,
        page: Page<AuditId>,
    ) -> StoreFuture<'_, Judged<Listed<AuditEntry, AuditId>>> {
        self.ask(|inner| inner.audit(credential, filter, page))
    }

    fn tokens(
        &self,
        credential: Credential,
        page: Page<TokenOrder>,
    ) -> StoreFuture<'_, Judged<Listed<TokenRecord, TokenOrder>>> {
        self.ask(|inner| inner.tokens(credential, page))
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        self.ask(S::ping)
    }
}

impl<S: Store> Administer for FaultyStore<S> {
    fn create_token(
        &self,
        credential: Credential,
        token: NewToken,
    ) -> StoreFuture<'_, Judged<Result<TokenRecord, ExpiryPassed>>> {
        self.order(|inner| inner.create_token(credential, token))
    }

    fn revoke_token(&self, credential: Credential, id: TokenId) -> StoreFuture<'_, Judged<bool>> {
        self.order(|inner| inner.revoke_token(credential, id))
    }

    fn create_first_admin_token(&self, token: NewToken, publish: Publish) -> StoreFuture<'_, bool> {
        self.order(|inner| inner.create_first_admin_token(token, publish))
    }

    fn erase_user(
        &self,
        credential: Credential,
        user_id: UserId,
    ) -> StoreFuture<'_, Judged<ErasureId>> {
        self.order(|inner| inner.erase_user(credential, user_id))
    }

    /// Never fails: it is called whenever the ledger likes, and would take the fault that a test chose for
    /// another call.
    fn erase_step(&self) -> StoreFuture<'_, Option<ErasureId>> {
        self.inner.erase_step()
    }

    fn prune_step(&self, retention: Retention, rows_max: u32) -> StoreFuture<'_, PruneStep> {
        self.order(|inner| inner.prune_step(retention, rows_max))
    }
}
