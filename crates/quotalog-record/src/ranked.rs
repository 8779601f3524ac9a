//! The order of those who are nearest to their limit.

use std::cmp::Ordering;

use quotalog_domain::Quota;

/// A quota in that order: the fullest comes first, equal ones by their pair.
#[derive(Debug)]
pub struct Ranked(pub Quota);

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        let fuller = other.0.cmp_used_part(&self.0);
        fuller.then_with(|| self.0.pair.cmp(&other.0.pair))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ranked {}
