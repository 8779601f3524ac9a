//! What the tests share.

pub(crate) mod answer;
pub(crate) mod app;
pub(crate) mod becomes;
pub(crate) mod chance;
pub(crate) mod described;
pub(crate) mod envoy;
pub(crate) mod ids;
pub(crate) mod jwt;
pub(crate) mod key_server;
pub(crate) mod load;
pub(crate) mod log;
pub(crate) mod npm;
pub(crate) mod python;
pub(crate) mod raw;
pub(crate) mod rls;
pub(crate) mod running;
pub(crate) mod server;
pub(crate) mod stream;
pub(crate) mod tls;
pub(crate) mod way;
