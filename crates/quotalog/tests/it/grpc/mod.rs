//! The rate-limit service through a gRPC client: over a real ledger and a real SQLite file on a clock that the test
//! sets, and with the real binary on both stores.

mod health;
mod refusals;
mod servers;
mod verdicts;
