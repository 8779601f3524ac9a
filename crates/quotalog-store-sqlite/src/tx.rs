//! What all work inside a transaction has at hand.

use quotalog_domain::Timestamp;
use rusqlite::Connection;

use crate::passed_over::PassedOver;

/// A transaction that is open, and its one instant.
#[derive(Debug)]
pub(crate) struct Tx<'c> {
    pub(crate) connection: &'c Connection,
    pub(crate) now: Timestamp,
    pub(crate) passed_over: &'c PassedOver,
}
