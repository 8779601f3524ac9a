//! What a quota is, and how a command on it is decided: values and pure functions.
//!
//! Nothing here does I/O, awaits, reads a clock, or knows JSON or SQL. The instant of a decision is an
//! argument, the stored state is an argument, and the changed state is the result.
//!
//! # Glossary
//!
//! | word | means |
//! |---|---|
//! | user, resource | whose quota, and of what; together a [`Pair`] |
//! | policy | a [`Window`] and a [`Limit`], of one pair or, as a default, of one resource |
//! | window | the UTC hour or UTC day that holds an instant: [`WindowSpan`] |
//! | limit | the most that may be consumed in a window |
//! | amount | the units that one consume or refund asks for |
//! | hit | one line of a rate-limit call: a pair and an amount, or the question whether anything is left |
//! | usage | the units counted in the current window |
//! | remaining | limit minus usage, never below 0 |
//! | reset | the instant at which the window ends |
//! | change | what a decision did that the audit remembers: [`Change`] |
//! | kept answer | what an earlier request under the same idempotency key was answered |

#![deny(clippy::arithmetic_side_effects)]

mod amount;
mod change;
mod command;
mod decision;
mod id;
mod idempotency;
mod policy;
mod quota;
mod state;
mod timestamp;
mod usage;
mod window;

pub use amount::{Amount, AmountError, Limit, LimitError};
pub use change::Change;
pub use command::{Command, Hit, Item, Operation};
pub use decision::{Answer, Decided, DeniedItem, MissingItem, Outcome, Refusal, decide_batch};
pub use id::{IdError, Pair, Resource, UserId};
pub use idempotency::{
    CallerId, Fingerprint, IdempotencyKey, IdempotencyKeyError, KeptAnswer, KeyScope, Keyed,
};
pub use policy::{DefaultPolicy, Policy, Precondition, Revision};
pub use quota::{Quota, Source};
pub use state::{PairState, State};
pub use timestamp::Timestamp;
pub use usage::{Usage, UsageRow};
pub use window::{Window, WindowError, WindowSpan};
