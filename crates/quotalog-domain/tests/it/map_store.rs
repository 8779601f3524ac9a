//! A store of plain maps. It loads, lets the domain decide and writes what is marked as changed, as a
//! real store does, and it distrusts every mark.

use std::collections::BTreeMap;

use quotalog_domain::{
    Change, Command, KeptAnswer, Keyed, Outcome, Pair, Policy, Quota, Resource, Source, State,
    Timestamp, Usage, Window, decide_batch,
};

/// Everything that is stored.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct MapStore {
    pub(crate) policies: BTreeMap<Pair, Policy>,
    pub(crate) defaults: BTreeMap<Resource, Policy>,
    pub(crate) rows: BTreeMap<(Pair, Timestamp), u64>,
    pub(crate) kept: BTreeMap<Keyed, KeptAnswer>,
    /// What the audit remembers, oldest first.
    pub(crate) changes: Vec<Change>,
}

impl MapStore {
    /// Decides one batch at `now` and writes it.
    pub(crate) fn commit(&mut self, commands: &[Command], now: Timestamp) -> Vec<Outcome> {
        let mut state = self.load(commands, now);
        let outcomes = decide_batch(&mut state, commands, now);
        let before = self.clone();
        let marks = self.write(&state, now);
        if let [outcome] = &*outcomes {
            assert_eq!(marks > 0, *self != before, "marked without need: {state:?}");
            if outcome.as_ref().map_or(true, |decided| decided.replayed) {
                assert_eq!(*self, before, "changed by {outcome:?}");
                assert_eq!(state.changes(), [], "remembered of {outcome:?}");
            }
        }
        let positions = state.changes().iter().map(|(position, _)| *position);
        assert!(
            positions.clone().is_sorted_by(|a, b| a < b),
            "one a command"
        );
        assert!(positions.max() < Some(commands.len()), "of a command");
        let changes = state.changes().iter().map(|(_, change)| change.clone());
        self.changes.extend(changes);
        outcomes
    }

    /// Decides one command at `now` and writes it.
    pub(crate) fn commit_one(&mut self, command: Command, now: Timestamp) -> Outcome {
        self.commit(&[command], now).remove(0)
    }

    /// A pair's quota, read as a check reads it.
    pub(crate) fn quota(&self, pair: &Pair, now: Timestamp) -> Option<Quota> {
        let (policy, source) = match self.policies.get(pair) {
            Some(policy) => (policy, Source::Policy),
            None => (self.defaults.get(&pair.resource)?, Source::Default),
        };
        let mut usage = Usage::default();
        for (start, units) in self.rows_of_day(pair, now) {
            usage.load(start, units);
        }
        Some(Quota::check(pair.clone(), *policy, source, &usage, now))
    }

    /// No more than the state promises to need: the rows of the day of the decision.
    fn rows_of_day(
        &self,
        pair: &Pair,
        now: Timestamp,
    ) -> impl Iterator<Item = (Timestamp, u64)> + use<> {
        let day = Window::Daily.span_at(now);
        let rows: Vec<_> = self
            .rows
            .range((pair.clone(), day.start)..(pair.clone(), day.reset_at))
            .map(|((_, start), units)| (*start, *units))
            .collect();
        rows.into_iter()
    }

    fn load(&self, commands: &[Command], now: Timestamp) -> State {
        let mut state = State::needed_by(commands);
        for (pair, slot) in state.pairs_mut() {
            if let Some(policy) = self.policies.get(pair) {
                slot.load_policy(*policy);
            }
            for (start, units) in self.rows_of_day(pair, now) {
                slot.usage.load(start, units);
            }
        }
        let resources: Vec<Resource> = state.resources().cloned().collect();
        for resource in resources {
            if let Some(policy) = self.defaults.get(&resource) {
                state.load_default(&resource, *policy);
            }
        }
        let keys: Vec<Keyed> = state.keys().cloned().collect();
        for keyed in keys {
            if let Some(answer) = self.kept.get(&keyed) {
                state.load_kept(&keyed, answer.clone());
            }
        }
        state
    }

    /// Writes what is marked, and tells how many marks there were. What is not marked must be as it was.
    fn write(&mut self, state: &State, now: Timestamp) -> usize {
        let day = Window::Daily.span_at(now);
        let mut marks = 0;
        for (pair, slot) in state.pairs() {
            if slot.policy_changed() {
                marks += 1;
                match slot.policy() {
                    Some(policy) => self.policies.insert(pair.clone(), *policy),
                    None => self.policies.remove(pair),
                };
            }
            assert_eq!(slot.policy(), self.policies.get(pair), "changed unmarked");
            for row in slot.usage.rows() {
                assert!(day.contains(row.window_start), "not of this day: {row:?}");
                let at = (pair.clone(), row.window_start);
                if row.changed {
                    marks += 1;
                    self.rows.insert(at.clone(), row.usage);
                }
                assert_eq!(Some(&row.usage), self.rows.get(&at), "changed unmarked");
            }
        }
        for (resource, policy) in state.changed_defaults() {
            marks += 1;
            match policy {
                Some(policy) => self.defaults.insert(resource.clone(), *policy),
                None => self.defaults.remove(resource),
            };
        }
        for (keyed, answer) in state.changed_kept() {
            marks += 1;
            let earlier = self.kept.insert(keyed.clone(), answer.clone());
            assert_eq!(earlier, None, "a kept answer is never replaced");
        }
        marks
    }
}
