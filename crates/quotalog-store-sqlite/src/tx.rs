//! What all work inside a transaction has at hand.

use quotalog_domain::Timestamp;
use quotalog_record::unfit::PassedOver;
use rusqlite::Connection;

/// A transaction that is open, and its one instant.
#[derive(Debug)]
pub(crate) struct Tx<'c> {
    pub(crate) connection: &'c Connection,
    pub(crate) now: Timestamp,
    pub(crate) passed_over: &'c PassedOver,
}
