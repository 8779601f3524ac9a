//! For tests alone.
