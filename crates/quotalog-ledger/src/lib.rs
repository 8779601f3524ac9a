//! The only way to change usage: requests queue, and go to the store in batches.
//!
//! [`Ledger`] is the handle that the fronts hold. [`store`] holds the ports that a database fills,
//! [`clock`] the one reader of the time of day. Nothing here knows HTTP, gRPC or SQL.

pub mod clock;
pub mod store;
