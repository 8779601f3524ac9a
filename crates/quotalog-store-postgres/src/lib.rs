//! The store on PostgreSQL: exact, durable, shared by nodes.
//!
//! A few connections commit batches, a few answer questions. Nothing is decided here and nothing is remembered
//! between transactions: the database is the authority, and its clock is the one clock of all nodes. No
//! caller ever sees SQL.

mod audit;
mod batch;
mod believed;
mod config;
mod connection;
mod erase;
mod error;
mod examine;
mod fault;
mod fullest;
mod host;
mod import;
mod instant;
mod list;
#[cfg(test)]
mod plans;
mod pool;
mod ports;
mod prune;
mod quota;
mod row;
mod schema;
mod store;
mod tls;
mod token;
mod transfer;
mod tx;

pub use config::{PostgresClock, PostgresConfig, TlsMode};
pub use error::OpenError;
pub use examine::examine;
pub use import::PostgresImport;
pub use store::PostgresStore;
/// Where a database is, as the URL tells it.
pub use tokio_postgres::config as url;
pub use transfer::PostgresTransfer;
