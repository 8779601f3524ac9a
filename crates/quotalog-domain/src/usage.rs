//! What was counted for a pair, row by row.

use crate::{Timestamp, WindowSpan};

/// Units counted under one `window_start`.
///
/// An hourly policy counts in the row of its hour, a daily one in the row of midnight, so a day may hold
/// several rows. A window's usage is the sum of the rows that start inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageRow {
    /// The instant that names the row.
    pub window_start: Timestamp,
    /// Units counted, at most [`i64::MAX`].
    pub usage: u64,
    /// Whether a decision changed the row since it was read, so that it must be written.
    pub changed: bool,
}

/// The rows of one pair, for at least the day of the decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    rows: Vec<UsageRow>,
}

impl Usage {
    /// Adds a row as it was read from a store.
    pub fn load(&mut self, window_start: Timestamp, usage: u64) {
        self.rows.push(UsageRow {
            window_start,
            usage,
            changed: false,
        });
    }

    /// All rows; those that must be written are marked.
    #[must_use]
    pub fn rows(&self) -> &[UsageRow] {
        &self.rows
    }

    /// Units counted in `span`.
    #[must_use]
    pub fn within(&self, span: &WindowSpan) -> u64 {
        self.rows
            .iter()
            .filter(|row| span.contains(row.window_start))
            .fold(0, |sum: u64, row| sum.saturating_add(row.usage))
    }

    /// Counts `units` in the row that starts with `span`.
    pub(crate) fn add(&mut self, span: &WindowSpan, units: u64) {
        let row = self
            .rows
            .iter_mut()
            .find(|row| row.window_start == span.start);
        if let Some(row) = row {
            row.usage = row.usage.saturating_add(units);
            row.changed = true;
        } else {
            self.rows.push(UsageRow {
                window_start: span.start,
                usage: units,
                changed: true,
            });
        }
    }

    /// Gives `units` of `span` back, from its newest row first, stopping at 0.
    pub(crate) fn refund(&mut self, span: &WindowSpan, units: u64) {
        let mut left = units;
        let mut rows: Vec<&mut UsageRow> = self.rows_within(span).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.window_start));
        for row in rows {
            let taken = left.min(row.usage);
            row.changed |= taken > 0;
            row.usage = row.usage.saturating_sub(taken);
            left = left.saturating_sub(taken);
        }
    }

    /// Zeroes every row of `span`.
    pub(crate) fn reset(&mut self, span: &WindowSpan) {
        for row in self.rows_within(span) {
            row.changed |= row.usage > 0;
            row.usage = 0;
        }
    }

    fn rows_within(&mut self, span: &WindowSpan) -> impl Iterator<Item = &mut UsageRow> {
        self.rows
            .iter_mut()
            .filter(|row| span.contains(row.window_start))
    }
}
