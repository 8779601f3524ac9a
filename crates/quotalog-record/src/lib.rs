//! What every store keeps alike, and no column holds: kept answers as bytes, facts of the audit as JSON, and
//! how far a clock is believed before rows are deleted by their age. And in which words an examination of one
//! tells what it found.
//!
//! Nothing here knows of a database. What was written by one version is read by all later ones, on either
//! store.

mod belief;
pub mod facts;
mod finding;
pub mod kept;

pub use belief::Belief;
pub use finding::{ADMIN_TOKEN, Finding, Grade};
