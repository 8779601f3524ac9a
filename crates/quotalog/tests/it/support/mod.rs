//! What the tests share.

pub(crate) mod answer;
pub(crate) mod app;
pub(crate) mod server;
