//! What every front does alike: who calls, how many requests of one caller are worked on at once, whether the
//! server is about to stop, and the words in which a quota and its denial are told.
//!
//! Nothing here knows a connection, a route or a framework: those are the fronts' own.

mod admission;
mod authentication;
mod bearer;
mod caught;
pub mod denial;
mod draining;
pub mod instant;
mod quota_body;
pub mod ratelimit;

pub use admission::{Admission, Admitted, Overloaded, Room};
pub use authentication::Authentication;
pub use caught::{Panicked, caught};
pub use draining::Draining;
pub use quota_body::{JSON_BYTES_USUAL, QuotaBody};
