//! The ports of the ledger, each as one piece of work for the writer or a reader.

use quotalog_auth::{Caller, Credential, NewToken, TokenHash, TokenId, TokenRecord};
use quotalog_domain::{DefaultPolicy, Pair, Quota, Resource, Timestamp, UserId};
use quotalog_ledger::store::{
    Administer, AuditEntry, AuditFilter, AuditId, Batch, Commit, ErasureId, ExpiryPassed, Judged,
    Listed, Page, PruneStep, Publish, QuotaFilter, Read, Retention, StoreError, StoreFuture,
    TokenOrder, UsageEntry, UsageRange, Verdict,
};

use crate::fault::before_commit;
use crate::quota::{self, Pairs};
use crate::store::SqliteStore;
use crate::tx::Tx;
use crate::{audit, batch, erase, fullest, list, prune, token};

impl Commit for SqliteStore {
    fn commit(&self, batch: Batch) -> StoreFuture<'_, Vec<Verdict>> {
        let retention_s = self.idempotency_retention_s();
        self.write(move |tx| batch::run(tx, batch, retention_s))
    }
}

impl Read for SqliteStore {
    fn authenticate(&self, hash: TokenHash) -> StoreFuture<'_, Option<Caller>> {
        self.read(move |tx| token::caller(tx, &hash))
    }

    fn confirm(&self, credential: Credential) -> StoreFuture<'_, Judged<()>> {
        self.read(move |tx| token::judge(tx, &credential))
    }

    fn quota(&self, credential: Credential, pair: Pair) -> StoreFuture<'_, Judged<Option<Quota>>> {
        self.read(move |tx| {
            judged(tx, &credential, |tx| {
                Pairs::new(tx.connection, tx.now)?.quota(tx, pair)
            })
        })
    }

    fn user_quotas(
        &self,
        credential: Credential,
        user_id: UserId,
        page: Page<Resource>,
    ) -> StoreFuture<'_, Judged<Listed<Quota, Resource>>> {
        self.read(move |tx| judged(tx, &credential, |tx| list::user_quotas(tx, &user_id, &page)))
    }

    fn quotas(
        &self,
        credential: Credential,
        filter: QuotaFilter,
        page: Page<Pair>,
    ) -> StoreFuture<'_, Judged<Listed<Quota, Pair>>> {
        self.read(move |tx| {
            judged(tx, &credential, |tx| {
                let wanted = |quota: &Quota| filter.admits(quota);
                list::quotas(tx, filter.resource.as_ref(), wanted, &page)
            })
        })
    }

    fn fullest(
        &self,
        credential: Credential,
        filter: QuotaFilter,
        len_max: usize,
    ) -> StoreFuture<'_, Judged<Vec<Quota>>> {
        Box::pin(fullest::find(self, credential, filter, len_max))
    }

    fn usage_history(
        &self,
        credential: Credential,
        pair: Pair,
        range: UsageRange,
        page: Page<Timestamp>,
    ) -> StoreFuture<'_, Judged<Listed<UsageEntry, Timestamp>>> {
        self.read(move |tx| judged(tx, &credential, |tx| list::usage(tx, &pair, range, &page)))
    }

    fn default_policy(
        &self,
        credential: Credential,
        resource: Resource,
    ) -> StoreFuture<'_, Judged<Option<DefaultPolicy>>> {
        self.read(move |tx| {
            judged(tx, &credential, |tx| {
                let policy = quota::default_of(tx, &resource)?;
                Ok(policy.map(|policy| DefaultPolicy { resource, policy }))
            })
        })
    }

    fn defaults(
        &self,
        credential: Credential,
        page: Page<Resource>,
    ) -> StoreFuture<'_, Judged<Listed<DefaultPolicy, Resource>>> {
        self.read(move |tx| judged(tx, &credential, |tx| list::defaults(tx, &page)))
    }

    fn audit(
        &self,
        credential: Credential,
        filter: AuditFilter,
        page: Page<AuditId>,
    ) -> StoreFuture<'_, Judged<Listed<AuditEntry, AuditId>>> {
        self.read(move |tx| judged(tx, &credential, |tx| audit::page(tx, &filter, &page)))
    }

    fn tokens(
        &self,
        credential: Credential,
        page: Page<TokenOrder>,
    ) -> StoreFuture<'_, Judged<Listed<TokenRecord, TokenOrder>>> {
        self.read(move |tx| judged(tx, &credential, |tx| list::tokens(tx, &page)))
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        Box::pin(async {
            self.check_presence()?;
            self.read(|tx| {
                token::generation(tx.connection)?;
                quota::probe(tx.connection)
            })
            .await
        })
    }
}

impl Administer for SqliteStore {
    fn create_token(
        &self,
        credential: Credential,
        token: NewToken,
    ) -> StoreFuture<'_, Judged<Result<TokenRecord, ExpiryPassed>>> {
        self.write(move |tx| {
            judged(tx, &credential, |tx| token::insert(tx, &credential, token))
                .map(|judged| judged.map(|record| record.ok_or(ExpiryPassed)))
                .map_err(before_commit)
        })
    }

    fn revoke_token(&self, credential: Credential, id: TokenId) -> StoreFuture<'_, Judged<bool>> {
        self.write(move |tx| {
            judged(tx, &credential, |tx| token::delete(tx, &credential, &id)).map_err(before_commit)
        })
    }

    fn create_first_admin_token(&self, token: NewToken, publish: Publish) -> StoreFuture<'_, bool> {
        self.write(move |tx| {
            if token::has_valid_admin(tx).map_err(before_commit)? {
                return Ok(false);
            }
            // Whoever starts the server holds the database.
            let stored = token::insert(tx, &Credential::CommandLine, token);
            let stored = stored.map_err(before_commit)?;
            stored.ok_or_else(|| StoreError::Internal(Box::new(ExpiryPassed)))?;
            publish().map_err(|error| StoreError::Internal(Box::new(error)))?;
            Ok(true)
        })
    }

    fn erase_user(
        &self,
        credential: Credential,
        user_id: UserId,
    ) -> StoreFuture<'_, Judged<ErasureId>> {
        self.write(move |tx| {
            let begin = |tx: &Tx<'_>| erase::begin(tx, &credential, &user_id);
            judged(tx, &credential, begin).map_err(before_commit)
        })
    }

    fn erase_step(&self) -> StoreFuture<'_, Option<ErasureId>> {
        self.work(|writer| {
            let step = writer.transaction(|tx| erase::step(tx).map_err(before_commit))?;
            writer.log_names_erased |= step.has_finished;
            if step.oldest.is_none() && writer.log_names_erased {
                writer.empty_log();
            }
            Ok(step.oldest)
        })
    }

    fn prune_step(&self, retention: Retention, rows_max: u32) -> StoreFuture<'_, PruneStep> {
        self.write(move |tx| {
            let rows = prune::step(tx, retention, rows_max).map_err(before_commit)?;
            Ok(PruneStep::Deleted(rows))
        })
    }
}

/// What `work` answers, if the credential holds in the same transaction.
pub(crate) fn judged<T>(
    tx: &Tx<'_>,
    credential: &Credential,
    work: impl FnOnce(&Tx<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Judged<T>> {
    match token::judge(tx, credential)? {
        Ok(()) => work(tx).map(Ok),
        Err(revoked) => Ok(Err(revoked)),
    }
}
