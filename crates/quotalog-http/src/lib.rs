//! The HTTP front: turns requests into commands and questions to the ledger, and their outcomes
//! into answers.
//!
//! Nothing here knows a store or decides on a quota. [`router()`] names every path; each route is
//! one file, whose handler reads from top to bottom in the order in which a request is judged:
//! path, token, permission, body, values, and at last the ledger. `problem.rs` is the only map from
//! an error to a status.

mod answer;
mod cors;
mod cursor;
mod exchange;
mod extract;
mod fault;
mod front;
mod json;
mod message;
mod metrics;
mod openapi;
mod path;
mod problem;
mod ratelimit;
mod request_id;
mod router;
mod routes;
mod server;
mod wire;

use quotalog_front::instant;

pub use cors::{Cors, Origin, OriginError};
pub use metrics::Metrics;
pub use router::{App, metrics_router, router};
pub use server::{Settings, Tls, TlsError, TlsFiles, serve};
