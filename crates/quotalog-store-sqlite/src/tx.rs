//! What all work inside a transaction has at hand.

use quotalog_domain::{Timestamp, Window, WindowSpan};
use rusqlite::Connection;

use crate::instant;
use crate::passed_over::PassedOver;

/// A transaction that is open, and its one instant.
#[derive(Debug)]
pub(crate) struct Tx<'c> {
    pub(crate) connection: &'c Connection,
    pub(crate) now: Timestamp,
    pub(crate) passed_over: &'c PassedOver,
}

/// The bounds of today as the tables write them: made once for all pairs of a transaction.
#[derive(Debug)]
pub(crate) struct Today {
    pub(crate) start: String,
    pub(crate) end: String,
}

impl Today {
    pub(crate) fn at(now: Timestamp) -> Self {
        let WindowSpan { start, reset_at } = Window::Daily.span_at(now);
        Self {
            start: instant::to_text(start),
            end: instant::to_text(reset_at),
        }
    }
}
