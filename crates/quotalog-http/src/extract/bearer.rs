//! Who sends a request: the bearer token of the `Authorization` field (RFC 6750 section 2.1), never
//! of the query string.

use axum::extract::FromRequestParts;
use axum::http::header::{AUTHORIZATION, HeaderValue};
use axum::http::request::Parts;
use quotalog_auth::{Action, Caller, Role};
use quotalog_domain::{Command, IdempotencyKey, Operation};
use quotalog_front::{Admitted, Overloaded};
use quotalog_ledger::Asker;

use crate::exchange::Exchange;
use crate::problem::Problem;
use crate::router::App;

/// The caller, whose token is known and whose turn it is. A handler gets a caller only so.
pub(crate) struct Authenticated {
    caller: Caller,
    exchange: Exchange,
    /// Held until the request is answered.
    _admitted: Admitted,
}

impl Authenticated {
    /// Goes on only if the caller may do this.
    pub(crate) fn may(&self, action: Action<'_>) -> Result<(), Problem> {
        if self.caller.role.may(action) {
            Ok(())
        } else {
            Err(Problem::forbidden())
        }
    }

    /// What it may do.
    pub(crate) fn role(&self) -> &Role {
        &self.caller.role
    }

    /// A command of this caller, kept under `key` if the request has one.
    pub(crate) fn command(&self, operation: Operation, key: Option<IdempotencyKey>) -> Command {
        Command {
            operation,
            key: key.map(|key| (key, self.caller.id())),
        }
    }

    /// The caller, as the one who asks.
    pub(crate) fn caller(&self) -> Asker<'_> {
        self.exchange.asker_as(&self.caller)
    }
}

impl FromRequestParts<App> for Authenticated {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let exchange = Exchange::of(parts)?;
        let lines = parts.headers.get_all(AUTHORIZATION).iter();
        let lines = lines.map(HeaderValue::as_bytes);
        let caller = app.authentication.caller(lines, exchange.deadline());
        let caller = caller.await?.ok_or_else(Problem::unauthorized)?;
        exchange.authenticated(caller.clone());
        let admitted = app.admission.admit(exchange.asker_as(&caller)).await;
        Ok(Self {
            _admitted: admitted.map_err(|Overloaded| Problem::unavailable())?,
            caller,
            exchange,
        })
    }
}
