//! Who is calling, and what they may do: tokens and their hashes, roles, callers, credentials, actors.
//!
//! Nothing here knows how a token arrives or where its hash is stored. A [`Token`] cannot be printed by
//! accident: its `Debug` hides it, it has no `Display`, and only [`Token::reveal`] gives the text.

mod actor;
mod caller;
mod jwt_id;
mod role;
mod token;

pub use actor::{Actor, ActorKind, ActorKindError};
pub use caller::{Caller, Credential, Generation, Standing};
pub use jwt_id::JwtId;
pub use role::{Action, Role, RoleError, RoleKind};
pub use token::{
    NewToken, Token, TokenError, TokenHash, TokenId, TokenName, TokenNameError, TokenRecord,
};
