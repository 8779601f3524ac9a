//! What the outermost layer has read of a request, for the extractors; and who sent it, for the
//! outermost layer.

use std::sync::{Arc, OnceLock};

use axum::http::Uri;
use axum::http::request::Parts;
use quotalog_auth::Caller;
use quotalog_ledger::{Asker, Deadline};
use tokio::time::Instant;

use crate::extract::body::Unread;
use crate::path;
use crate::problem::Problem;

/// One request and what is known of it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Exchange(Arc<Inner>);

struct Inner {
    uri: Uri,
    /// The decoded path, where it differs from the path as it was sent.
    decoded_path: Option<Box<str>>,
    unread: Unread,
    caller: OnceLock<Caller>,
    arrived_at: Instant,
}

impl Exchange {
    /// A request whose path is sound.
    pub(crate) fn new(
        uri: Uri,
        decoded_path: Option<Box<str>>,
        unread: Unread,
        arrived_at: Instant,
    ) -> Self {
        Self(Arc::new(Inner {
            uri,
            decoded_path,
            unread,
            caller: OnceLock::new(),
            arrived_at,
        }))
    }

    /// The exchange that a request belongs to.
    pub(crate) fn of(parts: &Parts) -> Result<Self, Problem> {
        let exchange = parts.extensions.get::<Self>().cloned();
        exchange.ok_or_else(|| Problem::internal("a route outside the outermost layer"))
    }

    /// The path as it was sent.
    pub(crate) fn raw_path(&self) -> &str {
        self.0.uri.path()
    }

    /// The query string as it was sent.
    pub(crate) fn query(&self) -> Option<&str> {
        self.0.uri.query()
    }

    /// A segment of the path, decoded; the first is 0. Empty if there is none.
    pub(crate) fn segment(&self, position: usize) -> &str {
        let path = self.0.decoded_path.as_deref();
        path::segment(path.unwrap_or_else(|| self.raw_path()), position)
    }

    /// What nobody has read of the body.
    pub(crate) fn unread(&self) -> &Unread {
        &self.0.unread
    }

    /// Notes who sent the request.
    pub(crate) fn authenticated(&self, caller: Caller) {
        // Only the first note counts, and there is one extractor that makes it.
        let _ = self.0.caller.set(caller);
    }

    /// Who sent the request, if that was found out.
    pub(crate) fn asker(&self) -> Option<Asker<'_>> {
        self.0.caller.get().map(|caller| self.asker_as(caller))
    }

    /// The caller as the one who sent the request.
    pub(crate) fn asker_as<'a>(&self, caller: &'a Caller) -> Asker<'a> {
        Asker {
            caller,
            deadline: self.deadline(),
        }
    }

    /// By when the request is answered. The time that its client took for the body is the client's own.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::of_arrival(self.0.arrived_at + self.0.unread.waited())
    }
}
