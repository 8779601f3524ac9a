//! Who sends a request: the holder of one of our tokens, or of a JWT of somebody we trust.

use quotalog_auth::{Caller, Token};
use quotalog_jwt::{Unverified, Verifier};
use quotalog_ledger::{Deadline, Ledger, LedgerError};

use crate::bearer::bearer_token;

/// Knows callers by their bearer tokens. Cheap to clone; clones share.
#[derive(Clone)]
pub struct Authentication {
    ledger: Ledger,
    jwts: Option<Verifier>,
}

impl Authentication {
    /// By the tokens of `ledger`, and by JWTs if there is something to verify them with.
    #[must_use]
    pub fn new(ledger: Ledger, jwts: Option<Verifier>) -> Self {
        Self { ledger, jwts }
    }

    /// Who holds the token of the one `Authorization` line there must be; `None` if nobody does.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] when that cannot be found out: an unknown caller is never let in.
    pub async fn caller<'a>(
        &self,
        lines: impl IntoIterator<Item = &'a [u8]>,
        deadline: Deadline,
    ) -> Result<Option<Caller>, LedgerError> {
        let Some(token) = bearer_token(lines) else {
            return Ok(None);
        };
        match &self.jwts {
            Some(jwts) if may_be_jwt(&token) => match self.ledger.of_environment(&token.hash()) {
                Some(caller) => Ok(Some(caller)),
                None => match jwts.verify(&token, deadline).await {
                    Ok(caller) => Ok(Some(caller)),
                    Err(Unverified::Refused) => Ok(None),
                    Err(Unverified::Unavailable) => Err(LedgerError::Unavailable),
                },
            },
            Some(_) | None => self.ledger.authenticate(&token, deadline).await,
        }
    }
}

/// Our own tokens are random texts without a dot. Only that of the environment, which an operator chose, may look
/// like a JWT.
fn may_be_jwt(token: &Token) -> bool {
    !token.reveal().starts_with(Token::PREFIX) && Verifier::takes(token)
}
