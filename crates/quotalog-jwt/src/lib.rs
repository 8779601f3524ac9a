//! JWTs (RFC 7519): whose keys are trusted, whether a token was signed with one of them, and who it says is calling.
//!
//! The key says by which algorithm a token is verified, never the token (RFC 8725 section 3.1). Nothing of a token is
//! believed before its signature is; none of its text is logged, and whoever sent it is not told why it was refused.

mod claims;
mod fetch;
mod json;
mod jwks;
mod key;
mod key_set;
mod metrics;
mod provider;
mod public_key;
mod refusal;
mod signed;
mod source;
mod verifier;

pub use claims::{Expected, RoleClaim};
pub use key::{KeyError, SECRET_LEN_MIN};
pub use source::{Source, SourceError};
pub use verifier::{Settings, TOKEN_LEN_MAX, Trust, Unverified, Verifier};
