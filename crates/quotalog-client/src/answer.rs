//! An answer read whole, and what is made of one that succeeded.

use std::fmt::Display;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::Error;
use crate::ratelimit::RateLimitFields;
use crate::wire::{CreatedToken, DefaultPolicy, Quota};

/// Status, headers and body of an answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// What a change of usage was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counted {
    /// The quota after the change.
    pub quota: Quota,
    /// Whether this is the kept answer to an earlier request under the same idempotency key.
    pub replayed: bool,
    /// The header fields of the answer, for whoever passes them on.
    pub fields: RateLimitFields,
}

/// What a batch was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CountedBatch {
    /// The quotas after the whole batch, item by item.
    pub quotas: Vec<Quota>,
    /// Whether this is the kept answer to an earlier request under the same idempotency key.
    pub replayed: bool,
}

/// Made of an answer that succeeded.
pub trait FromAnswer: Sized + sealed::Sealed {
    /// The status of a success.
    #[doc(hidden)]
    const STATUS: StatusCode = StatusCode::OK;

    #[doc(hidden)]
    fn from_answer(body: &[u8], headers: &HeaderMap) -> Result<Self, serde_json::Error>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for () {}
    impl Sealed for super::Quota {}
    impl Sealed for super::Counted {}
    impl Sealed for super::CountedBatch {}
    impl Sealed for super::DefaultPolicy {}
    impl Sealed for super::CreatedToken {}
    impl Sealed for Box<super::RawValue> {}
}

impl Answer {
    /// What is made of a success. One of another than quotalog, as from a wrong URL, is none.
    pub(crate) fn read<T: FromAnswer>(&self) -> Result<T, Error> {
        if self.status != T::STATUS {
            return Err(self.unexpected(&format!("{} was to be expected", T::STATUS)));
        }
        T::from_answer(&self.body, &self.headers).map_err(|error| self.unexpected(&error))
    }

    /// The body of a success as the server wrote it.
    pub(crate) fn raw(&self) -> Result<Box<RawValue>, Error> {
        serde_json::from_slice(&self.body).map_err(|error| self.unexpected(&error))
    }

    fn unexpected(&self, fault: &dyn Display) -> Error {
        Error::Unexpected {
            status: self.status.as_u16(),
            detail: format!("the answer cannot be read: {fault}"),
        }
    }

    /// A header's value, if it is text.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        text(&self.headers, name)
    }
}

impl FromAnswer for () {
    const STATUS: StatusCode = StatusCode::NO_CONTENT;

    fn from_answer(_body: &[u8], _headers: &HeaderMap) -> Result<Self, serde_json::Error> {
        Ok(())
    }
}

impl FromAnswer for Quota {
    fn from_answer(body: &[u8], headers: &HeaderMap) -> Result<Self, serde_json::Error> {
        let mut quota: Self = serde_json::from_slice(body)?;
        quota.etag = text(headers, "etag");
        Ok(quota)
    }
}

impl FromAnswer for Counted {
    fn from_answer(body: &[u8], headers: &HeaderMap) -> Result<Self, serde_json::Error> {
        Ok(Self {
            quota: serde_json::from_slice(body)?,
            replayed: is_replayed(headers),
            fields: RateLimitFields::of(headers),
        })
    }
}

impl FromAnswer for CountedBatch {
    fn from_answer(body: &[u8], headers: &HeaderMap) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Body {
            quotas: Vec<Quota>,
        }
        let Body { quotas } = serde_json::from_slice(body)?;
        Ok(Self {
            quotas,
            replayed: is_replayed(headers),
        })
    }
}

impl FromAnswer for DefaultPolicy {
    fn from_answer(body: &[u8], _headers: &HeaderMap) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(body)
    }
}

impl FromAnswer for CreatedToken {
    const STATUS: StatusCode = StatusCode::CREATED;

    fn from_answer(body: &[u8], _headers: &HeaderMap) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(body)
    }
}

/// A page as the server wrote it.
impl FromAnswer for Box<RawValue> {
    fn from_answer(body: &[u8], _headers: &HeaderMap) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(body)
    }
}

fn is_replayed(headers: &HeaderMap) -> bool {
    text(headers, "idempotency-replayed").as_deref() == Some("true")
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}
