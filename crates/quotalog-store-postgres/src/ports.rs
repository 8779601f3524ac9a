//! The ports of the ledger.

use quotalog_auth::{Caller, Credential, NewToken, TokenHash, TokenId, TokenRecord};
use quotalog_domain::{DefaultPolicy, Pair, Quota, Resource, Timestamp, UserId};
use quotalog_ledger::store::{
    Administer, AuditEntry, AuditFilter, AuditId, Batch, Commit, ErasureId, ExpiryPassed, Judged,
    Listed, Page, PruneStep, Publish, QuotaFilter, Read, Retention, StoreError, StoreFuture,
    TokenOrder, UsageEntry, UsageRange, Verdict,
};

use crate::fault::{Fault, before_commit};
use crate::list::{self, Among};
use crate::store::{Inner, PostgresStore};
use crate::tx::{For, Tx, in_time};
use crate::{audit, batch, erase, fullest, prune, quota, token};

/// Reads what every request needs, whether the server takes writes, and which of them the role may not do: a role
/// that may not count is as good as no database.
const PING: &str = "SELECT current_setting('transaction_read_only')::boolean, \
     (SELECT string_agg(may.what || ' on ' || of.name, ', ') \
     FROM unnest(ARRAY['quota_policies', 'quota_usage', 'quotalog_idempotency_keys']) AS of(name), \
     unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS may(what) \
     WHERE NOT has_table_privilege('public.' || of.name, may.what)), \
     (SELECT generation FROM quotalog_token_generation WHERE id = 1), \
     EXISTS (SELECT FROM quota_policies), EXISTS (SELECT FROM quota_usage), \
     EXISTS (SELECT FROM quotalog_defaults), EXISTS (SELECT FROM quotalog_tokens)";

impl Commit for PostgresStore {
    fn commit(&self, batch: Batch) -> StoreFuture<'_, Vec<Verdict>> {
        Box::pin(batch::commit(&self.0, batch))
    }
}

/// What `$work` answers in a transaction of `$store` that reads, if the credential holds in it.
macro_rules! read {
    ($store:expr, $credential:expr, $tx:ident, $work:expr) => {
        Box::pin(async move {
            let $tx = match Tx::judged(&$store.0, For::Reading, &$credential).await? {
                Ok(tx) => tx,
                Err(revoked) => return Ok(Err(revoked)),
            };
            let answer = $tx.work($work).await?;
            $tx.roll_back().await?;
            Ok(Ok(answer))
        })
    };
}

impl Read for PostgresStore {
    fn authenticate(&self, hash: TokenHash) -> StoreFuture<'_, Option<Caller>> {
        Box::pin(token::caller(&self.0, hash))
    }

    fn confirm(&self, credential: Credential) -> StoreFuture<'_, Judged<()>> {
        Box::pin(async move { token::confirm(&self.0, &credential).await })
    }

    fn quota(&self, credential: Credential, pair: Pair) -> StoreFuture<'_, Judged<Option<Quota>>> {
        Box::pin(async move { quota::find(&self.0, &credential, pair).await })
    }

    fn user_quotas(
        &self,
        credential: Credential,
        user_id: UserId,
        page: Page<Resource>,
    ) -> StoreFuture<'_, Judged<Listed<Quota, Resource>>> {
        read!(
            self,
            credential,
            tx,
            list::user_quotas(&tx, &user_id, &page)
        )
    }

    fn quotas(
        &self,
        credential: Credential,
        filter: QuotaFilter,
        page: Page<Pair>,
    ) -> StoreFuture<'_, Judged<Listed<Quota, Pair>>> {
        read!(self, credential, tx, {
            let among = filter
                .resource
                .as_ref()
                .map_or(Among::All, Among::OfResource);
            list::quotas(&tx, among, |quota: &Quota| filter.admits(quota), &page)
        })
    }

    fn fullest(
        &self,
        credential: Credential,
        filter: QuotaFilter,
        len_max: usize,
    ) -> StoreFuture<'_, Judged<Vec<Quota>>> {
        Box::pin(async move { fullest::find(&self.0, &credential, &filter, len_max).await })
    }

    fn usage_history(
        &self,
        credential: Credential,
        pair: Pair,
        range: UsageRange,
        page: Page<Timestamp>,
    ) -> StoreFuture<'_, Judged<Listed<UsageEntry, Timestamp>>> {
        read!(self, credential, tx, list::usage(&tx, &pair, range, &page))
    }

    fn default_policy(
        &self,
        credential: Credential,
        resource: Resource,
    ) -> StoreFuture<'_, Judged<Option<DefaultPolicy>>> {
        Box::pin(async move {
            let found = quota::find_default(&self.0, &credential, &resource).await?;
            Ok(found.map(|policy| policy.map(|policy| DefaultPolicy { resource, policy })))
        })
    }

    fn defaults(
        &self,
        credential: Credential,
        page: Page<Resource>,
    ) -> StoreFuture<'_, Judged<Listed<DefaultPolicy, Resource>>> {
        read!(self, credential, tx, list::defaults(&tx, &page))
    }

    fn audit(
        &self,
        credential: Credential,
        filter: AuditFilter,
        page: Page<AuditId>,
    ) -> StoreFuture<'_, Judged<Listed<AuditEntry, AuditId>>> {
        read!(self, credential, tx, audit::page(&tx, &filter, &page))
    }

    fn tokens(
        &self,
        credential: Credential,
        page: Page<TokenOrder>,
    ) -> StoreFuture<'_, Judged<Listed<TokenRecord, TokenOrder>>> {
        read!(self, credential, tx, token::page(&tx, &page))
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        Box::pin(ping(&self.0))
    }
}

async fn ping(store: &Inner) -> Result<(), StoreError> {
    let lease = store.readers.lease().await?;
    let asked = in_time(lease.alone(lease.query_one(PING, &[]))).await?;
    let row = asked.map_err(before_commit)?;
    if row.try_get(0).map_err(before_commit)? {
        return Err(Fault::ReadOnly.unavailable());
    }
    if let Some(lacking) = row.try_get(1).map_err(before_commit)? {
        return Err(Fault::NotAllowed(lacking).unavailable());
    }
    lease.give_back();
    Ok(())
}

impl Administer for PostgresStore {
    fn create_token(
        &self,
        credential: Credential,
        token: NewToken,
    ) -> StoreFuture<'_, Judged<Result<TokenRecord, ExpiryPassed>>> {
        Box::pin(async move { token::create(&self.0, &credential, token).await })
    }

    fn revoke_token(&self, credential: Credential, id: TokenId) -> StoreFuture<'_, Judged<bool>> {
        Box::pin(async move { token::revoke(&self.0, &credential, &id).await })
    }

    fn create_first_admin_token(&self, token: NewToken, publish: Publish) -> StoreFuture<'_, bool> {
        Box::pin(token::create_first_admin(&self.0, token, publish))
    }

    fn erase_user(
        &self,
        credential: Credential,
        user_id: UserId,
    ) -> StoreFuture<'_, Judged<ErasureId>> {
        Box::pin(async move { erase::begin(&self.0, &credential, &user_id).await })
    }

    fn erase_step(&self) -> StoreFuture<'_, Option<ErasureId>> {
        Box::pin(erase::step(&self.0))
    }

    fn prune_step(&self, retention: Retention, rows_max: u32) -> StoreFuture<'_, PruneStep> {
        Box::pin(prune::step(&self.0, retention, rows_max))
    }
}
