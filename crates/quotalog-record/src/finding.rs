//! What an examination of a database finds: what is well, what is odd, and what to do about it.

use quotalog_domain::Timestamp;

use crate::Belief;

/// How far behind its own record a clock may be before it is told.
const BEHIND_S: i64 = 3_600;

/// The subject of the finding on admin tokens.
pub const ADMIN_TOKEN: &str = "admin token";

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How it is.
    pub grade: Grade,
    /// What was looked at, in a word or two.
    pub subject: String,
    /// What was found, and what to do about it, on one line.
    pub detail: String,
}

/// How well something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// As it should be.
    Fine,
    /// Odd: it works, and someone should know.
    Warning,
    /// It does not work, or will not.
    Problem,
}

impl Finding {
    /// A finding.
    pub fn new(grade: Grade, subject: &str, detail: impl Into<String>) -> Self {
        Self {
            grade,
            subject: subject.to_owned(),
            detail: detail.into(),
        }
    }

    /// Whether an admin's token is stored that is valid.
    #[must_use]
    pub fn admin_token(is_there: bool) -> Self {
        if is_there {
            return Self::new(Grade::Fine, ADMIN_TOKEN, "there is one");
        }
        let detail = "there is none that is valid; the next start makes one, unless QUOTALOG_ADMIN_TOKEN is set";
        Self::new(Grade::Warning, ADMIN_TOKEN, detail)
    }

    /// What the clock shows, and whether it is believed; `text` writes an instant.
    #[must_use]
    pub fn clock(now: Timestamp, last: Belief, text: impl Fn(Timestamp) -> String) -> Self {
        let now = now.floor_to_s();
        let (now_text, last_text) = (text(now), text(last.seen_at));
        let (grade, detail) = if last.at(now).leapt_at.is_some() {
            let doubt = format!(
                "{now_text}, far ahead of the last look at {last_text}; right after a long stop, and else to be set \
                 right: for a day, old rows are pruned as of then"
            );
            (Grade::Warning, doubt)
        } else if now.plus_s(BEHIND_S) < last.seen_at {
            let behind = format!(
                "{now_text}, behind what it was when the data was last looked at ({last_text}); set it right"
            );
            (Grade::Warning, behind)
        } else {
            (Grade::Fine, now_text)
        };
        Self::new(grade, "clock", detail)
    }

    /// How many rows a table has, and how many of them quotalog cannot hold; `named` are the first of those, each
    /// with its reason.
    #[must_use]
    pub fn rows(table: &str, of: u64, unfit: u64, named: &[String]) -> Self {
        let noun = if of == 1 { "row" } else { "rows" };
        if unfit == 0 {
            return Self::new(Grade::Fine, table, format!("{of} {noun}"));
        }
        let detail = format!(
            "quotalog cannot hold {unfit} of {of} {noun}, and passes over what it cannot hold ({}); mend or delete that",
            named.join("; ")
        );
        Self::new(Grade::Warning, table, detail)
    }
}
