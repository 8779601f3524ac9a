//! The store on one SQLite file: exact, durable, shared by processes.
//!
//! One thread owns the writing connection, a few threads read. Nothing is decided here and nothing is
//! remembered between transactions: the file is the authority. No caller ever sees SQL.

mod audit;
mod backup;
mod batch;
mod believed;
mod connection;
mod erase;
mod error;
mod examine;
mod fault;
mod fullest;
mod import;
mod instant;
mod list;
mod place;
#[cfg(test)]
mod plans;
mod ports;
mod presence;
mod prune;
mod quota;
mod raw;
mod reader;
mod row;
mod schema;
mod shape;
mod store;
mod token;
mod transfer;
mod turnstile;
mod tx;
mod walk;
mod writer;

pub use backup::{BackupError, backup};
pub use error::OpenError;
pub use examine::examine;
pub use import::SqliteImport;
pub use store::{SqliteConfig, SqliteStore};
pub use transfer::SqliteTransfer;
