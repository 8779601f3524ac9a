//! The HTTP contract, through the router, on a clock that each test sets.

mod consume;
