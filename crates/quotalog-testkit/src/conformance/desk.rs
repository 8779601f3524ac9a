//! A store as the cases speak to it: texts and numbers in, answers out.

use quotalog_auth::Credential;
use quotalog_domain::{
    Amount, Answer, CallerId, Command, Decided, Hit, IdempotencyKey, Item, Limit, Operation,
    Outcome, Pair, Quota, Refusal, Resource, UserId, Window,
};
use quotalog_ledger::clock::Clock as _;
use quotalog_ledger::store::{Batch, Page, Store, Submission, Verdict};

use crate::ManualClock;
use crate::conformance::Database;

/// A store that a case works with. Its calls are the operator's, unless a credential is given.
#[derive(Debug, Clone)]
pub struct Desk<S> {
    /// The store.
    pub store: S,
}

/// The pair of these ids.
#[must_use]
pub fn pair(user_id: &str, resource: &str) -> Pair {
    Pair {
        user_id: UserId::try_from(user_id).expect("a user id"),
        resource: Resource::try_from(resource).expect("a resource"),
    }
}

/// The command that consumes `units`.
#[must_use]
pub fn consume(pair: Pair, units: u64) -> Command {
    Command::new(Operation::Consume {
        pair,
        amount: amount(units),
    })
}

pub(crate) fn batch(items: &[(&str, &str, u64)]) -> Command {
    let item = |&(user_id, resource, units): &(&str, &str, u64)| Item {
        pair: pair(user_id, resource),
        amount: amount(units),
    };
    Command::new(Operation::ConsumeBatch {
        items: items.iter().map(item).collect(),
    })
}

/// 0 units only ask.
pub(crate) fn hits(hits: &[(&str, &str, u64)]) -> Command {
    let hit = |&(user_id, resource, units): &(&str, &str, u64)| Hit {
        pair: pair(user_id, resource),
        amount: (units > 0).then(|| amount(units)),
    };
    Command::new(Operation::RateLimit {
        hits: hits.iter().map(hit).collect(),
    })
}

pub(crate) fn amount(units: u64) -> Amount {
    Amount::try_from(units).expect("an amount")
}

pub(crate) fn limit(units: u64) -> Limit {
    Limit::settable(units).expect("a limit")
}

pub(crate) fn under_key(command: Command, key: &str, caller: &str) -> Command {
    let key = IdempotencyKey::try_from(key).expect("a key");
    command.with_key(key, CallerId::new(caller))
}

/// A batch that is ready.
pub(crate) fn ready(submissions: Vec<Submission>) -> Batch {
    Batch::new(move || submissions.into())
}

#[track_caller]
pub(crate) fn quota_of(outcome: &Outcome) -> &Quota {
    if let Ok(Decided {
        answer: Answer::Quota(quota),
        ..
    }) = outcome
    {
        return quota;
    }
    panic!("not a quota: {outcome:?}");
}

#[track_caller]
pub(crate) fn usages_of(outcome: &Outcome) -> Vec<u64> {
    if let Ok(Decided {
        answer: Answer::Quotas(quotas),
        ..
    }) = outcome
    {
        return quotas.iter().map(|quota| quota.usage).collect();
    }
    panic!("not quotas: {outcome:?}");
}

/// The usage that a rate-limit call tells of each hit, and whether its pair had room, where something limits it.
#[track_caller]
pub(crate) fn limits_of(outcome: &Outcome) -> Vec<Option<(u64, bool)>> {
    let quotas = match outcome {
        Ok(Decided {
            answer: Answer::Limits(quotas),
            ..
        })
        | Err(Refusal::OverLimit(quotas)) => quotas,
        other => panic!("no limits: {other:?}"),
    };
    let told = |quota: &Quota| (quota.usage, quota.allowed);
    quotas
        .iter()
        .map(|quota| quota.as_ref().map(told))
        .collect()
}

#[track_caller]
pub(crate) fn assert_exhausted(outcome: &Outcome, usage: u64) {
    match outcome {
        Err(Refusal::Exhausted(quota)) => assert_eq!(quota.usage, usage),
        other => panic!("not exhausted: {other:?}"),
    }
}

impl<S: Store> Desk<S> {
    /// A desk on a store of its own.
    pub async fn at<D: Database<Store = S>>(database: &D) -> Self {
        Self {
            store: database.open().await,
        }
    }

    pub(crate) async fn submit(&self, submissions: Vec<Submission>) -> Vec<Verdict> {
        let verdicts = self.store.commit(ready(submissions)).await;
        verdicts.expect("the store answers")
    }

    /// Commits the commands as one batch.
    pub async fn commit(&self, commands: Vec<Command>) -> Vec<Outcome> {
        let submission = |command| Submission {
            command,
            credential: Credential::CommandLine,
        };
        let verdicts = self
            .submit(commands.into_iter().map(submission).collect())
            .await;
        let outcome = |verdict: Verdict| verdict.expect("the operator is never revoked");
        verdicts.into_iter().map(outcome).collect()
    }

    /// Commits one command.
    ///
    /// # Errors
    /// The refusal.
    pub async fn one(&self, command: Command) -> Outcome {
        let mut outcomes = self.commit(vec![command]).await;
        assert_eq!(outcomes.len(), 1, "one command, one outcome");
        outcomes.remove(0)
    }

    /// Commits one operation.
    ///
    /// # Errors
    /// The refusal.
    pub async fn operate(&self, operation: Operation) -> Outcome {
        self.one(Command::new(operation)).await
    }

    /// Sets the policy of a pair.
    pub async fn set(&self, pair: Pair, window: Window, units: u64) -> Quota {
        let outcome = self
            .operate(Operation::SetPolicy {
                pair,
                window,
                limit: limit(units),
                precondition: None,
            })
            .await;
        quota_of(&outcome).clone()
    }

    /// Sets the default of a resource.
    pub async fn set_default(&self, resource: &str, window: Window, units: u64) {
        let outcome = self
            .operate(Operation::SetDefault {
                resource: Resource::try_from(resource).expect("a resource"),
                window,
                limit: limit(units),
                precondition: None,
            })
            .await;
        assert!(outcome.is_ok(), "{outcome:?}");
    }

    pub(crate) async fn delete(&self, pair: Pair) -> Outcome {
        self.operate(Operation::DeletePolicy {
            pair,
            precondition: None,
        })
        .await
    }

    /// Consumes `units` of a pair.
    ///
    /// # Errors
    /// The refusal.
    pub async fn consume(&self, pair: Pair, units: u64) -> Outcome {
        self.one(consume(pair, units)).await
    }

    pub(crate) async fn refund(&self, pair: Pair, units: u64) -> Outcome {
        self.operate(Operation::Refund {
            pair,
            amount: amount(units),
        })
        .await
    }

    pub(crate) async fn reset(&self, pair: Pair) -> Outcome {
        self.operate(Operation::Reset { pair }).await
    }

    /// Checks a pair.
    pub async fn check(&self, pair: Pair) -> Option<Quota> {
        let quota = self.store.quota(Credential::CommandLine, pair).await;
        quota
            .expect("the store answers")
            .expect("the operator is never revoked")
    }

    /// The usage that a check shows.
    pub async fn usage(&self, pair: Pair) -> u64 {
        self.check(pair).await.expect("there is a quota").usage
    }

    /// All quotas of a user.
    pub async fn list(&self, user_id: &str) -> Vec<Quota> {
        let (quotas, next) = self.page(user_id, None, 1_000).await;
        assert_eq!(next, None, "one page holds them");
        quotas
    }

    pub(crate) async fn page(
        &self,
        user_id: &str,
        after: Option<Resource>,
        len_max: usize,
    ) -> (Vec<Quota>, Option<Resource>) {
        let user_id = UserId::try_from(user_id).expect("a user id");
        let page = Page { after, len_max };
        let listed = self
            .store
            .user_quotas(Credential::CommandLine, user_id, page)
            .await;
        let listed = listed
            .expect("the store answers")
            .expect("the operator is never revoked");
        assert!(listed.entries.len() <= len_max, "a page has a length");
        (listed.entries, listed.next)
    }
}

impl ManualClock {
    /// Sets the clock to a time of the day on which the cases begin.
    pub(crate) fn set_time(&self, hour: i64, minute: i64) {
        let midnight = Window::Daily.span_at(self.now()).start;
        self.set(midnight.plus_s(hour * 3_600 + minute * 60));
    }
}
