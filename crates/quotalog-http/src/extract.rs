//! What handlers are given, each thing by one extractor.
//!
//! An extractor takes a part of the request; whether its values are sound is judged when the
//! handler asks, so that the handler shows the order of judgement.

pub(crate) mod bearer;
pub(crate) mod body;
pub(crate) mod fields;
pub(crate) mod idempotency_key;
pub(crate) mod ids;
pub(crate) mod precondition;
pub(crate) mod query;
