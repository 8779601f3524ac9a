//! For tests alone: a clock that is set, a store that fails on purpose, and the suite that every store
//! passes.
//!
//! Nothing here is part of the program.

mod clock;
pub mod conformance;
mod faulty;

pub use clock::ManualClock;
pub use faulty::{Fault, FaultyStore};
