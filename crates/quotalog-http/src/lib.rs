//! The HTTP front.
