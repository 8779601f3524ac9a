//! The HTTP contract, through the router, on a clock that each test sets.
//!
//! A name that starts with `c` and a number, or with `atk_`, tells which published fault of comparable
//! systems, or which attack, the test keeps out.

mod attacks;
mod audit;
mod batch;
mod bodies;
mod consume;
mod cors;
mod dashboard;
mod defaults;
mod erasure;
mod faults;
mod history;
mod idempotency;
mod lists;
mod metrics;
mod near_limit;
mod openapi;
mod order;
mod parameters;
mod paths;
mod policies;
mod problems;
mod races;
mod ratelimit;
mod refund;
mod roles;
mod tokens;
mod windows;
