//! A store that may open later than the server starts. Until then everything asked of it is unavailable.

use std::sync::Arc;

use quotalog_auth::{Caller, Credential, NewToken, TokenHash, TokenId, TokenRecord};
use quotalog_domain::{DefaultPolicy, Pair, Quota, Resource, Timestamp, UserId};
use quotalog_ledger::store::{
    Administer, AuditEntry, AuditFilter, AuditId, Batch, Commit, ErasureId, ExpiryPassed, Judged,
    Listed, Page, PruneStep, Publish, QuotaFilter, Read, Retention, Store, StoreError, StoreFuture,
    TokenOrder, UsageEntry, UsageRange, Verdict,
};
use tokio::sync::SetOnce;

use crate::store::OpenStore;

/// The store, once it is open. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct LateStore(Arc<SetOnce<OpenStore>>);

#[derive(Debug, thiserror::Error)]
#[error("the store is not open yet")]
struct NotOpenYet;

impl LateStore {
    /// From now on `store` answers. What was there before stays.
    pub(crate) fn open(&self, store: OpenStore) {
        if self.0.set(store).is_err() {
            tracing::error!("a store was opened twice; the second one is not used");
        }
    }

    /// Waits for the store.
    pub(crate) async fn opened(&self) -> &dyn Store {
        self.0.wait().await.ports()
    }

    /// Closes the store, if it was ever open.
    pub(crate) async fn close(&self) -> anyhow::Result<()> {
        match self.0.get().cloned() {
            Some(store) => store.close().await,
            None => Ok(()),
        }
    }

    fn ask<'a, T: 'a>(
        &'a self,
        question: impl FnOnce(&'a dyn Store) -> StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        match self.0.get() {
            Some(store) => question(store.ports()),
            None => Box::pin(async { Err(StoreError::Unavailable(Box::new(NotOpenYet))) }),
        }
    }
}

impl Commit for LateStore {
    fn commit(&self, batch: Batch) -> StoreFuture<'_, Vec<Verdict>> {
        self.ask(|store| store.commit(batch))
    }
}

impl Read for LateStore {
    fn authenticate(&self, hash: TokenHash) -> StoreFuture<'_, Option<Caller>> {
        self.ask(|store| store.authenticate(hash))
    }

    fn confirm(&self, credential: Credential) -> StoreFuture<'_, Judged<()>> {
        self.ask(|store| store.confirm(credential))
    }

    fn quota(&self, credential: Credential, pair: Pair) -> StoreFuture<'_, Judged<Option<Quota>>> {
        self.ask(|store| store.quota(credential, pair))
    }

    fn user_quotas(
        &self,
        credential: Credential,
        user_id: UserId,
        page: Page<Resource>,
    ) -> StoreFuture<'_, Judged<Listed<Quota, Resource>>> {
        self.ask(|store| store.user_quotas(credential, user_id, page))
    }

    fn quotas(
        &self,
        credential: Credential,
        filter: QuotaFilter,
        page: Page<Pair>,
    ) -> StoreFuture<'_, Judged<Listed<Quota, Pair>>> {
        self.ask(|store| store.quotas(credential, filter, page))
    }

    fn fullest(
        &self,
        credential: Credential,
        filter: QuotaFilter,
        len_max: usize,
    ) -> StoreFuture<'_, Judged<Vec<Quota>>> {
        self.ask(|store| store.fullest(credential, filter, len_max))
    }

    fn usage_history(
        &self,
        credential: Credential,
        pair: Pair,
        range: UsageRange,
        page: Page<Timestamp>,
    ) -> StoreFuture<'_, Judged<Listed<UsageEntry, Timestamp>>> {
        self.ask(|store| store.usage_history(credential, pair, range, page))
    }

    fn default_policy(
        &self,
        credential: Credential,
        resource: Resource,
    ) -> StoreFuture<'_, Judged<Option<DefaultPolicy>>> {
        self.ask(|store| store.default_policy(credential, resource))
    }

    fn defaults(
        &self,
        credential: Credential,
        page: Page<Resource>,
    ) -> StoreFuture<'_, Judged<Listed<DefaultPolicy, Resource>>> {
        self.ask(|store| store.defaults(credential, page))
    }

    fn audit(
        &self,
        credential: Credential,
        filter: AuditFilter,
        page: Page<AuditId>,
    ) -> StoreFuture<'_, Judged<Listed<AuditEntry, AuditId>>> {
        self.ask(|store| store.audit(credential, filter, page))
    }

    fn tokens(
        &self,
        credential: Credential,
        page: Page<TokenOrder>,
    ) -> StoreFuture<'_, Judged<Listed<TokenRecord, TokenOrder>>> {
        self.ask(|store| store.tokens(credential, page))
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        self.ask(|store| store.ping())
    }
}

impl Administer for LateStore {
    fn create_token(
        &self,
        credential: Credential,
        token: NewToken,
    ) -> StoreFuture<'_, Judged<Result<TokenRecord, ExpiryPassed>>> {
        self.ask(|store| store.create_token(credential, token))
    }

    fn revoke_token(&self, credential: Credential, id: TokenId) -> StoreFuture<'_, Judged<bool>> {
        self.ask(|store| store.revoke_token(credential, id))
    }

    fn create_first_admin_token(&self, token: NewToken, publish: Publish) -> StoreFuture<'_, bool> {
        self.ask(|store| store.create_first_admin_token(token, publish))
    }

    fn erase_user(
        &self,
        credential: Credential,
        user_id: UserId,
    ) -> StoreFuture<'_, Judged<ErasureId>> {
        self.ask(|store| store.erase_user(credential, user_id))
    }

    /// Nobody waits for a step, so it may wait for the store.
    fn erase_step(&self) -> StoreFuture<'_, Option<ErasureId>> {
        Box::pin(async { self.opened().await.erase_step().await })
    }

    fn prune_step(&self, retention: Retention, rows_max: u32) -> StoreFuture<'_, PruneStep> {
        self.ask(|store| store.prune_step(retention, rows_max))
    }
}
