//! The bounded queue between the fronts and the writers, in lanes.
//!
//! A pair has always the same lane, and a lane is in one batch at a time: batches that are committed at the same time
//! seldom wait for each other, and requests for a pair are served in their order. What spans pairs or belongs to none
//! has a lane and a writer apart.
//!
//! A batch costs the store as much as some twenty pairs. So a writer takes several lanes together if they are short,
//! and begins a batch beside another only if there is enough for it, or the other is slow.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quotalog_domain::{Operation, Outcome, Pair};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::deadline::Deadline;
use crate::ledger::LedgerError;
use crate::store::Submission;

/// Where the answer to one request goes. The front has left if it is closed.
pub(crate) type Reply = oneshot::Sender<Result<Outcome, LedgerError>>;

/// A request that is not in a transaction yet.
pub(crate) struct Waiting {
    pub(crate) submission: Submission,
    pub(crate) reply: Reply,
    pub(crate) deadline: Deadline,
    /// Whether it must have a transaction to itself, since it may have failed others in one.
    pub(crate) alone: bool,
}

/// From so many requests on a batch is worth its cost beside another.
const WORTH_A_BATCH: usize = 64;

/// Requests in the order of their arrival, at most `len_max` of them in all lanes together.
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    /// Each wakes writers of its group: there is something for them, or nothing will come any more.
    changed: Vec<Notify>,
    len_max: usize,
    lanes: usize,
}

struct Inner {
    groups: Vec<Group>,
    closed: bool,
}

/// Lanes that share their writers.
struct Group {
    lanes: Vec<Lane>,
    /// Batches under way that are not slow.
    brisk: usize,
}

#[derive(Default)]
struct Lane {
    /// In the order of their arrival at the server.
    waiting: VecDeque<Waiting>,
    /// Whether requests of it are in a batch under way.
    busy: bool,
}

/// The group of what belongs to one pair, or of all where there is one lane.
const PAIRS: usize = 0;
/// The group of what spans pairs or belongs to none.
const OTHERS: usize = 1;

impl Queue {
    pub(crate) fn new(len_max: usize, lanes: usize) -> Self {
        let lanes = lanes.max(1);
        let sizes: &[usize] = if lanes == 1 { &[1] } else { &[lanes, 1] };
        let group = |&lanes: &usize| Group {
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            brisk: 0,
        };
        Self {
            inner: Mutex::new(Inner {
                groups: sizes.iter().map(group).collect(),
                closed: false,
            }),
            changed: sizes.iter().map(|_| Notify::new()).collect(),
            len_max,
            lanes,
        }
    }

    /// The group of each writer that is to serve the queue: there are as many as lanes.
    pub(crate) fn writers(&self) -> Vec<usize> {
        let mut groups = vec![PAIRS; self.lanes];
        if self.lanes > 1 {
            groups.push(OTHERS);
        }
        groups
    }

    /// Adds a request, or tells at once that there is no room for it.
    pub(crate) fn push(&self, waiting: Waiting) -> Result<(), LedgerError> {
        let (group, lane) = self.place_of(&waiting.submission.command.operation);
        let mut inner = self.lock();
        if inner.closed || inner.len() >= self.len_max {
            return Err(LedgerError::Unavailable);
        }
        let of_group = &mut inner.groups[group];
        of_group.lanes[lane].add(waiting);
        let is_enough = of_group.is_enough();
        drop(inner);
        if is_enough {
            self.changed[group].notify_one();
        }
        Ok(())
    }

    /// A batch has the lane of those without a pair whatever it holds, since its key may come again with other
    /// pairs.
    fn place_of(&self, operation: &Operation) -> (usize, usize) {
        if self.lanes == 1 {
            return (PAIRS, 0);
        }
        match operation {
            Operation::Consume { pair, .. }
            | Operation::Refund { pair, .. }
            | Operation::Reset { pair }
            | Operation::SetPolicy { pair, .. }
            | Operation::DeletePolicy { pair, .. } => (PAIRS, lane_of(pair, self.lanes)),
            // It comes without a key, so that one of a single pair has that pair's lane.
            Operation::RateLimit { hits } => match &**hits {
                [hit] => (PAIRS, lane_of(&hit.pair, self.lanes)),
                _ => (OTHERS, 0),
            },
            Operation::ConsumeBatch { .. }
            | Operation::SetDefault { .. }
            | Operation::DeleteDefault { .. } => (OTHERS, 0),
        }
    }

    /// How many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// The deadline of the oldest request that waits in a group, if there is one.
    pub(crate) fn oldest(&self, group: usize) -> Option<Deadline> {
        let inner = self.lock();
        let oldest = inner.groups[group].lanes.iter().filter_map(Lane::oldest);
        oldest.min()
    }

    /// Waits until there is enough for a batch, which is under way from then on until [`Queue::end`]; `false` once
    /// the queue is closed and the group is empty.
    pub(crate) async fn begin(&self, group: usize) -> bool {
        loop {
            let mut changed = pin!(self.changed[group].notified());
            changed.as_mut().enable();
            {
                let mut inner = self.lock();
                let closed = inner.closed;
                let group = &mut inner.groups[group];
                if group.is_enough() {
                    group.brisk += 1;
                    return true;
                }
                if closed && group.len() == 0 {
                    return false;
                }
            }
            changed.await;
        }
    }

    /// Takes up to `len_max` requests for a batch, those of a lane oldest first, and forgets those whose client has
    /// left. Tells the lanes that are busy with it. Those that have waited too long at `now` are answered instead.
    pub(crate) fn take(
        &self,
        group: usize,
        len_max: usize,
        now: Instant,
    ) -> (Vec<Waiting>, Vec<usize>) {
        let mut inner = self.lock();
        let of_group = &mut inner.groups[group];
        of_group.expire(now);
        let taken = of_group.take(len_max);
        let is_enough = of_group.is_enough();
        drop(inner);
        if is_enough {
            self.changed[group].notify_one();
        }
        taken
    }

    /// Has others not wait for a batch that is slow.
    pub(crate) fn is_slow(&self, group: usize) {
        self.lock().groups[group].brisk -= 1;
        self.changed[group].notify_one();
    }

    /// Ends a batch, and frees its lanes.
    pub(crate) fn end(&self, group: usize, was_brisk: bool, lanes: &[usize]) {
        let mut inner = self.lock();
        let closed = inner.closed;
        let of_group = &mut inner.groups[group];
        of_group.brisk -= usize::from(was_brisk);
        for lane in lanes {
            of_group.lanes[*lane].busy = false;
        }
        drop(inner);
        if closed {
            self.changed[group].notify_waiters();
        }
    }

    /// Puts requests that were taken back at their places in front.
    pub(crate) fn put_back(&self, requests: Vec<Waiting>) {
        let mut inner = self.lock();
        for waiting in requests.into_iter().rev() {
            let (group, lane) = self.place_of(&waiting.submission.command.operation);
            inner.groups[group].lanes[lane].put_back(waiting);
        }
    }

    /// Answers the requests of a group that have waited too long at `now`.
    pub(crate) fn expire(&self, group: usize, now: Instant) {
        self.lock().groups[group].expire(now);
    }

    /// Takes no more requests; those that wait are still served.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        for changed in &self.changed {
            changed.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code that can panic runs under this lock, so a poisoned one still holds a sound queue.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same on every node, so that a lane meets no more than one of each other node's. A process of another version
/// may spread otherwise, which costs some waits and nothing else.
fn lane_of(pair: &Pair, lanes: usize) -> usize {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let spread = hasher.hash_one(pair) % lanes as u64;
    usize::try_from(spread).expect("it is below the number of lanes")
}

impl Inner {
    fn len(&self) -> usize {
        self.groups.iter().map(Group::len).sum()
    }
}

impl Group {
    fn len(&self) -> usize {
        self.lanes.iter().map(|lane| lane.waiting.len()).sum()
    }

    /// Whether a batch should begin.
    fn is_enough(&self) -> bool {
        let free = self.lanes.iter().filter(|lane| !lane.busy);
        let waiting: usize = free.map(|lane| lane.waiting.len()).sum();
        waiting >= WORTH_A_BATCH || (waiting > 0 && self.brisk == 0)
    }

    fn expire(&mut self, now: Instant) {
        for lane in &mut self.lanes {
            let is_due = |oldest: &mut Waiting| now >= oldest.deadline.wait_until();
            while let Some(expired) = lane.waiting.pop_front_if(is_due) {
                // A failed send means that the client has left.
                let _left = expired.reply.send(Err(LedgerError::Unavailable));
            }
        }
    }

    fn take(&mut self, len_max: usize) -> (Vec<Waiting>, Vec<usize>) {
        let free = self.lanes.iter().enumerate().filter(|(_, lane)| !lane.busy);
        let mut by_age: Vec<(Deadline, usize)> = free
            .filter_map(|(place, lane)| Some((lane.oldest()?, place)))
            .collect();
        by_age.sort_unstable();
        let (mut taken, mut lanes) = (Vec::new(), Vec::new());
        for (_, place) in by_age {
            let lane = &mut self.lanes[place];
            lane.busy = true;
            lanes.push(place);
            lane.take(&mut taken, len_max);
            let is_alone = taken.first().is_some_and(|first: &Waiting| first.alone);
            if is_alone || taken.len() >= WORTH_A_BATCH.min(len_max) {
                break;
            }
        }
        (taken, lanes)
    }
}

impl Lane {
    fn oldest(&self) -> Option<Deadline> {
        self.waiting.front().map(|oldest| oldest.deadline)
    }

    /// Adds a request behind those that arrived no later. It may have waited elsewhere, so that this is not always the
    /// end.
    fn add(&mut self, waiting: Waiting) {
        let is_behind = |last: &Waiting| last.deadline <= waiting.deadline;
        if self.waiting.back().is_none_or(is_behind) {
            self.waiting.push_back(waiting);
        } else {
            let place = self.waiting.partition_point(is_behind);
            self.waiting.insert(place, waiting);
        }
    }

    /// Adds a request before those that arrived no earlier.
    fn put_back(&mut self, waiting: Waiting) {
        let is_before = |first: &Waiting| first.deadline < waiting.deadline;
        let place = self.waiting.partition_point(is_before);
        self.waiting.insert(place, waiting);
    }

    /// Adds its requests to those that are taken, up to `len_max` in all.
    fn take(&mut self, taken: &mut Vec<Waiting>, len_max: usize) {
        taken.reserve(self.waiting.len().min(len_max));
        while taken.len() < len_max {
            match self
                .waiting
                .pop_front_if(|next| taken.is_empty() || !next.alone)
            {
                Some(waiting) if waiting.reply.is_closed() => {}
                Some(waiting) => {
                    let is_alone = waiting.alone;
                    taken.push(waiting);
                    if is_alone {
                        break;
                    }
                }
                None => break,
            }
        }
    }
}
