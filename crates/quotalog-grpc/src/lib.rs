//! The gRPC front: `envoy.service.ratelimit.v3.RateLimitService`, and the health service beside it.
//!
//! Nothing here knows a store or decides on a quota. A call is judged in one order: token, role, turn, message,
//! values, and at last the ledger, to which it is one command. `status.rs` is the only map from an error to a code.

mod answer;
mod deadline;
mod descriptor;
mod guard;
mod health;
mod http1;
mod metrics;
mod router;
mod service;
mod status;

pub use descriptor::Keys;
pub use metrics::Metrics;
pub use router::{App, router};
