//! Entries of a file on their way into a store: laid ready where nobody sees them, compared with what is there, and
//! saved in one transaction.
//!
//! Here is what an entry makes of what it finds, which is the same on every store. How entries are laid ready, and how
//! what they find is read and written, is the stores' own.

use std::sync::Arc;

use quotalog_domain::{Change, Limit, Pair, Policy, Resource, Timestamp, UserId, Window};
use quotalog_ledger::store::{Deed, StoreFuture};

/// What the entries of one file are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Policies of pairs.
    Policies,
    /// Defaults of resources.
    Defaults,
    /// Usage of pairs in windows.
    Usage,
}

/// What a line of a file wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands.
    pub line: u64,
    /// What it wants.
    pub wanted: Wanted,
}

/// What is to be, whatever is there before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// A pair's own policy.
    Policy {
        /// Whose, and for what.
        pair: Pair,
        /// What it allows.
        terms: Terms,
    },
    /// The default of a resource.
    Default {
        /// The resource it serves.
        resource: Resource,
        /// What it allows.
        terms: Terms,
    },
    /// The number in one row of usage.
    Usage {
        /// Whose, and of what.
        pair: Pair,
        /// Which row.
        window_start: Timestamp,
        /// The number.
        units: u64,
    },
}

/// What a policy allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Per which window.
    pub window: Window,
    /// How much. Above what may be set only where the policy that is there has just that.
    pub limit: Limit,
}

/// What an entry finds: a policy or default, or the number in a row of usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Present {
    /// The policy of the pair, or the default of the resource.
    pub policy: Option<Policy>,
    /// The number in the row of usage.
    pub units: Option<u64>,
}

/// What becomes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// There was nothing.
    Created,
    /// There was something else.
    Changed,
    /// It is there already.
    Unchanged,
    /// Its limit is above what may be set, and is not there.
    Refused,
}

/// How many entries came to which end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// See [`Fate::Created`].
    pub created: u64,
    /// See [`Fate::Changed`].
    pub changed: u64,
    /// See [`Fate::Unchanged`].
    pub unchanged: u64,
    /// The lines of those that are refused.
    pub refused: Vec<u64>,
}

/// An entry as a row of the table in which it is laid ready, whatever it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Staged<'e> {
    /// The line.
    pub line: i64,
    /// Empty for a default.
    pub user_id: &'e str,
    /// The resource.
    pub resource: &'e str,
    /// The row of usage in Unix seconds; 0 for a policy or default.
    pub start_s: i64,
    /// The window of a policy or default; empty for usage.
    pub window: &'e str,
    /// The limit, or the number.
    pub units: i64,
}

/// Is told how many entries more are done.
pub type Tell = Arc<dyn Fn(u64) + Send + Sync>;

/// The way into a store. Dropped before [`Import::save`] has ended, it leaves no trace; so does a process that is killed.
pub trait Import: Send {
    /// Lays entries ready, at most [`crate::transfer::ROWS_MAX`].
    ///
    /// # Errors
    /// As of any writing.
    fn stage(&mut self, entries: Vec<Entry>) -> StoreFuture<'_, ()>;

    /// Puts all that is laid ready in order, and tells of the first entries that name what another one names:
    /// the two lines. Nothing is laid ready after this.
    ///
    /// # Errors
    /// As of any reading.
    fn repeated(&mut self, named_max: usize) -> StoreFuture<'_, Vec<[u64; 2]>>;

    /// Compares what is laid ready with what is there, and forgets what is there already. No entry may be repeated.
    ///
    /// # Errors
    /// As of any reading.
    fn compare(&mut self, tell: Tell) -> StoreFuture<'_, Tally>;

    /// Saves all that is still laid ready, with its entries in the audit, as one transaction.
    ///
    /// # Errors
    /// As of any commit: nothing is saved, or, if the outcome is unknown, all of it may be.
    fn save(self: Box<Self>, tell: Tell) -> StoreFuture<'static, ()>;
}

impl Wanted {
    /// What becomes of this where `present` is there.
    #[must_use]
    pub fn fate(&self, present: &Present) -> Fate {
        match self {
            Self::Policy { terms, .. } | Self::Default { terms, .. } => match &present.policy {
                Some(policy) if policy.window == terms.window && policy.limit == terms.limit => {
                    Fate::Unchanged
                }
                _ if terms.limit > Limit::SETTABLE_MAX => Fate::Refused,
                Some(_) => Fate::Changed,
                None => Fate::Created,
            },
            Self::Usage { units, .. } => match present.units {
                Some(there) if there == *units => Fate::Unchanged,
                Some(_) => Fate::Changed,
                None => Fate::Created,
            },
        }
    }

    /// What is there once this is saved at `now`, and what the audit is to remember.
    #[must_use]
    pub fn applied(&self, present: &Present, now: Timestamp) -> (Present, Option<Deed>) {
        let set = |terms: &Terms| Policy::set(present.policy, terms.window, terms.limit, now);
        let (after, change) = match self {
            Self::Usage {
                pair,
                window_start,
                units,
            } => {
                let before = present.units.unwrap_or_default();
                let deed = Deed::usage_set(pair, *window_start, before, *units);
                let after = Present {
                    policy: None,
                    units: Some(*units),
                };
                return (after, (before != *units).then_some(deed));
            }
            Self::Policy { pair, terms } => {
                let after = Some(set(terms));
                let change = Change::Policy {
                    pair: pair.clone(),
                    before: present.policy,
                    after,
                };
                (after, change)
            }
            Self::Default { resource, terms } => {
                let after = Some(set(terms));
                let change = Change::Default {
                    resource: resource.clone(),
                    before: present.policy,
                    after,
                };
                (after, change)
            }
        };
        let deed = (after != present.policy).then(|| Deed::of_change(&change));
        let after = Present {
            policy: after,
            units: None,
        };
        (after, deed)
    }
}

impl Entry {
    /// As it is laid ready.
    #[must_use]
    pub fn staged(&self) -> Staged<'_> {
        let (user_id, resource) = match &self.wanted {
            Wanted::Policy { pair, .. } | Wanted::Usage { pair, .. } => {
                (pair.user_id.as_str(), &pair.resource)
            }
            Wanted::Default { resource, .. } => ("", resource),
        };
        let (start_s, window, units) = match &self.wanted {
            Wanted::Policy { terms, .. } | Wanted::Default { terms, .. } => {
                (0, terms.window.as_str(), terms.limit.get())
            }
            Wanted::Usage {
                window_start,
                units,
                ..
            } => (window_start.unix_s(), "", *units),
        };
        Staged {
            line: i64::try_from(self.line).unwrap_or(i64::MAX),
            user_id,
            resource: resource.as_str(),
            start_s,
            window,
            units: i64::try_from(units).unwrap_or(i64::MAX),
        }
    }
}

impl Staged<'_> {
    /// The entry that was laid ready; `None` if it is not as it was.
    #[must_use]
    pub fn entry(&self, subject: Subject) -> Option<Entry> {
        let resource = Resource::try_from(self.resource).ok()?;
        let pair = |resource| {
            let user_id = UserId::try_from(self.user_id).ok()?;
            Some(Pair { user_id, resource })
        };
        let terms = || {
            Some(Terms {
                window: Window::try_from(self.window).ok()?,
                limit: Limit::stored(self.units).ok()?,
            })
        };
        let wanted = match subject {
            Subject::Policies => Wanted::Policy {
                pair: pair(resource)?,
                terms: terms()?,
            },
            Subject::Defaults => Wanted::Default {
                resource,
                terms: terms()?,
            },
            Subject::Usage => Wanted::Usage {
                pair: pair(resource)?,
                window_start: Timestamp::from_unix_s(self.start_s),
                units: u64::try_from(self.units).ok()?,
            },
        };
        let line = u64::try_from(self.line).ok()?;
        Some(Entry { line, wanted })
    }
}

impl Tally {
    /// The most lines that are named as refused.
    const NAMED_MAX: usize = 1_000;

    /// Counts an entry.
    pub fn add(&mut self, line: u64, fate: Fate) {
        match fate {
            Fate::Created => self.created += 1,
            Fate::Changed => self.changed += 1,
            Fate::Unchanged => self.unchanged += 1,
            Fate::Refused if self.refused.len() < Self::NAMED_MAX => self.refused.push(line),
            Fate::Refused => {}
        }
    }

    /// How many are to be saved.
    #[must_use]
    pub fn to_save(&self) -> u64 {
        self.created.saturating_add(self.changed)
    }
}

#[cfg(test)]
mod tests {
    use quotalog_ledger::store::AuditAction;

    use super::*;

    fn pair() -> Pair {
        Pair {
            user_id: UserId::try_from("u").unwrap(),
            resource: Resource::try_from("r").unwrap(),
        }
    }

    fn terms(window: Window, limit: i64) -> Terms {
        let limit = Limit::stored(limit).unwrap();
        Terms { window, limit }
    }

    fn there(window: Window, limit: i64) -> Present {
        let Terms { window, limit } = terms(window, limit);
        let at = Timestamp::from_unix_s(7);
        let policy = Policy::set(None, window, limit, at);
        Present {
            policy: Some(policy),
            units: None,
        }
    }

    fn counted(units: u64) -> Present {
        Present {
            policy: None,
            units: Some(units),
        }
    }

    fn entries() -> [(Subject, Wanted); 3] {
        let policy = Wanted::Policy {
            pair: pair(),
            terms: terms(Window::Hourly, 5),
        };
        let default = Wanted::Default {
            resource: pair().resource,
            terms: terms(Window::Daily, i64::MAX),
        };
        let usage = Wanted::Usage {
            pair: pair(),
            window_start: Timestamp::from_unix_s(-3_600),
            units: i64::MAX.unsigned_abs(),
        };
        [
            (Subject::Policies, policy),
            (Subject::Defaults, default),
            (Subject::Usage, usage),
        ]
    }

    #[test]
    fn an_entry_comes_back_as_it_was_laid_ready() {
        for (subject, wanted) in entries() {
            let entry = Entry { line: 17, wanted };
            assert_eq!(entry.staged().entry(subject), Some(entry));
        }
    }

    #[test]
    fn a_limit_above_what_may_be_set_must_be_there_already() {
        let check = |limit, present: &Present, fate| {
            let terms = terms(Window::Hourly, limit);
            let pair = pair();
            assert_eq!(Wanted::Policy { pair, terms }.fate(present), fate);
        };
        check(1_000_000, &Present::default(), Fate::Created);
        check(1_000_001, &Present::default(), Fate::Refused);
        check(
            1_000_001,
            &there(Window::Hourly, 1_000_001),
            Fate::Unchanged,
        );
        check(1_000_001, &there(Window::Daily, 1_000_001), Fate::Refused);
        check(1_000_001, &there(Window::Hourly, 1_000_002), Fate::Refused);
        check(5, &there(Window::Hourly, 1_000_002), Fate::Changed);
        check(5, &there(Window::Hourly, 5), Fate::Unchanged);
    }

    #[test]
    fn usage_becomes_the_number_of_the_file() {
        let usage = |units| Wanted::Usage {
            pair: pair(),
            window_start: Timestamp::from_unix_s(3_600),
            units,
        };
        assert_eq!(usage(3).fate(&Present::default()), Fate::Created);
        assert_eq!(usage(0).fate(&Present::default()), Fate::Created);
        assert_eq!(usage(3).fate(&counted(4)), Fate::Changed);
        assert_eq!(usage(3).fate(&counted(3)), Fate::Unchanged);
        let now = Timestamp::from_unix_s(9);
        let (after, deed) = usage(3).applied(&counted(4), now);
        assert_eq!(after, counted(3));
        assert_eq!(deed.unwrap().action, AuditAction::QuotaReset);
        assert_eq!(
            usage(0).applied(&Present::default(), now),
            (counted(0), None)
        );
    }

    #[test]
    fn a_change_keeps_the_first_date_and_is_noted_and_no_change_is_none() {
        let [(_, policy), ..] = entries();
        let now = Timestamp::from_unix_s(9);
        let (after, deed) = policy.applied(&there(Window::Daily, 5), now);
        let (policy_after, deed) = (after.policy.unwrap(), deed.unwrap());
        assert_eq!(policy_after.created_at, Timestamp::from_unix_s(7));
        assert_eq!(policy_after.updated_at, now);
        assert!(deed.before.is_some() && deed.after.is_some());
        assert_eq!(deed.action, AuditAction::PolicySet);
        assert_eq!(policy.applied(&after, now).1, None);
    }
}
