//! What all work inside a transaction has at hand.

use std::future::Future;
use std::time::Duration;

use quotalog_auth::{Credential, Generation, Standing};
use quotalog_domain::Timestamp;
use quotalog_ledger::store::{Judged, Revoked, StoreError};
use quotalog_record::unfit::PassedOver;
use tokio_postgres::{Error, Row};

use crate::connection::{Begin, Connection, Value};
use crate::fault::{Fault, before_commit};
use crate::instant::Instant;
use crate::pool::Lease;
use crate::store::Inner;

/// How long the answer to what was sent together is waited for: longer than the server lets a statement take,
/// shorter than a request waits.
pub(crate) const TRIP_MAX: Duration = Duration::from_secs(4);

/// The state of the tokens, the one instant of the transaction, and whether there is a token of this id.
const HEAD: &str = "SELECT generation, coalesce($1, transaction_timestamp()), \
     EXISTS (SELECT FROM quotalog_tokens WHERE id = $2) \
     FROM quotalog_token_generation WHERE id = 1";
/// The same, and no other transaction changes a token until this one ends.
const HEAD_OF_CHANGE: &str = "SELECT generation, coalesce($1, transaction_timestamp()), \
     EXISTS (SELECT FROM quotalog_tokens WHERE id = $2) \
     FROM quotalog_token_generation WHERE id = 1 FOR UPDATE";

/// A transaction that is open, and its one instant.
pub(crate) struct Tx<'s> {
    lease: Lease,
    pub(crate) now: Timestamp,
    pub(crate) passed_over: &'s PassedOver,
    generation: Generation,
    asked_of: Option<(&'s Credential, bool)>,
}

/// What a transaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Reading,
    Writing,
    /// Changing tokens, one transaction at a time.
    Tokens,
}

impl<'s> Tx<'s> {
    /// Begins a transaction on a connection of the readers.
    pub(crate) async fn begin(
        store: &'s Inner,
        purpose: For,
        credential: Option<&'s Credential>,
    ) -> Result<Self, StoreError> {
        let lease = store.readers.lease().await?;
        let (begin, head) = match purpose {
            For::Reading => (Begin::Read, HEAD),
            For::Writing => (Begin::Write, HEAD),
            For::Tokens => (Begin::Write, HEAD_OF_CHANGE),
        };
        let instant = store.clock.instant().map(Instant::from);
        let token_id = credential.map_or("", token_id);
        let head = in_time(async {
            lease.prepare(head).await?;
            let values: [Value<'_>; 2] = [&instant, &token_id];
            let (begun, head) = tokio::join! {
                biased;
                lease.begin(begin),
                lease.query_one(head, &values),
            };
            begun.and(head)
        });
        let head = head.await?.map_err(before_commit)?;
        Ok(Self {
            lease,
            now: now(&head, 1).map_err(before_commit)?,
            passed_over: &store.passed_over,
            generation: Generation(head.try_get(0).map_err(before_commit)?),
            asked_of: match credential {
                Some(credential) => Some((credential, head.try_get(2).map_err(before_commit)?)),
                None => None,
            },
        })
    }

    /// The same, if the credential holds in it.
    pub(crate) async fn judged(
        store: &'s Inner,
        purpose: For,
        credential: &'s Credential,
    ) -> Result<Judged<Self>, StoreError> {
        let tx = Self::begin(store, purpose, Some(credential)).await?;
        if tx.holds() {
            return Ok(Ok(tx));
        }
        tx.roll_back().await?;
        Ok(Err(Revoked))
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.lease
    }

    /// Waits for the answers of the work inside, for as long as one may.
    pub(crate) async fn work<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, StoreError> {
        in_time(work).await?.map_err(before_commit)
    }

    /// Ends a transaction that changed nothing.
    pub(crate) async fn roll_back(self) -> Result<(), StoreError> {
        in_time(self.lease.run("ROLLBACK"))
            .await?
            .map_err(before_commit)?;
        self.lease.give_back();
        Ok(())
    }

    /// Makes what was done durable.
    pub(crate) async fn commit(self) -> Result<(), StoreError> {
        tokio::time::timeout(TRIP_MAX, self.lease.commit())
            .await
            .map_err(|_elapsed| Fault::TimedOut.unknown())??;
        self.lease.give_back();
        Ok(())
    }

    fn holds(&self) -> bool {
        self.asked_of
            .is_none_or(|(credential, exists)| holds(credential, self.generation, self.now, exists))
    }
}

/// Whether the credential holds; `exists` tells whether there is a token of its id.
pub(crate) fn holds(
    credential: &Credential,
    generation: Generation,
    now: Timestamp,
    exists: bool,
) -> bool {
    match credential.standing(generation, now) {
        Standing::Valid => true,
        Standing::Expired => false,
        Standing::IfExists(_) => exists,
    }
}

/// The id of the token that the credential rests on; no token has an empty one.
pub(crate) fn token_id(credential: &Credential) -> &str {
    match credential {
        Credential::Token { id, .. } => id.as_str(),
        Credential::CommandLine | Credential::Environment | Credential::Jwt { .. } => "",
    }
}

/// The instant in a column that our own statement made.
pub(crate) fn now(row: &Row, column: usize) -> Result<Timestamp, Error> {
    let instant: Instant = row.try_get(column)?;
    Ok(instant.timestamp().unwrap_or(Timestamp::MAX))
}

/// What `answers` brings, unless it takes too long: nothing was written then, since no commit was sent.
pub(crate) async fn in_time<T>(answers: impl Future<Output = T>) -> Result<T, StoreError> {
    tokio::time::timeout(TRIP_MAX, answers)
        .await
        .map_err(|_elapsed| Fault::TimedOut.unavailable())
}
