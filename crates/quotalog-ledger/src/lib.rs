//! The only way to change usage: requests queue, and go to the store in batches.
//!
//! [`Ledger`] is the handle that the fronts hold. [`store`] holds the ports that a database fills,
//! [`clock`] the one reader of the time of day. Nothing here knows HTTP, gRPC or SQL, and no answer
//! leaves before its batch is durable.

mod audit;
pub mod clock;
mod deadline;
mod eraser;
mod failures;
mod ledger;
mod metrics;
mod queue;
pub mod store;
mod writer;

pub use deadline::{Asker, Deadline, WAIT_MAX};
pub use ledger::{Ledger, LedgerError, Settings};
