//! The handlers, one route a file. Each reads in the order in which a request is judged.

pub(crate) mod audit;
pub(crate) mod batch;
pub(crate) mod consume;
pub(crate) mod dashboard;
pub(crate) mod defaults;
pub(crate) mod docs;
pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod policy;
pub(crate) mod problems;
pub(crate) mod quotas;
pub(crate) mod refund;
pub(crate) mod reset;
pub(crate) mod tokens;
pub(crate) mod usage;
pub(crate) mod user_quotas;
pub(crate) mod whoami;
