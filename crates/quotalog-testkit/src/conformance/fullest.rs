//! The fullest quotas: who is near the limit.

use std::sync::Arc;

use quotalog_auth::Credential;
use quotalog_domain::{Command, Operation, Quota, Resource, Window};
use quotalog_ledger::store::{QuotaFilter, Store};

use crate::ManualClock;
use crate::conformance::Database;
use crate::conformance::desk::{Desk, amount, consume, limit, pair};

impl<S: Store> Desk<S> {
    async fn fullest(&self, filter: &QuotaFilter, len_max: usize) -> Vec<Quota> {
        let asked = self
            .store
            .fullest(Credential::CommandLine, filter.clone(), len_max);
        let quotas = asked.await.expect("the store answers");
        quotas.expect("the operator is never revoked")
    }

    /// The fullest, each as `user/resource usage of limit`.
    async fn fullest_lines(&self, filter: &QuotaFilter, len_max: usize) -> Vec<String> {
        let line = |quota: &Quota| {
            let (user_id, resource) = (&quota.pair.user_id, &quota.pair.resource);
            let (user_id, resource) = (user_id.as_str(), resource.as_str());
            format!(
                "{user_id}/{resource} {} of {}",
                quota.usage,
                quota.limit().get()
            )
        };
        let quotas = self.fullest(filter, len_max).await;
        quotas.iter().map(line).collect()
    }
}

/// By the part of the limit that is used, then by pair; unused pairs fill up.
pub async fn the_fullest_come_first(database: impl Database, clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    let everything = QuotaFilter::default();
    assert_eq!(desk.fullest(&everything, 10).await, []);
    clock.set_time(17, 30);
    desk.set(pair("past", "r"), Window::Hourly, 5).await;
    assert!(desk.consume(pair("past", "r"), 5).await.is_ok());
    clock.set_time(18, 20);
    desk.set_default("d", Window::Daily, 1_000).await;
    for (user_id, units, of, window) in [
        ("b", 2, 3, Window::Hourly),
        ("a", 666, 1_000, Window::Daily),
        ("c", 4, 6, Window::Daily),
        ("z", 0, 1, Window::Daily),
        ("y", 0, 1_000_000, Window::Hourly),
        ("x", 7, 7, Window::Hourly),
    ] {
        desk.set(pair(user_id, "r"), window, of).await;
        if units > 0 {
            assert!(desk.consume(pair(user_id, "r"), units).await.is_ok());
        }
    }
    assert!(desk.consume(pair("a", "d"), 999).await.is_ok());
    // More is used than a lowered limit allows.
    desk.set(pair("low", "r"), Window::Daily, 10).await;
    assert!(desk.consume(pair("low", "r"), 10).await.is_ok());
    desk.set(pair("low", "r"), Window::Daily, 5).await;
    // Usage that nothing serves is nobody's.
    desk.set(pair("gone", "r"), Window::Daily, 1).await;
    assert!(desk.consume(pair("gone", "r"), 1).await.is_ok());
    assert!(desk.delete(pair("gone", "r")).await.is_ok());

    let in_order = [
        "low/r 10 of 5",
        "x/r 7 of 7",
        "a/d 999 of 1000",
        "b/r 2 of 3",
        "c/r 4 of 6",
        "a/r 666 of 1000",
        "past/r 0 of 5",
        "y/r 0 of 1000000",
        "z/r 0 of 1",
    ];
    for len_max in 1..=10 {
        let expected = &in_order[..len_max.min(in_order.len())];
        assert_eq!(desk.fullest_lines(&everything, len_max).await, expected);
    }
    let of_r = QuotaFilter {
        resource: Some(Resource::try_from("r").expect("a resource")),
        min_used_percent: None,
    };
    let expected = [&in_order[..2], &in_order[3..7]].concat();
    assert_eq!(desk.fullest_lines(&of_r, 6).await, expected);
    let used = |percent| QuotaFilter {
        resource: None,
        min_used_percent: Some(percent),
    };
    assert_eq!(desk.fullest_lines(&used(66), 9).await, in_order[..6]);
    assert_eq!(desk.fullest_lines(&used(67), 9).await, in_order[..3]);
    assert_eq!(desk.fullest_lines(&used(0), 9).await, in_order);
    assert_eq!(desk.fullest_lines(&used(100), 1).await, in_order[..1]);
}

/// Rows of several hours and of the day, whichever policy counted in them.
pub async fn a_pair_of_several_rows_counts_once(database: impl Database, clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    for user_id in ["daily", "hourly"] {
        desk.set(pair(user_id, "r"), Window::Hourly, 100).await;
    }
    for hour in [3, 9, 17, 18] {
        clock.set_time(hour, 5);
        for user_id in ["daily", "hourly"] {
            assert!(desk.consume(pair(user_id, "r"), 10).await.is_ok());
        }
    }
    desk.set(pair("daily", "r"), Window::Daily, 100).await;
    desk.set(pair("between", "r"), Window::Daily, 100).await;
    assert!(desk.consume(pair("between", "r"), 25).await.is_ok());
    let lines = async || desk.fullest_lines(&QuotaFilter::default(), 9).await;
    let others = ["between/r 25 of 100", "hourly/r 10 of 100"];
    assert_eq!(
        lines().await,
        [&["daily/r 40 of 100"][..], &others].concat()
    );
    assert!(desk.consume(pair("daily", "r"), 5).await.is_ok());
    assert_eq!(
        lines().await,
        [&["daily/r 45 of 100"][..], &others].concat()
    );
    let two = desk.fullest_lines(&QuotaFilter::default(), 2).await;
    assert_eq!(two, ["daily/r 45 of 100", "between/r 25 of 100"]);
}

/// After a day of everything: the same quotas as the list of all shows, sorted.
pub async fn the_fullest_are_those_of_the_list(database: impl Database, clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    let mut random = Random(1);
    for resource in ["d", "e"] {
        desk.set_default(resource, Window::Daily, 40).await;
    }
    for hour in [1, 2, 11, 18] {
        clock.set_time(hour, 10);
        let commands = (0..1_500).map(|_| {
            let user_id = format!("u{}", random.below(400));
            let resource = ["d", "e", "f", "g"][random.index(4)];
            let pair = pair(&user_id, resource);
            Command::new(match random.below(12) {
                0..=3 => Operation::SetPolicy {
                    pair,
                    window: [Window::Hourly, Window::Daily][random.index(2)],
                    limit: limit(1 + random.below(60)),
                    precondition: None,
                },
                4 => Operation::DeletePolicy {
                    pair,
                    precondition: None,
                },
                5 => Operation::Reset { pair },
                6 => Operation::Refund {
                    pair,
                    amount: amount(1 + random.below(9)),
                },
                _ => return consume(pair, 1 + random.below(20)),
            })
        });
        desk.commit(commands.collect()).await;
    }
    let of_d = Resource::try_from("d").expect("a resource");
    for (resource, min_used_percent) in [
        (None, None),
        (None, Some(50)),
        (Some(of_d.clone()), None),
        (Some(of_d), Some(1)),
    ] {
        let filter = QuotaFilter {
            resource,
            min_used_percent,
        };
        let mut expected = desk.quotas(&filter, 1_000).await;
        assert!(expected.len() > 50, "{filter:?} leaves enough");
        // The list is in the order of the pairs, and this sorting leaves equal ones in theirs.
        expected.sort_by(|one, other| other.cmp_used_part(one));
        for len_max in [1, 10, 100, 1_000] {
            let fullest = desk.fullest(&filter, len_max).await;
            let len = expected.len().min(len_max);
            assert_eq!(fullest, expected[..len], "{filter:?}, {len_max}");
        }
    }
}

/// A sequence that looks random and is the same in every run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn index(&mut self, len: u8) -> usize {
        usize::try_from(self.below(len.into())).expect("a small number")
    }
}
