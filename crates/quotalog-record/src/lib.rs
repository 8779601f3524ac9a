//! What every store keeps alike: kept answers as bytes, facts of the audit as JSON, how far a clock is believed before
//! rows are deleted by their age, and the tables as plain data, for copying from one store to another.
//!
//! Nothing here knows of a database. What was written by one version is read by all later ones, on either
//! store.

mod belief;
pub mod facts;
pub mod kept;
pub mod transfer;

pub use belief::Belief;
