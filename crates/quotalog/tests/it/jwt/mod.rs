//! JWTs: whose are believed, what their holders may do, and what must not be believed.

mod attacks;
mod callers;
mod jwks;
mod settings;
