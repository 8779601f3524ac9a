//! Policies, defaults, lists, tokens and the audit: what an administrator asks for.

use http::Method;
use serde_json::value::RawValue;

use crate::client::Client;
use crate::error::Error;
use crate::pages::Pages;
use crate::path::Path;
use crate::quota::pair;
use crate::request::Request;
use crate::wire::{AuditEntry, CreatedToken, DefaultPolicy, NewToken, Policy, Quota, Token};

/// A policy to be set.
#[derive(Debug, Clone)]
#[must_use = "nothing happens until it is sent"]
pub struct SetPolicy(Request<Quota>);

/// A policy to be removed.
#[derive(Debug, Clone)]
#[must_use = "nothing happens until it is sent"]
pub struct DeletePolicy(Request<()>);

/// The list of all quotas, yet to be asked for.
#[derive(Debug, Clone)]
#[must_use = "nothing happens until it is asked for"]
pub struct Quotas(Request<()>);

/// The audit, yet to be asked for.
#[derive(Debug, Clone)]
#[must_use = "nothing happens until it is asked for"]
pub struct Audit(Request<()>);

impl Client {
    /// Sets the policy of a pair; its usage stays as it is.
    pub fn set_policy(&self, user_id: &str, resource: &str, policy: Policy) -> SetPolicy {
        let request = Request::new(self, Method::PUT, pair(user_id, resource));
        SetPolicy(request.json(&policy))
    }

    /// Removes the policy of a pair.
    pub fn delete_policy(&self, user_id: &str, resource: &str) -> DeletePolicy {
        DeletePolicy(Request::new(self, Method::DELETE, pair(user_id, resource)))
    }

    /// All quotas.
    pub fn quotas(&self) -> Quotas {
        Quotas(Request::new(self, Method::GET, Path::fixed("/quotas")))
    }

    /// A user's quotas, by resource.
    pub fn user_quotas(&self, user_id: &str) -> Pages<Quota> {
        let request: Request<()> = Request::new(self, Method::GET, user(user_id));
        Pages::new(request, "quotas")
    }

    /// Erases a user, known or not.
    pub fn erase_user(&self, user_id: &str) -> Request<()> {
        Request::new(self, Method::DELETE, user(user_id))
    }

    /// Sets the default of a resource.
    pub fn set_default(&self, resource: &str, policy: Policy) -> Request<DefaultPolicy> {
        Request::new(self, Method::PUT, default(resource)).json(&policy)
    }

    /// The default of a resource.
    pub fn default(&self, resource: &str) -> Request<DefaultPolicy> {
        Request::new(self, Method::GET, default(resource))
    }

    /// Removes the default of a resource.
    pub fn delete_default(&self, resource: &str) -> Request<()> {
        Request::new(self, Method::DELETE, default(resource))
    }

    /// All defaults.
    pub fn defaults(&self) -> Pages<DefaultPolicy> {
        let path = Path::fixed("/defaults");
        Pages::new(Request::<()>::new(self, Method::GET, path), "defaults")
    }

    /// Who changed what, newest first.
    pub fn audit(&self) -> Audit {
        Audit(Request::new(self, Method::GET, Path::fixed("/audit")))
    }

    /// Makes a token. It is sent again only where nothing was made: the route knows no idempotency key.
    pub fn create_token(&self, token: &NewToken) -> Request<CreatedToken> {
        Request::new(self, Method::POST, Path::fixed("/tokens")).json(token)
    }

    /// All tokens, without their secrets.
    pub fn tokens(&self) -> Pages<Token> {
        let path = Path::fixed("/tokens");
        Pages::new(Request::<()>::new(self, Method::GET, path), "tokens")
    }

    /// Deletes a token; the server refuses its very next request.
    pub fn revoke_token(&self, id: &str) -> Request<()> {
        let path = Path::fixed("/tokens").name("id", id);
        Request::new(self, Method::DELETE, path)
    }
}

impl SetPolicy {
    /// Only if the present policy has this `ETag`; `*` asks that there is one.
    pub fn if_match(self, etag: impl Into<String>) -> Self {
        Self(self.0.if_match(etag.into()))
    }

    /// Sends it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn send(self) -> Result<Quota, Error> {
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

impl DeletePolicy {
    /// Only if the present policy has this `ETag`.
    pub fn if_match(self, etag: impl Into<String>) -> Self {
        Self(self.0.if_match(etag.into()))
    }

    /// Sends it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn send(self) -> Result<(), Error> {
        self.0.send().await
    }
}

impl Quotas {
    /// Only those of this resource.
    pub fn resource(self, resource: &str) -> Self {
        Self(self.0.parameter("resource", resource))
    }

    /// Only those of which at least so much of the limit is used, from 0 to 100.
    pub fn min_used_percent(self, percent: u8) -> Self {
        Self(self.0.parameter("min_used_percent", &percent.to_string()))
    }

    /// The list.
    #[must_use]
    pub fn pages(self) -> Pages<Quota> {
        Pages::new(self.0, "quotas")
    }

    /// The fullest ones instead, the fullest first: one page, which has no next.
    #[must_use]
    pub fn fullest(self, len_max: usize) -> Pages<Quota> {
        let request = self.0.parameter("sort", "used_percent");
        Pages::new(request, "quotas").page_len(len_max)
    }
}

impl Audit {
    /// Only what concerns this user.
    pub fn user_id(self, user_id: &str) -> Self {
        Self(self.0.parameter("user_id", user_id))
    }

    /// Only what concerns this resource.
    pub fn resource(self, resource: &str) -> Self {
        Self(self.0.parameter("resource", resource))
    }

    /// The list.
    #[must_use]
    pub fn pages(self) -> Pages<AuditEntry> {
        Pages::new(self.0, "entries")
    }
}

fn user(user_id: &str) -> Path {
    Path::fixed("/quotas").name("user_id", user_id)
}

fn default(resource: &str) -> Path {
    Path::fixed("/defaults").name("resource", resource)
}
