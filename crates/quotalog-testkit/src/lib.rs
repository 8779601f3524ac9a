//! For tests alone: a clock that is set, and the suite that every store passes.
//!
//! Nothing here is part of the program.

mod clock;
pub mod conformance;

pub use clock::ManualClock;
