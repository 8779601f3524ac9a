//! The ids of a path: decoded, but judged only when a handler asks, after the caller's permission.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use quotalog_domain::{Pair, Resource, UserId};

use crate::exchange::Exchange;
use crate::fault::Faults;
use crate::problem::Problem;

/// The user of `/quotas/{user_id}…`, and the resource of `/quotas/{user_id}/{resource}…`.
pub(crate) struct RawPair(Exchange);

/// The id of `/tokens/{id}`, the resource of `/defaults/{resource}`, the name of `/problems/{name}` or
/// the file of `/docs/{file}`.
pub(crate) struct RawName(Exchange);

impl RawPair {
    /// The user as the caller wrote it.
    pub(crate) fn user_id(&self) -> &str {
        self.0.segment(1)
    }

    /// The resource as the caller wrote it.
    pub(crate) fn resource(&self) -> &str {
        self.0.segment(2)
    }

    /// The user, or its fault.
    pub(crate) fn checked_user_id(&self, faults: &mut Faults) -> Option<UserId> {
        faults.check("user_id", UserId::try_from(self.user_id()))
    }

    /// The pair, or the faults of both its ids.
    pub(crate) fn checked(&self, faults: &mut Faults) -> Option<Pair> {
        let user_id = self.checked_user_id(faults);
        let resource = faults.check("resource", Resource::try_from(self.resource()));
        Some(Pair {
            user_id: user_id?,
            resource: resource?,
        })
    }
}

impl RawName {
    /// The name as the caller wrote it.
    pub(crate) fn as_str(&self) -> &str {
        self.0.segment(1)
    }

    /// The resource of this name, or its fault.
    pub(crate) fn checked_resource(&self, faults: &mut Faults) -> Option<Resource> {
        faults.check("resource", Resource::try_from(self.as_str()))
    }
}

impl<S: Sync> FromRequestParts<S> for RawPair {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        Exchange::of(parts).map(Self)
    }
}

impl<S: Sync> FromRequestParts<S> for RawName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        Exchange::of(parts).map(Self)
    }
}
