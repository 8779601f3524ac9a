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
mod export;
mod first_token;
mod import;
mod jwt;
mod late_store;
mod new_file;
mod postgres_url;
mod pruning;
mod records;
mod shutdown;
mod sockets;
mod store;
mod telemetry;
