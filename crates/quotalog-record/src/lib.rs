//! What every store keeps alike, and no column holds: kept answers as bytes, facts of the audit as JSON, and
//! how far a clock is believed before rows are deleted by their age.
//!
//! Nothing here knows of a database. What was written by one version is read by all later ones, on either
//! store.

mod belief;
pub mod facts;
pub mod kept;

pub use belief::Belief;
