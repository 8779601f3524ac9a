//! Random histories: the domain against the naive model, and laws that hold whatever the history.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quotalog_domain::{
    Amount, Answer, CallerId, Change, Command, Hit, IdempotencyKey, Item, Limit, Operation,
    Outcome, Precondition, Refusal, Resource, Source, Timestamp, UserId, Window,
};

use crate::map_store::MapStore;
use crate::model::{self, Model, Pair, Policy, Quota, Reply, Request, Step, Tag, Terms};
use crate::script::DAY_S;

const USERS: [&str; 2] = ["u", "v"];
const RESOURCES: [&str; 2] = ["r", "s"];

/// Requests that are decided at one instant, in microseconds since 1970.
type Sent = (i64, Vec<Request>);

proptest! {
    #[test]
    fn outcomes_and_stored_state_are_the_models(history in history()) {
        let mut store = MapStore::default();
        let mut model = Model::default();
        for (now_us, requests) in &history {
            let now = Timestamp::from_unix_us(*now_us);
            let commands: Vec<Command> = requests.iter().map(|sent| command(sent, &store)).collect();
            let outcomes = store.commit(&commands, now);
            let seen = model.clone();
            for (request, outcome) in requests.iter().zip(&outcomes) {
                let expected = model.serve(request, &seen, *now_us);
                prop_assert_eq!(reply(outcome), expected, "{:?}", request);
            }
            prop_assert_eq!(&rows(&store), &model.rows);
            prop_assert_eq!(&policies(&store), &model.policies);
            prop_assert_eq!(&defaults(&store), &model.defaults);
            prop_assert_eq!(store.kept.len(), model.kept.len());
            for pair in pairs() {
                let quota = store.quota(&domain_pair(pair), now).map(|q| read_quota(&q));
                prop_assert_eq!(quota, model.quota(pair, *now_us));
            }
        }
    }

    #[test]
    fn a_batch_split_anywhere_gives_the_same_result(
        past in history(),
        now_us in instant(),
        requests in prop::collection::vec(request(), 1..24),
        cuts in prop::collection::vec(any::<bool>(), 24),
    ) {
        let now = Timestamp::from_unix_us(now_us);
        let start = after(&past);
        let commands: Vec<Command> = requests.iter().map(|sent| command(sent, &start)).collect();

        let mut whole = start.clone();
        let in_one = whole.commit(&commands, now);

        let mut split = start;
        let mut in_parts = Vec::new();
        let mut part = Vec::new();
        for (command, cut) in commands.into_iter().zip(cuts) {
            part.push(command);
            if cut {
                in_parts.extend(split.commit(&std::mem::take(&mut part), now));
            }
        }
        in_parts.extend(split.commit(&part, now));
        prop_assert_eq!(in_one, in_parts);
        prop_assert_eq!(whole, split);
    }

    /// `MapStore::commit` adds, for each command alone, that a refusal or a replay changes nothing at all
    /// and that nothing is marked without need.
    #[test]
    fn every_step_obeys_the_laws(history in history()) {
        let mut store = MapStore::default();
        for (now_us, requests) in &history {
            let now = Timestamp::from_unix_us(*now_us);
            for request in requests {
                let before = store.clone();
                let outcome = store.commit_one(command(request, &before), now);
                if matches!(&outcome, Ok(decided) if !decided.replayed) {
                    obeys_the_laws(&request.step, &before, &store, now);
                    is_remembered(&request.step, &before, &store, now);
                }
                for quota in quotas(&outcome) {
                    let limit = quota.policy.terms.limit;
                    prop_assert!(quota.remaining <= limit);
                    prop_assert_eq!(quota.remaining, limit.saturating_sub(quota.usage));
                    prop_assert!(quota.reset_in_s >= 1);
                }
            }
        }
    }

    #[test]
    fn grants_under_one_policy_never_sum_past_its_limit_and_reach_it(
        hourly: bool,
        limit in 1_u64..20,
        sent in prop::collection::vec((instant(), 1_u64..5), 1..60),
    ) {
        let pair = ("u", "r");
        let mut store = MapStore::default();
        let terms = Terms { hourly, limit };
        prop_assert!(store.commit_one(plain(Step::Set(pair, terms, None), &store), Timestamp::MIN).is_ok());
        let mut granted: BTreeMap<i64, u64> = BTreeMap::new();
        for (now_us, units) in sent {
            let window = now_us.div_euclid(if hourly { 3_600_000_000 } else { 86_400_000_000 });
            let sum = granted.entry(window).or_default();
            let command = plain(Step::Consume(pair, units), &store);
            let outcome = store.commit_one(command, Timestamp::from_unix_us(now_us));
            prop_assert_eq!(outcome.is_ok(), *sum + units <= limit);
            *sum += if outcome.is_ok() { units } else { 0 };
        }
    }
}

/// What an accepted command may do to the usage of the pairs, by reading alone.
fn obeys_the_laws(step: &Step, before: &MapStore, after: &MapStore, now: Timestamp) {
    let usage = |store: &MapStore, pair| {
        let quota = store.quota(&domain_pair(pair), now);
        quota.map_or(0, |quota| quota.usage)
    };
    let limit = |pair| {
        let quota = after.quota(&domain_pair(pair), now);
        quota.map_or(0, |quota| quota.limit().get())
    };
    match step {
        Step::Consume(pair, units) => {
            assert_eq!(usage(after, *pair), usage(before, *pair) + units);
            assert!(usage(after, *pair) <= limit(*pair));
        }
        Step::Batch(items) => {
            for pair in pairs() {
                let of_pair = items.iter().filter(|(other, _)| *other == pair);
                let units: u64 = of_pair.map(|(_, units)| units).sum();
                assert_eq!(usage(after, pair), usage(before, pair) + units);
                assert!(units == 0 || usage(after, pair) <= limit(pair));
            }
        }
        Step::Hits(hits) => {
            for pair in pairs() {
                let of_pair = hits.iter().filter(|(other, _)| *other == pair);
                let units: u64 = of_pair.map(|(_, units)| units).sum();
                let served = before.quota(&domain_pair(pair), now).is_some();
                let counted = if served { units } else { 0 };
                assert_eq!(usage(after, pair), usage(before, pair) + counted);
                assert!(counted == 0 || usage(after, pair) <= limit(pair));
            }
        }
        Step::Refund(pair, units) => {
            let floor = usage(before, *pair).saturating_sub(*units);
            assert_eq!(usage(after, *pair), floor);
        }
        Step::Reset(pair) => assert_eq!(usage(after, *pair), 0),
        Step::Set(..) | Step::Delete(..) | Step::SetDefault(..) | Step::DeleteDefault(..) => {
            assert_eq!(after.rows, before.rows, "a policy never touches usage");
        }
    }
    let touches_usage_only = matches!(
        step,
        Step::Consume(..) | Step::Batch(_) | Step::Hits(_) | Step::Refund(..) | Step::Reset(_)
    );
    if touches_usage_only {
        assert_eq!(after.policies, before.policies);
        assert_eq!(after.defaults, before.defaults);
    }
}

/// What the audit remembers of an accepted command, by reading alone: what was there before and after,
/// if anything of it is audited.
fn is_remembered(step: &Step, before: &MapStore, after: &MapStore, now: Timestamp) {
    let quota = |store: &MapStore, pair| {
        let quota = store.quota(&domain_pair(pair), now);
        quota.expect("it is served")
    };
    let change = match step {
        Step::Consume(..) | Step::Batch(_) | Step::Hits(_) => None,
        Step::Refund(pair, _) => Some(Change::Refund {
            before: quota(before, *pair),
            after: quota(after, *pair),
        }),
        Step::Reset(pair) => Some(Change::Reset {
            before: quota(before, *pair),
            after: quota(after, *pair),
        }),
        Step::Set(pair, ..) | Step::Delete(pair, _) => {
            let pair = domain_pair(*pair);
            let policy = |store: &MapStore| store.policies.get(&pair).copied();
            let (before, after) = (policy(before), policy(after));
            (before != after).then(|| Change::Policy {
                pair: pair.clone(),
                before,
                after,
            })
        }
        Step::SetDefault(on, _) | Step::DeleteDefault(on) => {
            let resource = domain_resource(on);
            let policy = |store: &MapStore| store.defaults.get(&resource).copied();
            let (before, after) = (policy(before), policy(after));
            (before != after).then(|| Change::Default {
                resource: resource.clone(),
                before,
                after,
            })
        }
    };
    let remembered = &after.changes[before.changes.len()..];
    assert_eq!(remembered, change.as_slice(), "{step:?}");
}

// Random histories.

fn history() -> impl Strategy<Value = Vec<Sent>> {
    let sent = (instant(), prop::collection::vec(request(), 1..8));
    prop::collection::vec(sent, 1..12)
}

/// Near the edges of a few hours of two days, in any order.
fn instant() -> impl Strategy<Value = i64> {
    let hour = prop::sample::select(vec![0_i64, 1, 10, 11, 23, 24, 25]);
    let edge_us = prop::sample::select(vec![-1_000_000_i64, -1, 0, 1, 1_800_000_000]);
    (hour, edge_us).prop_map(|(hour, edge_us)| (DAY_S + hour * 3_600) * 1_000_000 + edge_us)
}

fn request() -> impl Strategy<Value = Request> {
    let keyed = prop_oneof![
        5 => (pair(), units()).prop_map(|(pair, units)| Step::Consume(pair, units)),
        3 => prop::collection::vec((pair(), units()), 1..5).prop_map(Step::Batch),
        3 => prop::collection::vec((pair(), hit_units()), 1..5).prop_map(Step::Hits),
        2 => (pair(), units()).prop_map(|(pair, units)| Step::Refund(pair, units)),
        1 => pair().prop_map(Step::Reset),
    ];
    let unkeyed = prop_oneof![
        4 => (pair(), terms(), tag()).prop_map(|(pair, terms, tag)| Step::Set(pair, terms, tag)),
        1 => (pair(), tag()).prop_map(|(pair, tag)| Step::Delete(pair, tag)),
        2 => (resource(), terms()).prop_map(|(on, terms)| Step::SetDefault(on, terms)),
        1 => resource().prop_map(Step::DeleteDefault),
    ];
    let key = prop::sample::select(vec!["a", "b"]);
    let caller = prop::sample::select(vec!["x", "y"]);
    prop_oneof![
        2 => (keyed, prop::option::of((key, caller))).prop_map(|(step, key)| Request { step, key }),
        1 => unkeyed.prop_map(|step| Request { step, key: None }),
    ]
}

fn pair() -> impl Strategy<Value = Pair> {
    (prop::sample::select(USERS.to_vec()), resource())
}

fn resource() -> impl Strategy<Value = &'static str> {
    prop::sample::select(RESOURCES.to_vec())
}

fn units() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 1_u64..4, 2 => 4_u64..9, 1 => Just(1_000_000)]
}

fn hit_units() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 2 => units()]
}

fn terms() -> impl Strategy<Value = Terms> {
    let limit = prop_oneof![9 => 1_u64..9, 1 => Just(1_000_000)];
    (any::<bool>(), limit).prop_map(|(hourly, limit)| Terms { hourly, limit })
}

fn tag() -> impl Strategy<Value = Option<Tag>> {
    let tag = prop::sample::select(vec![Tag::Any, Tag::AsSeen, Tag::Other]);
    prop::option::weighted(0.3, tag)
}

fn pairs() -> impl Iterator<Item = Pair> {
    USERS
        .into_iter()
        .flat_map(|user| RESOURCES.map(|resource| (user, resource)))
}

fn after(history: &[Sent]) -> MapStore {
    let mut store = MapStore::default();
    for (now_us, requests) in history {
        let commands: Vec<Command> = requests.iter().map(|sent| command(sent, &store)).collect();
        store.commit(&commands, Timestamp::from_unix_us(*now_us));
    }
    store
}

// From the model's words to the domain's.

fn plain(step: Step, seen: &MapStore) -> Command {
    command(&Request { step, key: None }, seen)
}

fn command(request: &Request, seen: &MapStore) -> Command {
    let precondition = |pair: Pair, tag: Option<Tag>| {
        tag.map(|tag| match tag {
            Tag::Any => Precondition::AnyPolicy,
            Tag::Other => Precondition::OneOf(vec!["other".into()]),
            Tag::AsSeen => {
                let policy = seen.policies.get(&domain_pair(pair));
                let revision = policy.map(|policy| policy.revision().as_str().into());
                Precondition::OneOf(revision.into_iter().collect())
            }
        })
    };
    let operation = match &request.step {
        Step::Consume(pair, units) => Operation::Consume {
            pair: domain_pair(*pair),
            amount: amount(*units),
        },
        Step::Batch(items) => Operation::ConsumeBatch {
            items: items
                .iter()
                .map(|(pair, units)| Item {
                    pair: domain_pair(*pair),
                    amount: amount(*units),
                })
                .collect(),
        },
        Step::Hits(hits) => Operation::RateLimit {
            hits: hits
                .iter()
                .map(|(pair, units)| Hit {
                    pair: domain_pair(*pair),
                    amount: (*units > 0).then(|| amount(*units)),
                })
                .collect(),
        },
        Step::Refund(pair, units) => Operation::Refund {
            pair: domain_pair(*pair),
            amount: amount(*units),
        },
        Step::Reset(pair) => Operation::Reset {
            pair: domain_pair(*pair),
        },
        Step::Set(pair, terms, tag) => Operation::SetPolicy {
            pair: domain_pair(*pair),
            window: window(*terms),
            limit: limit(*terms),
            precondition: precondition(*pair, *tag),
        },
        Step::Delete(pair, tag) => Operation::DeletePolicy {
            pair: domain_pair(*pair),
            precondition: precondition(*pair, *tag),
        },
        Step::SetDefault(resource, terms) => Operation::SetDefault {
            resource: domain_resource(resource),
            window: window(*terms),
            limit: limit(*terms),
            precondition: None,
        },
        Step::DeleteDefault(resource) => Operation::DeleteDefault {
            resource: domain_resource(resource),
            precondition: None,
        },
    };
    let command = Command::new(operation);
    match request.key {
        Some((key, caller)) => command.with_key(
            IdempotencyKey::try_from(key).expect("a sound key"),
            CallerId::new(caller),
        ),
        None => command,
    }
}

fn domain_pair((user_id, resource): Pair) -> quotalog_domain::Pair {
    quotalog_domain::Pair {
        user_id: UserId::try_from(user_id).expect("a sound id"),
        resource: domain_resource(resource),
    }
}

fn domain_resource(resource: &str) -> Resource {
    Resource::try_from(resource).expect("a sound id")
}

fn limit(terms: Terms) -> Limit {
    Limit::settable(terms.limit).expect("a limit in bounds")
}

fn amount(units: u64) -> Amount {
    Amount::try_from(units).expect("an amount in bounds")
}

fn window(terms: Terms) -> Window {
    if terms.hourly {
        Window::Hourly
    } else {
        Window::Daily
    }
}

// And back.

fn reply(outcome: &Outcome) -> Reply {
    match outcome {
        Ok(decided) => {
            let reply = match &decided.answer {
                Answer::Quota(quota) => Reply::Quota(read_quota(quota)),
                Answer::Quotas(quotas) => Reply::Quotas(quotas.iter().map(read_quota).collect()),
                Answer::Limits(quotas) => Reply::Limits(read_limits(quotas)),
                Answer::Default(default) => Reply::Default(read_policy(&default.policy)),
                Answer::Deleted => Reply::Deleted,
            };
            if decided.replayed {
                Reply::Replayed(Box::new(reply))
            } else {
                reply
            }
        }
        Err(Refusal::KeyReused) => Reply::KeyReused,
        Err(Refusal::NotFound) => Reply::NotFound,
        Err(Refusal::BatchNotFound(items)) => {
            Reply::BatchNotFound(items.iter().map(|item| item.position).collect())
        }
        Err(Refusal::PreconditionFailed) => Reply::PreconditionFailed,
        Err(Refusal::AmountExceedsLimit(items)) => Reply::ExceedsLimit(items.clone()),
        Err(Refusal::Exhausted(quota)) => Reply::Denied(read_quota(quota)),
        Err(Refusal::BatchExhausted(items)) => {
            let items = items
                .iter()
                .map(|item| (item.amount.get(), read_quota(&item.quota)));
            Reply::BatchDenied(items.collect())
        }
        Err(Refusal::OverLimit(quotas)) => Reply::OverLimit(read_limits(quotas)),
    }
}

fn quotas(outcome: &Outcome) -> Vec<Quota> {
    fn of(reply: Reply) -> Vec<Quota> {
        match reply {
            Reply::Quota(quota) | Reply::Denied(quota) => vec![quota],
            Reply::Quotas(quotas) => quotas,
            Reply::Limits(quotas) | Reply::OverLimit(quotas) => {
                quotas.into_iter().flatten().collect()
            }
            Reply::BatchDenied(items) => items.into_iter().map(|(_, quota)| quota).collect(),
            Reply::Replayed(reply) => of(*reply),
            Reply::Default(_)
            | Reply::Deleted
            | Reply::KeyReused
            | Reply::NotFound
            | Reply::BatchNotFound(_)
            | Reply::PreconditionFailed
            | Reply::ExceedsLimit(_) => Vec::new(),
        }
    }
    of(reply(outcome))
}

fn read_limits(quotas: &[Option<quotalog_domain::Quota>]) -> Vec<Option<Quota>> {
    let read = quotas.iter().map(|quota| quota.as_ref().map(read_quota));
    read.collect()
}

fn read_quota(quota: &quotalog_domain::Quota) -> Quota {
    Quota {
        pair: known(&quota.pair),
        policy: read_policy(&quota.policy),
        by_default: quota.source == Source::Default,
        usage: quota.usage,
        remaining: quota.remaining(),
        allowed: quota.allowed,
        window_start_s: quota.span().start.unix_s(),
        reset_at_s: quota.span().reset_at.unix_s(),
        reset_in_s: quota.reset_in_s(),
    }
}

fn read_policy(policy: &quotalog_domain::Policy) -> Policy {
    Policy {
        terms: Terms {
            hourly: policy.window == Window::Hourly,
            limit: policy.limit.get(),
        },
        created_s: policy.created_at.unix_s(),
        updated_s: policy.updated_at.unix_s(),
    }
}

fn known(pair: &quotalog_domain::Pair) -> Pair {
    pairs()
        .find(|known| domain_pair(*known) == *pair)
        .expect("one of the few pairs")
}

fn known_resource(resource: &Resource) -> &'static str {
    RESOURCES
        .into_iter()
        .find(|known| *known == resource.as_str())
        .expect("one of the few resources")
}

fn rows(store: &MapStore) -> BTreeMap<(model::Pair, i64), u64> {
    let row = |((pair, start), units): (&(quotalog_domain::Pair, Timestamp), &u64)| {
        ((known(pair), start.unix_s()), *units)
    };
    store.rows.iter().map(row).collect()
}

fn policies(store: &MapStore) -> BTreeMap<Pair, Policy> {
    let policies = store.policies.iter();
    policies
        .map(|(pair, policy)| (known(pair), read_policy(policy)))
        .collect()
}

fn defaults(store: &MapStore) -> BTreeMap<&'static str, Policy> {
    let defaults = store.defaults.iter();
    defaults
        .map(|(resource, policy)| (known_resource(resource), read_policy(policy)))
        .collect()
}
