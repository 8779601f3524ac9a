//! A quota server as one would write it first: plain maps, plain numbers, one obvious step a command.
//!
//! It shares no code with the domain, so that the two can only agree by being right, or by
//! misreading the contract in the same way.

use std::collections::BTreeMap;

/// One command, in plain values. Pairs are `(user, resource)`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    Consume(Pair, u64),
    Batch(Vec<(Pair, u64)>),
    /// 0 units are a question.
    Hits(Vec<(Pair, u64)>),
    Refund(Pair, u64),
    Reset(Pair),
    Set(Pair, Terms, Option<Tag>),
    Delete(Pair, Option<Tag>),
    SetDefault(&'static str, Terms),
    DeleteDefault(&'static str),
}

pub(crate) type Pair = (&'static str, &'static str);

/// A step, and the key and caller it is sent with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    pub(crate) step: Step,
    pub(crate) key: Option<(&'static str, &'static str)>,
}

/// What an If-Match names.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Tag {
    Any,
    /// The policy as it was when the batch was sent.
    AsSeen,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Terms {
    pub(crate) hourly: bool,
    pub(crate) limit: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Policy {
    pub(crate) terms: Terms,
    pub(crate) created_s: i64,
    pub(crate) updated_s: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Quota {
    pub(crate) pair: Pair,
    pub(crate) policy: Policy,
    pub(crate) by_default: bool,
    pub(crate) usage: u64,
    pub(crate) remaining: u64,
    pub(crate) allowed: bool,
    pub(crate) window_start_s: i64,
    pub(crate) reset_at_s: i64,
    pub(crate) reset_in_s: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reply {
    Quota(Quota),
    Quotas(Vec<Quota>),
    Limits(Vec<Option<Quota>>),
    Default(Policy),
    Deleted,
    Replayed(Box<Reply>),
    KeyReused,
    NotFound,
    BatchNotFound(Vec<usize>),
    PreconditionFailed,
    ExceedsLimit(Vec<usize>),
    Denied(Quota),
    BatchDenied(Vec<(u64, Quota)>),
    OverLimit(Vec<Option<Quota>>),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) policies: BTreeMap<Pair, Policy>,
    pub(crate) defaults: BTreeMap<&'static str, Policy>,
    /// Units by pair and start of the row, in seconds.
    pub(crate) rows: BTreeMap<(Pair, i64), u64>,
    /// By scope and key: what was asked, and the reply.
    pub(crate) kept: BTreeMap<String, (Step, Reply)>,
}

impl Model {
    /// Serves one request. `seen` are the policies as they were when the batch was sent.
    pub(crate) fn serve(&mut self, request: &Request, seen: &Self, now_us: i64) -> Reply {
        let Some((key, caller)) = request.key else {
            return self.act(&request.step, seen, now_us);
        };
        let scope = match &request.step {
            Step::Consume(pair, _) => format!("consume {pair:?} {key}"),
            Step::Refund(pair, _) => format!("refund {pair:?} {key}"),
            Step::Reset(pair) => format!("reset {pair:?} {key}"),
            Step::Batch(_) => format!("batch {caller} {key}"),
            Step::Hits(_) => format!("hits {caller} {key}"),
            Step::Set(..) | Step::Delete(..) | Step::SetDefault(..) | Step::DeleteDefault(..) => {
                panic!("these take no keys")
            }
        };
        if let Some((asked, reply)) = self.kept.get(&scope) {
            return if *asked == request.step {
                Reply::Replayed(Box::new(reply.clone()))
            } else {
                Reply::KeyReused
            };
        }
        let reply = self.act(&request.step, seen, now_us);
        if matches!(reply, Reply::Quota(_) | Reply::Quotas(_) | Reply::Limits(_)) {
            self.kept
                .insert(scope, (request.step.clone(), reply.clone()));
        }
        reply
    }

    fn act(&mut self, step: &Step, seen: &Self, now_us: i64) -> Reply {
        match step {
            Step::Consume(pair, units) => self.consume(*pair, *units, now_us),
            Step::Batch(items) => self.batch(items, now_us),
            Step::Hits(hits) => self.hits(hits, now_us),
            Step::Refund(pair, units) => self.give_back(*pair, *units, now_us),
            Step::Reset(pair) => self.give_back(*pair, u64::MAX, now_us),
            Step::Set(pair, terms, tag) => self.set(*pair, *terms, *tag, seen, now_us),
            Step::Delete(pair, tag) => {
                if !self.policies.contains_key(pair) {
                    Reply::NotFound
                } else if self.matches(*pair, *tag, seen) {
                    self.policies.remove(pair);
                    Reply::Deleted
                } else {
                    Reply::PreconditionFailed
                }
            }
            Step::SetDefault(resource, terms) => {
                let policy = saved(self.defaults.get(resource), *terms, now_us);
                self.defaults.insert(resource, policy);
                Reply::Default(policy)
            }
            Step::DeleteDefault(resource) => match self.defaults.remove(resource) {
                Some(_) => Reply::Deleted,
                None => Reply::NotFound,
            },
        }
    }

    fn consume(&mut self, pair: Pair, units: u64, now_us: i64) -> Reply {
        let Some(quota) = self.quota(pair, now_us) else {
            return Reply::NotFound;
        };
        if units > quota.policy.terms.limit {
            return Reply::ExceedsLimit(vec![0]);
        }
        if units > quota.remaining {
            return Reply::Denied(Quota {
                allowed: false,
                ..quota
            });
        }
        let row = (pair, quota.window_start_s);
        *self.rows.entry(row).or_default() += units;
        Reply::Quota(Quota {
            allowed: true,
            ..self.quota(pair, now_us).expect("still served")
        })
    }

    fn batch(&mut self, items: &[(Pair, u64)], now_us: i64) -> Reply {
        let missing: Vec<usize> = (0..items.len())
            .filter(|i| self.quota(items[*i].0, now_us).is_none())
            .collect();
        if !missing.is_empty() {
            return Reply::BatchNotFound(missing);
        }
        let total = |pair: Pair| -> u64 {
            let same = items.iter().filter(|(other, _)| *other == pair);
            same.map(|(_, units)| units).sum()
        };
        let quota = |model: &Self, pair| model.quota(pair, now_us).expect("all are served");

        let never: Vec<usize> = (0..items.len())
            .filter(|i| total(items[*i].0) > quota(self, items[*i].0).policy.terms.limit)
            .collect();
        if !never.is_empty() {
            return Reply::ExceedsLimit(never);
        }
        let fits = |model: &Self, pair| total(pair) <= quota(model, pair).remaining;
        if items.iter().all(|(pair, _)| fits(self, *pair)) {
            for (pair, units) in items {
                let start_s = quota(self, *pair).window_start_s;
                *self.rows.entry((*pair, start_s)).or_default() += units;
            }
            let granted = items.iter().map(|(pair, _)| Quota {
                allowed: true,
                ..quota(self, *pair)
            });
            return Reply::Quotas(granted.collect());
        }
        let denied = items.iter().map(|(pair, units)| {
            let quota = Quota {
                allowed: fits(self, *pair),
                ..quota(self, *pair)
            };
            (*units, quota)
        });
        Reply::BatchDenied(denied.collect())
    }

    fn hits(&mut self, hits: &[(Pair, u64)], now_us: i64) -> Reply {
        let before = self.clone();
        let mut over = BTreeMap::new();
        for (pair, units) in hits {
            let Some(quota) = before.quota(*pair, now_us) else {
                continue;
            };
            let same = hits.iter().filter(|(other, _)| other == pair);
            let total: u64 = same.map(|(_, units)| units).sum();
            over.insert(*pair, quota.remaining == 0 || total > quota.remaining);
            if *units > 0 {
                *self.rows.entry((*pair, quota.window_start_s)).or_default() += units;
            }
        }
        let all_fit = !over.values().any(|over| *over);
        if !all_fit {
            *self = before;
        }
        let quotas = hits.iter().map(|(pair, _)| {
            self.quota(*pair, now_us).map(|quota| Quota {
                allowed: !over[pair],
                ..quota
            })
        });
        let quotas = quotas.collect();
        if all_fit {
            Reply::Limits(quotas)
        } else {
            Reply::OverLimit(quotas)
        }
    }

    /// One unit at a time, each from the newest row that has one.
    fn give_back(&mut self, pair: Pair, units: u64, now_us: i64) -> Reply {
        let Some(quota) = self.quota(pair, now_us) else {
            return Reply::NotFound;
        };
        for _ in 0..units.min(quota.usage) {
            let window = (pair, quota.window_start_s)..(pair, quota.reset_at_s);
            let newest = self
                .rows
                .range_mut(window)
                .rev()
                .find(|(_, units)| **units > 0);
            *newest.expect("usage lies in rows").1 -= 1;
        }
        Reply::Quota(self.quota(pair, now_us).expect("still served"))
    }

    fn set(
        &mut self,
        pair: Pair,
        terms: Terms,
        tag: Option<Tag>,
        seen: &Self,
        now_us: i64,
    ) -> Reply {
        if !self.matches(pair, tag, seen) {
            return Reply::PreconditionFailed;
        }
        let policy = saved(self.policies.get(&pair), terms, now_us);
        self.policies.insert(pair, policy);
        Reply::Quota(self.quota(pair, now_us).expect("it has a policy"))
    }

    fn matches(&self, pair: Pair, tag: Option<Tag>, seen: &Self) -> bool {
        let present = self.policies.get(&pair);
        match tag {
            None => true,
            Some(Tag::Any) => present.is_some(),
            Some(Tag::AsSeen) => present.is_some() && present == seen.policies.get(&pair),
            Some(Tag::Other) => false,
        }
    }

    pub(crate) fn quota(&self, pair: Pair, now_us: i64) -> Option<Quota> {
        let own = self.policies.get(&pair);
        let policy = *own.or_else(|| self.defaults.get(pair.1))?;
        let length_s = if policy.terms.hourly { 3_600 } else { 86_400 };
        let now_s = now_us / 1_000_000;
        let window_start_s = now_s - now_s % length_s;
        let reset_at_s = window_start_s + length_s;
        let usage = self
            .rows
            .range((pair, window_start_s)..(pair, reset_at_s))
            .map(|(_, units)| units)
            .sum();
        let reset_in_us = u64::try_from(reset_at_s * 1_000_000 - now_us).expect("it is to come");
        Some(Quota {
            pair,
            policy,
            by_default: own.is_none(),
            usage,
            remaining: policy.terms.limit - usage.min(policy.terms.limit),
            allowed: usage < policy.terms.limit,
            window_start_s,
            reset_at_s,
            reset_in_s: reset_in_us.div_ceil(1_000_000),
        })
    }
}

fn saved(existing: Option<&Policy>, terms: Terms, now_us: i64) -> Policy {
    let now_s = now_us / 1_000_000;
    match existing {
        Some(policy) if policy.terms == terms => *policy,
        Some(policy) => Policy {
            terms,
            updated_s: now_s,
            ..*policy
        },
        None => Policy {
            terms,
            created_s: now_s,
            updated_s: now_s,
        },
    }
}
