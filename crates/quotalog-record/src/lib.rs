//! What every store keeps alike: kept answers as bytes, facts of the audit as JSON, how far a clock is believed before
//! rows are deleted by their age, the tables as plain data, for copying from one store to another, what the entries of
//! an imported file make of what is there, which rows the domain cannot hold, who is nearest to the limit, and the words
//! in which an examination of a store tells what it found.
//!
//! Nothing here knows of a database. What was written by one version is read by all later ones, on either
//! store.

mod belief;
pub mod facts;
mod finding;
pub mod import;
pub mod kept;
mod ranked;
pub mod transfer;
pub mod unfit;

pub use belief::Belief;
pub use finding::{ADMIN_TOKEN, Finding, Grade};
pub use ranked::Ranked;
