//! The program's tests: through the router, and with the real binary.
//!
//! `http` sends requests through the router, over a real ledger and a real SQLite file, on a clock that
//! the test sets. The rest runs the binary. No test waits for a window or depends on the hour it runs in.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod architecture;
mod backup;
mod bounds;
mod cli;
mod client;
mod client_cli;
mod connections;
mod copy;
mod dashboard;
mod deploy;
mod docs;
mod doctor;
mod envoy;
mod export;
mod faults;
mod grpc;
mod http;
mod import;
mod jwt;
mod kill;
mod monitoring;
mod pgbouncer;
mod postgres;
mod postgres_failover;
mod postgres_ids;
mod postgres_pruning;
mod postgres_recovery;
mod postgres_rights;
mod postgres_start;
mod quickstart;
mod raw;
mod recipes;
mod recipes_clients;
mod retries;
mod schemathesis;
mod secrets;
mod shutdown;
mod start;
mod support;
mod tls;
mod two_servers;
