//! For tests alone: a clock that is set, a store that fails on purpose, the suite that every store passes,
//! and PostgreSQL servers.
//!
//! Nothing here is part of the program.

mod clock;
pub mod conformance;
mod faulty;
#[cfg(feature = "postgres")]
pub mod postgres;

pub use clock::ManualClock;
pub use faulty::{Fault, FaultyStore};
