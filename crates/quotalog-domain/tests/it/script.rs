//! Histories as text: each line says when, what, and what comes of it.
//!
//! ```text
//! 10:55:30  u/r set hourly 1      -> 0 of 1 hourly, 1 remaining
//! 10:55:31  u/r consume           -> 1 of 1 hourly, 0 remaining, not allowed
//! ```
//!
//! The day is 2026-11-30; `24:00` is the midnight after it. Lines without `->` are only carried out.

use quotalog_domain::{
    Amount, Answer, CallerId, Change, Command, Hit, IdempotencyKey, Item, Limit, Operation,
    Outcome, Pair, Policy, Precondition, Quota, Refusal, Resource, Source, Timestamp, UserId,
    Window,
};

use crate::map_store::MapStore;

/// 2026-11-30T00:00:00Z.
pub(crate) const DAY_S: i64 = 1_795_996_800;

/// Runs a history on an empty store, and compares each outcome with the one that its line names.
#[track_caller]
pub(crate) fn check(script: &str) {
    let mut store = MapStore::default();
    for line in script.lines().map(str::trim) {
        if line.is_empty() || line.starts_with("//") {
            continue;
        }
        let (request, expected) = match line.split_once("->") {
            Some((request, expected)) => (request, Some(expected.trim())),
            None => (line, None),
        };
        let words: Vec<&str> = request.split_whitespace().collect();
        let (time, words) = words.split_first().expect("a line starts with its time");
        let outcome = run(&mut store, words, instant(time));
        if let Some(expected) = expected {
            assert_eq!(outcome, expected, "\nin the line: {line}");
        }
    }
}

/// `10:30`, `10:30:59` or `10:30:59.400`.
fn instant(text: &str) -> Timestamp {
    let mut parts = text.split(':');
    let mut next = || parts.next().unwrap_or("0");
    let (hour, minute, second) = (next(), next(), next());
    let (second, millis) = second.split_once('.').unwrap_or((second, "0"));
    let number = |text: &str| text.parse::<i64>().expect("a number in a time");
    let of_day_s = number(hour) * 3_600 + number(minute) * 60 + number(second);
    Timestamp::from_unix_us((DAY_S + of_day_s) * 1_000_000 + number(millis) * 1_000)
}

fn run(store: &mut MapStore, words: &[&str], now: Timestamp) -> String {
    match words {
        // What is stored without a decision: by an earlier version, or by another program.
        [on, "stored", window, limit] => {
            let date = now.floor_to_s();
            let policy = Policy {
                window: Window::try_from(*window).expect("a window"),
                limit: Limit::stored(limit.parse().expect("a limit")).expect("a limit"),
                created_at: date,
                updated_at: date,
            };
            store.policies.insert(pair(on), policy);
            String::new()
        }
        [on, "row", start, units] => {
            let at = (pair(on), instant(start));
            store.rows.insert(at, units.parse().expect("units"));
            String::new()
        }
        [on, "get"] => store
            .quota(&pair(on), now)
            .map_or("not found".into(), |quota| show(&quota)),
        // What the audit remembers since this was last asked.
        ["audit"] => {
            let changes = std::mem::take(&mut store.changes);
            changes
                .iter()
                .map(show_change)
                .collect::<Vec<_>>()
                .join("; ")
        }
        [on, "rows"] => rows(store, &pair(on)),
        [on, "dates"] => {
            let policy = &store.policies[&pair(on)];
            format!(
                "created {}, updated {}",
                time_of_day(policy.created_at),
                time_of_day(policy.updated_at)
            )
        }
        _ => {
            let command = command(store, words);
            show_outcome(&store.commit_one(command, now))
        }
    }
}

/// `u/r consume 3 key=a`, `consume u/r 3 v/r 2 key=a by=gateway`, `hit u/r 3 v/r 0`, `default r set daily 5`, …
fn command(store: &MapStore, words: &[&str]) -> Command {
    let option = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
    let plain: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| !word.contains('='))
        .collect();
    let precondition = |on: &str| {
        option("if-match=").map(|tag| match tag {
            "*" => Precondition::AnyPolicy,
            "present" => {
                let revision = store.policies[&pair(on)].revision();
                Precondition::OneOf(vec!["other".into(), revision.as_str().into()])
            }
            other => Precondition::OneOf(vec![other.into()]),
        })
    };
    let operation = match &*plain {
        ["consume", items @ ..] => Operation::ConsumeBatch {
            items: items
                .chunks(2)
                .map(|item| Item {
                    pair: pair(item[0]),
                    amount: amount(item[1]),
                })
                .collect(),
        },
        ["hit", hits @ ..] => Operation::RateLimit {
            hits: hits.chunks(2).map(hit).collect(),
        },
        ["default", on, "set", window, limit] => Operation::SetDefault {
            resource: resource(on),
            window: Window::try_from(*window).expect("a window"),
            limit: settable(limit),
            precondition: None,
        },
        ["default", on, "delete"] => Operation::DeleteDefault {
            resource: resource(on),
            precondition: None,
        },
        [on, "consume", rest @ ..] => Operation::Consume {
            pair: pair(on),
            amount: rest.first().map_or(Amount::ONE, |units| amount(units)),
        },
        [on, "refund", units] => Operation::Refund {
            pair: pair(on),
            amount: amount(units),
        },
        [on, "reset"] => Operation::Reset { pair: pair(on) },
        [on, "set", window, limit] => Operation::SetPolicy {
            pair: pair(on),
            window: Window::try_from(*window).expect("a window"),
            limit: settable(limit),
            precondition: precondition(on),
        },
        [on, "delete"] => Operation::DeletePolicy {
            pair: pair(on),
            precondition: precondition(on),
        },
        unknown => panic!("no such command: {unknown:?}"),
    };
    let command = Command::new(operation);
    match option("key=") {
        Some(key) => command.with_key(
            IdempotencyKey::try_from(key).expect("a key"),
            CallerId::new(option("by=").unwrap_or("someone")),
        ),
        None => command,
    }
}

fn hit(words: &[&str]) -> Hit {
    Hit {
        pair: pair(words[0]),
        amount: (words[1] != "0").then(|| amount(words[1])),
    }
}

fn pair(text: &str) -> Pair {
    let (user_id, of) = text.split_once('/').expect("user/resource");
    Pair {
        user_id: UserId::try_from(user_id).expect("a user"),
        resource: resource(of),
    }
}

fn resource(text: &str) -> Resource {
    Resource::try_from(text).expect("a resource")
}

fn amount(text: &str) -> Amount {
    Amount::try_from(text.parse::<u64>().expect("a number")).expect("an amount")
}

fn settable(text: &str) -> Limit {
    Limit::settable(text.parse().expect("a number")).expect("a limit")
}

fn show_outcome(outcome: &Outcome) -> String {
    match outcome {
        Ok(decided) => {
            let answer = match &decided.answer {
                Answer::Quota(quota) => show(quota),
                Answer::Quotas(quotas) => quotas.iter().map(show).collect::<Vec<_>>().join("; "),
                Answer::Limits(quotas) => show_limits(quotas),
                Answer::Default(default) => format!(
                    "{} {}",
                    default.policy.window.as_str(),
                    default.policy.limit.get()
                ),
                Answer::Deleted => "deleted".into(),
            };
            let replayed = if decided.replayed { "replayed: " } else { "" };
            format!("{replayed}{answer}")
        }
        Err(refusal) => show_refusal(refusal),
    }
}

fn show_refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::KeyReused => "key reused".into(),
        Refusal::NotFound => "not found".into(),
        Refusal::BatchNotFound(items) => {
            let items = items.iter().map(|item| {
                let (user_id, resource) = (item.pair.user_id.as_str(), item.pair.resource.as_str());
                format!("{user_id}/{resource} of items[{}]", item.position)
            });
            format!("not found: {}", items.collect::<Vec<_>>().join(", "))
        }
        Refusal::PreconditionFailed => "precondition failed".into(),
        Refusal::AmountExceedsLimit(items) => format!("exceeds limit: items {items:?}"),
        Refusal::Exhausted(quota) => {
            assert!(!quota.allowed, "what is denied is not allowed: {quota:?}");
            format!(
                "denied: {} of {}, {} remaining, resets in {} s",
                quota.usage,
                quota.limit().get(),
                quota.remaining(),
                quota.reset_in_s()
            )
        }
        Refusal::BatchExhausted(items) => {
            let items = items.iter().map(|item| {
                let fits = if item.quota.allowed { "fits" } else { "not" };
                let (amount, usage) = (item.amount.get(), item.quota.usage);
                format!("{amount} {fits} at {usage} of {}", item.quota.limit().get())
            });
            format!("denied: {}", items.collect::<Vec<_>>().join("; "))
        }
        Refusal::OverLimit(quotas) => format!("over limit: {}", show_limits(quotas)),
    }
}

fn show_limits(quotas: &[Option<Quota>]) -> String {
    let shown = quotas
        .iter()
        .map(|quota| quota.as_ref().map_or("no limit".into(), show));
    shown.collect::<Vec<_>>().join("; ")
}

fn show(quota: &Quota) -> String {
    let mut text = format!(
        "{} of {} {}, {} remaining",
        quota.usage,
        quota.limit().get(),
        quota.window().as_str(),
        quota.remaining()
    );
    if !quota.allowed {
        text.push_str(", not allowed");
    }
    if quota.source == Source::Default {
        text.push_str(", by default");
    }
    text
}

fn show_change(change: &Change) -> String {
    let of_pair = |pair: &Pair| format!("{}/{}", pair.user_id.as_str(), pair.resource.as_str());
    let policy = |policy: &Option<Policy>| {
        policy.map_or("none".into(), |policy| {
            format!("{} {}", policy.window.as_str(), policy.limit.get())
        })
    };
    let usages = |before: &Quota, after: &Quota| {
        assert_eq!(before.span(), after.span(), "one window");
        let window_start = time_of_day(after.span().start);
        format!("{} to {} of {window_start}", before.usage, after.usage)
    };
    match change {
        Change::Policy {
            pair,
            before,
            after,
        } => format!("{} {} to {}", of_pair(pair), policy(before), policy(after)),
        Change::Default {
            resource,
            before,
            after,
        } => {
            let resource = resource.as_str();
            format!("default {resource} {} to {}", policy(before), policy(after))
        }
        Change::Reset { before, after } => {
            format!("{} reset {}", of_pair(&after.pair), usages(before, after))
        }
        Change::Refund { before, after } => {
            format!("{} refund {}", of_pair(&after.pair), usages(before, after))
        }
    }
}

fn rows(store: &MapStore, pair: &Pair) -> String {
    let rows = store.rows.iter().filter(|((of, _), _)| of == pair);
    rows.map(|((_, start), units)| format!("{}={units}", time_of_day(*start)))
        .collect::<Vec<_>>()
        .join(" ")
}

fn time_of_day(instant: Timestamp) -> String {
    let minutes = (instant.unix_s() - DAY_S).div_euclid(60);
    format!(
        "{:02}:{:02}",
        minutes.div_euclid(60),
        minutes.rem_euclid(60)
    )
}
