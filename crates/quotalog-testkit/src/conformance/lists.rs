//! Lists: complete, in order, by page.

use std::sync::Arc;

use quotalog_auth::{Credential, Role};
use quotalog_domain::{Pair, Quota, Resource, Source, Timestamp, Window};
use quotalog_ledger::store::{
    Administer as _, AuditFilter, Page, QuotaFilter, Read as _, Store, UsageEntry, UsageRange,
};

use crate::ManualClock;
use crate::conformance::desk::{Desk, consume, pair};
use crate::conformance::{Database, START};

/// Upper case before lower case, ASCII before the rest: no collation of any language.
pub async fn quotas_are_listed_in_the_order_of_bytes(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    for resource in [
        "é",
        "a",
        "日本語",
        "Z",
        "aa",
        "0",
        "a b",
        "ab",
        "_",
        "\u{1f600}",
    ] {
        desk.set(pair("u", resource), Window::Daily, 1).await;
    }
    desk.set(pair("U", "other"), Window::Daily, 1).await;
    desk.set(pair("u ", "other"), Window::Daily, 1).await;
    let (quotas, next) = desk.page("u", None, 100).await;
    let resources: Vec<&str> = quotas
        .iter()
        .map(|quota| quota.pair.resource.as_str())
        .collect();
    let in_order = [
        "0",
        "Z",
        "_",
        "a",
        "a b",
        "aa",
        "ab",
        "é",
        "日本語",
        "\u{1f600}",
    ];
    assert_eq!(resources, in_order);
    assert_eq!(next, None);
    assert_eq!(desk.page("nobody", None, 100).await, (Vec::new(), None));
}

/// Policies and usage under a default alike, with pages of every length.
pub async fn a_walk_meets_every_quota_once_while_others_come(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    let existing: Vec<String> = (0..10).map(|number| format!("r{number}")).collect();
    for resource in &existing {
        if resource.ends_with(['1', '4', '9']) {
            desk.set_default(resource, Window::Daily, 5).await;
            assert!(desk.consume(pair("u", resource), 1).await.is_ok());
        } else {
            desk.set(pair("u", resource), Window::Daily, 5).await;
        }
    }
    for len_max in 1..=11 {
        let mut met: Vec<String> = Vec::new();
        let mut after: Option<Resource> = None;
        loop {
            let (quotas, next) = desk.page("u", after, len_max).await;
            met.extend(
                quotas
                    .iter()
                    .map(|quota| quota.pair.resource.as_str().to_owned()),
            );
            // One comes before what was read, one after it, and another user's on its place.
            desk.set(
                pair("u", &format!("a{len_max}{}", met.len())),
                Window::Daily,
                5,
            )
            .await;
            desk.set(
                pair("v", &format!("r{len_max}{}", met.len())),
                Window::Daily,
                5,
            )
            .await;
            match next {
                None => break,
                Some(next) => {
                    assert_eq!(met.last().map(String::as_str), Some(next.as_str()));
                    after = Some(next);
                }
            }
        }
        met.retain(|resource| resource.starts_with('r'));
        assert_eq!(met, existing, "pages of {len_max}");
    }
}

/// Where there is a default and the user was counted under it; not where either is missing.
pub async fn a_pair_counted_under_a_default_is_listed(
    database: impl Database,
    clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    desk.set_default("counted", Window::Hourly, 5).await;
    desk.set_default("never", Window::Hourly, 5).await;
    desk.set(pair("u", "deleted"), Window::Hourly, 5).await;
    desk.set(pair("u", "own"), Window::Hourly, 5).await;
    assert!(desk.consume(pair("u", "counted"), 2).await.is_ok());
    assert!(desk.consume(pair("u", "deleted"), 2).await.is_ok());
    assert!(desk.delete(pair("u", "deleted")).await.is_ok());
    desk.set_default("own", Window::Hourly, 7).await;
    assert!(desk.consume(pair("u", "own"), 1).await.is_ok());

    let listed = async || {
        let (quotas, _) = desk.page("u", None, 100).await;
        let line = |quota: &quotalog_domain::Quota| {
            let resource = quota.pair.resource.as_str().to_owned();
            (resource, quota.source, quota.usage)
        };
        quotas.iter().map(line).collect::<Vec<_>>()
    };
    let expect = |counted, own| {
        vec![
            ("counted".to_owned(), Source::Default, counted),
            ("own".to_owned(), Source::Policy, own),
        ]
    };
    assert_eq!(listed().await, expect(2, 1));
    // The next day nothing is counted yet, but the pair is known still.
    clock.advance_s(86_400);
    assert_eq!(listed().await, expect(0, 0));
}

impl<S: Store> Desk<S> {
    /// A page of all quotas.
    pub(crate) async fn quotas_page(
        &self,
        filter: &QuotaFilter,
        after: Option<Pair>,
        len_max: usize,
    ) -> (Vec<Quota>, Option<Pair>) {
        let page = Page { after, len_max };
        let asked = self
            .store
            .quotas(Credential::CommandLine, filter.clone(), page);
        let listed = asked.await.expect("the store answers");
        let listed = listed.expect("the operator is never revoked");
        assert!(listed.entries.len() <= len_max, "a page has a length");
        (listed.entries, listed.next)
    }

    /// All quotas that pass the filter, by pages.
    pub(crate) async fn quotas(&self, filter: &QuotaFilter, len_max: usize) -> Vec<Quota> {
        let mut met = Vec::new();
        let mut after: Option<Pair> = None;
        loop {
            let (quotas, next) = self.quotas_page(filter, after.clone(), len_max).await;
            met.extend(quotas);
            if next.is_none() {
                return met;
            }
            assert!(next > after, "a walk goes on");
            after = next;
        }
    }

    pub(super) async fn history(
        &self,
        pair: &Pair,
        range: UsageRange,
        after: Option<Timestamp>,
        len_max: usize,
    ) -> (Vec<(i64, u64)>, Option<Timestamp>) {
        let page = Page { after, len_max };
        let asked = self
            .store
            .usage_history(Credential::CommandLine, pair.clone(), range, page);
        let listed = asked.await.expect("the store answers");
        let listed = listed.expect("the operator is never revoked");
        // In hours from the midnight before the start.
        let hour = |at: Timestamp| (at.unix_s() - MIDNIGHT.unix_s()) / 3_600;
        let line = |entry: &UsageEntry| (hour(entry.window_start), entry.usage);
        (listed.entries.iter().map(line).collect(), listed.next)
    }
}

/// The start of the day on which the cases begin.
pub(super) const MIDNIGHT: Timestamp = START.plus_s(-18 * 3_600 - 20 * 60);

fn of_resource(resource: &str) -> QuotaFilter {
    QuotaFilter {
        resource: Some(Resource::try_from(resource).expect("a resource")),
        min_used_percent: None,
    }
}

fn used(percent: u8) -> QuotaFilter {
    QuotaFilter {
        resource: None,
        min_used_percent: Some(percent),
    }
}

fn ids(quotas: &[Quota]) -> Vec<(&str, &str)> {
    quotas
        .iter()
        .map(|quota| {
            let Pair { user_id, resource } = &quota.pair;
            (user_id.as_str(), resource.as_str())
        })
        .collect()
}

/// By the bytes of the user, then of the resource; what one user is called says nothing of another.
pub async fn all_quotas_are_listed_in_the_order_of_bytes(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    let everything = QuotaFilter::default();
    assert_eq!(desk.quotas(&everything, 10).await, []);
    let in_order = [
        ("A", "z"),
        ("a", "Z"),
        ("a", "a"),
        ("a", "\u{e9}"),
        ("a ", "a"),
        ("aa", "a"),
        ("b", "\u{1f600}"),
        ("\u{e9}", "a"),
        ("日本語", "a"),
    ];
    desk.set_default("a", Window::Daily, 5).await;
    for (user_id, resource) in in_order.iter().rev() {
        if *resource == "a" {
            assert!(desk.consume(pair(user_id, resource), 1).await.is_ok());
        } else {
            desk.set(pair(user_id, resource), Window::Daily, 5).await;
        }
    }
    assert_eq!(ids(&desk.quotas(&everything, 100).await), in_order);
}

/// Policies and usage under a default alike, with pages of every length.
pub async fn a_walk_meets_every_pair_once_while_others_come(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    desk.set_default("d", Window::Daily, 5).await;
    desk.set_default("unused", Window::Daily, 5).await;
    let mut existing = Vec::new();
    for user in ["u0", "u1", "u2", "u3"] {
        for resource in ["d", "p", "q"] {
            let pair = pair(user, resource);
            if resource == "d" {
                assert!(desk.consume(pair.clone(), 1).await.is_ok());
            } else {
                desk.set(pair.clone(), Window::Daily, 5).await;
            }
            existing.push(pair);
        }
    }
    // Both at once is one pair; usage that nothing serves is none.
    assert!(desk.consume(pair("u1", "p"), 1).await.is_ok());
    assert!(desk.consume(pair("u2", "q"), 1).await.is_ok());
    assert!(desk.delete(pair("u2", "q")).await.is_ok());
    existing.retain(|known| *known != pair("u2", "q"));

    for len_max in 1..=12 {
        let mut met: Vec<Pair> = Vec::new();
        let mut after = None;
        for round in 0.. {
            let (quotas, next) = desk
                .quotas_page(&QuotaFilter::default(), after, len_max)
                .await;
            met.extend(quotas.into_iter().map(|quota| quota.pair));
            // One comes before what was read, one after it, one among it; but not for ever.
            for user in ["a", "z", "u1x"].iter().filter(|_| round < 3) {
                let comes = pair(&format!("{user}{len_max}.{round}"), "d");
                assert!(desk.consume(comes, 1).await.is_ok());
            }
            if next.is_none() {
                break;
            }
            after = next;
        }
        met.retain(|pair| existing.contains(pair));
        assert_eq!(met, existing, "pages of {len_max}");
    }
}

/// Resources by their bytes, percentages without rounding.
pub async fn a_filter_of_all_quotas_is_exact(database: impl Database, clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    for (user_id, resource, units) in [
        ("u", "a_b", 2),
        ("u", "axb", 3),
        ("v", "a_b", 0),
        ("v", "A_B", 3),
        ("w", "100%", 3),
    ] {
        desk.set(pair(user_id, resource), Window::Hourly, 3).await;
        if units > 0 {
            assert!(desk.consume(pair(user_id, resource), units).await.is_ok());
        }
    }
    desk.set_default("100%", Window::Daily, 3).await;
    desk.set_default("100 percent", Window::Daily, 3).await;
    assert!(desk.consume(pair("a", "100%"), 1).await.is_ok());
    assert!(desk.consume(pair("a", "100 percent"), 1).await.is_ok());
    assert!(desk.consume(pair("x", "100%"), 2).await.is_ok());

    let listed = async |filter: QuotaFilter| {
        let in_one = desk.quotas(&filter, 100).await;
        assert_eq!(in_one, desk.quotas(&filter, 1).await, "{filter:?}");
        let ids = ids(&in_one);
        let lines = ids.iter().map(|(user_id, of)| format!("{user_id}/{of}"));
        lines.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(listed(of_resource("a_b")).await, "u/a_b v/a_b");
    assert_eq!(listed(of_resource("100%")).await, "a/100% w/100% x/100%");
    assert_eq!(listed(of_resource("unknown")).await, "");
    // 2 of 3 are 66.6…%.
    assert_eq!(listed(used(67)).await, "u/axb v/A_B w/100%");
    let with_two = "u/a_b u/axb v/A_B w/100% x/100%";
    assert_eq!(listed(used(66)).await, with_two);
    assert_eq!(listed(used(100)).await, "u/axb v/A_B w/100%");
    let both = QuotaFilter {
        min_used_percent: Some(34),
        ..of_resource("100%")
    };
    assert_eq!(listed(both).await, "w/100% x/100%");
    assert_eq!(listed(used(0)).await, listed(QuotaFilter::default()).await);
    // The hour ends, and with it what was used in it; a lowered limit is used to more than 100 %.
    clock.advance_s(3_600);
    desk.set_default("100%", Window::Daily, 1).await;
    assert_eq!(listed(used(100)).await, "a/100% x/100%");
}

/// However many pairs do not pass, a page is bounded work, and the walk misses none.
pub async fn a_page_on_which_little_passes_is_short_and_goes_on(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    const USERS: u32 = 6_000;
    let desk = Desk::at(&database).await;
    desk.set_default("wanted", Window::Daily, 9).await;
    desk.set_default("other", Window::Daily, 9).await;
    let users: Vec<u32> = (0..USERS).collect();
    for users in users.chunks(1_000) {
        let counted = users.iter().map(|user| {
            let resource = if user % 2_500 == 7 { "wanted" } else { "other" };
            let units = if user % 2_500 == 7 { 8 } else { 1 };
            consume(pair(&format!("u{user:05}"), resource), units)
        });
        let outcomes = desk.commit(counted.collect()).await;
        assert!(outcomes.iter().all(Result::is_ok));
    }
    let expected = [
        ("u00007", "wanted"),
        ("u02507", "wanted"),
        ("u05007", "wanted"),
    ];
    for filter in [used(80), of_resource("wanted")] {
        // A store that finds a resource's pairs at once has no others to look at.
        if filter.resource.is_none() {
            let (quotas, next) = desk.quotas_page(&filter, None, 1_000).await;
            assert!(quotas.len() < 3, "a page does not look at {USERS} pairs");
            assert!(next.is_some(), "and says that it did not");
        }
        assert_eq!(ids(&desk.quotas(&filter, 1_000).await), expected);
        assert_eq!(ids(&desk.quotas(&filter, 1).await), expected);
    }
}

/// By resource; each with its dates, also one by one.
pub async fn defaults_are_listed_by_page(database: impl Database, clock: Arc<ManualClock>) {
    let desk = Desk::at(&database).await;
    let resource = |text: &str| Resource::try_from(text).expect("a resource");
    for text in ["b", "a", "Z", "\u{e9}", "a b"] {
        desk.set_default(text, Window::Hourly, 5).await;
    }
    clock.advance_s(60);
    desk.set_default("a", Window::Daily, 7).await;
    let page = async |after: Option<&str>, len_max| {
        let page = Page {
            after: after.map(resource),
            len_max,
        };
        let listed = desk.store.defaults(Credential::CommandLine, page).await;
        let listed = listed.expect("the store answers");
        listed.expect("the operator is never revoked")
    };
    let all = page(None, 5).await;
    assert_eq!(all.next, None, "the last page is full");
    let resources: Vec<&str> = all
        .entries
        .iter()
        .map(|default| default.resource.as_str())
        .collect();
    assert_eq!(resources, ["Z", "a", "a b", "b", "\u{e9}"]);
    let first = page(None, 2).await;
    assert_eq!(first.next, Some(resource("a")));
    let second = page(Some("a"), 2).await;
    assert_eq!(second.next, Some(resource("b")));
    assert_eq!(page(Some("b"), 2).await.next, None);
    assert_eq!(page(Some("\u{e9}"), 2).await.entries, []);

    let policy = all.entries[1].policy;
    assert_eq!((policy.window, policy.limit.get()), (Window::Daily, 7));
    assert_eq!(policy.created_at, START);
    assert_eq!(policy.updated_at, START.plus_s(60));
    let one = async |text: &str| {
        let found = desk
            .store
            .default_policy(Credential::CommandLine, resource(text));
        let found = found.await.expect("the store answers");
        found.expect("the operator is never revoked")
    };
    assert_eq!(one("a").await.as_ref(), Some(&all.entries[1]));
    assert_eq!(one("A").await, None);
}

/// The stored rows, whatever serves the pair now; from inclusive, to exclusive.
pub async fn the_usage_of_a_pair_is_listed_newest_first(
    database: impl Database,
    clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    let own = pair("u", "r");
    desk.set(own.clone(), Window::Hourly, 9).await;
    desk.set(pair("u", "s"), Window::Hourly, 9).await;
    for (hour, units) in [(10, 1), (11, 2), (12, 3), (35, 4)] {
        clock.set(MIDNIGHT.plus_s(hour * 3_600 + 60));
        assert!(desk.consume(own.clone(), units).await.is_ok());
        assert!(desk.consume(pair("u", "s"), 9).await.is_ok());
    }
    desk.set(own.clone(), Window::Daily, 9).await;
    assert!(desk.consume(own.clone(), 5).await.is_ok());
    assert!(desk.refund(own.clone(), 4).await.is_ok());
    assert!(desk.delete(own.clone()).await.is_ok());

    let everything = [(35, 0), (24, 5), (12, 3), (11, 2), (10, 1)];
    let all = UsageRange::default();
    assert_eq!(
        desk.history(&own, all, None, 5).await,
        (everything.to_vec(), None)
    );
    for len_max in 1..=6 {
        let (mut met, mut after) = (Vec::new(), None);
        loop {
            let (rows, next) = desk.history(&own, all, after, len_max).await;
            met.extend(rows);
            if next.is_none() {
                break;
            }
            after = next;
        }
        assert_eq!(met, everything, "pages of {len_max}");
    }
    let hour = |hour: i64| Some(MIDNIGHT.plus_s(hour * 3_600));
    let second_after = |hour: i64| Some(MIDNIGHT.plus_s(hour * 3_600 + 1));
    let us_after = |hour: i64| {
        let instant = MIDNIGHT.plus_s(hour * 3_600);
        Some(Timestamp::from_unix_us(instant.unix_us() + 1))
    };
    for (from, to, expected) in [
        (hour(11), hour(24), &everything[2..4]),
        (hour(11), second_after(24), &everything[1..4]),
        (hour(11), us_after(24), &everything[1..4]),
        (second_after(11), hour(24), &everything[2..3]),
        (us_after(11), hour(24), &everything[2..3]),
        (hour(24), None, &everything[..2]),
        (None, hour(11), &everything[4..]),
        (hour(12), hour(11), &[]),
        (Some(Timestamp::MIN), Some(Timestamp::MAX), &everything),
    ] {
        let range = UsageRange { from, to };
        let (rows, next) = desk.history(&own, range, None, 5).await;
        assert_eq!((&*rows, next), (expected, None), "{range:?}");
        let (rest, _) = desk.history(&own, range, hour(12), 5).await;
        let older = expected.iter().filter(|(hour, _)| *hour < 12);
        assert!(rest.iter().eq(older), "{range:?}: {rest:?}");
    }
    assert_eq!(
        desk.history(&pair("u", "unknown"), all, None, 5).await,
        (Vec::new(), None)
    );
}

/// Not one of them, whatever it asks for.
pub async fn a_revoked_caller_reads_no_list(database: impl Database, _clock: Arc<ManualClock>) {
    fn page<Key>() -> Page<Key> {
        Page {
            after: None,
            len_max: 1,
        }
    }
    let desk = Desk::at(&database).await;
    let (token, record) = desk.token(Role::Admin, None).await;
    let by = desk.credential(&token).await;
    let store = &desk.store;
    for accepted in [true, false] {
        let filter = QuotaFilter::default;
        let quotas = store.quotas(by.clone(), filter(), page()).await;
        assert_eq!(quotas.expect("an answer").is_ok(), accepted);
        let fullest = store.fullest(by.clone(), filter(), 1).await;
        assert_eq!(fullest.expect("an answer").is_ok(), accepted);
        let range = UsageRange::default();
        let history = store.usage_history(by.clone(), pair("u", "r"), range, page());
        assert_eq!(history.await.expect("an answer").is_ok(), accepted);
        let defaults = store.defaults(by.clone(), page()).await;
        assert_eq!(defaults.expect("an answer").is_ok(), accepted);
        let default = store.default_policy(by.clone(), pair("u", "r").resource);
        assert_eq!(default.await.expect("an answer").is_ok(), accepted);
        let audit = store
            .audit(by.clone(), AuditFilter::default(), page())
            .await;
        assert_eq!(audit.expect("an answer").is_ok(), accepted);
        if accepted {
            let revoking = store.revoke_token(Credential::CommandLine, record.id.clone());
            assert_eq!(revoking.await.expect("an answer"), Ok(true));
        }
    }
}

/// A cursor names a place, not an entry: what was there may be gone, and the rest comes once all the same.
pub async fn a_walk_goes_on_where_its_last_entry_was(
    database: impl Database,
    _clock: Arc<ManualClock>,
) {
    let desk = Desk::at(&database).await;
    let resources = ["a", "b", "c", "d", "e", "f"];
    for resource in resources {
        desk.set(pair("u", resource), Window::Daily, 5).await;
    }
    let (mut of_user, mut after) = (Vec::new(), None);
    let (mut of_all, mut after_pair) = (Vec::new(), None);
    loop {
        let (quotas, next) = desk.page("u", after, 1).await;
        let all = QuotaFilter::default();
        let (all, next_pair) = desk.quotas_page(&all, after_pair, 1).await;
        let last = all[0].pair.clone();
        of_user.extend(quotas.into_iter().map(|quota| quota.pair));
        of_all.extend(all.into_iter().map(|quota| quota.pair));
        assert!(desk.delete(last).await.is_ok());
        (after, after_pair) = (next, next_pair);
        if after.is_none() {
            break;
        }
    }
    assert_eq!(after_pair, None);
    assert_eq!(of_user, resources.map(|resource| pair("u", resource)));
    assert_eq!(of_all, of_user);
}
