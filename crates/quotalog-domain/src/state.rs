//! The part of a store's content that a batch needs: loaded before the decision, written after it.

use std::collections::BTreeMap;

use crate::{Change, Command, KeptAnswer, Keyed, Pair, Policy, Resource, Source, Usage};

/// What a batch of commands reads and changes, in the order of the stores' indexes.
///
/// [`State::needed_by`] makes an empty slot for everything the commands can touch; the store fills the
/// slots, [`crate::decide_batch`] changes them, and the store writes what is marked as changed.
#[derive(Debug, Default)]
pub struct State {
    pairs: BTreeMap<Pair, PairState>,
    defaults: BTreeMap<Resource, Slot<Policy>>,
    kept: BTreeMap<Keyed, Slot<KeptAnswer>>,
    /// For the audit, each with the position of its command.
    changes: Vec<(usize, Change)>,
}

/// Policy and usage of one pair.
#[derive(Debug, Default)]
pub struct PairState {
    policy: Slot<Policy>,
    /// The usage rows of, at least, the day of the decision.
    pub usage: Usage,
}

/// What decides on one pair: its own part of the state, and the default that stands behind it.
pub(crate) struct PairView<'s> {
    pub(crate) own: &'s mut PairState,
    default: Option<Policy>,
}

#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    changed: bool,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self {
            value: None,
            changed: false,
        }
    }
}

impl<T: PartialEq> Slot<T> {
    fn load(&mut self, value: T) {
        self.value = Some(value);
    }

    fn set(&mut self, value: Option<T>) {
        if self.value != value {
            self.value = value;
            self.changed = true;
        }
    }
}

impl State {
    /// Empty slots for everything that `commands` can touch.
    pub fn needed_by<'a>(commands: impl IntoIterator<Item = &'a Command>) -> Self {
        let mut state = Self::default();
        for command in commands {
            for pair in command.operation.pairs() {
                if !state.pairs.contains_key(pair) {
                    state.pairs.insert(pair.clone(), PairState::default());
                }
            }
            for resource in command.operation.resources() {
                if !state.defaults.contains_key(resource) {
                    state.defaults.insert(resource.clone(), Slot::default());
                }
            }
            if let Some(keyed) = command.keyed() {
                state.kept.entry(keyed).or_default();
            }
        }
        state
    }

    /// The pairs to load, or, after the decision, to look through for changes.
    pub fn pairs_mut(&mut self) -> impl Iterator<Item = (&Pair, &mut PairState)> {
        self.pairs.iter_mut()
    }

    /// The pairs, after the decision.
    pub fn pairs(&self) -> impl Iterator<Item = (&Pair, &PairState)> {
        self.pairs.iter()
    }

    /// The resources whose default is to be loaded.
    pub fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.defaults.keys()
    }

    /// The keys whose kept answer is to be loaded.
    pub fn keys(&self) -> impl Iterator<Item = &Keyed> {
        self.kept.keys()
    }

    /// Fills the slot of a default.
    pub fn load_default(&mut self, resource: &Resource, policy: Policy) {
        if let Some(slot) = self.defaults.get_mut(resource) {
            slot.load(policy);
        }
    }

    /// Fills the slot of a kept answer.
    pub fn load_kept(&mut self, keyed: &Keyed, answer: KeptAnswer) {
        if let Some(slot) = self.kept.get_mut(keyed) {
            slot.load(answer);
        }
    }

    /// The defaults to write; `None` is to be deleted.
    pub fn changed_defaults(&self) -> impl Iterator<Item = (&Resource, Option<&Policy>)> {
        self.defaults
            .iter()
            .filter(|(_, slot)| slot.changed)
            .map(|(resource, slot)| (resource, slot.value.as_ref()))
    }

    /// The answers to keep.
    pub fn changed_kept(&self) -> impl Iterator<Item = (&Keyed, &KeptAnswer)> {
        self.kept
            .iter()
            .filter(|(_, slot)| slot.changed)
            .filter_map(|(keyed, slot)| Some((keyed, slot.value.as_ref()?)))
    }

    /// What the audit is to remember, in the order of the decision: each change with the position of its
    /// command in the batch.
    #[must_use]
    pub fn changes(&self) -> &[(usize, Change)] {
        &self.changes
    }

    /// The pair's part of the state: looked up once a command, since a batch holds hundreds of pairs.
    pub(crate) fn pair(&mut self, pair: &Pair) -> PairView<'_> {
        PairView {
            default: self
                .defaults
                .get(&pair.resource)
                .and_then(|slot| slot.value),
            own: self.pairs.entry(pair.clone()).or_default(),
        }
    }

    pub(crate) fn default_of(&self, resource: &Resource) -> Option<&Policy> {
        self.defaults.get(resource)?.value.as_ref()
    }

    pub(crate) fn set_default(&mut self, resource: &Resource, policy: Option<Policy>) {
        self.defaults
            .entry(resource.clone())
            .or_default()
            .set(policy);
    }

    pub(crate) fn kept_under(&self, keyed: &Keyed) -> Option<&KeptAnswer> {
        self.kept.get(keyed)?.value.as_ref()
    }

    pub(crate) fn note(&mut self, position: usize, change: Change) {
        self.changes.push((position, change));
    }

    pub(crate) fn keep(&mut self, keyed: Keyed, answer: KeptAnswer) {
        self.kept.entry(keyed).or_default().set(Some(answer));
    }
}

impl PairView<'_> {
    /// The policy in force, and where it comes from.
    pub(crate) fn policy_in_force(&self) -> Option<(Policy, Source)> {
        match (self.own.policy(), self.default) {
            (Some(policy), _) => Some((*policy, Source::Policy)),
            (None, Some(default)) => Some((default, Source::Default)),
            (None, None) => None,
        }
    }
}

impl PairState {
    /// Fills the slot of the pair's own policy.
    pub fn load_policy(&mut self, policy: Policy) {
        self.policy.load(policy);
    }

    /// The pair's own policy.
    #[must_use]
    pub fn policy(&self) -> Option<&Policy> {
        self.policy.value.as_ref()
    }

    /// Whether the pair's own policy must be written, or deleted if there is none now.
    #[must_use]
    pub fn policy_changed(&self) -> bool {
        self.policy.changed
    }

    pub(crate) fn set_policy(&mut self, policy: Option<Policy>) {
        self.policy.set(policy);
    }
}
