//! Who sends a request: the bearer token of the `Authorization` field (RFC 6750 section 2.1), never
//! of the query string.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use quotalog_auth::{Action, Caller, Token};
use quotalog_domain::{Command, IdempotencyKey, Operation};

use crate::admission::{Admitted, Overloaded};
use crate::exchange::Exchange;
use crate::problem::Problem;
use crate::router::App;

/// The caller, whose token is known and whose turn it is. A handler gets a caller only so.
pub(crate) struct Authenticated {
    caller: Caller,
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

    /// A command of this caller, kept under `key` if the request has one.
    pub(crate) fn command(&self, operation: Operation, key: Option<IdempotencyKey>) -> Command {
        Command {
            operation,
            key: key.map(|key| (key, self.caller.id())),
        }
    }

    /// The caller.
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }
}

impl FromRequestParts<App> for Authenticated {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let exchange = Exchange::of(parts)?;
        let token = bearer_token(&parts.headers).ok_or_else(Problem::unauthorized)?;
        let caller = app.ledger.authenticate(&token).await?;
        let caller = caller.ok_or_else(Problem::unauthorized)?;
        exchange.authenticated(caller.clone());
        let admitted = app.admission.admit(&caller).await;
        Ok(Self {
            _admitted: admitted.map_err(|Overloaded| Problem::unavailable())?,
            caller,
        })
    }
}

/// The token of the one `Authorization` line. The scheme's name matches in any letter case.
fn bearer_token(headers: &HeaderMap) -> Option<Token> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return None;
    };
    let (scheme, token) = line.to_str().ok()?.split_once(' ')?;
    let token = token.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("Bearer") && !token.is_empty()).then(|| Token::presented(token))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn token_of(lines: &[&[u8]]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(AUTHORIZATION, HeaderValue::from_bytes(line).unwrap());
        }
        bearer_token(&headers).map(|token| token.reveal().to_owned())
    }

    #[test]
    fn the_scheme_is_read_in_any_letter_case_and_the_token_exactly() {
        for line in [
            "Bearer ql_Ab",
            "bearer ql_Ab",
            "BEARER ql_Ab",
            "Bearer  ql_Ab",
        ] {
            assert_eq!(
                token_of(&[line.as_bytes()]).as_deref(),
                Some("ql_Ab"),
                "{line}"
            );
        }
    }

    #[test]
    fn anything_else_is_no_token() {
        for line in [
            "Bearer",
            "Bearer ",
            "Basic ql_Ab",
            "Token ql_Ab",
            "ql_Ab",
            "",
            "Bearer\tql_Ab",
        ] {
            assert_eq!(token_of(&[line.as_bytes()]), None, "{line}");
        }
        assert_eq!(token_of(&[]), None);
        assert_eq!(token_of(&[b"Bearer ql_Ab", b"Bearer ql_Ab"]), None);
        assert_eq!(token_of(&["Bearer ql_\u{e9}".as_bytes()]), None);
        assert_eq!(token_of(&[b"Bearer ql_\xff"]), None);
    }
}
