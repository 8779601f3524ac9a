//! Checking and counting: what a gateway asks for.

use http::Method;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::answer::{Counted, CountedBatch, FromAnswer};
use crate::client::{Client, OnOutage};
use crate::error::Error;
use crate::pages::Pages;
use crate::path::Path;
use crate::request::Request;
use crate::wire::{Item, Quota, UsageRow};

/// What a consume was answered, if it was not refused.
#[derive(Debug)]
pub enum Grant<T = Counted> {
    /// The units were counted.
    Counted(T),
    /// The server could not be asked, and the client [fails open](OnOutage::FailOpen). Nothing is known of
    /// the quota; the units may have counted if the error is [`Error::OutcomeUnknown`].
    LetThrough(Error),
}

/// A consume, yet to be sent.
#[derive(Debug, Clone)]
#[must_use = "nothing happens until it is sent"]
pub struct Consume(Change);

/// A batch, yet to be sent.
#[derive(Debug, Clone)]
#[must_use = "nothing happens until it is sent"]
pub struct ConsumeBatch(Request<CountedBatch>);

/// A refund, yet to be sent.
#[derive(Debug, Clone)]
#[must_use = "nothing happens until it is sent"]
pub struct Refund(Change);

/// A reset, yet to be sent.
#[derive(Debug, Clone)]
#[must_use = "nothing happens until it is sent"]
pub struct Reset(Change);

/// A pair's history, yet to be asked for.
#[derive(Debug, Clone)]
#[must_use = "nothing happens until it is asked for"]
pub struct Usage(Request<()>);

/// What the three that change one pair's usage have in common.
type Change = Request<Counted>;

impl<T> Grant<T> {
    /// What was counted, unless it was let through.
    pub fn counted(&self) -> Option<&T> {
        match self {
            Self::Counted(counted) => Some(counted),
            Self::LetThrough(_) => None,
        }
    }
}

impl Client {
    /// Checks a quota, and changes nothing.
    pub fn check(&self, user_id: &str, resource: &str) -> Request<Quota> {
        Request::new(self, Method::GET, pair(user_id, resource))
    }

    /// Counts units of a resource for a user: one, unless told otherwise; all or none.
    ///
    /// ```no_run
    /// # async fn example(client: quotalog_client::Client) {
    /// use quotalog_client::Error;
    ///
    /// match client.consume("alice", "api-calls").amount(3).send().await {
    ///     Ok(_grant) => { /* do the work */ }
    ///     Err(Error::Exhausted(exhausted)) => {
    ///         println!("come back in {} s", exhausted.retry_after.as_secs());
    ///     }
    ///     Err(error) => println!("{error}"),
    /// }
    /// # }
    /// ```
    pub fn consume(&self, user_id: &str, resource: &str) -> Consume {
        let path = pair(user_id, resource).word("consume");
        Consume(Request::new(self, Method::POST, path).keyed())
    }

    /// Counts all of 1 to 100 items or none.
    pub fn consume_batch(&self, items: &[Item]) -> ConsumeBatch {
        let request = Request::new(self, Method::POST, Path::fixed("/consume"));
        let body = serde_json::json!({ "items": items });
        ConsumeBatch(request.json(&body).keyed())
    }

    /// Gives units of the present window back: one, unless told otherwise.
    pub fn refund(&self, user_id: &str, resource: &str) -> Refund {
        let path = pair(user_id, resource).word("refund");
        Refund(Request::new(self, Method::POST, path).keyed())
    }

    /// Sets the usage of the present window to zero.
    pub fn reset(&self, user_id: &str, resource: &str) -> Reset {
        let path = pair(user_id, resource).word("reset");
        Reset(Request::new(self, Method::POST, path).keyed())
    }

    /// What was counted for a pair, newest first.
    pub fn usage(&self, user_id: &str, resource: &str) -> Usage {
        let path = pair(user_id, resource).word("usage");
        Usage(Request::new(self, Method::GET, path))
    }
}

impl Consume {
    /// So many units, from 1 to 1 000 000.
    pub fn amount(self, amount: u64) -> Self {
        Self(of_amount(self.0, amount))
    }

    /// A key of the caller's, so that a repetition of this very call counts once as well.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        Self(self.0.key(key.into()))
    }

    /// Sends it, again and again under its one key, until it is answered or its deadline has come. A 429 is
    /// an answer.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::Exhausted`] if the units do not fit.
    pub async fn send(self) -> Result<Grant, Error> {
        granted(self.0).await
    }

    /// The same, but the answer's JSON as the server wrote it, and an outage is an error always.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn send_raw(self) -> Result<Box<RawValue>, Error> {
        self.0.send_raw().await
    }
}

impl ConsumeBatch {
    /// A key of the caller's, so that a repetition of this very call counts once as well.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        Self(self.0.key(key.into()))
    }

    /// Sends it, as [`Consume::send`] does.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::Exhausted`] if one of the items does not fit.
    pub async fn send(self) -> Result<Grant<CountedBatch>, Error> {
        granted(self.0).await
    }
}

impl Refund {
    /// So many units, from 1 to 1 000 000.
    pub fn amount(self, amount: u64) -> Self {
        Self(of_amount(self.0, amount))
    }

    /// A key of the caller's, so that a repetition of this very call counts once as well.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        Self(self.0.key(key.into()))
    }

    /// Sends it, again and again under its one key, until it is answered or its deadline has come.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn send(self) -> Result<Counted, Error> {
        self.0.send().await
    }

    /// The same, but the answer's JSON as the server wrote it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn send_raw(self) -> Result<Box<RawValue>, Error> {
        self.0.send_raw().await
    }
}

impl Reset {
    /// A key of the caller's, so that a repetition of this very call resets once as well.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        Self(self.0.key(key.into()))
    }

    /// Sends it, again and again under its one key, until it is answered or its deadline has come.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn send(self) -> Result<Counted, Error> {
        self.0.send().await
    }

    /// The same, but the answer's JSON as the server wrote it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn send_raw(self) -> Result<Box<RawValue>, Error> {
        self.0.send_raw().await
    }
}

impl Usage {
    /// Only what began at this instant or later.
    pub fn from(self, from: OffsetDateTime) -> Self {
        Self(self.0.parameter("from", &rfc_3339(from)))
    }

    /// Only what began before this instant.
    pub fn to(self, to: OffsetDateTime) -> Self {
        Self(self.0.parameter("to", &rfc_3339(to)))
    }

    /// The list.
    #[must_use]
    pub fn pages(self) -> Pages<UsageRow> {
        Pages::new(self.0, "windows")
    }
}

pub(crate) fn pair(user_id: &str, resource: &str) -> Path {
    let path = Path::fixed("/quotas").name("user_id", user_id);
    path.name("resource", resource)
}

fn of_amount(change: Change, amount: u64) -> Change {
    change.json(&serde_json::json!({ "amount": amount }))
}

async fn granted<T: FromAnswer>(request: Request<T>) -> Result<Grant<T>, Error> {
    let on_outage = request.client().patience.on_outage;
    match (request.send().await, on_outage) {
        (Ok(counted), _) => Ok(Grant::Counted(counted)),
        (Err(error), OnOutage::FailOpen) if error.is_outage() => Ok(Grant::LetThrough(error)),
        (Err(error), OnOutage::FailOpen | OnOutage::FailClosed) => Err(error),
    }
}

/// What cannot be written so lies outside the years that the server knows; it says so.
fn rfc_3339(instant: OffsetDateTime) -> String {
    instant
        .format(&Rfc3339)
        .unwrap_or_else(|_unwritable| instant.to_string())
}
