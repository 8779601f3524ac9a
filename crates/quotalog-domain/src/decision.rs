//! The decision: stored state and commands in, changed state and outcomes out.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::state::PairView;
use crate::{
    Amount, Change, Command, DefaultPolicy, Item, KeptAnswer, Keyed, Limit, Operation, Pair,
    Policy, Precondition, Quota, Resource, State, Timestamp, Window,
};

/// What became of a command. A refusal changed nothing.
pub type Outcome = Result<Decided, Refusal>;

/// A command that succeeded, now or under the same key before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// The answer.
    pub answer: Answer,
    /// Whether this is the kept answer of an earlier request, so that nothing was counted now.
    pub replayed: bool,
}

/// The answer to a command that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To consume, refund, reset and to setting a policy: the quota afterwards.
    Quota(Quota),
    /// To a batch: the quota of each item after the whole batch, in the order of the items.
    Quotas(Vec<Quota>),
    /// To setting a default: the default.
    Default(DefaultPolicy),
    /// To deleting a policy or a default.
    Deleted,
}

/// Why a command changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Another request was answered under this key.
    KeyReused,
    /// No policy and no default for a pair, or no policy or default to delete.
    NotFound,
    /// The policy is not in the state that the caller named.
    PreconditionFailed,
    /// More than the whole limit: it could never be granted. The positions of the items concerned, 0
    /// for a single consume.
    AmountExceedsLimit(Vec<usize>),
    /// The units do not fit into what is left of the window.
    Exhausted(Quota),
    /// The batch does not fit: each item in the order of the request.
    BatchExhausted(Vec<DeniedItem>),
}

/// One item of a batch that was denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedItem {
    /// What the item asked for.
    pub amount: Amount,
    /// The pair's quota; `allowed` tells whether that pair alone would have fitted.
    pub quota: Quota,
}

/// Decides `commands` in their order at the instant `now` and applies what they change to `state`.
///
/// A later command sees what an earlier one changed. `state` must hold what a store has for all that
/// [`State::needed_by`] named. Under one policy the grants of a pair in a window never sum past its limit.
#[must_use]
pub fn decide_batch<'a>(
    state: &mut State,
    commands: impl IntoIterator<Item = &'a Command>,
    now: Timestamp,
) -> Vec<Outcome> {
    commands
        .into_iter()
        .enumerate()
        .map(|(position, command)| decide(state, position, command, now))
        .collect()
}

fn decide(state: &mut State, position: usize, command: &Command, now: Timestamp) -> Outcome {
    let Some(keyed) = command.keyed() else {
        return answered_now(apply(state, position, &command.operation, now));
    };
    let fingerprint = command.operation.fingerprint();
    match state.kept_under(&keyed) {
        Some(kept) if kept.fingerprint == fingerprint => Ok(Decided {
            answer: kept.answer.clone(),
            replayed: true,
        }),
        Some(_) => Err(Refusal::KeyReused),
        None => {
            let answer = apply(state, position, &command.operation, now)?;
            keep(
                state,
                keyed,
                KeptAnswer {
                    fingerprint,
                    answer,
                },
            )
        }
    }
}

fn answered_now(answer: Result<Answer, Refusal>) -> Outcome {
    answer.map(|answer| Decided {
        answer,
        replayed: false,
    })
}

fn keep(state: &mut State, keyed: Keyed, kept: KeptAnswer) -> Outcome {
    let answer = kept.answer.clone();
    state.keep(keyed, kept);
    answered_now(Ok(answer))
}

/// Carries the operation out, and notes under its `position` what the audit is to remember of it.
fn apply(
    state: &mut State,
    position: usize,
    operation: &Operation,
    now: Timestamp,
) -> Result<Answer, Refusal> {
    let (answer, change) = match operation {
        Operation::Consume { pair, amount } => return consume(state, pair, *amount, now),
        Operation::ConsumeBatch { items } => return consume_batch(state, items, now),
        Operation::Refund { pair, amount } => refund(state, pair, *amount, now)?,
        Operation::Reset { pair } => reset(state, pair, now)?,
        Operation::SetPolicy {
            pair,
            window,
            limit,
            precondition,
        } => set_policy(state, pair, (*window, *limit), precondition.as_ref(), now)?,
        Operation::DeletePolicy { pair, precondition } => {
            delete_policy(state, pair, precondition.as_ref())?
        }
        Operation::SetDefault {
            resource,
            window,
            limit,
            precondition,
        } => set_default(
            state,
            resource,
            (*window, *limit),
            precondition.as_ref(),
            now,
        )?,
        Operation::DeleteDefault {
            resource,
            precondition,
        } => delete_default(state, resource, precondition.as_ref())?,
    };
    if let Some(change) = change {
        state.note(position, change);
    }
    Ok(answer)
}

fn consume(
    state: &mut State,
    pair: &Pair,
    amount: Amount,
    now: Timestamp,
) -> Result<Answer, Refusal> {
    let view = state.pair(pair);
    let mut quota = check(&view, pair, now)?;
    if amount.get() > quota.limit().get() {
        return Err(Refusal::AmountExceedsLimit(vec![0]));
    }
    if amount.get() > quota.remaining() {
        quota.allowed = false;
        return Err(Refusal::Exhausted(quota));
    }
    view.own.usage.add(&quota.span(), amount.get());
    quota.usage = quota.usage.saturating_add(amount.get());
    quota.allowed = true;
    Ok(Answer::Quota(quota))
}

fn consume_batch(state: &mut State, items: &[Item], now: Timestamp) -> Result<Answer, Refusal> {
    /// The items of one pair, summed.
    struct Wanted<'a> {
        pair: &'a Pair,
        quota: Quota,
        units: u64,
    }
    let mut wanted: Vec<Wanted<'_>> = Vec::with_capacity(items.len());
    // Which of them an item is part of, so that a pair is searched for once an item.
    let mut places = Vec::with_capacity(items.len());
    let mut known: HashMap<&Pair, usize> = HashMap::with_capacity(items.len());
    for item in items {
        let place = match known.entry(&item.pair) {
            Entry::Occupied(place) => *place.get(),
            Entry::Vacant(new) => {
                let place = *new.insert(wanted.len());
                wanted.push(Wanted {
                    pair: &item.pair,
                    quota: check(&state.pair(&item.pair), &item.pair, now)?,
                    units: 0,
                });
                place
            }
        };
        let pair = &mut wanted[place];
        pair.units = pair.units.saturating_add(item.amount.get());
        places.push(place);
    }

    let never_fits = |place: usize| wanted[place].units > wanted[place].quota.limit().get();
    let beyond_limit: Vec<usize> = places
        .iter()
        .enumerate()
        .filter_map(|(position, place)| never_fits(*place).then_some(position))
        .collect();
    if !beyond_limit.is_empty() {
        return Err(Refusal::AmountExceedsLimit(beyond_limit));
    }

    let mut all_fit = true;
    for pair in &mut wanted {
        pair.quota.allowed = pair.units <= pair.quota.remaining();
        all_fit &= pair.quota.allowed;
    }
    if all_fit {
        for wanted in &mut wanted {
            let span = wanted.quota.span();
            let usage = &mut state.pair(wanted.pair).own.usage;
            usage.add(&span, wanted.units);
            wanted.quota.usage = wanted.quota.usage.saturating_add(wanted.units);
        }
    }

    let quotas = places.iter().map(|place| wanted[*place].quota.clone());
    if all_fit {
        return Ok(Answer::Quotas(quotas.collect()));
    }
    let denied = items.iter().zip(quotas).map(|(item, quota)| DeniedItem {
        amount: item.amount,
        quota,
    });
    Err(Refusal::BatchExhausted(denied.collect()))
}

/// An answer, and what the audit is to remember.
type Done = (Answer, Option<Change>);

fn refund(state: &mut State, pair: &Pair, amount: Amount, now: Timestamp) -> Result<Done, Refusal> {
    let view = state.pair(pair);
    let before = check(&view, pair, now)?;
    view.own.usage.refund(&before.span(), amount.get());
    let after = check(&view, pair, now)?;
    let answer = Answer::Quota(after.clone());
    Ok((answer, Some(Change::Refund { before, after })))
}

fn reset(state: &mut State, pair: &Pair, now: Timestamp) -> Result<Done, Refusal> {
    let view = state.pair(pair);
    let before = check(&view, pair, now)?;
    view.own.usage.reset(&before.span());
    let after = check(&view, pair, now)?;
    let answer = Answer::Quota(after.clone());
    Ok((answer, Some(Change::Reset { before, after })))
}

fn set_policy(
    state: &mut State,
    pair: &Pair,
    (window, limit): (Window, Limit),
    precondition: Option<&Precondition>,
    now: Timestamp,
) -> Result<Done, Refusal> {
    let view = state.pair(pair);
    let before = view.own.policy().copied();
    if precondition.is_some_and(|precondition| !precondition.allows(before.as_ref())) {
        return Err(Refusal::PreconditionFailed);
    }
    let after = Some(Policy::set(before, window, limit, now));
    view.own.set_policy(after);
    let answer = check(&view, pair, now).map(Answer::Quota)?;
    let change = (after != before).then(|| Change::Policy {
        pair: pair.clone(),
        before,
        after,
    });
    Ok((answer, change))
}

fn delete_policy(
    state: &mut State,
    pair: &Pair,
    precondition: Option<&Precondition>,
) -> Result<Done, Refusal> {
    let slot = state.pair(pair).own;
    let Some(existing) = slot.policy().copied() else {
        return Err(Refusal::NotFound);
    };
    if precondition.is_some_and(|precondition| !precondition.allows(Some(&existing))) {
        return Err(Refusal::PreconditionFailed);
    }
    slot.set_policy(None);
    let change = Change::Policy {
        pair: pair.clone(),
        before: Some(existing),
        after: None,
    };
    Ok((Answer::Deleted, Some(change)))
}

fn set_default(
    state: &mut State,
    resource: &Resource,
    (window, limit): (Window, Limit),
    precondition: Option<&Precondition>,
    now: Timestamp,
) -> Result<Done, Refusal> {
    let before = state.default_of(resource).copied();
    if precondition.is_some_and(|precondition| !precondition.allows(before.as_ref())) {
        return Err(Refusal::PreconditionFailed);
    }
    let policy = Policy::set(before, window, limit, now);
    state.set_default(resource, Some(policy));
    let answer = Answer::Default(DefaultPolicy {
        resource: resource.clone(),
        policy,
    });
    let change = (Some(policy) != before).then(|| Change::Default {
        resource: resource.clone(),
        before,
        after: Some(policy),
    });
    Ok((answer, change))
}

fn delete_default(
    state: &mut State,
    resource: &Resource,
    precondition: Option<&Precondition>,
) -> Result<Done, Refusal> {
    let Some(existing) = state.default_of(resource).copied() else {
        return Err(Refusal::NotFound);
    };
    if precondition.is_some_and(|precondition| !precondition.allows(Some(&existing))) {
        return Err(Refusal::PreconditionFailed);
    }
    state.set_default(resource, None);
    let change = Change::Default {
        resource: resource.clone(),
        before: Some(existing),
        after: None,
    };
    Ok((Answer::Deleted, Some(change)))
}

/// The quota of a pair as the state has it now.
fn check(view: &PairView<'_>, pair: &Pair, now: Timestamp) -> Result<Quota, Refusal> {
    let (policy, source) = view.policy_in_force().ok_or(Refusal::NotFound)?;
    let usage = &view.own.usage;
    Ok(Quota::check(pair.clone(), policy, source, usage, now))
}
