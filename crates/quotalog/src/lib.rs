//! The program's parts: the command line, the checked configuration, the wiring.
//!
//! `cli` turns text into arguments, `config` turns arguments into a checked configuration before anything
//! opens, `store` opens the store that it names, `app` builds the server and knows every part.

mod app;
mod certificate;
pub mod cli;
mod config;
mod copy;
mod duration;
mod exit_code;
mod first_token;
mod jwt;
mod late_store;
mod postgres_url;
mod pruning;
mod shutdown;
mod sockets;
mod store;
mod telemetry;
