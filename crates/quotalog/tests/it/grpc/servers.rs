//! The real binary, on both stores.
