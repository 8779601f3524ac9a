//! The program's parts: the command line, the checked configuration, the wiring.
//!
//! `cli` turns text into arguments, `config` turns arguments into a checked configuration before anything
//! opens, `app` builds the server from it and is the one module that names every crate.

mod app;
mod certificate;
pub mod cli;
mod config;
mod duration;
mod exit_code;
mod first_token;
mod pruning;
mod shutdown;
mod sockets;
mod telemetry;
