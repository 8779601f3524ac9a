//! The decision: stored state and commands in, changed state and outcomes out.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::state::PairView;
use crate::{
    Amount, Change, Command, DefaultPolicy, Hit, Item, KeptAnswer, Keyed, Limit, Operation, Pair,
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
    /// To a rate-limit call: the quota of each hit after the whole call, in the order of the hits; `None`
    /// where nothing limits the pair.
    Limits(Vec<Option<Quota>>),
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
    /// No policy and no default for some items of a batch, in their order.
    BatchNotFound(Vec<MissingItem>),
    /// The policy is not in the state that the caller named.
    PreconditionFailed,
    /// More than the whole limit: it could never be granted. The positions of the items concerned, 0
    /// for a single consume.
    AmountExceedsLimit(Vec<usize>),
    /// The units do not fit into what is left of the window.
    Exhausted(Quota),
    /// The batch does not fit: each item in the order of the request.
    BatchExhausted(Vec<DeniedItem>),
    /// The rate-limit call does not fit: the quota of each hit in the order of the request, `None` where
    /// nothing limits the pair; `allowed` tells whether that pair alone would have fitted.
    OverLimit(Vec<Option<Quota>>),
}

/// One item of a batch that neither a policy nor a default serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingItem {
    /// Its position in the request, from 0 on.
    pub position: usize,
    /// Whose units it asked for, and of what.
    pub pair: Pair,
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
        Operation::RateLimit { hits } => return rate_limit(state, hits, now),
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
    let units = items.iter().map(|item| (&item.pair, item.amount.get()));
    let mut asked = Asked::sum(state, units, now);
    let missing = asked.missing();
    if !missing.is_empty() {
        return Err(Refusal::BatchNotFound(missing));
    }
    let beyond_limit = asked.beyond_limit();
    if !beyond_limit.is_empty() {
        return Err(Refusal::AmountExceedsLimit(beyond_limit));
    }
    let all_counted = asked.count(state);
    let quotas = asked.quotas().flatten();
    if all_counted {
        return Ok(Answer::Quotas(quotas.collect()));
    }
    let denied = items.iter().zip(quotas).map(|(item, quota)| DeniedItem {
        amount: item.amount,
        quota,
    });
    Err(Refusal::BatchExhausted(denied.collect()))
}

/// Unlike a batch, it takes a pair that nothing limits for one that fits, and more than the whole limit for more
/// than what is left: a proxy asks whether a request may pass, and has nobody to mend what it asked.
fn rate_limit(state: &mut State, hits: &[Hit], now: Timestamp) -> Result<Answer, Refusal> {
    let units = hits.iter().map(|hit| (&hit.pair, hit.units()));
    let mut asked = Asked::sum(state, units, now);
    if asked.count(state) {
        Ok(Answer::Limits(asked.quotas().collect()))
    } else {
        Err(Refusal::OverLimit(asked.quotas().collect()))
    }
}

/// What a command asks for of many pairs, each once.
struct Asked<'a> {
    sums: Vec<Sum<'a>>,
    /// Which of the sums each item is part of, so that a pair is searched for once an item.
    places: Vec<usize>,
}

/// The items of one pair, summed.
struct Sum<'a> {
    pair: &'a Pair,
    units: u64,
    /// `None` where neither a policy nor a default serves the pair.
    quota: Option<Quota>,
}

impl<'a> Asked<'a> {
    fn sum(
        state: &mut State,
        items: impl ExactSizeIterator<Item = (&'a Pair, u64)>,
        now: Timestamp,
    ) -> Self {
        let mut sums: Vec<Sum<'_>> = Vec::with_capacity(items.len());
        let mut places = Vec::with_capacity(items.len());
        let mut known: HashMap<&Pair, usize> = HashMap::with_capacity(items.len());
        for (pair, units) in items {
            let place = match known.entry(pair) {
                Entry::Occupied(place) => *place.get(),
                Entry::Vacant(new) => {
                    let place = *new.insert(sums.len());
                    sums.push(Sum {
                        pair,
                        units: 0,
                        quota: check(&state.pair(pair), pair, now).ok(),
                    });
                    place
                }
            };
            let sum = &mut sums[place];
            sum.units = sum.units.saturating_add(units);
            places.push(place);
        }
        Self { sums, places }
    }

    /// The items whose pair nothing serves.
    fn missing(&self) -> Vec<MissingItem> {
        let places = self.places.iter().enumerate();
        let missing = places.filter_map(|(position, place)| {
            let sum = &self.sums[*place];
            sum.quota.is_none().then(|| MissingItem {
                position,
                pair: sum.pair.clone(),
            })
        });
        missing.collect()
    }

    /// The positions of the items whose pair is asked for more than its whole limit.
    fn beyond_limit(&self) -> Vec<usize> {
        let never_fits = |place: usize| {
            let sum = &self.sums[place];
            let limit = sum.quota.as_ref().map(|quota| quota.limit().get());
            limit.is_some_and(|limit| sum.units > limit)
        };
        let places = self.places.iter().enumerate();
        places
            .filter_map(|(position, place)| never_fits(*place).then_some(position))
            .collect()
    }

    /// Counts all sums if all of them fit, and tells whether they do. Each quota says whether its own does, and is
    /// the one afterwards.
    fn count(&mut self, state: &mut State) -> bool {
        let mut all_fit = true;
        for sum in &mut self.sums {
            if let Some(quota) = &mut sum.quota {
                // Who asks for nothing is told whether anything is left.
                quota.allowed = sum.units.max(1) <= quota.remaining();
                all_fit &= quota.allowed;
            }
        }
        for sum in self.sums.iter_mut().filter(|sum| sum.units > 0) {
            if let Some(quota) = &mut sum.quota
                && all_fit
            {
                let usage = &mut state.pair(sum.pair).own.usage;
                usage.add(&quota.span(), sum.units);
                quota.usage = quota.usage.saturating_add(sum.units);
            }
        }
        all_fit
    }

    /// The quota of each item, in their order.
    fn quotas(&self) -> impl Iterator<Item = Option<Quota>> {
        let places = self.places.iter();
        places.map(|place| self.sums[*place].quota.clone())
    }
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
