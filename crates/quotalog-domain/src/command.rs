//! Every change there is, as data.

use crate::{
    Amount, CallerId, Fingerprint, IdempotencyKey, KeyScope, Keyed, Limit, Pair, Precondition,
    Resource, Window,
};

/// One operation, with the key under which its answer is kept, if the client gave one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// What shall happen.
    pub operation: Operation,
    /// The client's key, and who the client is.
    pub key: Option<(IdempotencyKey, CallerId)>,
}

/// A change of usage, of a policy, or of a default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Counts `amount` units of one pair, or none.
    Consume {
        /// Whose units, and of what.
        pair: Pair,
        /// How many.
        amount: Amount,
    },
    /// Counts the units of all items, or none of them. The same pair may stand in several items.
    ConsumeBatch {
        /// What to count, in the order of the request.
        items: Vec<Item>,
    },
    /// Counts the units of all hits, or none of them, where a pair that nothing limits fits by nature.
    RateLimit {
        /// What to count, in the order of the request. The same pair may stand in several hits.
        hits: Vec<Hit>,
    },
    /// Gives units of the current window back; usage stops at 0.
    Refund {
        /// Whose units, and of what.
        pair: Pair,
        /// How many.
        amount: Amount,
    },
    /// Sets the usage of the current window to zero.
    Reset {
        /// Whose usage, and of what.
        pair: Pair,
    },
    /// Creates or changes the policy of a pair; its usage stays.
    SetPolicy {
        /// Whose policy, and for what.
        pair: Pair,
        /// The new window.
        window: Window,
        /// The new limit.
        limit: Limit,
        /// Only if the policy is in this state.
        precondition: Option<Precondition>,
    },
    /// Removes the policy of a pair; its usage stays.
    DeletePolicy {
        /// Whose policy, and for what.
        pair: Pair,
        /// Only if the policy is in this state.
        precondition: Option<Precondition>,
    },
    /// Creates or changes the default of a resource.
    SetDefault {
        /// The resource it serves.
        resource: Resource,
        /// The new window.
        window: Window,
        /// The new limit.
        limit: Limit,
        /// Only if the default is in this state.
        precondition: Option<Precondition>,
    },
    /// Removes the default of a resource.
    DeleteDefault {
        /// The resource it serves.
        resource: Resource,
        /// Only if the default is in this state.
        precondition: Option<Precondition>,
    },
}

/// One line of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Whose units, and of what.
    pub pair: Pair,
    /// How many.
    pub amount: Amount,
}

/// One line of a rate-limit call, as proxies send them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// Whose units, and of what.
    pub pair: Pair,
    /// How many; `None` asks whether anything is left, and counts nothing.
    pub amount: Option<Amount>,
}

impl Command {
    /// A command without a key.
    #[must_use]
    pub fn new(operation: Operation) -> Self {
        Self {
            operation,
            key: None,
        }
    }

    /// The same command, kept under `key` as a request of `caller`.
    #[must_use]
    pub fn with_key(mut self, key: IdempotencyKey, caller: CallerId) -> Self {
        self.key = Some((key, caller));
        self
    }

    /// Where the answer to this command is kept.
    #[must_use]
    pub fn keyed(&self) -> Option<Keyed> {
        let (key, caller) = self.key.as_ref()?;
        Some(Keyed {
            scope: self.operation.scope(caller),
            key: key.clone(),
        })
    }
}

impl Operation {
    /// The operation's name, as kept beside idempotency keys.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Consume { .. } => "consume",
            Self::ConsumeBatch { .. } => "consume-batch",
            Self::RateLimit { .. } => "rate-limit",
            Self::Refund { .. } => "refund",
            Self::Reset { .. } => "reset",
            Self::SetPolicy { .. } => "set-policy",
            Self::DeletePolicy { .. } => "delete-policy",
            Self::SetDefault { .. } => "set-default",
            Self::DeleteDefault { .. } => "delete-default",
        }
    }

    /// The pairs whose policy and usage the decision needs; a pair may come twice.
    pub fn pairs(&self) -> impl Iterator<Item = &Pair> {
        let (one, items, hits): (Option<&Pair>, &[Item], &[Hit]) = match self {
            Self::Consume { pair, .. }
            | Self::Refund { pair, .. }
            | Self::Reset { pair }
            | Self::SetPolicy { pair, .. }
            | Self::DeletePolicy { pair, .. } => (Some(pair), &[], &[]),
            Self::ConsumeBatch { items } => (None, items, &[]),
            Self::RateLimit { hits } => (None, &[], hits),
            Self::SetDefault { .. } | Self::DeleteDefault { .. } => (None, &[], &[]),
        };
        let items = items.iter().map(|item| &item.pair);
        let hits = hits.iter().map(|hit| &hit.pair);
        one.into_iter().chain(items).chain(hits)
    }

    /// The resources whose default the decision needs; a resource may come twice.
    pub fn resources(&self) -> impl Iterator<Item = &Resource> {
        let own = match self {
            Self::SetDefault { resource, .. } | Self::DeleteDefault { resource, .. } => {
                Some(resource)
            }
            Self::Consume { .. }
            | Self::ConsumeBatch { .. }
            | Self::RateLimit { .. }
            | Self::Refund { .. }
            | Self::Reset { .. }
            | Self::SetPolicy { .. }
            | Self::DeletePolicy { .. } => None,
        };
        own.into_iter()
            .chain(self.pairs().map(|pair| &pair.resource))
    }

    /// What is asked for beyond the scope of a key, in canonical bytes.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let mut bytes = Vec::new();
        match self {
            Self::Consume { amount, .. } | Self::Refund { amount, .. } => {
                bytes.extend(amount.get().to_be_bytes());
            }
            Self::ConsumeBatch { items } => {
                for item in items {
                    item.pair.write_to(&mut bytes);
                    bytes.extend(item.amount.get().to_be_bytes());
                }
            }
            Self::RateLimit { hits } => {
                for hit in hits {
                    hit.pair.write_to(&mut bytes);
                    bytes.extend(hit.units().to_be_bytes());
                }
            }
            Self::SetPolicy {
                window,
                limit,
                precondition,
                ..
            }
            | Self::SetDefault {
                window,
                limit,
                precondition,
                ..
            } => {
                bytes.extend(window.as_str().bytes());
                bytes.extend(limit.get().to_be_bytes());
                precondition
                    .iter()
                    .for_each(|tags| tags.write_to(&mut bytes));
            }
            Self::DeletePolicy { precondition, .. } | Self::DeleteDefault { precondition, .. } => {
                precondition
                    .iter()
                    .for_each(|tags| tags.write_to(&mut bytes));
            }
            Self::Reset { .. } => {}
        }
        Fingerprint::from_bytes(bytes)
    }

    fn scope(&self, caller: &CallerId) -> KeyScope {
        match self {
            Self::Consume { pair, .. }
            | Self::Refund { pair, .. }
            | Self::Reset { pair }
            | Self::SetPolicy { pair, .. }
            | Self::DeletePolicy { pair, .. } => KeyScope::Pair(self.name(), pair.clone()),
            Self::SetDefault { resource, .. } | Self::DeleteDefault { resource, .. } => {
                KeyScope::Resource(self.name(), resource.clone())
            }
            Self::ConsumeBatch { .. } | Self::RateLimit { .. } => {
                KeyScope::Caller(self.name(), caller.clone())
            }
        }
    }
}

impl Hit {
    /// The units to count; none of a question.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.amount.map_or(0, Amount::get)
    }
}

impl Pair {
    /// No id holds a "/", so it parts them without doubt.
    fn write_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.user_id.as_str().bytes());
        bytes.push(b'/');
        bytes.extend(self.resource.as_str().bytes());
        bytes.push(b'/');
    }
}

impl Precondition {
    fn write_to(&self, bytes: &mut Vec<u8>) {
        let (sign, texts): (u8, &[Box<str>]) = match self {
            Self::AnyPolicy => (b'*', &[]),
            Self::NoPolicy => (b'-', &[]),
            Self::OneOf(texts) => (b'=', texts),
            Self::NoneOf(texts) => (b'!', texts),
        };
        bytes.push(sign);
        for text in texts {
            bytes.push(b'"');
            bytes.extend(text.bytes());
        }
    }
}
